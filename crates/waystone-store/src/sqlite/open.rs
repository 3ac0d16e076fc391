//! How a store is opened: to write and keep house, or only to read.

use std::path::Path;
use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use waystone_core::Limits;
use waystone_core::clock::Clock;

use super::connection::{Source, open_untouched};
use super::maintenance::Upkeep;
use super::reader::Readers;
use super::writer::Writer;
use super::{Sqlite, migration, seal};
use crate::background::Background;
use crate::directory::{DATABASE, DataDirectory};
use crate::lock::Presence;
use crate::{OpenError, Root};

/// Whether what is in a data directory is sealed; a new one is not.
pub fn is_sealed(root: &Path) -> bool {
    let database = root.join(DATABASE);
    let sealed = |db: Connection| seal::is_sealed(&db);
    database.is_file() && open_untouched(&database, &Arc::default()).and_then(sealed).unwrap_or_default()
}

impl Sqlite {
    /// Opens the store in `root`, making the directory and the schema when they are missing. Of `limits` those count by which housekeeping
    /// decides what goes; the others come in with each call.
    pub fn open<'a>(root: impl Into<Root<'a>>, clock: Arc<dyn Clock>, limits: &Limits) -> Result<Self, OpenError> {
        let Root { path: root, key } = root.into();
        let directory = DataDirectory::prepare(root)?.with_keys(key);
        let unusable = |error| OpenError::Unusable { path: root.to_owned(), error };
        let presence = Presence::enter(
            &directory,
            &clock.new_id(),
            || migration::is_current(&directory),
            || migration::run(&directory, clock.now()),
        )?;
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
        let Root { path: root, key } = root.into();
        if !root.exists() {
            return Err(OpenError::Nothing { path: root.to_owned() });
        }
        let directory = DataDirectory::find(root)?.with_keys(key);
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
            events: Mutex::new(None),
            held: Mutex::new(Some(held)),
        }
    }
}
