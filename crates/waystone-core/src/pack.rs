//! How a context's JSON text is packed into bytes, and how it is got back whole or not at all.

use crate::canon::Hash;

/// The level from which zstd also finds matches in long prefixes.
const LEVEL: i32 = 3;

/// A text packed for storage, with what is needed to prove that it was unpacked whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    pub bytes: Vec<u8>,
    pub raw_bytes: usize,
    pub raw_hash: Hash,
}

/// The bytes do not decode to the text they were made from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Damaged(String);

pub fn pack(text: &[u8]) -> std::io::Result<Packed> {
    Ok(Packed { bytes: zstd::bulk::compress(text, LEVEL)?, raw_bytes: text.len(), raw_hash: Hash::of(text) })
}

impl Packed {
    pub fn unpack(&self) -> Result<Vec<u8>, Damaged> {
        // A damaged length must not decide how much memory is taken.
        let stated = zstd::zstd_safe::get_frame_content_size(&self.bytes).ok().flatten();
        if stated != Some(self.raw_bytes as u64) {
            return Err(Damaged("its frame does not have the length it was saved with".to_owned()));
        }
        let text = zstd::bulk::decompress(&self.bytes, self.raw_bytes)
            .map_err(|error| Damaged(format!("its frame does not decode: {error}")))?;
        if text.len() != self.raw_bytes || Hash::of(&text) != self.raw_hash {
            return Err(Damaged("its text does not have the hash it was saved with".to_owned()));
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_unpacks_to_itself() {
        for text in ["{}", "", &"abc".repeat(100_000)] {
            let packed = pack(text.as_bytes()).unwrap();
            assert_eq!(packed.unpack().unwrap(), text.as_bytes());
        }
    }

    #[test]
    fn a_damaged_length_is_noticed_before_memory_is_taken() {
        for raw_bytes in [0, 1, usize::MAX / 4, usize::MAX] {
            let packed = Packed { raw_bytes, ..pack(b"{\"n\":1}").unwrap() };
            assert!(packed.unpack().is_err());
        }
    }

    #[test]
    fn no_damaged_byte_goes_unnoticed() {
        let packed = pack(br#"{"goal":"keep every byte","n":[1,2,3,4,5,6,7,8,9]}"#).unwrap();
        for at in 0..packed.bytes.len() {
            for bit in 0..8 {
                let mut damaged = packed.clone();
                damaged.bytes[at] ^= 1 << bit;
                if let Ok(text) = damaged.unpack() {
                    assert_eq!(text, packed.unpack().unwrap(), "byte {at} bit {bit}");
                }
            }
        }
    }
}
