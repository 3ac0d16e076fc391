//! How a context's JSON text is packed into bytes, and how it is got back whole or not at all.
//!
//! Bytes are a zstd frame that stands alone, or one that is a delta: it refers to the text of another checkpoint, its base, and
//! says only what differs. A text unpacks from a chain of frames, of which the first stands alone and each is the base of the next.

use std::cell::RefCell;

use zstd::zstd_safe::{CCtx, CParameter, DCtx, compress_bound, get_error_name, get_frame_content_size};

use crate::canon::Hash;
use crate::id::CheckpointId;

/// The level from which zstd also finds matches in long prefixes.
const LEVEL: i32 = 3;
/// From here zstd is told to look for long matches far back.
const LONG_BYTES: usize = 1024 * 1024;
/// The largest window that every decoder takes.
const WINDOW_LOG_MAX: u32 = 27;

/// As many checkpoints, and about as much of their text, share a group: deltas stay inside of it.
pub const GROUP_CHECKPOINTS_MAX: u64 = 32;
pub const GROUP_RAW_BYTES_MAX: u64 = 8 * 1024 * 1024;

thread_local! {
    /// Making one takes as long as decoding a context of some 10 KB, and a chain has many.
    static DECODER: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
}

/// A text packed for storage, with what is needed to prove that it was unpacked whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    pub bytes: Vec<u8>,
    pub raw_bytes: usize,
    pub raw_hash: Hash,
    /// What is needed to unpack it; `None` when the bytes stand alone.
    pub base: Option<Base>,
}

/// The checkpoint whose text a delta refers to, and the hash of that text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    pub id: CheckpointId,
    pub raw_hash: Hash,
}

/// The bytes do not decode to the text they were made from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Damaged(String);

/// Packs `text` alone.
pub fn pack(text: &[u8]) -> std::io::Result<Packed> {
    Ok(Packed { bytes: compress(text, &[])?, raw_bytes: text.len(), raw_hash: Hash::of(text), base: None })
}

/// Packs what differs between `text` and the text of `base`.
pub fn pack_delta(text: &[u8], base: Base, base_text: &[u8]) -> std::io::Result<Packed> {
    let bytes = compress(text, base_text)?;
    Ok(Packed { bytes, raw_bytes: text.len(), raw_hash: Hash::of(text), base: Some(base) })
}

/// Compresses `text` into one frame that refers to `prefix`.
pub fn compress(text: &[u8], prefix: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut context = CCtx::create();
    context.set_parameter(CParameter::CompressionLevel(LEVEL)).map_err(failed)?;
    let reach = text.len() + prefix.len();
    if !prefix.is_empty() || reach > LONG_BYTES {
        let window_log = usize::BITS - reach.leading_zeros();
        context.set_parameter(CParameter::WindowLog(window_log.clamp(10, WINDOW_LOG_MAX))).map_err(failed)?;
        context.set_parameter(CParameter::EnableLongDistanceMatching(reach > LONG_BYTES)).map_err(failed)?;
    }
    if !prefix.is_empty() {
        context.ref_prefix(prefix).map_err(failed)?;
    }
    let mut bytes = Vec::with_capacity(compress_bound(text.len()));
    context.compress2(&mut bytes, text).map_err(failed)?;
    bytes.shrink_to_fit();
    Ok(bytes)
}

/// The text of the last of `chain`; `known` is the text of the first one's base, if it has one.
pub fn unpack(chain: &[Packed], known: &[u8]) -> Result<Vec<u8>, Damaged> {
    let Some(last) = chain.last() else { return Err(Damaged("its bytes are missing".to_owned())) };
    let mut text = known.to_vec();
    for packed in chain {
        text = packed.decode(&text)?;
    }
    last.check(text)
}

impl Packed {
    /// Decodes the frame, without a look at the text's hash; `base_text` is the text of its base, if it has one.
    pub fn decode(&self, base_text: &[u8]) -> Result<Vec<u8>, Damaged> {
        decompress(&self.bytes, self.raw_bytes, if self.base.is_some() { base_text } else { &[] })
            .map_err(|error| Damaged(format!("its frame does not decode: {error}")))
    }

