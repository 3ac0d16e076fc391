//! Documents that are sealed for people: with age, so that they need nothing of ours to open them.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use age::armor::ArmoredReader;
use age::stream::StreamWriter;
use age::x25519::Recipient;
use age::{Decryptor, Encryptor, IdentityFile};

use super::failure::Failure;

/// What such a document begins with.
const MAGIC: [&[u8]; 2] = [b"age-encryption.org/v1", b"-----BEGIN AGE ENCRYP"];

fn refuse(message: String, hint: &str) -> Failure {
    Failure { code: "INVALID_INPUT", message, hint: hint.to_owned() }
}

pub(super) fn parse_recipient(text: &str) -> Result<Recipient, String> {
    text.parse()
        .map_err(|error| format!("{error}; it is what `age-keygen` calls the public key: age1 and 58 more characters"))
}

/// What seals all that is written to it. It must be finished.
pub(super) fn seal<W: Write>(recipients: &[Recipient], target: W) -> anyhow::Result<StreamWriter<W>> {
    let recipients = recipients.iter().map(|recipient| -> &dyn age::Recipient { recipient });
    Ok(Encryptor::with_recipients(recipients)?.wrap_output(target)?)
}

/// A document as it was before it was sealed; one that is not sealed is as it is.
pub(super) fn open(
    mut source: impl Read + Send + 'static,
    identity: Option<&Path>,
) -> anyhow::Result<Box<dyn Read + Send>> {
    let mut begin = Vec::new();
    (&mut source).take(MAGIC[0].len() as u64).read_to_end(&mut begin)?;
    let is_sealed = MAGIC.contains(&begin.as_slice());
    let source = io::Cursor::new(begin).chain(source);
    match (is_sealed, identity) {
        (false, _) => Ok(Box::new(source)),
        (true, None) => {
            Err(refuse("the document is sealed".to_owned(), "name the file with your age identity, with --identity")
                .into())
        }
        (true, Some(path)) => {
            let unread = |error: &dyn std::fmt::Display| {
                refuse(format!("{} is no age identity: {error}", path.display()), "`age-keygen` makes one")
            };
            let file = File::open(path).map_err(|error| {
                refuse(format!("cannot open {}: {error}", path.display()), "name the file with your age identity")
            })?;
            let identities = IdentityFile::from_buffer(BufReader::new(file)).map_err(|error| unread(&error))?;
            let identities = identities.into_identities().map_err(|error| unread(&error))?;
            let opened = Decryptor::new_buffered(ArmoredReader::new(BufReader::new(source))).and_then(|sealed| {
                sealed.decrypt(identities.iter().map(|identity| -> &dyn age::Identity { &**identity }))
            });
            let opened = opened.map_err(|error| {
                refuse(
                    format!("the document does not open: {error}"),
                    "it may be cut short or changed, or sealed for another identity",
                )
            })?;
            Ok(Box::new(opened))
        }
    }
}
