//! Exports written to files, and files imported, for sessions, projects and conversations alike.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tempfile::NamedTempFile;
use waystone_core::api::{ImportStatus, Imported};
use waystone_core::clock::Timestamp;
use waystone_core::store::Scope;
use waystone_core::{Engine, Error, Export};
use waystone_store::{file_name, find_key_mark, make_exports, sync_directory};

use super::age::{self, parse_recipient};
use super::failure::Failure;
use super::render::{Out, count, plain, plain_json, plain_text};

/// How a document ends that is no JSON.
pub(crate) const MARKDOWN: &str = "md";

/// Where an export goes.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The file to write; `-` is standard output [default: a new file in exports/ of the data directory]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the file if it is there
    #[arg(long, requires = "output")]
    force: bool,
    /// Seal it for whoever has this age key, such as age1…; may be given more than once
    #[arg(long = "recipient", value_name = "KEY", value_parser = parse_recipient)]
    recipients: Vec<::age::x25519::Recipient>,
}

/// A document that is there as a whole.
pub(crate) struct Text {
    pub(crate) text: String,
    /// What it may be called.
    pub(crate) name: String,
    /// How such files end.
    pub(crate) extension: &'static str,
    pub(crate) at: Timestamp,
    /// How many things stand in it.
    pub(crate) count: u64,
    /// Texts that stand in it without their secrets.
    pub(crate) covered: u64,
    pub(crate) is_read_only: bool,
}

/// What is written, one part after the other.
trait Document {
    async fn next_part(&mut self) -> Result<Option<Vec<u8>>, Error>;
    /// Whether it may go to a file in the data directory.
    fn check_writable(&self) -> Result<(), Error>;
    /// A new file's name, its ending, and when it was made.
    fn named(&self) -> (&str, &'static str, Timestamp);
}

impl Document for Export {
    async fn next_part(&mut self) -> Result<Option<Vec<u8>>, Error> {
        Self::next_part(self).await
    }

    fn check_writable(&self) -> Result<(), Error> {
        Self::check_writable(self)
    }

    fn named(&self) -> (&str, &'static str, Timestamp) {
        (&self.name, self.extension, self.at)
    }
}

impl Document for Text {
    async fn next_part(&mut self) -> Result<Option<Vec<u8>>, Error> {
        Ok(Some(std::mem::take(&mut self.text)).filter(|text| !text.is_empty()).map(String::into_bytes))
    }

    fn check_writable(&self) -> Result<(), Error> {
        if self.is_read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    fn named(&self) -> (&str, &'static str, Timestamp) {
        (&self.name, self.extension, self.at)
    }
}

impl Target {
    /// Writes the document and says where it is.
    pub(crate) async fn write(self, mut export: Export, root: &Path, thing: &str, out: &Out) -> anyhow::Result<()> {
        let placed = self.place(&mut export, root).await?;
        if placed.is_some() && export.left_out > 0 {
            let left_out = count(export.left_out, "snapshot");
            super::warn(&[format!("{left_out} left out: some of the segments they have are deleted")]);
        }
        self.tell(placed, export.count, export.covered, thing, out)
    }

    /// Writes a document that is there as a whole, and says where it is.
    pub(crate) async fn write_text(self, mut text: Text, root: &Path, thing: &str, out: &Out) -> anyhow::Result<()> {
        let placed = self.place(&mut text, root).await?;
        self.tell(placed, text.count, text.covered, thing, out)
    }

    /// Says where it is and how long, unless it went to standard output.
    fn tell(
        &self,
        placed: Option<(PathBuf, u64)>,
        things: u64,
        covered: u64,
        thing: &str,
        out: &Out,
    ) -> anyhow::Result<()> {
        let Some((path, bytes)) = placed else { return Ok(()) };
        if covered > 0 {
            let texts = count(covered, "text");
            super::warn(&[format!(
                "{texts} written without possible secrets: the document differs from what is stored"
            )]);
        }
        out.print(&json!({ "path": path, "count": things, "bytes": bytes }), |_| {
            let sealed = if self.recipients.is_empty() { "" } else { ", sealed" };
            format!("exported {} to {}{sealed}", count(things, thing), plain(&path.display().to_string()))
        })
    }

