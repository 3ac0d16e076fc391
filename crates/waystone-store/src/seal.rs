//! Sealing: bytes that only who has the key can read, and that open only where they were sealed.
//!
//! A master key wraps random keys, one for each session, for each project and for the store itself; these seal what is kept. Destroying a
//! wrapped key destroys all that it sealed. Every sealed value is bound to its place: the name of the column and the id of the row are
//! associated data. The cipher is XChaCha20-Poly1305, over chunks that are bound to their order and to where the value ends.

use std::fmt;

use argon2::{Algorithm, Argon2, Params, Version};
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;
/// The rest of a nonce is the number of the chunk, and whether it is the last.
const PREFIX_BYTES: usize = 19;
const TAG_BYTES: usize = 16;
const CHUNK_BYTES: usize = 64 * 1024;

/// What was sealed does not open: the key is another one, or a byte was changed, or it was sealed for another place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it does not open with this key")]
pub(crate) struct NotOpened;

/// Why no key could be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random numbers")]
pub struct NoRandomness;

/// Why a passphrase makes no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoKey {
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
    #[error("there is not enough memory")]
    Memory,
}

/// A secret of 32 bytes. It is overwritten when it is dropped, and never shown.
#[derive(Clone, PartialEq, Eq)]
struct Secret(Zeroizing<[u8; KEY_BYTES]>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    fn generate() -> Result<Self, NoRandomness> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        getrandom::fill(bytes.as_mut()).map_err(|_| NoRandomness)?;
        Ok(Self(bytes))
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&*self.0).into())
    }

    fn mac(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.as_ref())
            .unwrap_or_else(|_| unreachable!("a key of any length will do"));
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }

    fn seal(&self, form: Form, bytes: &[u8], place: &Place<'_>, prefix: &[u8; PREFIX_BYTES]) -> Vec<u8> {
        let (cipher, place) = (self.cipher(), place.encode(form));
        let mut sealed =
            Vec::with_capacity(1 + PREFIX_BYTES + bytes.len() + (bytes.len() / CHUNK_BYTES + 1) * TAG_BYTES);
        sealed.push(form as u8);
        sealed.extend_from_slice(prefix);
        let count = bytes.len().div_ceil(CHUNK_BYTES).max(1);
        for number in 0..count {
            let chunk = &bytes[number * CHUNK_BYTES..bytes.len().min((number + 1) * CHUNK_BYTES)];
            let nonce = nonce(prefix, number, number + 1 == count);
            let chunk = cipher.encrypt(&nonce, Payload { msg: chunk, aad: &place });
            sealed.extend(chunk.unwrap_or_else(|_| unreachable!("only what is longer than any chunk is refused")));
        }
        sealed
    }

    fn open(&self, sealed: &[u8], place: &Place<'_>) -> Result<Opened, NotOpened> {
        let (form, rest) = sealed.split_first().ok_or(NotOpened)?;
        let form = Form::of(*form).ok_or(NotOpened)?;
        let (prefix, rest) = rest.split_first_chunk::<PREFIX_BYTES>().ok_or(NotOpened)?;
        let (cipher, place) = (self.cipher(), place.encode(form));
        let mut bytes = Vec::with_capacity(rest.len());
        let count = rest.len().div_ceil(CHUNK_BYTES + TAG_BYTES).max(1);
        for number in 0..count {
            let from = number * (CHUNK_BYTES + TAG_BYTES);
            let chunk = &rest[from..rest.len().min(from + CHUNK_BYTES + TAG_BYTES)];
            let nonce = nonce(prefix, number, number + 1 == count);
            bytes.extend(cipher.decrypt(&nonce, Payload { msg: chunk, aad: &place }).map_err(|_| NotOpened)?);
        }
        Ok(Opened { form, bytes })
    }
}

fn nonce(prefix: &[u8; PREFIX_BYTES], number: usize, is_last: bool) -> XNonce {
    let mut nonce = [0; NONCE_BYTES];
    nonce[..PREFIX_BYTES].copy_from_slice(prefix);
    // Four bytes count more chunks than any value has: those are bounded far below.
    nonce[PREFIX_BYTES..PREFIX_BYTES + 4].copy_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes());
    nonce[NONCE_BYTES - 1] = u8::from(is_last);
    nonce.into()
}

/// What is sealed. It is the first byte of a sealed value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Text = 1,
    Bytes = 2,
    Key = 3,
}

impl Form {
    fn of(byte: u8) -> Option<Self> {
        [Self::Text, Self::Bytes, Self::Key].into_iter().find(|form| *form as u8 == byte)
    }
}

/// What was sealed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) form: Form,
    pub(crate) bytes: Vec<u8>,
}

/// Where a value belongs: what it is, and of which row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) name: &'a str,
    pub(crate) id: &'a str,
}

