//! `waystone resume`

use clap::Args;
use waystone_core::Engine;
use waystone_core::api::{ResumeSessions, Resumed, ResumedSession};
use waystone_core::id::WorkflowId;
use waystone_core::store::Scope;

use super::render::{Out, count, cut, fields, plain};

const TEXT_CHARS: usize = 100;

#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// What the work was about: words, a name, a tag
    query: Vec<String>,
    /// What kind of work it was
    #[arg(long)]
    workflow: Option<WorkflowId>,
    /// How many to show, 1 to 20
    #[arg(long, default_value_t = ResumeSessions::default_limit())]
    limit: u32,
}

pub(crate) async fn run(resume: Resume, engine: &Engine, scope: &Scope, out: &Out) -> anyhow::Result<()> {
    let query = Some(resume.query.join(" ")).filter(|query| !query.is_empty());
    let request = ResumeSessions { query, workflow_id: resume.workflow, limit: resume.limit };
    out.print(&engine.resume_sessions(scope, request).await?, show)
}

fn show(found: &Resumed) -> String {
    // First, so that what is not meant is not read as what is.
    let hint = found.hint.map(|hint| format!("note: {hint}\n\n"));
    let sessions = found.sessions.iter().map(|session| describe(session) + "\n");
    let first = found.sessions.first().map_or_else(
        || "`waystone session list` shows all sessions.".to_owned(),
        |first| format!("`waystone checkpoint show --latest {}` prints the first one.", first.session_id),
    );
    hint.into_iter().chain(sessions).chain([first]).collect()
}

fn describe(session: &ResumedSession) -> String {
    let preview = &session.preview;
    let title = preview.name.as_ref().map_or_else(String::new, |name| format!("  {}", plain(name)));
    let newest = preview.checkpoint_name.as_ref().map_or_else(String::new, |name| format!(", the newest is `{name}`"));
    let alike: Vec<&str> = session.started_alike.iter().map(|id| id.as_str()).collect();
    let rows = [
        ("  why", session.why.join("; ")),
        ("  project", session.project_id.to_string()),
        ("  tags", preview.tags.join(", ")),
        ("  saved", count(session.checkpoint_count, "checkpoint") + &newest),
        ("  holds", cut(&preview.keys.join(", "), TEXT_CHARS)),
        ("  text", cut(&preview.text, TEXT_CHARS)),
        ("  from", session.origin.to_string()),
        ("  runs before", alike.join(", ")),
    ];
    format!("{}{title}\n{}", session.session_id, fields(&rows))
}