    fn check(&self, text: Vec<u8>) -> Result<Vec<u8>, Damaged> {
        if text.len() != self.raw_bytes || Hash::of(&text) != self.raw_hash {
            return Err(Damaged("its text does not have the hash it was saved with".to_owned()));
        }
        Ok(text)
    }
}

/// Decompresses one frame, of at most `bytes_max` bytes, that refers to `prefix`.
pub fn decompress(bytes: &[u8], bytes_max: usize, prefix: &[u8]) -> std::io::Result<Vec<u8>> {
    // A damaged length must not decide how much memory is taken.
    let stated = get_frame_content_size(bytes).ok().flatten().and_then(|length| usize::try_from(length).ok());
    let length = stated.filter(|length| *length <= bytes_max);
    let length = length.ok_or_else(|| std::io::Error::other("it is longer than it may be"))?;
    let mut text = Vec::with_capacity(length);
    // A dictionary without the mark of one is content that is referred to, as a prefix is. JSON text never has the mark.
    DECODER.with_borrow_mut(|context| context.decompress_using_dict(&mut text, bytes, prefix)).map_err(failed)?;
    Ok(text)
}

fn failed(code: usize) -> std::io::Error {
    std::io::Error::other(get_error_name(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(texts: &[String]) -> Vec<Packed> {
        let base = |n: usize| Base { id: format!("c{n}").parse().unwrap(), raw_hash: Hash::of(texts[n].as_bytes()) };
        let mut packed = vec![pack(texts[0].as_bytes()).unwrap()];
        for n in 1..texts.len() {
            packed.push(pack_delta(texts[n].as_bytes(), base(n - 1), texts[n - 1].as_bytes()).unwrap());
        }
        packed
    }

    #[test]
    fn text_unpacks_to_itself() {
        for text in ["{}", "", &"abc".repeat(1_000_000)] {
            let packed = pack(text.as_bytes()).unwrap();
            assert_eq!(unpack(&[packed], &[]).unwrap(), text.as_bytes());
        }
    }

    #[test]
    fn a_delta_says_only_what_differs_and_unpacks_from_its_base_alone() {
        for length in [40, 40_000, 3_000_000] {
            let mut state = 1u64;
            let mut digit = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                char::from(b'0' + u8::try_from(state >> 60).unwrap())
            };
            let base: String = (0..length).map(|_| digit()).collect();
            let texts = [base.clone(), format!("{base}{{}}"), format!("x{base}{{}}")];
            let packed = chain(&texts);
            let allowed = 60 + length / 5000;
            assert!(packed[2].bytes.len() < allowed, "{length}: {}", packed[2].bytes.len());
            assert_eq!(unpack(&packed, &[]).unwrap(), texts[2].as_bytes());
            assert_eq!(unpack(&packed[2..], texts[1].as_bytes()).unwrap(), texts[2].as_bytes());
            assert!(unpack(&packed[2..], texts[0].as_bytes()).is_err());
            assert!(unpack(&packed[1..], &[]).is_err());
        }
    }

    #[test]
    fn a_damaged_length_is_noticed_before_memory_is_taken() {
        for raw_bytes in [0, 1, usize::MAX / 4, usize::MAX] {
            let packed = Packed { raw_bytes, ..pack(b"{\"n\":1}").unwrap() };
            assert!(unpack(&[packed], &[]).is_err());
        }
    }

    #[test]
    fn no_damaged_byte_gives_another_text() {
        let texts = [0, 1].map(|n| format!(r#"{{"goal":"keep every byte","n":[1,2,3,4,5,6,7,8,9,{n}]}}"#));
        let packed = chain(&texts);
        // A bit that means nothing to the format may flip; few are such.
        let (mut refused, mut harmless) = (0, 0);
        for frame in 0..packed.len() {
            for at in 0..packed[frame].bytes.len() {
                for bit in 0..8 {
                    let mut damaged = packed.clone();
                    damaged[frame].bytes[at] ^= 1 << bit;
                    match unpack(&damaged, &[]) {
                        Ok(text) => {
                            assert_eq!(text, texts[1].as_bytes(), "frame {frame} byte {at} bit {bit}");
                            harmless += 1;
                        }
                        Err(_) => refused += 1,
                    }
                }
            }
        }
        assert!(refused > 10 * harmless, "{refused} refused, {harmless} without effect");
    }
}
