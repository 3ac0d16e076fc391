//! The system's keychain: master keys by their ids, so that a data directory may be moved and there may be several.

use std::sync::Arc;

use keyring_core::{CredentialStore, Entry, Error};
use waystone_store::{KeyMark, MasterKey};
use zeroize::Zeroizing;

const SERVICE: &str = "waystone";

#[cfg(target_os = "linux")]
fn store() -> keyring_core::Result<Arc<CredentialStore>> {
    Ok(dbus_secret_service_keyring_store::Store::new()?)
}

#[cfg(target_os = "macos")]
fn store() -> keyring_core::Result<Arc<CredentialStore>> {
    Ok(apple_native_keyring_store::keychain::Store::new()?)
}

#[cfg(target_os = "windows")]
fn store() -> keyring_core::Result<Arc<CredentialStore>> {
    Ok(windows_native_keyring_store::Store::new()?)
}

#[cfg(not(any(target_os = "linux", target_os = "macos", target_os = "windows")))]
fn store() -> keyring_core::Result<Arc<CredentialStore>> {
    Err(Error::NoDefaultStore)
}

fn entry(mark: &KeyMark) -> keyring_core::Result<Entry> {
    store()?.build(SERVICE, &hex::encode(mark.id), None)
}

/// Keeps a key.
pub(crate) fn keep(key: &MasterKey) -> keyring_core::Result<()> {
    entry(&key.mark())?.set_secret(key.bytes())
}

/// The key that a store was sealed with; none when it is not there.
pub(crate) fn find(mark: &KeyMark) -> keyring_core::Result<Option<MasterKey>> {
    let secret = match entry(mark)?.get_secret() {
        Ok(secret) => Zeroizing::new(secret),
        Err(Error::NoEntry) => return Ok(None),
        Err(error) => return Err(error),
    };
    let bytes = <&[u8; 32]>::try_from(secret.as_slice()).map_err(|_| Error::BadEncoding(Vec::new()))?;
    Ok(Some(MasterKey::new(*bytes, mark.salt)))
}
