//! Mirror files: the second copy of a group of checkpoints, which stands alone.
//!
//! A file is a skippable zstd frame with the index, and after it one ordinary frame with all contexts, a line each, so that
//! `zstdcat` prints them. The index holds every column of the group's rows but the bytes, and those of its session. It begins with
//! its own hash and holds that of the frame after it: no changed byte goes unnoticed. What is in it came from the database and
//! is compared with it in `sqlite/mirror.rs`. In a sealed store all of that is sealed ([`sealed`]). This is the format; how a file is written and found is in [`file`], where it is in [`name`].

mod columns;
mod file;
mod name;
mod sealed;
pub(crate) mod tombstone;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use waystone_core::canon::Hash;
use waystone_core::pack::{compress, decompress};

use crate::sqlite::Keys;

pub(crate) use columns::{Columns, hex, unhex};
pub(crate) use file::{keep_aside, list_files, read_file, remove, replace};
pub use name::file_name;
pub(crate) use name::path_of;
pub(crate) use sealed::sealed_by;

const FORMAT: u32 = 1;
/// One of the sixteen that mean: skip this.
const SKIPPABLE: u32 = 0x184D_2A5A;
const HEADER_BYTES: usize = 8;
const HASH_BYTES: usize = 32;
/// A group is closed at 8 MiB, and the context that closes it may have 64.
const TEXT_BYTES_MAX: usize = 256 * 1024 * 1024;
const INDEX_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A group of checkpoints, as either copy holds it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group {
    pub(crate) row: Columns,
    pub(crate) session: Columns,
    pub(crate) checkpoints: Vec<MirroredCheckpoint>,
}

impl Group {
    /// Where its file is, from the data directory; nowhere when an id is missing.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        Some(path_of(self.session.text("id")?, self.row.text("id")?))
    }

    /// The number of the newest change that is in it.
    pub(crate) fn changed_seq(&self) -> i64 {
        self.row.number("changed_seq").unwrap_or(0)
    }
}

/// A checkpoint with its text; without it when that is damaged in this copy.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MirroredCheckpoint {
    pub(crate) columns: Columns,
    pub(crate) text: Option<Arc<[u8]>>,
}

impl MirroredCheckpoint {
    /// Whether `text` is what was saved.
    pub(crate) fn is_text(&self, text: &[u8]) -> bool {
        let length = self.columns.number("raw_bytes").and_then(|length| usize::try_from(length).ok());
        length == Some(text.len()) && self.columns.hash("raw_hash") == Some(Hash::of(text))
    }
}

#[derive(Serialize, Deserialize)]
struct Index {
    format: u32,
    group: Columns,
    session: Columns,
    checkpoints: Vec<Entry>,
    frame_bytes: u64,
    frame_sha256: String,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    /// Where its text is among all texts; not there when it was damaged beyond repair.
    text_at: Option<(usize, usize)>,
    columns: Columns,
}

/// A file that is not what was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct DamagedFile(&'static str);

/// A group as a file: as it is, or sealed under the key of its session.
pub(crate) fn encode(group: &Group, keys: &Keys) -> io::Result<Vec<u8>> {
    let file = encode_plain(group)?;
    match keys.master() {
        Some(master) => sealed::encode(&file, group, master),
        None => Ok(file),
    }
}

/// What was encoded. In a sealed store only what is sealed counts, in a plain one only what is not.
pub(crate) fn decode(file: &[u8], keys: &Keys) -> Result<Group, DamagedFile> {
    match keys.master() {
        Some(master) => decode_plain(&sealed::decode(file, master)?),
        None => decode_plain(file),
    }
}

fn encode_plain(group: &Group) -> io::Result<Vec<u8>> {
    let (mut texts, mut entries) = (Vec::new(), Vec::new());
    for saved in &group.checkpoints {
        let text_at = saved.text.as_ref().map(|text| {
            let at = texts.len();
            texts.extend_from_slice(text);
            texts.push(b'\n');
            (at, text.len())
        });
        entries.push(Entry { text_at, columns: saved.columns.clone() });
    }
    let frame = compress(&texts, &[])?;
    let index = Index {
        format: FORMAT,
        group: group.row.clone(),
        session: group.session.clone(),
        checkpoints: entries,
        frame_bytes: frame.len() as u64,
        frame_sha256: Hash::of(&frame).to_string(),
    };
    let index = compress(&serde_json::to_vec(&index)?, &[])?;
    let length = u32::try_from(HASH_BYTES + index.len()).map_err(io::Error::other)?;
    let mut file = Vec::with_capacity(HEADER_BYTES + HASH_BYTES + index.len() + frame.len());
    file.extend_from_slice(&SKIPPABLE.to_le_bytes());
    file.extend_from_slice(&length.to_le_bytes());
    file.extend_from_slice(&Hash::of(&index).0);
    file.extend_from_slice(&index);
    file.extend_from_slice(&frame);
    Ok(file)
}

fn decode_plain(file: &[u8]) -> Result<Group, DamagedFile> {
    let (index, frame) = split(file)?;
    if Hash::of(frame).to_string() != index.frame_sha256 || frame.len() as u64 != index.frame_bytes {
        return Err(DamagedFile("its contexts do not have the hash they were written with"));
    }
    let texts = decompress(frame, TEXT_BYTES_MAX, &[]).map_err(|_| DamagedFile("its contexts do not decode"))?;
    let checkpoints = index.checkpoints.into_iter().map(|Entry { text_at, columns }| {
        let mut saved = MirroredCheckpoint { columns, text: None };
        if let Some((at, length)) = text_at {
            let text =
                texts.get(at..).and_then(|rest| rest.get(..length)).ok_or(DamagedFile("a context is cut short"))?;
            if !saved.is_text(text) {
                return Err(DamagedFile("a context does not have the hash it was saved with"));
            }
            saved.text = Some(text.into());
        }
        Ok(saved)
    });
    Ok(Group { row: index.group, session: index.session, checkpoints: checkpoints.collect::<Result<_, _>>()? })
}

/// The index, checked, and the bytes after it.
fn split(file: &[u8]) -> Result<(Index, &[u8]), DamagedFile> {
    let (header, rest) = file.split_at_checked(HEADER_BYTES).ok_or(DamagedFile("it is cut short"))?;
    let (magic, length) = header.split_at(4);
    let length = u32::from_le_bytes(length.try_into().map_err(|_| DamagedFile("it is cut short"))?) as usize;
    if magic != SKIPPABLE.to_le_bytes() {
        return Err(DamagedFile("it does not begin as a mirror does"));
    }
    let (payload, frame) = rest.split_at_checked(length).ok_or(DamagedFile("its index is cut short"))?;
    let (hash, index) = payload.split_at_checked(HASH_BYTES).ok_or(DamagedFile("its index is cut short"))?;
    if Hash::of(index).0 != hash {
        return Err(DamagedFile("its index does not have the hash it was written with"));
    }
    let index = decompress(index, INDEX_BYTES_MAX, &[]).map_err(|_| DamagedFile("its index does not decode"))?;
    let index: Index = serde_json::from_slice(&index).map_err(|_| DamagedFile("its index cannot be read"))?;
    if index.format != FORMAT {
        return Err(DamagedFile("it has a format that this version does not know"));
    }
    Ok((index, frame))
}
