//! `waystone session`

use clap::{ArgGroup, Subcommand};
use waystone_core::api::{
    ContextRule, Deletion, ListSessions, MarkCritical, MarkStatus, MarkedCritical, Origin, Session, UpdateSession,
};
use waystone_core::clock::Timestamp;
use waystone_core::id::SessionId;
use waystone_core::store::Scope;
use waystone_core::{Engine, GRACE_DAYS};

use super::document::{Import, Target};
use super::failure::Failure;
use super::render::{Out, ago, bytes, confirm, count, fields, plain, short, table, thousands, time};
use crate::settings::Settings;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List sessions, last used first
    List {
        /// How many to show, 1 to 1000
        #[arg(long, default_value_t = ListSessions::default_limit())]
        limit: u32,
        /// Go on after the page that printed this cursor
        #[arg(long)]
        cursor: Option<String>,
        /// Those that were deleted and can be restored, instead of those that are there
        #[arg(long)]
        deleted: bool,
    },
    /// Name a session
    Rename {
        /// Its id, from the list
        session: SessionId,
        /// Its new name; an empty one takes the name away
        name: String,
    },
    /// Give a session tags; those it had before are replaced
    #[command(group = ArgGroup::new("all").args(["tags", "clear"]).required(true))]
    Tag {
        /// Its id, from the list
        session: SessionId,
        /// All tags it shall have
        tags: Vec<String>,
        /// Take all its tags away
        #[arg(long)]
        clear: bool,
    },
    /// Mark a key of its context: it is never shortened or left out in views
    Mark {
        /// Its id, from the list
        session: SessionId,
        /// A top-level key of the newest checkpoint
        key: String,
    },
    /// Take the mark of a key away
    Unmark {
        /// Its id, from the list
        session: SessionId,
        /// The key that is marked
        key: String,
    },
    /// Show how a key of its context is treated in views, and why
    Class {
        /// Its id, from the list
        session: SessionId,
        /// A top-level key of the newest checkpoint
        key: String,
    },
    /// Delete a session with its checkpoints; they are kept for a while
    Delete {
        /// Its id, from the list
        session: SessionId,
        /// Remove it for good at once, also when it was deleted before
        #[arg(long)]
        purge: bool,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
    /// Restore a deleted session with its checkpoints
    Restore {
        /// Its id, from `session list --deleted`
        session: SessionId,
    },
    /// Show one session
    Show {
        /// Its id, from the list
        session: SessionId,
    },
    /// Write a session with its checkpoints into one file
    Export {
        /// Its id, from the list
        session: SessionId,
        #[command(flatten)]
        target: Target,
    },
    /// Take in what `export` has written, here or elsewhere: what is not here is added, under the ids it has
    Import(Import),
}

pub(crate) async fn run(
    command: Command,
    engine: &Engine,
    scope: &Scope,
    out: &Out,
    settings: &Settings,
) -> anyhow::Result<()> {
    match command {
        Command::Export { session, target } => {
            let export = engine.export_session(scope, &session).await?;
            target.write(export, &settings.data_dir, "checkpoint", out).await
        }
        Command::Import(import) => import.run(engine, scope, out).await,
        Command::List { limit, cursor, deleted } => {
            let project = settings.given_project();
            let filter = project.as_ref().map(|project| format!("No sessions in project {project}."));
            let page =
                engine.list_sessions(scope, ListSessions { project_id: project, deleted, limit, cursor }).await?;
            out.print(&page, |page| {
                if let (true, Some(nothing)) = (page.sessions.is_empty(), filter) {
                    return nothing;
                }
                if page.sessions.is_empty() && deleted {
                    return "No session was deleted that could be restored.".to_owned();
                }
                if page.sessions.is_empty() {
                    return "No sessions yet. An agent makes one with its first save.".to_owned();
                }
                let header = ["SESSION", "PROJECT", "NAME", "CHECKPOINTS", "SIZE", "LAST USED"];
                let more = page.next_cursor.as_ref().map(|cursor| format!("more: --cursor {cursor}\n"));
                table(&header, page.sessions.iter().map(|session| row(session, engine.now())))
                    + &more.unwrap_or_default()
            })
        }
        Command::Show { session } => {
            let session = engine.find_session(scope, &session).await?;
            out.print(&session, show)
        }
        Command::Rename { session, name } => {
            let change = UpdateSession { name: Some(name), tags: None };
            out.print(&engine.update_session(scope, &session, change).await?, show)
        }
        // Without tags is what takes them away.
        Command::Tag { session, tags, clear: _ } => {
            let change = UpdateSession { name: None, tags: Some(tags) };
            out.print(&engine.update_session(scope, &session, change).await?, show)
        }
        Command::Mark { session, key } => {
            let request = MarkCritical { context_key: key, session_id: Some(session) };
            tell(engine.mark_critical(scope, request).await?, out)
        }
        Command::Unmark { session, key } => {
            let request = MarkCritical { context_key: key, session_id: Some(session) };
            tell(engine.unmark_critical(scope, request).await?, out)
        }
        Command::Class { session, key } => {
            let found = engine.find_class(scope, session, key).await?;
            out.print(&found, |found| {
                format!("{} ({})", format!("{:?}", found.class).to_uppercase(), plain(&found.rule))
            })
        }
        Command::Restore { session } => out.print(&engine.restore_session(scope, &session).await?, show),
        Command::Delete { session, purge, yes } => delete(session, Deletion { purge }, yes, engine, scope, out).await,
    }
}

