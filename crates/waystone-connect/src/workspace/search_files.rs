//! `search_files`: the lines that contain a text.

use std::io::{self, Read};
use std::path::Path;

use cap_std::fs::{Dir, File};
use regex::{Regex, RegexBuilder};
use serde_json::json;
use waystone_core::api::Tool;
use waystone_core::prose::{quoted, steers};

use super::argument::Arguments;
use super::folder::{Folder, failure, shown};
use super::report::{Flow, Report};
use super::walk::{Glob, Walk};
use super::{Patience, schema};

const HITS_MAX: usize = 200;
const QUERY_BYTES_MAX: usize = 1024;
const LINE_CHARS_MAX: usize = 300;
/// How much of a long line stands before what was found.
const LEAD_CHARS: usize = 60;
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;
const SEARCHED_BYTES_MAX: usize = 256 * 1024 * 1024;

pub(super) fn tool() -> Tool {
    Tool {
        name: "search_files".to_owned(),
        description: format!(
            "Finds the lines of text files in the workspace that contain `query`, as `path:line: text`. At most {HITS_MAX} \
             lines; binary files, files over {} MiB, links and `.git` are left out.",
            FILE_BYTES_MAX >> 20
        ),
        input_schema: schema(
            json!({
                "query": {
                    "type": "string",
                    "description": "Plain text within a line, not a pattern. All in lower case it finds capitals too.",
                },
                "path": {
                    "type": "string",
                    "description": "The folder or file to search, relative to the workspace. Default: the workspace.",
                },
                "glob": {
                    "type": "string",
                    "description": format!("Only files that match a pattern {}.", Glob::DESCRIPTION),
                },
            }),
            &["query"],
        ),
        read_only: true,
        idempotent: true,
    }
}

pub(super) fn run(folder: &Folder, arguments: &Arguments<'_>, patience: &Patience) -> Result<String, String> {
    let query = arguments.required_text("query")?;
    let path = folder.relative(arguments.text("path")?.unwrap_or("."))?;
    let glob = arguments.text("glob")?.map(Glob::new).transpose()?;
    let mut search = Search::new(folder, query)?;
    let mut walk = Walk::new(folder, patience, true);
    let metadata = folder.root().metadata(&path).map_err(|error| failure(&path, &error))?;
    let flow = if metadata.is_dir() {
        walk.through(&folder.open_dir(&path)?, &mut |dir, entry| {
            if !entry.metadata.is_file() || glob.as_ref().is_some_and(|glob| !glob.is_match(entry)) {
                return Flow::Continue(());
            }
            search.file(dir, entry.name.as_ref(), &entry.path_from(&path))
        })
    } else {
        // It was named, so it is not passed over silently.
        drop(folder.open_file(&path)?);
        let (dir, name) = folder.locate_file(&path)?;
        search.file(&dir, name.as_ref(), &path)
    };
    let passed_over = [
        ("files that are not text in UTF-8", search.binary_files),
        ("files that are too large", search.large_files),
        ("files that cannot be read", search.closed_files),
        ("folders that cannot be read", walk.closed_folders),
    ];
    Ok(search.hits.end(&format!("[no line contains {}]", quoted(query)), flow, &passed_over))
}

struct Search<'a> {
    folder: &'a Folder,
    query: Regex,
    hits: Report,
    searched_bytes: usize,
    binary_files: usize,
    large_files: usize,
    closed_files: usize,
}

impl<'a> Search<'a> {
    fn new(folder: &'a Folder, query: &str) -> Result<Self, String> {
        if query.is_empty() || query.len() > QUERY_BYTES_MAX || query.contains('\n') {
            return Err(format!("`query` must be a text within one line, of 1 to {QUERY_BYTES_MAX} bytes"));
        }
        let is_lower_case = !query.contains(char::is_uppercase);
        let built = RegexBuilder::new(&regex::escape(query)).case_insensitive(is_lower_case).build();
        let query = built.map_err(|_| "`query` is too long: give a shorter one".to_owned())?;
        let hits = Report::new(HITS_MAX);
        Ok(Self { folder, query, hits, searched_bytes: 0, binary_files: 0, large_files: 0, closed_files: 0 })
    }

    /// Searches the file `name` in `dir`; in the answer it is called `path`.
    fn file(&mut self, dir: &Dir, name: &Path, path: &str) -> Flow {
        let bytes = match self.folder.open_in(dir, name).and_then(read) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => {
                self.large_files += 1;
                return Flow::Continue(());
            }
            Err(_) => {
                self.closed_files += 1;
                return Flow::Continue(());
            }
        };
        self.searched_bytes += bytes.len();
        if self.searched_bytes > SEARCHED_BYTES_MAX {
            return Flow::Break("there is too much text to search");
        }
        match str::from_utf8(&bytes) {
            Ok(text) if !bytes.contains(&0) => self.text(text, &shown(path)),
            _ => {
                self.binary_files += 1;
                Flow::Continue(())
            }
        }
    }

    fn text(&mut self, text: &str, name: &str) -> Flow {
        let (mut start, mut number) = (0, 1);
        while let Some(found) = self.query.find_at(text, start) {
            let line_start = text[..found.start()].rfind('\n').map_or(0, |at| at + 1);
            let line_end = text[found.end()..].find('\n').map_or(text.len(), |at| found.end() + at);
            number += text[start..line_start].matches('\n').count();
            let line = cut(text[line_start..line_end].trim_end(), found.start() - line_start);
            self.hits.push(&format!("{name}:{number}: {line}"))?;
            if line_end == text.len() {
                break;
            }
            (start, number) = (line_end + 1, number + 1);
        }
        Flow::Continue(())
    }
}

/// None if it is too large, also if it only becomes so.
fn read(file: File) -> io::Result<Option<Vec<u8>>> {
    let size_bytes = file.metadata()?.len();
    if size_bytes > FILE_BYTES_MAX {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(size_bytes as usize + 1);
    let read_bytes = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok((read_bytes as u64 <= FILE_BYTES_MAX).then_some(bytes))
}

/// So much of `line` as is shown, with what was found at `at`.
fn cut(line: &str, at: usize) -> String {
    let before = line.get(..at).unwrap_or(line).chars().count();
    let skipped = if before + LEAD_CHARS < LINE_CHARS_MAX { 0 } else { before - LEAD_CHARS };
    let mut rest = line.chars().skip(skipped).map(|c| if steers(c) && c != '\t' { ' ' } else { c });
    let shown: String = rest.by_ref().take(LINE_CHARS_MAX).collect();
    format!("{}{shown}{}", if skipped > 0 { "…" } else { "" }, if rest.next().is_some() { "…" } else { "" })
}
