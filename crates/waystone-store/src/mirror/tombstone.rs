//! Which checkpoints were removed for good: a file of ids for each session, a line each. What a mirror file or a backup has under such an
//! id does not come back.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;

use super::Group;
use super::file::replace;
use super::name::file_name;
use crate::directory::DataDirectory;
use crate::platform::{self, sync_directory};

pub(crate) type Removed = BTreeSet<String>;

fn path_of(directory: &DataDirectory, session: &str) -> PathBuf {
    directory.tombstones().join(format!("{}.txt", file_name(session)))
}

/// What was removed of a session.
pub(crate) fn read(directory: &DataDirectory, session: &str) -> io::Result<Removed> {
    match platform::read_file(&path_of(directory, session)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Removed::new()),
        bytes => Ok(lines(&bytes?)),
    }
}

/// A line that is damaged is no id of anything.
fn lines(bytes: &[u8]) -> Removed {
    String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect()
}

/// Takes note that checkpoints of a session are removed. Only for who has the turn to write files, as is all that follows.
pub(crate) fn add<'a>(
    directory: &DataDirectory,
    session: &str,
    ids: impl IntoIterator<Item = &'a str>,
) -> io::Result<()> {
    let mut removed = read(directory, session)?;
    let before = removed.len();
    removed.extend(ids.into_iter().map(str::to_owned));
    if removed.len() == before { Ok(()) } else { write(directory, session, &removed) }
}

/// Forgets that they were removed: they are there again.
pub(crate) fn take_away<'a>(
    directory: &DataDirectory,
    session: &str,
    ids: impl IntoIterator<Item = &'a str>,
) -> io::Result<()> {
    let mut removed = read(directory, session)?;
    let before = removed.len();
    for id in ids {
        removed.remove(id);
    }
    match removed.len() {
        same if same == before => Ok(()),
        0 => {
            fs::remove_file(path_of(directory, session))?;
            sync_directory(&directory.tombstones())
        }
        _ => write(directory, session, &removed),
    }
}

fn write(directory: &DataDirectory, session: &str, removed: &Removed) -> io::Result<()> {
    let text: String = removed.iter().flat_map(|id| [id.as_str(), "\n"]).collect();
    replace(&path_of(directory, session), text.as_bytes())
}

/// The files, one for each session.
pub(crate) fn list_files(directory: &DataDirectory) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory.tombstones()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    Ok(files)
}

/// What stands in these files. One that is gone held what is there again.
pub(crate) fn read_files<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> io::Result<Removed> {
    let mut removed = Removed::new();
    for path in files {
        match platform::read_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            bytes => removed.extend(lines(&bytes?)),
        }
    }
    Ok(removed)
}

/// All that was removed, of any session.
pub(crate) fn read_all(directory: &DataDirectory) -> io::Result<Removed> {
    read_files(&list_files(directory)?)
}

impl Group {
    /// Leaves out what was removed since the file was written.
    pub(crate) fn without(mut self, removed: &Removed) -> Self {
        self.checkpoints.retain(|saved| !removed.contains(saved.columns.id()));
        self
    }
}

#[cfg(test)]
mod tests {
    use waystone_testkit::Harness;

    use super::*;

    #[tokio::test]
    async fn what_is_noted_is_read_until_it_is_taken_away() {
        let h = Harness::new();
        let directory = DataDirectory::prepare(h.data_dir()).unwrap();
        add(&directory, "A/b", ["c1", "c2"]).unwrap();
        add(&directory, "other", ["c3"]).unwrap();
        add(&directory, "A/b", ["c2"]).unwrap();
        let set = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Removed>();
        assert_eq!(read(&directory, "A/b").unwrap(), set(&["c1", "c2"]));
        assert_eq!(read_all(&directory).unwrap(), set(&["c1", "c2", "c3"]));
        take_away(&directory, "A/b", ["c1"]).unwrap();
        take_away(&directory, "other", ["c3", "c9"]).unwrap();
        assert_eq!(read_all(&directory).unwrap(), set(&["c2"]));
        assert_eq!(fs::read_dir(directory.tombstones()).unwrap().count(), 1);
    }
}
