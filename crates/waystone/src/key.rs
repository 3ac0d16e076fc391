//! The master key: where it comes from, and how it stands in a file, one line of text that its owner alone can read.
//!
//! A file or a passphrase is named by who starts the program; without either the system's keychain is asked for the key that the data
//! directory names.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use waystone_core::Error;
use waystone_store::{KeyMark, MasterKey, NoKey, find_key_mark, sync_directory};
use zeroize::Zeroizing;

use crate::cli::Failure;
use crate::keychain;
use crate::settings::Settings;

/// What a key begins with: what it is, and how it is written.
const MARK: &str = "waystone-key-1:";
/// A file over this size is no key.
const BYTES_MAX: u64 = 4096;
/// What can be guessed is no passphrase.
const PASSPHRASE_CHARS_MIN: usize = 8;

fn refuse<T>(message: String) -> anyhow::Result<T> {
    Err(Error::InvalidInput(message).into())
}

/// Where a key is kept.
#[derive(Debug)]
pub(crate) enum Home {
    File(PathBuf),
    /// In someone's head.
    Passphrase(Zeroizing<String>),
    Keychain,
}

impl Home {
    /// The one that is set.
    fn of(settings: &Settings) -> anyhow::Result<Self> {
        match (settings.values["keyFile"].as_str(), settings.passphrase.as_ref()) {
            (Some(_), Some(_)) => {
                refuse("WAYSTONE_KEY_FILE and WAYSTONE_PASSPHRASE are both set; one is enough".to_owned())
            }
            (Some(path), None) => Ok(Self::File(PathBuf::from(path))),
            (None, Some(passphrase)) => Ok(Self::Passphrase(passphrase.clone())),
            (None, None) => Ok(Self::Keychain),
        }
    }

    /// Makes a key and keeps it there.
    pub(crate) fn make(&self, settings: &Settings) -> anyhow::Result<MasterKey> {
        match self {
            Self::File(path) => {
                check_place(path, &settings.data_dir)?;
                let key = MasterKey::generate()?;
                write(&key, path)?;
                Ok(key)
            }
            Self::Passphrase(passphrase) if passphrase.trim().chars().count() < PASSPHRASE_CHARS_MIN => {
                refuse(format!("a passphrase has at least {PASSPHRASE_CHARS_MIN} characters"))
            }
            Self::Passphrase(passphrase) => Ok(derive(passphrase, None)?),
            Self::Keychain => {
                let key = MasterKey::generate()?;
                keychain::keep(&key).map_err(|error| no_keychain(&error))?;
                crate::cli::note(
                    "a key was made in the system's keychain; `waystone key export --output FILE` writes it down, to be kept elsewhere too",
                );
                Ok(key)
            }
        }
    }

    /// The key that is there. Of a key that is sought in vain `mark` names the one that is needed.
    fn find(&self, settings: &Settings, mark: Option<KeyMark>) -> anyhow::Result<Option<MasterKey>> {
        match (self, mark) {
            (Self::File(path), _) => {
                check_place(path, &settings.data_dir)?;
                read(path).map(Some)
            }
            (Self::Passphrase(passphrase), Some(KeyMark { salt: Some(salt), .. })) => {
                Ok(Some(derive(passphrase, Some(salt))?))
            }
            (Self::Passphrase(_), Some(_)) => refuse(
                "the data directory was sealed with a key, and not with a passphrase; name it with WAYSTONE_KEY_FILE"
                    .to_owned(),
            ),
            (Self::Keychain, Some(mark)) => match keychain::find(&mark) {
                Ok(found) => Ok(found),
                Err(error) => {
                    // What is missing is the key; that the keychain is missing too is worth a word.
                    crate::cli::warn(&[format!(
                        "the system's keychain cannot be asked for the key: {}",
                        why_no_keychain(&error)
                    )]);
                    Ok(None)
                }
            },
            (Self::Passphrase(_) | Self::Keychain, None) => Ok(None),
        }
    }
}

fn derive(passphrase: &str, salt: Option<[u8; 16]>) -> Result<MasterKey, NoKey> {
    MasterKey::from_passphrase(passphrase, salt)
}

fn no_keychain(error: &keyring_core::Error) -> Error {
    Error::InvalidInput(format!(
        "the system's keychain cannot keep a key: {}. Unlock it; or, where there is none, name a file that `waystone key generate --output FILE` made with WAYSTONE_KEY_FILE, or a passphrase with WAYSTONE_PASSPHRASE",
        why_no_keychain(error)
    ))
}

/// What a person can make something of, and then what the system says.
fn why_no_keychain(error: &keyring_core::Error) -> String {
    let plain = match error {
        keyring_core::Error::NoDefaultStore | keyring_core::Error::PlatformFailure(_) => "there is none that answers",
        keyring_core::Error::NoStorageAccess(_) => "it is locked, or there is none that answers",
        _ => "it refuses",
    };
    format!("{plain} ({error})")
}