impl Place<'_> {
    fn encode(&self, form: Form) -> Vec<u8> {
        let mut encoded = vec![form as u8];
        for part in [self.name, self.id] {
            encoded.extend_from_slice(&(part.len() as u64).to_be_bytes());
            encoded.extend_from_slice(part.as_bytes());
        }
        encoded
    }
}

const ID_BYTES: usize = 8;
const SALT_BYTES: usize = 16;
/// How long making a key of a passphrase takes, and how much memory: the second choice of RFC 9106.
const MEMORY_KIB: u32 = 64 * 1024;
const ROUNDS: u32 = 3;
const LANES: u32 = 4;

/// What everything that is sealed says about the master key that opens it: which one it is, without a hint of what it is, and the salt
/// if it was made of a passphrase. It stands before every wrapped key, so that no one place can lose the salt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyMark {
    pub id: [u8; ID_BYTES],
    pub salt: Option<[u8; SALT_BYTES]>,
}

impl KeyMark {
    pub(crate) const BYTES: usize = ID_BYTES + SALT_BYTES;

    fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..ID_BYTES].copy_from_slice(&self.id);
        bytes[ID_BYTES..].copy_from_slice(&self.salt.unwrap_or_default());
        bytes
    }

    /// The mark of a wrapped key.
    pub(crate) fn of(wrapped: &[u8]) -> Option<Self> {
        let (id, rest) = wrapped.split_first_chunk()?;
        let salt = rest.first_chunk()?;
        // No salt is all zeros.
        Some(Self { id: *id, salt: (*salt != [0; SALT_BYTES]).then_some(*salt) })
    }
}

/// What wraps the keys of a store. It is kept outside of the data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MasterKey {
    secret: Secret,
    /// Of the passphrase that it was made of.
    salt: Option<[u8; SALT_BYTES]>,
}

impl MasterKey {
    pub fn new(bytes: [u8; KEY_BYTES], salt: Option<[u8; SALT_BYTES]>) -> Self {
        Self { secret: Secret(Zeroizing::new(bytes)), salt }
    }

    pub fn generate() -> Result<Self, NoRandomness> {
        Ok(Self { secret: Secret::generate()?, salt: None })
    }

    /// The key that a passphrase makes, with the salt that is known or with a new one. It takes about a tenth of a second.
    pub fn from_passphrase(passphrase: &str, salt: Option<[u8; SALT_BYTES]>) -> Result<Self, NoKey> {
        let salt = salt.map_or_else(random, Ok)?;
        let parameters = Params::new(MEMORY_KIB, ROUNDS, LANES, Some(KEY_BYTES)).map_err(|_| NoKey::Memory)?;
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        Argon2::new(Algorithm::Argon2id, Version::V0x13, parameters)
            .hash_password_into(passphrase.as_bytes(), &salt, bytes.as_mut())
            .map_err(|_| NoKey::Memory)?;
        Ok(Self { secret: Secret(bytes), salt: Some(salt) })
    }

    /// The secret itself, to be kept elsewhere.
    pub fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.secret.0
    }

    pub fn mark(&self) -> KeyMark {
        let mac = self.secret.mac(&[b"id"]);
        KeyMark { id: std::array::from_fn(|at| mac[at]), salt: self.salt }
    }

    pub(crate) fn wrap(&self, key: &DataKey, owner: &str) -> Result<Vec<u8>, NoRandomness> {
        let mark = self.mark().encode();
        let place = Place { name: "key", id: &wrapped_for(owner, &mark) };
        let sealed = self.secret.seal(Form::Key, key.0.0.as_ref(), &place, &random()?);
        Ok([&mark[..], &sealed].concat())
    }

    pub(crate) fn unwrap(&self, wrapped: &[u8], owner: &str) -> Result<DataKey, NotOpened> {
        let (mark, sealed) = wrapped.split_at_checked(KeyMark::BYTES).ok_or(NotOpened)?;
        let opened = self.secret.open(sealed, &Place { name: "key", id: &wrapped_for(owner, mark) })?;
        let bytes = Zeroizing::new(opened.bytes);
        let bytes: &[u8; KEY_BYTES] = bytes.as_slice().try_into().map_err(|_| NotOpened)?;
        match opened.form {
            Form::Key => Ok(DataKey(Secret(Zeroizing::new(*bytes)))),
            Form::Text | Form::Bytes => Err(NotOpened),
        }
    }
}

/// Where a wrapped key belongs: to its owner, and after its mark.
fn wrapped_for(owner: &str, mark: &[u8]) -> String {
    format!("{owner}\0{}", hex::encode(mark))
}

/// What seals the values of a session, a project or the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DataKey(Secret);

impl DataKey {
    pub(crate) fn generate() -> Result<Self, NoRandomness> {
        Secret::generate().map(Self)
    }

    pub(crate) fn seal(&self, form: Form, bytes: &[u8], place: &Place<'_>) -> Result<Vec<u8>, NoRandomness> {
        Ok(self.0.seal(form, bytes, place, &random()?))
    }

