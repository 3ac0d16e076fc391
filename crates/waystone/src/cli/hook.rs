//! `waystone hook`: run by other programs when a session begins, is about to be compacted, or an answer is done.
//!
//! Whatever goes wrong goes to the log and nowhere else: what a hook prints goes to a model, and how it ends may stop an agent.

mod reader;

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::{Args, ValueEnum};
use serde::Deserialize;
use waystone_core::Engine;
use waystone_core::id::SessionId;
use waystone_core::store::Scope;
use waystone_core::transcript::Captured;

use super::{Command, OnStore};
use reader::Reader;

/// What a client says to a hook is no longer than this.
const INPUT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Some clients write the last answer a moment after they say that it is done.
const ANSWER_WAIT_MAX: Duration = Duration::from_millis(500);
const ANSWER_WAIT_STEP: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Event {
    /// Prints what a session that begins should know
    SessionStart,
    /// Captures what was said, before the client shortens it
    PreCompact,
    /// Captures what was said, when an answer is done
    Stop,
}

#[derive(Debug, Args)]
pub(crate) struct Hook {
    /// What has happened
    event: Event,
    #[arg(skip = Ok(Input::default()))]
    input: Result<Input, String>,
}

/// What a client says of the session. Clients add fields as they like.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Input {
    session_id: String,
    transcript_path: Option<PathBuf>,
    cwd: Option<PathBuf>,
    turn_id: Option<String>,
    last_assistant_message: Option<String>,
}

impl Hook {
    /// Reads what the client says, and goes to where it works: that decides which project is meant.
    pub(crate) fn read_input(&mut self) -> anyhow::Result<()> {
        let stdin = std::io::stdin();
        ensure!(!stdin.is_terminal(), "a hook is run by a client, which says on standard input what has happened");
        let mut text = Vec::new();
        stdin.lock().take(INPUT_BYTES_MAX).read_to_end(&mut text)?;
        // Told when there is a log to tell it to, and without what was said.
        let wrong = |error: serde_json::Error| {
            format!(
                "{:?} error in what the client says, line {} column {}",
                error.classify(),
                error.line(),
                error.column()
            )
        };
        self.input = serde_json::from_slice(&text).map_err(wrong);
        let place = self.input.as_ref().ok().and_then(|input: &Input| input.cwd.as_deref());
        if let Some(place) = place.filter(|place| place.is_dir()) {
            std::env::set_current_dir(place)?;
        }
        Ok(())
    }
}

/// Whether no person is there to read what is printed.
pub(crate) fn is_run_by_client(command: &Command) -> bool {
    matches!(command, Command::OnStore(OnStore::Hook(_))) && !std::io::stdin().is_terminal()
}

/// Takes note of what went wrong. Without a log, no one is told.
pub(crate) fn log(error: &anyhow::Error) {
    tracing::error!(error = format!("{error:#}"), "a hook failed");
}

pub(crate) async fn run(hook: Hook, engine: &Engine, scope: &Scope) -> anyhow::Result<()> {
    let (event, input) = (hook.event, hook.input.map_err(anyhow::Error::msg)?);
    ensure!(!input.session_id.is_empty(), "the client did not say which session it is");
    let client = client_of(&input);
    let session: SessionId = format!("{client}-{}", input.session_id).parse().map_err(anyhow::Error::msg)?;
    let place = std::env::current_dir()?.to_string_lossy().into_owned();
    if event == Event::SessionStart {
        let guide = engine.read_guide(scope, &session, &place).await?.unwrap_or_default();
        return Ok(std::io::stdout().write_all(guide.as_bytes())?);
    }
    if let Some(path) = input.transcript_path.as_deref() {
        let (path, answer) = (expand(path), input.last_assistant_message.as_deref());
        let count = capture(engine, scope, client, &session, (&path, &place), answer).await?;
        tracing::info!(client, count, "turns were captured");
    }
    Ok(())
}

/// Both are told apart by what they say, as both run the same command.
fn client_of(input: &Input) -> &'static str {
    let name = input.transcript_path.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy());
    match name.is_some_and(|name| name.starts_with("rollout-")) || input.turn_id.is_some() {
        true => "codex",
        false => "claude-code",
    }
}

fn expand(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), directories::BaseDirs::new()) {
        (Ok(rest), Some(base)) => base.home_dir().join(rest),
        _ => path.to_owned(),
    }
}

async fn wait_for(path: &Path, answer: &str, captured: u64) {
    let begun = Instant::now();
    while begun.elapsed() < ANSWER_WAIT_MAX && !reader::ends_with(path, answer, captured) {
        tokio::time::sleep(ANSWER_WAIT_STEP).await;
    }
}

/// Captures what stands in a transcript since the last time, a part at a time.
async fn capture(
    engine: &Engine,
    scope: &Scope,
    client: &'static str,
    session: &SessionId,
    (path, place): (&Path, &str),
    answer: Option<&str>,
) -> anyhow::Result<u64> {
    let name = path.to_string_lossy().into_owned();
    let known = engine.find_transcript(scope, &name).await?;
    if let Some(answer) = answer {
        wait_for(path, answer, known.as_ref().map_or(0, |end| end.at)).await;
    }
    // At the beginning of a session there may be none yet.
    let Some(mut reader) = Reader::open(path, known.as_ref())? else {
        tracing::warn!("there is no such transcript");
        return Ok(0);
    };
    let mut count = 0;
    while let Some((turns, end)) = reader.next_part()? {
        let part =
            Captured { client, session: session.clone(), path: name.clone(), place: place.to_owned(), turns, end };
        count += engine.capture_transcript(scope, part).await?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_that_is_written_a_moment_later_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        std::fs::write(&path, "{}\n").unwrap();
        let wait = async {
            wait_for(&path, "All done.", 0).await;
            reader::ends_with(&path, "All done.", 0)
        };
        let (is_there, ()) = tokio::join!(wait, async { std::fs::write(&path, "{\"text\":\"All done.\"}\n").unwrap() });
        assert!(is_there);
    }
}
