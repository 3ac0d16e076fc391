//! What differs between operating systems: who owns a directory, who may read it, and what it is mounted on.

use std::fs::{DirBuilder, File, FileType, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

/// Creates a directory, and its parents, that only this user can enter. One that someone has put a link in the place of is refused.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(metadata) => return Err(planted(metadata.file_type(), "a directory")),
        Err(_) => {}
    }
    create_dir(path)
}

/// The same, of a directory that the user named: what leads there may be a link.
pub(crate) fn create_dir(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Why something is not what it should be.
pub(crate) fn planted(found: FileType, wanted: &str) -> io::Error {
    let what = if found.is_symlink() {
        "a symbolic link"
    } else if found.is_dir() {
        "a directory"
    } else if found.is_file() {
        "a file"
    } else {
        "neither a file nor a directory"
    };
    io::Error::other(format!("it is {what}, where {wanted} belongs"))
}

/// Opens a file for reading and writing, creating it so that only this user can read it.
pub(crate) fn open_private_file(path: &Path) -> io::Result<File> {
    close_to_others(open(path, File::options().read(true).write(true).create(true).truncate(false))?)
}

/// Makes a file that was not there, for writing, so that only this user can read it.
pub(crate) fn create_private_file(path: &Path) -> io::Result<File> {
    close_to_others(open(path, File::options().write(true).create_new(true))?)
}

/// Opens a file to write at its end, creating it so that only this user can read it.
pub(crate) fn append_private_file(path: &Path) -> io::Result<File> {
    close_to_others(open(path, File::options().append(true).create(true))?)
}

/// Opens a file of ours for reading.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    open(path, File::options().read(true))
}

pub(crate) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_file(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a file and nothing else: no link is followed, and a pipe that someone put there is not waited for.
fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        options.mode(0o600).custom_flags(flags.bits().cast_signed());
    }
    let opened = options.open(path).and_then(|file| Ok((file.metadata()?, file)));
    match opened {
        Ok((metadata, file)) if metadata.is_file() => Ok(file),
        Ok((metadata, _)) => Err(planted(metadata.file_type(), "a file")),
        Err(error) => match path.symlink_metadata() {
            Ok(metadata) if !metadata.is_file() => Err(planted(metadata.file_type(), "a file")),
            _ => Err(error),
        },
    }
}

/// What the process may be told by its surroundings about modes does not count.
#[cfg(unix)]
fn close_to_others(file: File) -> io::Result<File> {
    use std::os::unix::fs::PermissionsExt;
    if file.metadata()?.permissions().mode() & 0o777 != 0o600 {
        file.set_permissions(PermissionsExt::from_mode(0o600))?;
    }
    Ok(file)
}

#[cfg(not(unix))]
fn close_to_others(file: File) -> io::Result<File> {
    Ok(file)
}

/// Makes the names in a directory durable. Windows does so on its own.
pub fn sync_directory(path: &Path) -> io::Result<()> {
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
