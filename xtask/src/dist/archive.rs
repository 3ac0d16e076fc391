//! A folder as one archive, and the sum of it.
//!
//! The same names and bytes give the same archive: entries are sorted, and owner, mode and time are not those of the files. GNU tar
//! and gzip make it, so the archive is also the same only where these are.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use waystone_core::canon::Hash;
use waystone_testkit::process::run;

/// What the folder in the archive is called.
pub(super) fn name(version: &str, target: &str) -> String {
    format!("waystone-{version}-{target}")
}

pub(super) fn file_name(name: &str) -> String {
    format!("{name}.tar.gz")
}

/// Packs `folder` under its own name.
pub(super) fn pack(folder: &Path, archive: &Path, modified_at: u64) -> anyhow::Result<()> {
    let (parent, name) = folder.parent().zip(folder.file_name()).context("the folder has no name")?;
    let mut tar = tar();
    tar.args(["--create", "--format=ustar", "--sort=name", "--numeric-owner", "--owner=0", "--group=0"]);
    tar.args(["--mode=u=rwX,go=rX", "--use-compress-program=gzip -9 --no-name"]);
    tar.arg(format!("--mtime=@{modified_at}")).arg("--file").arg(archive).arg("--directory").arg(parent).arg(name);
    run(&mut tar).context("cannot pack with GNU tar and gzip")
}

/// Unpacks into `folder`, which is made. Modes are those in the archive, whatever is usual here.
pub(super) fn unpack(archive: &Path, folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    let mut tar = tar();
    tar.args(["--extract", "--gzip", "--same-permissions", "--no-same-owner"]);
    run(tar.arg("--file").arg(archive).arg("--directory").arg(folder)).context("cannot unpack with GNU tar and gzip")
}

fn tar() -> Command {
    let mut tar = Command::new("tar");
    // A colon in a path is not a host; what is usual for whoever calls is not to be in the archive.
    tar.arg("--force-local").env_remove("TAR_OPTIONS").env_remove("GZIP").env("LC_ALL", "C");
    tar
}

pub(super) fn sum_file(archive: &Path) -> PathBuf {
    let mut path = archive.as_os_str().to_owned();
    path.push(".sha256");
    path.into()
}

/// Writes beside `archive` what `sha256sum --check` reads there.
pub(super) fn write_sum(archive: &Path) -> anyhow::Result<PathBuf> {
    let file_name = archive.file_name().context("the archive has no name")?.to_string_lossy();
    let path = sum_file(archive);
    fs::write(&path, format!("{}  {file_name}\n", Hash::of(&fs::read(archive)?)))?;
    Ok(path)
}

/// Looks whether the file that a sum names is the one it was made of.
pub(super) fn check_sum(path: &Path) -> anyhow::Result<()> {
    let line = fs::read_to_string(path)?;
    let (sum, name) = line.trim_end().split_once("  ").context("the sum has no name")?;
    let found = Hash::of(&fs::read(path.with_file_name(name))?).to_string();
    ensure!(found == sum, "{name} has the sum {found}, not {sum}");
    Ok(())
}

/// All files of `folder`, each with its hash.
pub(super) fn contents(folder: &Path) -> anyhow::Result<BTreeMap<PathBuf, Hash>> {
    files(folder)?.into_iter().map(|file| Ok((file.clone(), Hash::of(&fs::read(folder.join(file))?)))).collect()
}

/// What is in `folder` itself, each with the sizes of its files in bytes.
pub(super) fn sizes(folder: &Path) -> anyhow::Result<BTreeMap<String, Vec<u64>>> {
    let mut sizes = BTreeMap::<_, Vec<_>>::new();
    for file in files(folder)? {
        let first = file.iter().next().unwrap_or_default().to_string_lossy().into_owned();
        sizes.entry(first).or_default().push(fs::metadata(folder.join(file))?.len());
    }
    Ok(sizes)
}

