//! `waystone checkpoint`

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::{Map, Value};
use waystone_core::api::{
    Checkpoint, ListCheckpoints, LoadCheckpoint, LoadedCheckpoint, Metadata, SaveCheckpoint, SaveStatus,
};
use waystone_core::id::{CheckpointId, SessionId};
use waystone_core::store::Scope;
use waystone_core::{Engine, Error, json};

use super::render::{Out, bytes, confirm, fields, plain_json, short, table, time};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List a session's checkpoints, newest first
    List {
        /// The session's id, from `session list`
        session: SessionId,
        /// Only checkpoints whose name, tags or metadata contain these words
        #[arg(long)]
        query: Option<String>,
        /// Only checkpoints with this tag; may be given several times
        #[arg(long = "tag", value_name = "TAG")]
        tags: Vec<String>,
        /// How many to show, 1 to 1000
        #[arg(long, default_value_t = ListCheckpoints::default_limit(), value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// Go on after the page that printed this cursor
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Print a checkpoint: what is known of it, and its context
    Show {
        /// Its id, from the list
        checkpoint: CheckpointId,
    },
    /// Save a JSON file as a checkpoint; `-` reads standard input
    Save(Save),
    /// Delete a checkpoint; it is kept for a while and loads by its id
    Delete {
        /// Its id, from the list
        checkpoint: CheckpointId,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Save {
    /// The session's id; one that does not exist is made
    session: SessionId,
    /// A file with a JSON object
    file: PathBuf,
    /// A name to find it by; a named checkpoint is never pruned
    #[arg(long)]
    name: Option<String>,
    /// A tag to find it by; may be given several times
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Save even if nothing changed
    #[arg(long)]
    force: bool,
}

pub(crate) async fn run(command: Command, engine: &Engine, scope: &Scope, out: &Out) -> anyhow::Result<()> {
    match command {
        Command::List { session, query, tags, limit, cursor } => {
            let request =
                ListCheckpoints { session_id: Some(session), query, tags, limit, cursor, ..Default::default() };
            let page = engine.list_checkpoints(scope, request).await?;
            out.print(&page, |page| {
                if page.checkpoints.is_empty() {
                    return "No checkpoints match.".to_owned();
                }
                let header = ["CHECKPOINT", "SAVED", "SIZE", "NAME", "TAGS", "AGENT"];
                let more = page.next_cursor.as_ref().map(|cursor| format!("more: --cursor {cursor}\n"));
                table(&header, page.checkpoints.iter().map(row)) + &more.unwrap_or_default()
            })
        }
        Command::Show { checkpoint } => {
            let request = LoadCheckpoint { checkpoint_id: Some(checkpoint), session_id: None };
            let loaded = engine.load_checkpoint(scope, request).await?;
            out.print(&loaded, show)
        }
        Command::Delete { checkpoint, yes } => {
            confirm(yes, &format!("Delete checkpoint {checkpoint}?"))?;
            let deleted = engine.delete_checkpoint(scope, &checkpoint).await?;
            out.print(&deleted, |deleted| {
                format!("deleted {}; kept until {}\n", deleted.checkpoint_id, time(deleted.kept_until))
            })
        }
        Command::Save(save) => {
            let saved = engine.save_checkpoint(scope, save.into_request(engine.limits().context_bytes_max)?).await?;
            out.print(&saved, |saved| {
                let done = match saved.status {
                    SaveStatus::Saved => "saved",
                    SaveStatus::SkippedUnchanged => "unchanged, kept",
                    SaveStatus::Volatile => "held until the process ends:",
                };
                let line = format!("{done} {} ({})\n", saved.checkpoint_id, bytes(saved.size_bytes));
                saved.warnings.iter().fold(line, |text, warning| text + "warning: " + warning + "\n")
            })
        }
    }
}

impl Save {
    fn into_request(self, bytes_max: u64) -> anyhow::Result<SaveCheckpoint> {
        let text = read_file(&self.file, bytes_max)?;
        let named = || self.file.display().to_string();
        let value = json::parse_strict(&text).map_err(|error| Error::InvalidInput(format!("{}: {error}", named())))?;
        let Value::Object(context) = value else {
            return Err(Error::InvalidInput(format!("{}: a context is a JSON object", named())).into());
        };
        let mut metadata = Map::new();
        metadata.extend(self.name.map(|name| ("name".to_owned(), name.into())));
        if !self.tags.is_empty() {
            metadata.insert("tags".to_owned(), self.tags.into());
        }
        Ok(SaveCheckpoint {
            session_id: Some(self.session),
            context,
            metadata: Some(Metadata::new(metadata).map_err(Error::InvalidInput)?),
            force: self.force,
            project_id: None,
            agent_id: None,
            workflow_id: None,
            expected_checkpoint_id: None,
            parent_checkpoint_id: None,
            idempotency_key: None,
        })
    }
}

/// Reads a file whole, but not one that could not be saved anyway.
fn read_file(path: &Path, bytes_max: u64) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?)
    };
    // Whitespace is not kept, so a file may be larger than what it holds.
    source.take(bytes_max * 2 + 1).read_to_end(&mut text).with_context(|| format!("cannot read {}", path.display()))?;
    let actual = text.len() as u64;
    if actual > bytes_max * 2 {
        return Err(Error::PayloadTooLarge { what: "the file", actual, max: bytes_max * 2 }.into());
    }
    Ok(text)
}

fn row(checkpoint: &Checkpoint) -> Vec<String> {
    vec![
        checkpoint.checkpoint_id.to_string(),
        time(checkpoint.created_at),
        bytes(checkpoint.size_bytes),
        short(checkpoint.metadata.name().unwrap_or_default()),
        short(&checkpoint.metadata.tags().collect::<Vec<_>>().join(", ")),
        checkpoint.agent_id.as_ref().map(ToString::to_string).unwrap_or_default(),
    ]
}

fn show(loaded: &LoadedCheckpoint) -> String {
    let checkpoint = &loaded.checkpoint;
    let known = fields(&[
        ("checkpoint", checkpoint.checkpoint_id.to_string()),
        ("session", checkpoint.session_id.to_string()),
        ("project", checkpoint.project_id.to_string()),
        ("saved", checkpoint.created_at.to_string()),
        ("parent", checkpoint.parent_checkpoint_id.as_ref().map(ToString::to_string).unwrap_or_default()),
        ("name", checkpoint.metadata.name().unwrap_or_default().to_owned()),
        ("tags", checkpoint.metadata.tags().collect::<Vec<_>>().join(", ")),
        ("size", format!("{} compressed", bytes(checkpoint.size_bytes))),
        ("state", if checkpoint.archived { "archived".to_owned() } else { "live".to_owned() }),
    ]);
    let context = json::parse_trusted::<Value>(loaded.context.get().as_bytes());
    let context = context.and_then(|context| serde_json::to_string_pretty(&context));
    format!("{known}\n{}\n", plain_json(&context.unwrap_or_else(|_| loaded.context.get().to_owned())))
}
