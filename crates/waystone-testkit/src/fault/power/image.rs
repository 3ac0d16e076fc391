//! Cuts the power of a real file system: an image in a file, mounted, shut down in the middle of writing so that nothing more of it
//! reaches the disk, and mounted again as after a start. Needs root, the file system's tools, and `xfs_io` (of xfsprogs) to cut.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::contexts::Random;
use crate::fault::kill::{Acknowledged, End, Plan, Report, save_until, start, verify};
use crate::harness::make_private;
use crate::process::run;

/// XFS makes none smaller than 300 MB. The file is sparse.
const IMAGE_BYTES: u64 = 1024 * 1024 * 1024;

pub struct Image {
    file: PathBuf,
    mount: PathBuf,
}

impl Image {
    /// Makes a file system of `kind`, `ext4` or `xfs`, in `folder`, and mounts it there.
    pub fn make(kind: &str, folder: &Path) -> io::Result<Self> {
        let image = Self { file: folder.join("image"), mount: folder.join("mount") };
        std::fs::File::create(&image.file)?.set_len(IMAGE_BYTES)?;
        make_private(&image.mount)?;
        run(Command::new(format!("mkfs.{kind}")).arg(if kind == "xfs" { "-fq" } else { "-qF" }).arg(&image.file))?;
        image.mount()?;
        Ok(image)
    }

    fn mount(&self) -> io::Result<()> {
        run(Command::new("mount").args(["-o", "loop"]).args([&self.file, &self.mount]))
    }

    fn unmount(&self) -> io::Result<()> {
        run(Command::new("umount").arg(&self.mount))
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = self.unmount();
    }
}

/// Cuts the power `plan.kills` times while a writer saves. `plan.data_dir` is made on the image.
pub fn cut(plan: &Plan, kind: &str, folder: &Path, progress: impl Fn(u32)) -> io::Result<Report> {
    // Without it the writer would never be stopped.
    run(Command::new("xfs_io").arg("-V"))?;
    let image = Image::make(kind, folder)?;
    let mut plan = plan.clone();
    plan.data_dir = image.mount.join("data");
    make_private(&plan.data_dir)?;
    let (mut random, mut report) = (Random::new(plan.seed), Report::default());
    let (mut saved, mut n): (Vec<Acknowledged>, u64) = (Vec::new(), 0);
    for cut in 0..plan.kills {
        let mut process = start(&plan)?;
        let delay = Duration::from_micros(20_000 + random.below(200_000));
        let end = |pid: Pid| {
            run(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(&image.mount)).unwrap();
            kill_process(pid, Signal::KILL).unwrap();
        };
        save_until(&mut process, &plan, 0, &mut n, delay, &mut saved, End::ShutDown, end)?;
        report.kills += 1;
        drop(process);
        image.unmount()?;
        image.mount()?;
        progress(cut + 1);
    }
    verify(&plan, &saved, &mut report)?;
    Ok(report)
}