/// The paths of all files under `folder`, from there on.
pub(super) fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(folder.join(&inner))? {
            let entry = entry?;
            let list = if entry.file_type()?.is_dir() { &mut folders } else { &mut files };
            list.push(inner.join(entry.file_name()));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODIFIED_AT: u64 = 1_794_902_958;

    /// A folder with small files, made in this order.
    fn folder(within: &Path, names: &[&str]) -> PathBuf {
        let folder = within.join(name("1.2.3", "made-up"));
        for name in names {
            fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
            fs::write(folder.join(name), format!("this is {name}")).unwrap();
        }
        folder
    }

    #[cfg(unix)]
    fn set_mode(path: &Path, mode: u32) {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn an_archive_is_named_by_version_and_target() {
        let name = name("0.1.0", "x86_64-unknown-linux-gnu");
        assert_eq!(name, "waystone-0.1.0-x86_64-unknown-linux-gnu");
        assert_eq!(file_name(&name), "waystone-0.1.0-x86_64-unknown-linux-gnu.tar.gz");
        assert_eq!(sum_file(Path::new("d/a-0.1.tar.gz")), Path::new("d/a-0.1.tar.gz.sha256"));
    }

    #[cfg(unix)]
    #[test]
    fn an_archive_has_one_folder_with_sorted_names_and_one_owner_and_time() {
        let within = tempfile::tempdir().unwrap();
        let folder = folder(within.path(), &["waystone", "man/waystone.1", "LICENSE"]);
        set_mode(&folder.join("waystone"), 0o700);
        set_mode(&folder.join("LICENSE"), 0o666);
        let archive = within.path().join("a.tar.gz");
        pack(&folder, &archive, MODIFIED_AT).unwrap();

        let mut list = tar();
        list.args(["--list", "--verbose", "--numeric-owner", "--full-time", "--utc", "--file"]).arg(&archive);
        let listed = String::from_utf8(list.output().unwrap().stdout).unwrap();
        let listed: Vec<String> =
            listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let expected = [
            "drwxr-xr-x 0/0 0 2026-11-17 08:09:18 waystone-1.2.3-made-up/",
            "-rw-r--r-- 0/0 15 2026-11-17 08:09:18 waystone-1.2.3-made-up/LICENSE",
            "drwxr-xr-x 0/0 0 2026-11-17 08:09:18 waystone-1.2.3-made-up/man/",
            "-rw-r--r-- 0/0 22 2026-11-17 08:09:18 waystone-1.2.3-made-up/man/waystone.1",
            "-rwxr-xr-x 0/0 16 2026-11-17 08:09:18 waystone-1.2.3-made-up/waystone",
        ];
        assert_eq!(listed, expected);
    }

    #[cfg(unix)]
    #[test]
    fn the_same_files_give_the_same_bytes_and_another_time_or_byte_gives_others() {
        let within = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let first = folder(within[0].path(), &["LICENSE", "man/a.1", "man/b.1"]);
        let second = folder(within[1].path(), &["man/b.1", "man/a.1", "LICENSE"]);
        set_mode(&second.join("LICENSE"), 0o600);
        set_mode(&second.join("man"), 0o700);
        fs::File::open(second.join("man/a.1")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        let packed = |folder: &Path, modified_at| {
            let archive = folder.with_file_name("a.tar.gz");
            pack(folder, &archive, modified_at).unwrap();
            Hash::of(&fs::read(archive).unwrap())
        };
        let hash = packed(&first, MODIFIED_AT);
        assert_eq!(packed(&second, MODIFIED_AT), hash);
        assert_ne!(packed(&second, MODIFIED_AT + 1), hash);
        fs::write(second.join("LICENSE"), "this is LICENCE").unwrap();
        assert_ne!(packed(&second, MODIFIED_AT), hash);
    }

    #[test]
    fn what_is_unpacked_is_what_was_packed() {
        let within = tempfile::tempdir().unwrap();
        let folder = folder(within.path(), &["LICENSE", "man/a.1", "man/b.1"]);
        let (archive, unpacked) = (within.path().join("a.tar.gz"), within.path().join("unpacked"));
        pack(&folder, &archive, MODIFIED_AT).unwrap();
        unpack(&archive, &unpacked).unwrap();
        let unpacked = unpacked.join(folder.file_name().unwrap());
        assert_eq!(contents(&unpacked).unwrap(), contents(&folder).unwrap());
        let expected = [("LICENSE".to_owned(), vec![15]), ("man".to_owned(), vec![15, 15])];
        assert_eq!(sizes(&unpacked).unwrap(), BTreeMap::from(expected));
    }

    #[test]
    fn a_folder_that_is_missing_is_not_packed_and_why_is_said() {
        let within = tempfile::tempdir().unwrap();
        let error = pack(&within.path().join("nothing"), &within.path().join("a.tar.gz"), MODIFIED_AT).unwrap_err();
        assert!(format!("{error:#}").contains("nothing: Cannot stat"), "{error:#}");
    }

    #[test]
    fn a_sum_names_the_file_beside_it_and_fits_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let archive = folder.path().join("a.tar.gz");
        fs::write(&archive, "abc").unwrap();
        let path = write_sum(&archive).unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a.tar.gz\n";
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        check_sum(&path).unwrap();

        fs::write(&archive, "abd").unwrap();
        let error = check_sum(&path).unwrap_err().to_string();
        assert!(error.starts_with("a.tar.gz has the sum ") && error.contains("not ba7816bf"), "{error}");
    }
}
