//! `waystone segment put`

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use waystone_core::Engine;
use waystone_core::USAGE_WARNED_PERCENT;
use waystone_core::api::{Origin, PutSegments, SegmentType};
use waystone_core::id::{ProjectId, TaskId, TopicId};
use waystone_core::store::Scope;

use super::{kind, undo};
use crate::cli::checkpoint::origin;
use crate::cli::failure::Failure;
use crate::cli::file::read_text;
use crate::cli::render::{Out, count};

#[derive(Debug, Args)]
pub(crate) struct Put {
    /// One text or several, each a segment of its own; left out, or with -, standard input is one text
    #[arg(conflicts_with = "file")]
    texts: Vec<String>,
    /// Read one text from a file, or from standard input with -
    #[arg(long)]
    file: Option<PathBuf>,
    /// What it is: message, code, log, note, decision or summary
    #[arg(long = "type", value_parser = kind)]
    kind: Option<SegmentType>,
    /// The task it belongs to; the current one when left out
    #[arg(long)]
    task: Option<TaskId>,
    /// A word to filter by; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// The file it is from
    #[arg(long)]
    file_path: Option<String>,
    /// First and last line in that file, as in 10-20
    #[arg(long, value_parser = lines)]
    line_range: Option<[u64; 2]>,
    /// What it is about: segments of one topic stay together
    #[arg(long)]
    topic: Option<TopicId>,
    /// Keep it from being pruned
    #[arg(long)]
    pinned: bool,
    /// Keep it outside of the window from the start
    #[arg(long)]
    stash: bool,
    /// Who wrote it: user, agent or tool [default: user, and tool for logs]
    #[arg(long, value_parser = origin)]
    origin: Option<Origin>,
}

impl Put {
    /// Where its text is read from, if it was not typed.
    fn source(&self) -> anyhow::Result<Option<PathBuf>> {
        let texts: Vec<&str> = self.texts.iter().map(String::as_str).collect();
        match (&self.file, &texts[..]) {
            (Some(file), _) => Ok(Some(file.clone())),
            (None, []) if std::io::stdin().is_terminal() => Err(Failure {
                code: "INVALID_INPUT",
                message: "there is no text to keep".to_owned(),
                hint: "type it behind the command, name a file with --file, or pipe it in".to_owned(),
            }
            .into()),
            (None, [] | ["-"]) => Ok(Some(PathBuf::from("-"))),
            (None, _) => Ok(None),
        }
    }
}

fn lines(range: &str) -> Result<[u64; 2], String> {
    let parsed = range.split_once('-').and_then(|(first, last)| Some([first.parse().ok()?, last.parse().ok()?]));
    parsed.ok_or_else(|| "write it like 10-20".to_owned())
}

pub(super) async fn run(put: Put, engine: &Engine, scope: &Scope, out: &Out, project: ProjectId) -> anyhow::Result<()> {
    let texts = match put.source()? {
        Some(file) => vec![read_text(&file, engine.limits().context_bytes_max)?],
        None => put.texts,
    };
    let request = PutSegments {
        project_id: Some(project),
        texts: Some(texts),
        kind: put.kind,
        task_id: put.task,
        tags: put.tags,
        file_path: put.file_path,
        line_range: put.line_range,
        topic_id: put.topic,
        pinned: put.pinned,
        stash: put.stash,
        origin: put.origin,
        ..PutSegments::default()
    };
    let put = engine.put_segments(scope, request).await?;
    if !out.json {
        crate::cli::warn(&put.warnings);
    }
    out.print(&put, |put| {
        let ids: String = put.segment_ids.iter().map(|id| format!("{id}\n")).collect();
        let known = if put.touched > 0 { format!(", {} known before", put.touched) } else { String::new() };
        let (tokens, back) = (count(put.tokens_added, "token"), undo(&put.operation_id));
        let room = match put.usage_percent >= USAGE_WARNED_PERCENT {
            true => "; `waystone segment gc --target TOKENS` plans what may leave it",
            false => "",
        };
        format!(
            "{ids}{} new with {tokens}{known}{back}\nthe window is {:.1} % full{room}",
            put.added, put.usage_percent
        )
    })
}