async fn delete(
    id: SessionId,
    how: Deletion,
    yes: bool,
    engine: &Engine,
    scope: &Scope,
    out: &Out,
) -> anyhow::Result<()> {
    if !yes && how.purge {
        confirm(&format!("session {id} for good"), "It cannot be restored.")?;
    } else if !yes {
        let found = engine.find_session(scope, &id).await?;
        let what = format!("session {id} with {}", count(found.checkpoint_count, "checkpoint"));
        let outcome =
            format!("It is hidden and kept for at least {GRACE_DAYS} days; its id cannot be used again meanwhile.");
        confirm(&what, &outcome)?;
    }
    let deleted = engine.delete_session(scope, &id, how).await?;
    if !out.json {
        super::warn(&deleted.warnings);
    }
    out.print(&deleted, |deleted| {
        let checkpoints = count(deleted.checkpoint_count, "checkpoint");
        match deleted.kept_until.map(time) {
            Some(until) => format!(
                "deleted {id} with {checkpoints}; kept until {until}; its id cannot be used again meanwhile\n\
                 `waystone session restore {id}` brings it back\n"
            ),
            None => format!("removed {id} with {checkpoints}\n"),
        }
    })
}

fn rule(rule: &ContextRule) -> String {
    format!("{} {}", rule.pattern, format!("{:?}", rule.class).to_uppercase())
}

fn show(session: &Session) -> String {
    fields(&[
        ("session", session.id.to_string()),
        ("project", session.project_id.to_string()),
        ("name", session.name.clone().unwrap_or_default()),
        ("tags", session.tags.join(", ")),
        ("origin", if session.origin == Origin::Import { session.origin.to_string() } else { String::new() }),
        (
            "messages",
            if session.conversation { format!("waystone context show {}", session.id) } else { String::new() },
        ),
        ("marked keys", session.critical_keys.join(", ")),
        ("rules", session.context_rules.iter().map(rule).collect::<Vec<_>>().join(", ")),
        ("workflow", session.workflow_id.as_ref().map(ToString::to_string).unwrap_or_default()),
        ("created", time(session.created_at)),
        ("last used", time(session.last_accessed_at)),
        ("checkpoints", format!("{}, archived ones not counted", session.checkpoint_count)),
        ("size", format!("{}, archived ones included", bytes(session.total_size_bytes))),
    ])
}

/// What became of a mark; one that is not there is a failure to a person.
fn tell(marked: MarkedCritical, out: &Out) -> anyhow::Result<()> {
    match marked.status {
        MarkStatus::Success => out.print(&marked, |marked| plain(&marked.message)),
        MarkStatus::KeyNotFound => {
            let hint = "`waystone checkpoint show --latest SESSION` shows its keys".to_owned();
            Err(Failure { code: "KEY_NOT_FOUND", message: marked.message, hint }.into())
        }
    }
}

fn row(session: &Session, now: Timestamp) -> Vec<String> {
    vec![
        session.id.to_string(),
        session.project_id.to_string(),
        short(session.name.as_deref().unwrap_or(if session.conversation { "(conversation)" } else { "" })),
        thousands(session.checkpoint_count),
        bytes(session.total_size_bytes),
        ago(session.last_accessed_at, now),
    ]
}