    /// The same for the same value in the same place, so that it can be looked for.
    pub(crate) fn seal_alike(&self, form: Form, bytes: &[u8], place: &Place<'_>) -> Vec<u8> {
        let mac = self.0.mac(&[b"alike", &[form as u8], place.name.as_bytes(), place.id.as_bytes(), bytes]);
        self.0.seal(form, bytes, place, &std::array::from_fn(|at| mac[at]))
    }

    pub(crate) fn open(&self, sealed: &[u8], place: &Place<'_>) -> Result<Opened, NotOpened> {
        self.0.open(sealed, place)
    }

    /// A hash that tells nothing to who does not have the key.
    pub(crate) fn hash(&self, bytes: &[u8]) -> [u8; 32] {
        self.0.mac(&[b"hash", bytes])
    }
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES], NoRandomness> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place<'_> = Place { name: "text", id: "a" };

    #[test]
    fn what_is_sealed_opens_with_its_key_in_its_place_and_nowhere_else() {
        let (key, other) = (DataKey::generate().unwrap(), DataKey::generate().unwrap());
        for length in [0, 1, 40, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES] {
            let text: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            let sealed = key.seal(Form::Bytes, &text, &PLACE).unwrap();
            assert_eq!(key.open(&sealed, &PLACE), Ok(Opened { form: Form::Bytes, bytes: text.clone() }));
            assert_eq!(other.open(&sealed, &PLACE), Err(NotOpened));
            for place in
                [Place { name: "text", id: "b" }, Place { name: "name", id: "a" }, Place { name: "texta", id: "" }]
            {
                assert_eq!(key.open(&sealed, &place), Err(NotOpened), "{place:?}");
            }
            assert_ne!(key.seal(Form::Bytes, &text, &PLACE).unwrap(), sealed, "sealed twice it is not the same");
            assert_eq!(key.seal_alike(Form::Text, &text, &PLACE), key.seal_alike(Form::Text, &text, &PLACE));
        }
    }

    #[test]
    fn no_changed_byte_chunk_or_length_goes_unnoticed() {
        let key = DataKey::generate().unwrap();
        let text: Vec<u8> = (0..2 * CHUNK_BYTES + 100).map(|n| (n % 251) as u8).collect();
        let sealed = key.seal(Form::Text, &text, &PLACE).unwrap();
        let chunk = |n: usize| 1 + PREFIX_BYTES + n * (CHUNK_BYTES + TAG_BYTES);
        let step = if cfg!(debug_assertions) { 4099 } else { 97 };
        for at in (0..200).chain((200..sealed.len()).step_by(step)).chain(sealed.len() - 40..sealed.len()) {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(key.open(&changed, &PLACE), Err(NotOpened), "byte {at}");
        }
        let swapped =
            [&sealed[..chunk(0)], &sealed[chunk(1)..chunk(2)], &sealed[chunk(0)..chunk(1)], &sealed[chunk(2)..]];
        let cut =
            [&sealed[..chunk(0)], &sealed[..chunk(1)], &sealed[..chunk(2)], &sealed[..sealed.len() - 1], &[], &[1]];
        for changed in [swapped.concat(), [&sealed[..], &sealed[chunk(2)..]].concat()] {
            assert_eq!(key.open(&changed, &PLACE), Err(NotOpened));
        }
        cut.into_iter().for_each(|cut| assert_eq!(key.open(cut, &PLACE), Err(NotOpened), "{} bytes", cut.len()));
    }

    #[test]
    fn a_wrapped_key_is_its_owners_alone() {
        let (master, key) = (MasterKey::generate().unwrap(), DataKey::generate().unwrap());
        let wrapped = master.wrap(&key, "session:a").unwrap();
        assert_eq!(master.unwrap(&wrapped, "session:a"), Ok(key));
        assert_eq!(master.unwrap(&wrapped, "session:b"), Err(NotOpened));
        assert_eq!(MasterKey::generate().unwrap().unwrap(&wrapped, "session:a"), Err(NotOpened));
        assert!(format!("{master:?}").starts_with("MasterKey { secret: Secret,"), "{master:?}");
        assert_eq!(KeyMark::of(&wrapped), Some(master.mark()));
    }

    #[test]
    fn a_passphrase_makes_the_same_key_only_with_the_same_salt() {
        let made = MasterKey::from_passphrase("correct horse", None).unwrap();
        let wrapped = made.wrap(&DataKey::generate().unwrap(), "store").unwrap();
        let salt = KeyMark::of(&wrapped).unwrap().salt;
        assert!(salt.is_some());
        assert_eq!(MasterKey::from_passphrase("correct horse", salt).unwrap(), made);
        assert_ne!(MasterKey::from_passphrase("correct horse", None).unwrap().bytes(), made.bytes());
        assert_ne!(MasterKey::from_passphrase("correct hors", salt).unwrap().bytes(), made.bytes());
    }
}