    /// Writes the document to its place. `None` if that is standard output.
    async fn place(&self, document: &mut impl Document, root: &Path) -> anyhow::Result<Option<(PathBuf, u64)>> {
        let is_sealed = !self.recipients.is_empty();
        if self.output.as_deref() == Some(Path::new("-")) {
            return self.print(document).await.map(|()| None);
        }
        if self.output.is_none() {
            document.check_writable()?;
        }
        if !is_sealed && self.output.as_deref().is_none_or(|file| is_inside(file, root)) {
            check_plain(root)?;
        }
        let folder = match &self.output {
            Some(file) => file.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new(".")).to_owned(),
            None => make_exports(root).map_err(|error| cannot("make", &root.join("exports"), &error))?,
        };
        if let Some(file) = self.output.as_ref().filter(|file| !self.force && file.symlink_metadata().is_ok()) {
            return Err(exists(file).into());
        }
        // Beside its place under another name, readable by this user only, until it is whole.
        let mut file = NamedTempFile::new_in(&folder).map_err(|error| cannot("write to", &folder, &error))?;
        let bytes = match is_sealed {
            true => self.pour_sealed(document, file.as_file_mut()).await?,
            false => pour(document, file.as_file_mut(), false).await?,
        };
        file.as_file().sync_all()?;
        let path = match &self.output {
            Some(path) => persist(file, path.clone(), self.force)?,
            None => persist_new(file, &folder, document.named(), if is_sealed { ".age" } else { "" })?,
        };
        sync_directory(&folder)?;
        Ok(Some((path, bytes)))
    }

    async fn print(&self, document: &mut impl Document) -> anyhow::Result<()> {
        let (is_seen, is_sealed) = (io::stdout().is_terminal(), !self.recipients.is_empty());
        if is_seen && is_sealed {
            return Err(Failure {
                code: "INVALID_INPUT",
                message: "a sealed document is no text, and this is a terminal".to_owned(),
                hint: "name a file with --output, or send it on to another program".to_owned(),
            }
            .into());
        }
        let done = match is_sealed {
            true => self.pour_sealed(document, io::stdout()).await,
            false => pour(document, &mut io::stdout(), is_seen).await,
        };
        match done {
            // Whoever reads only its beginning has had enough.
            Err(error) if is_broken_pipe(&error) => Ok(()),
            done => done.map(drop),
        }
    }

