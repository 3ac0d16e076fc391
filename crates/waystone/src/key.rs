//! The master key as a file, outside of the data directory: one line of text, readable by its owner alone.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use waystone_core::Error;
use waystone_store::MasterKey;

use crate::settings::Settings;

/// What a key begins with: what it is, and how it is written.
const MARK: &str = "waystone-key-1:";
/// A file over this size is no key.
const BYTES_MAX: u64 = 4096;

fn refuse<T>(message: String) -> anyhow::Result<T> {
    Err(Error::InvalidInput(message).into())
}

/// The key that is set. Encryption without one is refused, and so is a file that cannot be used.
pub(crate) fn find(settings: &Settings) -> anyhow::Result<Option<MasterKey>> {
    match settings.values["keyFile"].as_str() {
        Some(path) => {
            let path = Path::new(path);
            check_place(path, &settings.data_dir)?;
            read(path).map(Some)
        }
        None if settings.is_on("encryption") => {
            refuse("encryption needs a key: name a file that `waystone key generate --output FILE` made, with WAYSTONE_KEY_FILE".to_owned())
        }
        None => Ok(None),
    }
}

/// Whoever takes the data must not take the key with it.
fn check_place(path: &Path, data_dir: &Path) -> anyhow::Result<()> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    match real(path).starts_with(real(data_dir)) {
        true => refuse(format!("the key {} is in the data directory; keep it elsewhere", path.display())),
        false => Ok(()),
    }
}

fn read(path: &Path) -> anyhow::Result<MasterKey> {
    let shown = path.display();
    let metadata = match path.metadata() {
        Ok(metadata) if metadata.is_file() && metadata.len() <= BYTES_MAX => metadata,
        Ok(_) => return refuse(format!("{shown} is no key")),
        Err(error) => return refuse(format!("the key {shown} cannot be read: {error}")),
    };
    if is_open_to_others(&metadata) {
        return refuse(format!("the key {shown} can be read by other users; close it with `chmod 600 {shown}`"));
    }
    let text = match fs::read_to_string(path) {
        Ok(text) => zeroize::Zeroizing::new(text),
        Err(error) => return refuse(format!("the key {shown} cannot be read: {error}")),
    };
    let mut bytes = zeroize::Zeroizing::new([0; 32]);
    match text.trim().strip_prefix(MARK).map(|digits| hex::decode_to_slice(digits, bytes.as_mut())) {
        Some(Ok(())) => Ok(MasterKey::new(*bytes)),
        Some(Err(_)) | None => refuse(format!("{shown} is no key: one is {MARK} and 64 hexadecimal digits")),
    }
}

#[cfg(unix)]
fn is_open_to_others(metadata: &fs::Metadata) -> bool {
    std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o077 != 0
}

#[cfg(not(unix))]
fn is_open_to_others(_: &fs::Metadata) -> bool {
    false
}

/// A key as its file has it.
pub(crate) fn text(key: &MasterKey) -> zeroize::Zeroizing<String> {
    let digits = zeroize::Zeroizing::new(hex::encode(key.bytes()));
    zeroize::Zeroizing::new(format!("{MARK}{}\n", *digits))
}

/// Writes a key to a file that must not be there yet.
pub(crate) fn write(key: &MasterKey, path: &Path) -> std::io::Result<()> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(text(key).as_bytes())?;
    file.sync_all()?;
    // Its name must be there too, before something is sealed with it.
    let folder = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
