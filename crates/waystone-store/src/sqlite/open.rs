//! How a store is opened: to write and keep house, or only to read.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::{fs, io};

use rusqlite::Connection;

use waystone_core::Limits;
use waystone_core::clock::{Clock, Timestamp};

use super::connection::{Source, open_untouched};
use super::maintenance::Upkeep;
use super::reader::Readers;
use super::writer::Writer;
use super::{Sqlite, migration};
use crate::background::Background;
use crate::backup::list;
use crate::directory::DataDirectory;
use crate::lock::Presence;
use crate::mirror::{list_files, sealed_by};
use crate::seal::KeyMark;
use crate::{OpenError, Root, repair};

/// By which key what is in a data directory is sealed, as its database, a mirror file or a backup has it: by none when it is plain.
/// Nothing where there is none of them.
pub(crate) fn find_mark(directory: &DataDirectory) -> Option<Option<KeyMark>> {
    let in_database = [Source::Only(directory.clone()), Source::Frozen(directory.clone())].iter().find_map(asked);
    // One that was made anew and is about to take the place of the one that is gone.
    let in_rebuilt = || {
        let is_next = !directory.database().exists() && directory.rebuilt().exists();
        is_next
            .then(|| open_untouched(&directory.rebuilt(), directory.keys()).ok().and_then(|db| mark_in(&db)))
            .flatten()
    };
    let in_files = || list_files(directory).0.iter().find_map(|file| sealed_by(&directory.root().join(file)));
    let in_backups = || {
        let backups = list(directory, Timestamp::from_ms(i64::MAX / 2)).unwrap_or_default();
        backups.iter().find_map(|backup| asked(&Source::Frozen(directory.in_backup(backup))))
    };
    in_database.or_else(in_rebuilt).or_else(in_files).or_else(in_backups)
}

/// The same of a backup, or of a database in a file.
pub(crate) fn find_mark_of_copy(database: &Path) -> Option<Option<KeyMark>> {
    open_untouched(database, &Arc::default()).ok().and_then(|db| mark_in(&db))
}

fn asked(source: &Source) -> Option<Option<KeyMark>> {
    if source.directory().database().metadata().ok()?.len() == 0 {
        return None;
    }
    mark_in(&source.open().ok()?)
}

fn mark_in(db: &Connection) -> Option<Option<KeyMark>> {
    // One that is being made is not there yet.
    if migration::version(db).ok()? < migration::VERSION && is_untouched(db) {
        return None;
    }
    let is_known = "SELECT count(*) FROM pragma_table_info('space') WHERE name = 'wrapped_key'";
    match db.query_row(is_known, [], |row| row.get(0)).ok()? {
        true => {
            let wrapped: Option<Vec<u8>> = db.query_row("SELECT wrapped_key FROM space", [], |row| row.get(0)).ok()?;
            wrapped.map_or(Some(None), |wrapped| KeyMark::of(&wrapped).map(Some))
        }
        // It is older than sealing, if it is one of ours.
        false => db.query_row("SELECT space FROM space", [], |_| Ok(None)).ok(),
    }
}

fn is_untouched(db: &Connection) -> bool {
    let sql = "SELECT max(row_seq) + max(operation_seq) FROM space";
    db.query_row(sql, [], |row| row.get::<_, Option<i64>>(0)).map_or(true, |newest| newest.unwrap_or(0) == 0)
}

/// Opens, and on a full disk once more without what was set aside for that: even to read takes room, for SQLite's index of the log. Then
/// room can be made; housekeeping sets some aside again when there is enough.
fn giving_up_reserve<T>(directory: &DataDirectory, open: impl Fn() -> Result<T, OpenError>) -> Result<T, OpenError> {
    match open() {
        Err(error) if is_full(&error) && fs::remove_file(directory.reserve()).is_ok() => {
            tracing::warn!(%error, "what was set aside for a full disk is given up, to open the store");
            open()
        }
        opened => opened,
    }
}

