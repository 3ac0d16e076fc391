//! A transcript, read from where it was left: whole lines only, as another program may be writing it.

use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use waystone_core::canon::Hash;
use waystone_core::store::TranscriptEnd;
use waystone_core::transcript::{Turn, read_line};

/// So much before the end of what was read is remembered, to know it again.
const TAIL_BYTES: u64 = 1024;
/// A longer line is not something that was said.
const LINE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// How much is captured at once.
const PART_TURNS: usize = 500;
const PART_BYTES: u64 = 1024 * 1024;
/// The last answer of an agent stands no farther from the end.
const ANSWER_BYTES: u64 = 1024 * 1024;
/// As much of it is looked for.
const ANSWER_CHARS: usize = 40;

pub(super) struct Reader {
    file: BufReader<File>,
    at: u64,
    /// Where the part before ended.
    told: Option<u64>,
}

impl Reader {
    /// Opens a file where it was left, or at its beginning if it is another one; `None` if there is none.
    pub(super) fn open(path: &Path, known: Option<&TranscriptEnd>) -> io::Result<Option<Self>> {
        // To open something else may wait for ever.
        let length = match path.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            metadata => Some(metadata?).filter(Metadata::is_file).map(|metadata| metadata.len()),
        };
        let Some(length) = length else { return Ok(None) };
        let mut file = File::open(path)?;
        let at = match known {
            Some(end) if end.at <= length && hash_before(&mut file, end.at)? == end.hash => end.at,
            _ => 0,
        };
        file.seek(SeekFrom::Start(at))?;
        Ok(Some(Self { file: BufReader::new(file), at, told: (known.is_some() && at > 0).then_some(at) }))
    }

    /// The turns of the next lines, and how far was read; `None` at the end, or where a line is not yet written to its end.
    pub(super) fn next_part(&mut self) -> io::Result<Option<(Vec<Turn>, TranscriptEnd)>> {
        let (mut turns, begun) = (Vec::new(), self.at);
        while turns.len() < PART_TURNS && self.at - begun < PART_BYTES {
            let mut line = Vec::new();
            let mut length = self.file.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? as u64;
            if length == LINE_BYTES_MAX && line.last() != Some(&b'\n') {
                line.clear();
                length += self.file.skip_until(b'\n')? as u64;
                // Whether it ends with one is not said; the end of the file is looked at again next time.
                if self.file.fill_buf()?.is_empty() {
                    break;
                }
            } else if line.last() != Some(&b'\n') {
                break;
            }
            self.at += length;
            turns.extend(read_line(&line));
        }
        if self.told.unwrap_or(0) == self.at {
            return Ok(None);
        }
        self.told = Some(self.at);
        let hash = hash_before(self.file.get_mut(), self.at)?;
        self.file.seek(SeekFrom::Start(self.at))?;
        Ok(Some((turns, TranscriptEnd { at: self.at, hash })))
    }
}

/// Of what stands right before a place.
fn hash_before(file: &mut File, at: u64) -> io::Result<Hash> {
    let from = at.saturating_sub(TAIL_BYTES);
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.take(at - from).read_to_end(&mut tail)?;
    Ok(Hash::of(&tail))
}

/// Whether the beginning of an answer stands near the end of a file, behind what was captured before.
pub(super) fn ends_with(path: &Path, answer: &str, captured: u64) -> bool {
    let start: String = answer.trim().chars().take(ANSWER_CHARS).collect();
    let length = path.metadata().ok().filter(Metadata::is_file).map(|metadata| metadata.len());
    let (Some(length), Ok(wanted)) = (length, serde_json::to_string(&start)) else { return true };
    let Ok(mut file) = File::open(path) else { return true };
    let wanted = wanted.trim_matches('"').as_bytes().to_vec();
    let mut tail = Vec::new();
    // A file that was cut is read from its beginning.
    let captured = if captured > length { 0 } else { captured };
    let read = file
        .seek(SeekFrom::Start(length.saturating_sub(ANSWER_BYTES).max(captured)))
        .and_then(|_| file.take(ANSWER_BYTES).read_to_end(&mut tail));
    read.is_err() || wanted.is_empty() || memchr::memmem::find(&tail, &wanted).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: usize) -> String {
        format!("{{\"type\":\"user\",\"uuid\":\"u{id}\",\"message\":{{\"content\":\"request {id}\"}}}}\n")
    }

    fn read(path: &Path, known: Option<&TranscriptEnd>) -> (Vec<String>, Option<TranscriptEnd>) {
        let (mut texts, mut end) = (Vec::new(), known.cloned());
        let mut reader = Reader::open(path, known).unwrap().unwrap();
        while let Some((turns, at)) = reader.next_part().unwrap() {
            texts.extend(turns.iter().map(Turn::text));
            end = Some(at);
        }
        (texts, end)
    }

    #[test]
    fn a_file_is_read_on_from_where_it_was_left_and_from_its_beginning_if_it_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        assert!(Reader::open(&path, None).unwrap().is_none());
        std::fs::write(&path, line(1) + &line(2) + &line(3)[..20]).unwrap();
        let (texts, end) = read(&path, None);
        assert_eq!(texts, ["request 1", "request 2"], "a line that is being written waits");
        std::fs::write(&path, line(1) + &line(2) + &line(3) + &line(4)).unwrap();
        let (texts, end) = read(&path, end.as_ref());
        assert_eq!(texts, ["request 3", "request 4"]);
        assert_eq!(read(&path, end.as_ref()), (Vec::new(), end.clone()), "nothing is new");
        std::fs::write(&path, line(1) + &line(2)).unwrap();
        assert_eq!(read(&path, end.as_ref()).0, ["request 1", "request 2"], "it was cut");
        let others: String = (10..20).map(line).collect();
        std::fs::write(&path, others).unwrap();
        assert_eq!(read(&path, end.as_ref()).0.len(), 10, "it was replaced by a longer one");
    }

    #[test]
    fn a_long_file_is_read_in_parts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        std::fs::write(&path, (0..2500).map(line).collect::<String>()).unwrap();
        let mut reader = Reader::open(&path, None).unwrap().unwrap();
        let mut parts = Vec::new();
        while let Some((turns, _)) = reader.next_part().unwrap() {
            parts.push(turns.len());
        }
        assert_eq!(parts, [500; 5]);
    }

    #[test]
    fn an_answer_is_looked_for_as_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        std::fs::write(&path, "{\"text\":\"It is \\\"done\\\".\\nAll of it\"}\n").unwrap();
        assert!(ends_with(&path, "It is \"done\".\nAll of it", 0));
        assert!(!ends_with(&path, "Something else", 0));
        assert!(!ends_with(&path, "It is \"done\".", path.metadata().unwrap().len()), "it was said before");
    }
}
