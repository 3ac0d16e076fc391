//! `waystone audit`

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use tempfile::NamedTempFile;
use waystone_core::api::{AuditHead, AuditRecord, ListAudit, VerifiedAudit};
use waystone_core::clock::{Clock, Since, Timestamp};
use waystone_core::id::SessionId;
use waystone_core::store::Scope;
use waystone_core::{Engine, Error, audit};
use waystone_store::sync_directory;

use super::document::Target;
use super::failure::Failure;
use super::render::{Out, advance, bar, count, table, time};
use crate::clock::SystemClock;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List what was done and what was loaded, newest first
    List(List),
    /// Check every record against the one before it, and name the first that is bad
    Verify(Verify),
    /// Write all records to a file that can be verified anywhere
    Export(Target),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only what was done since a time, such as 2026-11-01 or 2026-11-01T12:00:00Z, or since so long ago, such as 24h
    #[arg(long)]
    since: Option<Since>,
    /// Only what was done before a time
    #[arg(long)]
    until: Option<Timestamp>,
    /// Only what this agent, client or user did
    #[arg(long)]
    actor: Option<String>,
    /// Only records of this kind, such as checkpoint.loaded
    #[arg(long)]
    kind: Option<String>,
    /// Only what is about this session
    #[arg(long)]
    session: Option<SessionId>,
    /// How many to list, 1 to 1000
    #[arg(long, default_value_t = ListAudit::default_limit())]
    limit: u32,
    /// Go on after the page that printed this cursor
    #[arg(long)]
    cursor: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// Keep the newest record in this file, outside of the data directory. If the file is there, the record in it must be in the log
    /// first: a log whose end was cut off has no other sign of it
    #[arg(long, value_name = "FILE")]
    head_file: Option<PathBuf>,
    /// Verify what `audit export` has written, instead of the data directory
    #[arg(long, value_name = "EXPORT")]
    file: Option<PathBuf>,
    /// The file with the age identity that the export was sealed for
    #[arg(long, value_name = "FILE", requires = "file")]
    identity: Option<PathBuf>,
}

impl Command {
    /// The file that is verified in the place of a data directory.
    pub(super) fn exported(&self) -> Option<(&Verify, &Path)> {
        match self {
            Self::Verify(verify) => verify.file.as_deref().map(|file| (verify, file)),
            Self::List(_) | Self::Export(_) => None,
        }
    }
}

pub(crate) async fn run(
    command: Command,
    engine: &Engine,
    scope: &Scope,
    out: &Out,
    root: &Path,
) -> anyhow::Result<()> {
    match command {
        Command::List(list) => {
            let page = engine.list_audit(scope, list.into()).await?;
            out.print(&page, |page| {
                if page.records.is_empty() && page.next_cursor.is_none() {
                    return "There is no such record.".to_owned();
                }
                let more = page.next_cursor.as_ref().map(|cursor| format!("more: --cursor {cursor}\n"));
                table(&["RECORD", "WHEN", "WHO", "WHAT", "ABOUT"], page.records.iter().map(row))
                    + &more.unwrap_or_default()
            })
        }
        Command::Verify(verify) => {
            let (kept, bar) = (verify.kept()?, bar("verifying"));
            let verified = engine.verify_audit(scope, kept.as_ref(), |done, total| advance(&bar, done, total)).await?;
            bar.finish_and_clear();
            verify.conclude(&verified, out)
        }
        Command::Export(target) => target.write(engine.export_audit(scope).await?, root, "record", out).await,
    }
}

/// Verifies a file. No data directory is opened for it.
pub(super) fn run_on_file(verify: &Verify, path: &Path, out: &Out) -> anyhow::Result<()> {
    let cannot = |error: io::Error| Error::InvalidInput(format!("cannot open {}: {error}", path.display()));
    let file = File::open(path).map_err(cannot)?;
    let (bytes, bar) = (file.metadata().map_err(cannot)?.len(), bar("verifying"));
    let kept = verify.kept()?;
    let source = super::age::open(file, verify.identity.as_deref())?;
    let verified = audit::verify_file(BufReader::new(source), kept.as_ref(), |done| advance(&bar, done, bytes));
    bar.finish_and_clear();
    let named = |error: Error| match error {
        Error::InvalidInput(message) => Error::InvalidInput(format!("{}: {message}", path.display())),
        other => other,
    };
    verify.conclude(&verified.map_err(named)?, out)
}

impl Verify {
    /// The record that was kept the last time: its number, its hash, and when.
    fn kept(&self) -> anyhow::Result<Option<AuditHead>> {
        let Some(path) = &self.head_file else { return Ok(None) };
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| Error::InvalidInput(format!("cannot read {}: {error}", path.display())))?,
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let kept = match words[..] {
            [seq, hash, _] if hash.len() == 64 => seq.parse().ok().map(|seq| AuditHead { seq, hash: hash.to_owned() }),
            _ => None,
        };
        let wrong = || Error::InvalidInput(format!("{} is not what --head-file has written", path.display()));
        Ok(Some(kept.ok_or_else(wrong)?))
    }

    /// Says what was found, and keeps the head if all is well.
    fn conclude(&self, verified: &VerifiedAudit, out: &Out) -> anyhow::Result<()> {
        let AuditHead { seq, hash } = &verified.head;
        out.print(verified, show)?;
        if let Some(broken) = verified.broken.first() {
            let message = format!("record {} {}", broken.seq, broken.why);
            let hint = "compare with an export or a backup from before; `waystone audit list` shows what is there";
            return Err(Failure { code: "AUDIT_BROKEN", message, hint: hint.to_owned() }.into());
        }
        tracing::info!(seq, %hash, "audit head");
        match &self.head_file {
            Some(path) => keep(path, &format!("{seq} {hash} {}\n", SystemClock.now()))
                .map_err(|error| Error::InvalidInput(format!("cannot write {}: {error}", path.display())).into()),
            None => Ok(()),
        }
    }
}

/// Puts a file in its place at once, readable by this user only.
fn keep(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|failed| failed.error)?;
    sync_directory(folder)
}

fn show(verified: &VerifiedAudit) -> String {
    let AuditHead { seq, hash } = &verified.head;
    let looked = format!("{} in {}", count(verified.records, "record"), count(verified.chains, "chain"));
    if verified.sound {
        return format!("verified {looked}\nhead {seq} {hash}\n");
    }
    let rows = verified.broken.iter().map(|broken| vec![broken.seq.to_string(), broken.why.to_string()]);
    format!("looked at {looked}\n{}", table(&["RECORD", "WHY"], rows))
}

fn row(record: &AuditRecord) -> Vec<String> {
    let about: Vec<String> = serde_json::from_str(&record.subject.0).unwrap_or_default();
    let about = about.iter().map(|handle| handle.strip_prefix("ws:").unwrap_or(handle)).collect::<Vec<_>>();
    vec![record.seq.to_string(), time(record.at), record.actor.clone(), record.kind.clone(), about.join(" ")]
}

impl From<List> for ListAudit {
    fn from(list: List) -> Self {
        let List { since, until, actor, kind, session, limit, cursor } = list;
        Self { since, until, actor, kind, session_id: session, limit, cursor }
    }
}
