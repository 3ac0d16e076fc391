//! A file system of 16 MB in memory, and a file that takes all that is left of it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::run;

/// Mounted until it is dropped.
pub(super) struct SmallDisk {
    root: PathBuf,
}

impl SmallDisk {
    pub(super) fn mount(root: &Path) -> io::Result<Self> {
        if !rustix::process::geteuid().is_root() {
            let message = "only root can mount a file system; run this as root";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        let options = ["-t", "tmpfs", "-o", "size=16m,mode=0700", "waystone-full"];
        run(Command::new("mount").args(options).arg(root))?;
        Ok(Self { root: root.to_owned() })
    }

    /// Takes what is left, page by page at the end.
    pub(super) fn fill(&self) -> io::Result<()> {
        let mut filler = File::options().append(true).create(true).open(self.filler())?;
        for length in [1 << 20, 1 << 12] {
            let zeros = vec![0; length];
            loop {
                match filler.write(&zeros) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    pub(super) fn free(&self) -> io::Result<()> {
        fs::remove_file(self.filler())
    }

    pub(super) fn used_bytes(&self) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(&self.root)?;
        Ok((disk.f_blocks - disk.f_bfree) * disk.f_frsize)
    }

    fn filler(&self) -> PathBuf {
        self.root.join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A process that still has a file open does not keep it: it goes when that process ends.
        let _ = run(Command::new("umount").arg("--lazy").arg(&self.root));
    }
}
