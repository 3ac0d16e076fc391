//! What is kept on disk only until it was read: enciphered under a key that is in the memory of this process and nowhere else. What is
//! left of the file on a disk, whoever finds it, says nothing, whether the store is sealed or not.

use std::fs::File;
use std::io::{self, Read, Seek, Write};

use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use zeroize::Zeroizing;

/// A file without a name, which goes when it is closed. It is written from its beginning, once, and then read.
///
/// No nonce and no tag: a key is used for one file, no byte of which is written twice, and no one else can open it.
pub(super) struct Spool {
    file: File,
    /// Overwritten when it is dropped, as the key is that it was made of.
    cipher: ChaCha20,
}

impl Spool {
    pub(super) fn new() -> io::Result<Self> {
        let mut key = Zeroizing::new([0; 32]);
        getrandom::fill(key.as_mut()).map_err(io::Error::other)?;
        Ok(Self { file: tempfile::tempfile()?, cipher: ChaCha20::new((&*key).into(), &[0; 12].into()) })
    }

    /// Adds to it. The bytes are enciphered where they stand.
    pub(super) fn append(&mut self, mut bytes: Vec<u8>) -> io::Result<()> {
        self.cipher.try_apply_keystream(&mut bytes).map_err(io::Error::other)?;
        self.file.write_all(&bytes)
    }

    /// Goes back to its beginning, to be read.
    pub(super) fn rewind(&mut self) -> io::Result<()> {
        self.cipher.try_seek(0).map_err(io::Error::other)?;
        self.file.rewind()
    }
}

impl Read for Spool {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.cipher.try_apply_keystream(&mut buffer[..count]).map_err(io::Error::other)?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANARY: &[u8] = b"kanarienvogel";

    /// A spool of these parts, ready to be read.
    fn spool(parts: &[Vec<u8>]) -> Spool {
        let mut spool = Spool::new().unwrap();
        parts.iter().for_each(|part| spool.append(part.clone()).unwrap());
        spool.rewind().unwrap();
        spool
    }

    /// Parts of sizes that do not fit to the blocks of a cipher.
    fn parts() -> Vec<Vec<u8>> {
        [0, 1, 63, 64, 65, 1000, 70_000].map(|size| CANARY.iter().copied().cycle().take(size).collect()).to_vec()
    }

    /// The bytes as they stand on the disk.
    fn on_disk(spool: &mut Spool) -> Vec<u8> {
        let mut bytes = Vec::new();
        spool.file.rewind().unwrap();
        spool.file.read_to_end(&mut bytes).unwrap();
        spool.file.rewind().unwrap();
        bytes
    }

    #[test]
    fn what_was_written_is_read_whatever_the_size_of_a_read() {
        let written = parts().concat();
        for size in [1, 7, 64, 100, 8192, 1 << 20] {
            let (mut spool, mut read, mut buffer) = (spool(&parts()), Vec::new(), vec![0; size]);
            loop {
                match spool.read(&mut buffer).unwrap() {
                    0 => break,
                    count => read.extend_from_slice(&buffer[..count]),
                }
            }
            assert!(read == written, "{size}");
        }
    }

    #[test]
    fn nothing_of_it_stands_on_the_disk_and_no_two_are_alike() {
        let (mut one, mut other) = (spool(&parts()), spool(&parts()));
        let (one, other) = (on_disk(&mut one), on_disk(&mut other));
        assert_eq!(one.len(), parts().concat().len());
        let has = |bytes: &[u8]| bytes.windows(CANARY.len()).any(|window| window == CANARY);
        assert!(has(&parts().concat()) && !has(&one) && !has(&other));
        assert_ne!(one, other, "each has a key of its own");
    }
}