    /// Writes a document that only its recipients can read. Returns how long it is itself.
    async fn pour_sealed(&self, document: &mut impl Document, target: impl Write) -> anyhow::Result<u64> {
        let mut sealed = age::seal(&self.recipients, target)?;
        let bytes = pour(document, &mut sealed, false).await?;
        sealed.finish()?.flush()?;
        Ok(bytes)
    }
}

/// Writes a document as it is made. On a terminal nothing in it may steer that.
async fn pour(document: &mut impl Document, target: &mut impl Write, is_seen: bool) -> anyhow::Result<u64> {
    let inert = if document.named().1 == MARKDOWN { plain_text } else { plain_json };
    let mut bytes = 0;
    while let Some(part) = document.next_part().await? {
        bytes += part.len() as u64;
        match is_seen {
            true => target.write_all(inert(&String::from_utf8_lossy(&part)).as_bytes())?,
            false => target.write_all(&part)?,
        }
    }
    target.flush()?;
    Ok(bytes)
}

fn persist(file: NamedTempFile, path: PathBuf, force: bool) -> anyhow::Result<PathBuf> {
    let done = if force { file.persist(&path) } else { file.persist_noclobber(&path) };
    match done {
        Ok(_) => Ok(path),
        Err(failed) if failed.error.kind() == io::ErrorKind::AlreadyExists => Err(exists(&path).into()),
        Err(failed) => Err(cannot("write", &path, &failed.error).into()),
    }
}

/// Gives the file the first name that is free.
fn persist_new(
    mut file: NamedTempFile,
    folder: &Path,
    (name, extension, at): (&str, &str, Timestamp),
    suffix: &str,
) -> anyhow::Result<PathBuf> {
    let (name, at) = (file_name(name), at.to_string());
    let date = at.get(..10).unwrap_or(&at);
    for n in 1.. {
        let more = if n > 1 { format!("-{n}") } else { String::new() };
        let path = folder.join(format!("{name}-{date}{more}.{extension}{suffix}"));
        match file.persist_noclobber(&path) {
            Ok(_) => return Ok(path),
            Err(failed) if failed.error.kind() == io::ErrorKind::AlreadyExists => file = failed.file,
            Err(failed) => return Err(cannot("write", &path, &failed.error).into()),
        }
    }
    unreachable!("some number is free")
}

fn is_inside(file: &Path, root: &Path) -> bool {
    let folder = std::path::absolute(file).ok().and_then(|file| file.parent()?.canonicalize().ok());
    folder.zip(root.canonicalize().ok()).is_some_and(|(folder, root)| folder.starts_with(root))
}

/// A document is plain text: it does not go where everything is sealed unless someone says where to.
fn check_plain(root: &Path) -> Result<(), Failure> {
    match find_key_mark(root).flatten() {
        None => Ok(()),
        Some(_) => Err(Failure {
            code: "INVALID_INPUT",
            message: "what is in the data directory is sealed, and what is exported is not".to_owned(),
            hint: "seal it for someone with --recipient, or name a file elsewhere with --output, or `-` for standard output"
                .to_owned(),
        }),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn exists(path: &Path) -> Failure {
    Failure {
        code: "INVALID_INPUT",
        message: format!("{} is there already", path.display()),
        hint: "name another file, or replace it with --force".to_owned(),
    }
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure {
        code: "INVALID_INPUT",
        message: format!("cannot {what} {}: {error}", path.display()),
        hint: "name another file".to_owned(),
    }
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// What `export` has written; `-` reads standard input
    file: PathBuf,
    /// The file with the age identity that a sealed document was sealed for
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
}

impl Import {
    pub(crate) async fn run(self, engine: &Engine, scope: &Scope, out: &Out) -> anyhow::Result<()> {
        let source: Box<dyn Read + Send> = match self.file.as_os_str() == "-" {
            true => Box::new(io::stdin()),
            false => Box::new(File::open(&self.file).map_err(|error| cannot("open", &self.file, &error))?),
        };
        let source = age::open(source, self.identity.as_deref())?;
        let imported = engine.import_document(scope, source).await?;
        super::warn(&imported.warnings);
        out.print(&imported, show)
    }
}

fn show(imported: &Imported) -> String {
    let what = match &imported.session_id {
        Some(session) => format!("session {session} of project {}", imported.project_id),
        None => format!("project {}", imported.project_id),
    };
    let (thing, added, known) = match imported.session_id {
        Some(_) => ("checkpoint", imported.checkpoints_added, imported.checkpoints_known),
        None => ("segment", imported.segments_added, imported.segments_known),
    };
    let snapshots = imported.snapshots_added.filter(|added| *added > 0);
    let snapshots = snapshots.map(|added| format!(" and {}", count(added, "snapshot"))).unwrap_or_default();
    let known = known.unwrap_or_default();
    match imported.status {
        ImportStatus::Unchanged => format!("unchanged: all of {what} is here already ({})", count(known, thing)),
        ImportStatus::Imported | ImportStatus::Volatile => {
            let added = count(added.unwrap_or_default(), thing);
            format!("imported {what}: {added}{snapshots} added, {known} here already")
        }
    }
}