/// The key that is set, if one is. That a data directory is sealed with one of the keychain shows when it is opened: others are not to be
/// slower for it.
pub(crate) fn find_set(settings: &Settings) -> anyhow::Result<Option<MasterKey>> {
    match Home::of(settings)? {
        Home::Keychain if !settings.is_on("encryption") => Ok(None),
        _ => find(settings),
    }
}

/// The key of the data directory: the one that is there, or a new one for a directory that is to be sealed.
pub(crate) fn find(settings: &Settings) -> anyhow::Result<Option<MasterKey>> {
    find_for(settings, find_key_mark(&settings.data_dir))
}

/// The key that is there, of the directory as it is.
pub(crate) fn find_own(settings: &Settings) -> anyhow::Result<Option<MasterKey>> {
    let Some(mark) = find_key_mark(&settings.data_dir).flatten() else { return Ok(None) };
    let found = Home::of(settings)?.find(settings, Some(mark))?;
    Ok(found.filter(|key| key.mark().id == mark.id))
}

/// The key of what is marked so.
pub(crate) fn find_for(settings: &Settings, mark: Option<Option<KeyMark>>) -> anyhow::Result<Option<MasterKey>> {
    let home = Home::of(settings)?;
    let is_made = mark.is_none() && settings.is_on("encryption") && !settings.is_on("readOnly");
    match (&home, is_made) {
        (Home::Passphrase(_) | Home::Keychain, true) => home.make(settings).map(Some),
        _ => {
            if mark.is_none() && !matches!(home, Home::Keychain) && !settings.is_on("encryption") {
                crate::cli::warn(&[
                    "a key seals nothing by itself: WAYSTONE_ENCRYPTION=enabled seals a new data directory".to_owned(),
                ]);
            }
            home.find(settings, mark.flatten())
        }
    }
}

/// The key to seal a plain data directory with, which is the one that is set, and otherwise a new one in the keychain.
pub(crate) fn find_to_seal(settings: &Settings) -> anyhow::Result<MasterKey> {
    let home = Home::of(settings)?;
    let mark = find_key_mark(&settings.data_dir).flatten();
    match (home.find(settings, mark)?, mark) {
        (Some(key), _) => Ok(key),
        (None, None) => home.make(settings),
        (None, Some(_)) => refuse("the data directory is sealed already, and its key is not known".to_owned()),
    }
}

/// Whoever takes the data must not take the key with it.
pub(crate) fn check_place(path: &Path, data_dir: &Path) -> anyhow::Result<()> {
    let real =
        |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned());
    // One that is to be made is where its folder is.
    let place = if path.exists() {
        real(path)
    } else {
        real(&std::path::absolute(path)?.parent().map_or_else(PathBuf::new, Path::to_owned))
    };
    match place.starts_with(real(data_dir)) {
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
        Ok(text) => Zeroizing::new(text),
        Err(error) => return refuse(format!("the key {shown} cannot be read: {error}")),
    };
    match parse(&text) {
        Some(key) => Ok(key),
        None => refuse(format!("{shown} is no key: one is {MARK} and 64 hexadecimal digits")),
    }
}

fn parse(text: &str) -> Option<MasterKey> {
    let digits = text.trim().strip_prefix(MARK)?;
    let (secret, salt) = digits.split_once(':').map_or((digits, None), |(secret, salt)| (secret, Some(salt)));
    let mut bytes = Zeroizing::new([0; 32]);
    hex::decode_to_slice(secret, bytes.as_mut()).ok()?;
    let salt = match salt {
        Some(digits) => {
            let mut salt = [0; 16];
            hex::decode_to_slice(digits, &mut salt).ok()?;
            Some(salt)
        }
        None => None,
    };
    Some(MasterKey::new(*bytes, salt))
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
pub(crate) fn text(key: &MasterKey) -> Zeroizing<String> {
    let digits = Zeroizing::new(hex::encode(key.bytes()));
    // With the salt of its passphrase, which what it seals goes on to name.
    let salt = key.mark().salt.map(|salt| format!(":{}", hex::encode(salt))).unwrap_or_default();
    Zeroizing::new(format!("{MARK}{}{salt}\n", *digits))
}

/// Writes a key to a file that must not be there yet.
pub(crate) fn write(key: &MasterKey, path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    write_new(key, path).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Failure {
            code: "INVALID_INPUT",
            message: format!(
                "{shown} is there already and is not overwritten: what its key sealed cannot be read without it"
            ),
            hint: "name another file, or move that one away".to_owned(),
        }
        .into(),
        _ => Error::InvalidInput(format!("cannot write {shown}: {error}")).into(),
    })
}

fn write_new(key: &MasterKey, path: &Path) -> std::io::Result<()> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(text(key).as_bytes())?;
    file.sync_all()?;
    // Its name must be there too, before something is sealed with it.
    let folder = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    sync_directory(folder)
}
