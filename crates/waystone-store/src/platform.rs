//! What differs between operating systems: who owns a directory, who may read it, and what it is mounted on.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

/// Creates a directory, and its parents, that only this user can enter.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Opens a file for reading and writing, creating it so that only this user can read it.
pub(crate) fn open_private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes a file that was not there, for writing, so that only this user can read it.
pub(crate) fn create_private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes the names in a directory durable. Windows does so on its own.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}

/// Who may use a directory.
pub(crate) enum Access {
    Private,
    OpenToOthers { mode: u32 },
    ForeignOwner,
}

#[cfg(unix)]
pub(crate) fn access(path: &Path) -> io::Result<Access> {
    use std::os::unix::fs::MetadataExt;
    let metadata = path.metadata()?;
    let mode = metadata.mode() & 0o777;
    Ok(if metadata.uid() != rustix::process::geteuid().as_raw() {
        Access::ForeignOwner
    } else if mode & 0o077 != 0 {
        Access::OpenToOthers { mode }
    } else {
        Access::Private
    })
}

#[cfg(unix)]
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700))
}

/// On Windows the user's profile directory is closed to other users by its access list.
#[cfg(not(unix))]
pub(crate) fn access(path: &Path) -> io::Result<Access> {
    path.metadata().map(|_| Access::Private)
}

#[cfg(not(unix))]
pub(crate) fn make_private(_: &Path) -> io::Result<()> {
    Ok(())
}

/// How much can still be written where `path` is. Not known on Windows, and then it is not short.
pub(crate) fn free_bytes(path: &Path) -> io::Result<u64> {
    #[cfg(unix)]
    {
        let disk = rustix::fs::statvfs(path)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
    #[cfg(not(unix))]
    {
        path.metadata().map(|_| u64::MAX)
    }
}

/// How large the disk is where `path` is. Not known on Windows.
pub(crate) fn disk_bytes(path: &Path) -> io::Result<u64> {
    #[cfg(unix)]
    {
        let disk = rustix::fs::statvfs(path)?;
        Ok(disk.f_blocks.saturating_mul(disk.f_frsize))
    }
    #[cfg(not(unix))]
    {
        path.metadata().map(|_| u64::MAX)
    }
}

/// The kind of network file system that `path` is on, if it is on one.
#[cfg(target_os = "linux")]
pub(crate) fn network_file_system(path: &Path) -> io::Result<Option<&'static str>> {
    const KINDS: [(u32, &str); 6] = [
        (0x6969, "NFS"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB2"),
        (0x517b, "SMB"),
        (0x0102_1997, "9P"),
        (0x00c3_6400, "Ceph"),
    ];
    let kind = u32::try_from(rustix::fs::statfs(path)?.f_type).unwrap_or_default();
    Ok(KINDS.iter().find(|(magic, _)| *magic == kind).map(|(_, name)| *name))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn network_file_system(_: &Path) -> io::Result<Option<&'static str>> {
    Ok(None)
}
