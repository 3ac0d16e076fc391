//! Mirror files of a sealed store: a skippable frame that holds the session's wrapped key and, under that key, the file as it would be.
//! With the master key it stands alone.

use std::io::{self, Read};
use std::path::Path;

use super::{DamagedFile, Group, HEADER_BYTES, SKIPPABLE, unhex};
use crate::platform;
use crate::seal::{Form, KeyMark, MasterKey, Place};

/// The first bytes of what is in the frame.
const MARK: &[u8; 8] = b"wsealed1";
/// What stands before each part: its length.
const LENGTH_BYTES: usize = 2;

pub(super) fn encode(file: &[u8], group: &Group, master: &MasterKey) -> io::Result<Vec<u8>> {
    let session = group.session.id();
    let wrapped = group.session.get("wrapped_key").and_then(unhex);
    let wrapped = wrapped.ok_or_else(|| io::Error::other("the session has no key"))?;
    let key = master.unwrap(&wrapped, &owner(session)).map_err(io::Error::other)?;
    let sealed = key.seal(Form::Bytes, file, &place(session)).map_err(io::Error::other)?;
    let mut payload = MARK.to_vec();
    for part in [&wrapped, session.as_bytes()] {
        payload.extend_from_slice(&u16::try_from(part.len()).map_err(io::Error::other)?.to_le_bytes());
        payload.extend_from_slice(part);
    }
    payload.extend_from_slice(&sealed);
    let mut framed = Vec::with_capacity(HEADER_BYTES + payload.len());
    framed.extend_from_slice(&SKIPPABLE.to_le_bytes());
    framed.extend_from_slice(&u32::try_from(payload.len()).map_err(io::Error::other)?.to_le_bytes());
    framed.extend_from_slice(&payload);
    Ok(framed)
}

/// By whose key a file was sealed; nothing inside when it is plain, and nothing at all when it is no mirror.
pub(crate) fn sealed_by(path: &Path) -> Option<Option<KeyMark>> {
    let mut begin = [0; HEADER_BYTES + MARK.len() + LENGTH_BYTES + KeyMark::BYTES];
    platform::open_file(path).and_then(|mut file| file.read_exact(&mut begin)).ok()?;
    let payload = begin.strip_prefix(&SKIPPABLE.to_le_bytes())?.get(HEADER_BYTES - 4..)?;
    Some(payload.strip_prefix(MARK).and_then(|rest| KeyMark::of(rest.get(LENGTH_BYTES..)?)))
}

pub(super) fn decode(framed: &[u8], master: &MasterKey) -> Result<Vec<u8>, DamagedFile> {
    let (header, payload) = framed.split_first_chunk::<HEADER_BYTES>().ok_or(DamagedFile("it is cut short"))?;
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes();
    if header[..4] != SKIPPABLE.to_le_bytes() || header[4..] != length {
        return Err(DamagedFile("it does not begin as a mirror does"));
    }
    let rest = payload.strip_prefix(MARK).ok_or(DamagedFile("it is not sealed"))?;
    let (wrapped, rest) = part(rest)?;
    let (session, sealed) = part(rest)?;
    if KeyMark::of(wrapped).is_none_or(|mark| mark.id != master.mark().id) {
        return Err(DamagedFile("it was sealed with another key"));
    }
    let session = std::str::from_utf8(session).map_err(|_| DamagedFile("its index cannot be read"))?;
    let key = master.unwrap(wrapped, &owner(session)).map_err(|_| DamagedFile("its key does not open"))?;
    let opened = key.open(sealed, &place(session)).map_err(|_| DamagedFile("it does not open with its key"))?;
    Ok(opened.bytes)
}

fn owner(session: &str) -> String {
    format!("session:{session}")
}

fn place(session: &str) -> Place<'_> {
    Place { name: "mirror", id: session }
}

/// The next part, which has its length before it, and the rest.
fn part(bytes: &[u8]) -> Result<(&[u8], &[u8]), DamagedFile> {
    let cut = DamagedFile("it is cut short");
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>().ok_or(cut.clone())?;
    rest.split_at_checked(usize::from(u16::from_le_bytes(*length))).ok_or(cut)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mirror::{Columns, hex};
    use crate::seal::DataKey;

    #[test]
    fn every_changed_byte_of_a_sealed_file_is_noticed() {
        let master = MasterKey::from_passphrase("correct horse", None).unwrap();
        let wrapped = master.wrap(&DataKey::generate().unwrap(), "session:s").unwrap();
        let columns = |value: serde_json::Value| -> Columns { serde_json::from_value(value).unwrap() };
        let session = columns(json!({ "id": "s", "wrapped_key": hex(&wrapped) }));
        let group = Group { row: columns(json!({ "id": "g" })), session, checkpoints: Vec::new() };
        let file = encode(b"what is in it", &group, &master).unwrap();
        assert_eq!(decode(&file, &master).unwrap(), b"what is in it");
        for at in 0..file.len() {
            for bit in [1, 128] {
                let mut changed = file.clone();
                changed[at] ^= bit;
                assert!(decode(&changed, &master).is_err(), "byte {at} of {}", file.len());
            }
            assert!(decode(&file[..at], &master).is_err(), "cut at {at}");
        }
        assert!(decode(&[&file[..], b"x"].concat(), &master).is_err());
        assert!(decode(&file, &MasterKey::generate().unwrap()).is_err());
    }
}
