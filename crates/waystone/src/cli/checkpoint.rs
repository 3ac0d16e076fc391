//! `waystone checkpoint`

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use serde_json::{Map, Value, json};
use waystone_core::api::{
    Checkpoint, ContextRule, Deletion, ListCheckpoints, LoadCheckpoint, LoadedCheckpoint, Metadata, Origin,
    SaveCheckpoint, SaveStatus,
};
use waystone_core::clock::{Since, Timestamp};
use waystone_core::id::{AgentId, CheckpointId, IdempotencyKey, ProjectId, SessionId, WorkflowId};
use waystone_core::json::parse_trusted;
use waystone_core::store::Scope;
use waystone_core::{Engine, Error, GRACE_DAYS};

use super::failure::Failure;
use super::file;
use super::render::{Out, ago, bytes, confirm, fields, plain_json, short, table, time};
use super::view::{ViewArguments, view};

type Rules = Vec<ContextRule>;

fn rules(text: &str) -> Result<Rules, String> {
    serde_json::from_str(text)
        .map_err(|error| format!("{error}; it is a list such as [{{\"pattern\": \"^api\", \"class\": \"USEFUL\"}}]"))
}

/// What a person may say that a text is.
pub(super) fn origin(name: &str) -> Result<Origin, String> {
    let found = Origin::CLAIMED.into_iter().find(|origin| origin.as_str() == name);
    found.ok_or_else(|| "it is user, agent or tool".to_owned())
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List checkpoints, of a session or of all, newest first
    List(List),
    /// Print a checkpoint: what is known of it, and its context
    Show(Show),
    /// Print what of a context fits into a budget of tokens, and what became of each key
    View(ViewArguments),
    /// Print what differs between two checkpoints
    Diff {
        /// The earlier one
        before: CheckpointId,
        /// The later one
        after: CheckpointId,
    },
    /// Save a JSON file as a checkpoint
    #[command(allow_missing_positional = true)]
    Save(Save),
    /// Delete a checkpoint; it is kept for a while and loads by its id
    Delete {
        /// Its id, from the list
        checkpoint: CheckpointId,
        /// Remove it for good at once, also when it was deleted before
        #[arg(long)]
        purge: bool,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
    /// List a deleted or archived checkpoint again
    Restore {
        /// Its id, from `checkpoint list --archived`
        checkpoint: CheckpointId,
    },
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only checkpoints of this session; its id is in `session list`
    session: Option<SessionId>,
    /// Only checkpoints whose name, tags or metadata contain these words
    #[arg(long, value_name = "WORDS")]
    query: Option<String>,
    /// Look for the query in what sessions last saved, by words and by meaning, best first
    #[arg(long, requires = "query")]
    content: bool,
    /// Only checkpoints with this tag; may be given several times
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Only checkpoints saved by this agent
    #[arg(long)]
    agent: Option<AgentId>,
    /// Only checkpoints saved with this workflow id
    #[arg(long)]
    workflow: Option<WorkflowId>,
    /// Only checkpoints saved since a time, such as 2026-11-01 or 2026-11-01T12:00:00Z, or since so long ago, such as 24h
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,
    /// Only checkpoints saved before this time
    #[arg(long, value_name = "TIME")]
    until: Option<Timestamp>,
    /// Those that were deleted or pruned and can be restored, instead of those that are there
    #[arg(long, conflicts_with = "content")]
    archived: bool,
    /// How many to show, 1 to 1000
    #[arg(long, default_value_t = ListCheckpoints::default_limit())]
    limit: u32,
    /// How many to skip
    #[arg(long, default_value_t = 0)]
    offset: u32,
    /// Go on after the page that printed this cursor
    #[arg(long)]
    cursor: Option<String>,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").args(["checkpoint", "latest"]).required(true).multiple(false))]
pub(crate) struct Show {
    /// Its id, from the list
    checkpoint: Option<CheckpointId>,
    /// The newest checkpoint of this session
    #[arg(long, value_name = "SESSION")]
    latest: Option<SessionId>,
    /// Only what fits into so many tokens
    #[arg(long, value_name = "N")]
    max_tokens: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct Save {
    /// The session's id; one that is left out or does not exist is made
    session: Option<SessionId>,
    /// A file with a JSON object; `-` reads standard input
    file: PathBuf,
    /// A name to find it by; a named checkpoint is never pruned
    #[arg(long)]
    name: Option<String>,
    /// A tag to find it by; may be given several times
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Other fields to find it by; `--name` and `--tag` win over a name and tags in it
    #[arg(long, value_name = "JSON", value_parser = |text: &str| file::object(text.as_bytes()))]
    metadata: Option<Map<String, Value>>,
    /// Who saves
    #[arg(long)]
    agent: Option<AgentId>,
    /// What kind of work the session runs
    #[arg(long)]
    workflow: Option<WorkflowId>,
    /// Fail unless this is the session's newest checkpoint
    #[arg(long, value_name = "CHECKPOINT")]
    expected_checkpoint: Option<CheckpointId>,
    /// The checkpoint of this session that the context continues; the newest when left out
    #[arg(long, value_name = "CHECKPOINT")]
    parent_checkpoint: Option<CheckpointId>,
    /// Who wrote it: user, agent or tool [default: user]
    #[arg(long, value_parser = origin)]
    origin: Option<Origin>,
    /// A retry with the same key and the same request gets the first answer, for 24 hours
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<IdempotencyKey>,
    /// In place of the session's rules for views (--context-rules is for all sessions), such as '[{"pattern": "^api", "class": "USEFUL"}]'
    #[arg(long, value_name = "JSON", value_parser = rules)]
    rules: Option<Rules>,
    /// Save even if nothing changed
    #[arg(long)]
    force: bool,
}

/// `given` is the project that was named on the command line for all commands.
pub(crate) async fn run(
    command: Command,
    engine: &Engine,
    scope: &Scope,
    out: &Out,
    given: Option<ProjectId>,
) -> anyhow::Result<()> {
    match command {
        Command::List(list) => {
            let (one_session, is_search) = (list.session.is_some(), list.content);
            let page = engine.list_checkpoints(scope, list.into_request(given)).await?;
            out.print(&page, |page| {
                if page.checkpoints.is_empty() {
                    return "No checkpoints match.".to_owned();
                }
                if is_search {
                    return super::search::checkpoints(&page.checkpoints);
                }
                let header = ["SESSION", "CHECKPOINT", "SAVED", "SIZE", "NAME", "TAGS", "AGENT"];
                let first = usize::from(one_session);
                let rows = page.checkpoints.iter().map(|checkpoint| row(checkpoint, engine.now()).split_off(first));
                let more = |cursor| format!("{} of {}; more: --cursor {cursor}\n", page.checkpoints.len(), page.total);
                table(&header[first..], rows) + &page.next_cursor.as_ref().map(more).unwrap_or_default()
            })
        }
        Command::View(arguments) => view(arguments, engine, scope, out).await,
        Command::Diff { before, after } => {
            let diff = engine.diff_checkpoints(scope, before, after).await?;
            out.print(&diff, super::diff::show)
        }
        Command::Show(Show { checkpoint, latest, max_tokens }) => {
            let request = LoadCheckpoint { checkpoint_id: checkpoint, session_id: latest, max_tokens };
            let loaded = match engine.load_checkpoint(scope, request).await {
                Err(Error::CheckpointNotFound(id)) => return Err(not_found(id, engine, scope).await),
                loaded => loaded?,
            };
            if !out.json {
                super::warn(&warnings(&loaded));
            }
            out.print(&loaded, show)
        }
        Command::Restore { checkpoint } => {
            let restored = engine.restore_checkpoint(scope, &checkpoint).await?;
            out.print(&restored, |restored| {
                format!("restored {} in session {}\n", restored.checkpoint_id, restored.session_id)
            })
        }
        Command::Delete { checkpoint, purge, yes } => {
            delete(checkpoint, Deletion { purge }, yes, engine, scope, out).await
        }
        Command::Save(save) => {
            let saved =
                engine.save_checkpoint(scope, save.into_request(engine.limits().request_bytes_max(), given)?).await?;
            if !out.json {
                super::warn(&saved.warnings);
            }
            out.print(&saved, |saved| {
                let done = match saved.status {
                    SaveStatus::Saved => "saved",
                    SaveStatus::SkippedUnchanged => "unchanged, kept",
                    SaveStatus::Volatile => "held until the process ends:",
                };
                let (id, session, size) = (&saved.checkpoint_id, &saved.session_id, bytes(saved.size_bytes));
                format!("{done} {id} in session {session} ({size})\n")
            })
        }
    }
}

/// A session's id is what a person has at hand, and may have meant its newest checkpoint.
async fn not_found(id: CheckpointId, engine: &Engine, scope: &Scope) -> anyhow::Error {
    let session = id.as_str().parse::<SessionId>().ok();
    match session {
        Some(session) if engine.find_session(scope, &session).await.is_ok() => Failure {
            code: "CHECKPOINT_NOT_FOUND",
            message: format!("there is no checkpoint `{id}`, but a session"),
            hint: format!("`waystone checkpoint show --latest {id}` shows its newest checkpoint"),
        }
        .into(),
        _ => Error::CheckpointNotFound(id).into(),
    }
}

async fn delete(
    id: CheckpointId,
    how: Deletion,
    yes: bool,
    engine: &Engine,
    scope: &Scope,
    out: &Out,
) -> anyhow::Result<()> {
    if !yes {
        engine.find_checkpoint(scope, &id).await?;
        let outcome = match how.purge {
            true => "It is removed for good and cannot be restored.".to_owned(),
            false => format!("It is hidden, and loads by its id for {GRACE_DAYS} days."),
        };
        confirm(&format!("checkpoint {id}"), &outcome)?;
    }
    let deleted = engine.delete_checkpoint(scope, &id, how).await?;
    if !out.json {
        super::warn(&deleted.warnings);
    }
    out.print(&deleted, |deleted| match deleted.kept_until.map(time) {
        Some(until) => format!("deleted {id}; kept until {until}\n`waystone checkpoint restore {id}` brings it back\n"),
        None => format!("removed {id}\n"),
    })
}

impl List {
    fn into_request(self, project_id: Option<ProjectId>) -> ListCheckpoints {
        ListCheckpoints {
            session_id: self.session,
            project_id,
            query: self.query,
            content: self.content,
            tags: self.tags,
            workflow_id: self.workflow,
            agent_id: self.agent,
            since: self.since,
            until: self.until,
            archived: self.archived,
            limit: self.limit,
            offset: self.offset,
            cursor: self.cursor,
        }
    }
}

impl Save {
    fn into_request(self, bytes_max: u64, project_id: Option<ProjectId>) -> anyhow::Result<SaveCheckpoint> {
        let context = file::read_context(&self.file, bytes_max, self.session.is_none())?;
        let mut metadata = self.metadata.unwrap_or_default();
        metadata.extend(self.name.map(|name| ("name".to_owned(), name.into())));
        if !self.tags.is_empty() {
            metadata.insert("tags".to_owned(), self.tags.into());
        }
        Ok(SaveCheckpoint {
            session_id: self.session,
            context,
            metadata: Some(Metadata::new(metadata).map_err(Error::InvalidInput)?),
            force: self.force,
            project_id,
            agent_id: self.agent,
            workflow_id: self.workflow,
            expected_checkpoint_id: self.expected_checkpoint,
            parent_checkpoint_id: self.parent_checkpoint,
            context_rules: self.rules,
            origin: self.origin,
            idempotency_key: self.idempotency_key,
        })
    }
}

fn row(checkpoint: &Checkpoint, now: Timestamp) -> Vec<String> {
    vec![
        checkpoint.session_id.to_string(),
        checkpoint.checkpoint_id.to_string(),
        ago(checkpoint.created_at, now),
        bytes(checkpoint.size_bytes),
        short(checkpoint.metadata.name().unwrap_or_default()),
        short(&checkpoint.metadata.tags().collect::<Vec<_>>().join(", ")),
        checkpoint.agent_id.as_ref().map(ToString::to_string).unwrap_or_default(),
    ]
}

/// What must be known before the context is used.
fn warnings(loaded: &LoadedCheckpoint) -> Vec<String> {
    let skipped = loaded.skipped.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let degraded = format!("this is not the newest checkpoint of its session: damaged are {skipped}");
    loaded.degraded.then_some(degraded).into_iter().chain(loaded.warnings.iter().cloned()).collect()
}

fn state(loaded: &LoadedCheckpoint) -> String {
    match (loaded.skipped.len() as u64, loaded.checkpoint.archived) {
        (1, _) => "degraded: 1 newer one is damaged".to_owned(),
        (2.., _) => format!("degraded: {} newer ones are damaged", loaded.skipped.len()),
        (0, true) => "archived".to_owned(),
        (0, false) => "live".to_owned(),
    }
}

fn show(loaded: &LoadedCheckpoint) -> String {
    fn text(value: Option<&impl ToString>) -> String {
        value.map(ToString::to_string).unwrap_or_default()
    }
    let checkpoint = &loaded.checkpoint;
    let mut metadata = json!(checkpoint.metadata);
    if let Some(fields) = metadata.as_object_mut() {
        fields.retain(|name, _| name != "name" && name != "tags");
    }
    let known = fields(&[
        ("checkpoint", checkpoint.checkpoint_id.to_string()),
        ("session", checkpoint.session_id.to_string()),
        ("project", checkpoint.project_id.to_string()),
        ("saved", time(checkpoint.created_at)),
        ("parent", text(checkpoint.parent_checkpoint_id.as_ref())),
        ("name", text(checkpoint.metadata.name().as_ref())),
        ("tags", checkpoint.metadata.tags().collect::<Vec<_>>().join(", ")),
        ("metadata", text(metadata.as_object().filter(|fields| !fields.is_empty()).map(|_| &metadata))),
        ("origin", checkpoint.origin.to_string()),
        ("agent", text(checkpoint.agent_id.as_ref())),
        ("workflow", text(checkpoint.workflow_id.as_ref())),
        ("size", format!("{} compressed", bytes(checkpoint.size_bytes))),
        ("state", state(loaded)),
    ]);
    let known = match &loaded.view {
        Some(view) => format!("{known}\n{}", super::view::report(view)),
        None => known,
    };
    let context = parse_trusted(loaded.context.get().as_bytes());
    let context = context.and_then(|context| serde_json::to_string_pretty(&context));
    format!("{known}\n{}\n", plain_json(&context.unwrap_or_else(|_| loaded.context.get().to_owned())))
}