fn is_full(error: &OpenError) -> bool {
    match error {
        OpenError::Full { .. } => true,
        OpenError::Unusable { error, .. } => error.kind() == io::ErrorKind::StorageFull,
        _ => false,
    }
}

impl Sqlite {
    /// Opens the store in `root`, making the directory and the schema when they are missing. Of `limits` those count by which housekeeping
    /// decides what goes; the others come in with each call.
    pub fn open<'a>(root: impl Into<Root<'a>>, clock: Arc<dyn Clock>, limits: &Limits) -> Result<Self, OpenError> {
        let root = root.into();
        let directory = DataDirectory::prepare(root.path)?.with_key_of(&root)?;
        giving_up_reserve(&directory, || Self::open_in(&directory, &clock, limits))
    }

    fn open_in(directory: &DataDirectory, clock: &Arc<dyn Clock>, limits: &Limits) -> Result<Self, OpenError> {
        let unusable = |error| OpenError::Unusable { path: directory.root().to_owned(), error };
        let (directory, clock) = (directory.clone(), Arc::clone(clock));
        let presence = Presence::enter(
            &directory,
            &clock.new_id(),
            || migration::is_current(&directory),
            || migration::run(&directory, clock.now()),
        )?;
        repair::clear(&directory);
        let source = Source::Beside(directory.clone());
        migration::unlock(&source)?;
        let writer = Writer::start(&directory)?;
        let upkeep = Upkeep::new(directory.clone(), Arc::clone(&clock), limits.clone())?;
        let maintenance = crate::maintenance::start(upkeep).map_err(unusable)?;
        Ok(Self::with(directory, source, clock, limits, writer, (Some(maintenance), presence)))
    }

    /// Opens the store in `root` only to read: nothing is made, brought to the present, written or kept in order. What others write is seen.
    pub fn open_read_only<'a>(
        root: impl Into<Root<'a>>,
        clock: Arc<dyn Clock>,
        limits: &Limits,
    ) -> Result<Self, OpenError> {
        let root = root.into();
        if !root.path.exists() {
            return Err(OpenError::Nothing { path: root.path.to_owned() });
        }
        let directory = DataDirectory::find(root.path)?.with_key_of(&root)?;
        let presence = Presence::enter_reading(&directory, &clock.new_id())?;
        let source = migration::find_source(&directory)?;
        migration::unlock(&source)?;
        Ok(Self::with(directory, source, clock, limits, Writer::refusing(), (None, presence)))
    }

    fn with(
        directory: DataDirectory,
        source: Source,
        clock: Arc<dyn Clock>,
        limits: &Limits,
        writer: Writer,
        held: (Option<Background>, Presence),
    ) -> Self {
        Self {
            readers: Arc::new(Readers::new(source.clone())),
            directory,
            source,
            clock,
            limits: limits.clone(),
            writer,
            corpora: Arc::default(),
            measures: Arc::default(),
            instance: held.1.name(),
            events: Mutex::new(None),
            held: Mutex::new(Some(held)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use waystone_testkit::harness::private_dir;

    use super::*;

    /// That it suffices on a disk without a free page is looked at by `cargo xtask faults full`, which needs root.
    #[test]
    fn what_is_set_aside_for_a_full_disk_is_given_up_to_open_the_store() {
        let folder = private_dir();
        let directory = DataDirectory::prepare(folder.path()).unwrap();
        let tries = Cell::new(0);
        let open = || {
            tries.set(tries.get() + 1);
            let is_full = directory.reserve().exists() || tries.get() > 2;
            if is_full { Err(OpenError::Full { path: directory.database() }) } else { Ok(()) }
        };
        fs::write(directory.reserve(), "room").unwrap();
        assert!(giving_up_reserve(&directory, open).is_ok());
        assert!(!directory.reserve().exists());
        assert!(matches!(giving_up_reserve(&directory, open), Err(OpenError::Full { .. })));
        assert_eq!(tries.get(), 3, "where nothing is set aside it is not tried again");
    }
}
