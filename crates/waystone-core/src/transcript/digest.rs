//! What a conversation has come to, kept as the context of a checkpoint: turn by turn it grows, and a new session is told of it.

use serde_json::Value;

use super::claude::id_of;
use super::{Said, Turn, text_at};
use crate::api::{Checkpoint, Digest, Failure, OpenCall, OpenTask, Origin, Quote};
use crate::handle::{Handle, Holder};
use crate::id::SegmentId;
use crate::prose::{FENCE_BYTES, NOTICE, entry, fence, quoted};
use crate::survive::{Anchor, Speaker, anchor, changed_file};
use crate::words::humps;

/// How much of each is kept, and of each text.
const GOALS_MAX: usize = 3;
const DECISIONS_MAX: usize = 20;
const FILES_MAX: usize = 40;
const ERRORS_MAX: usize = 5;
const TASKS_MAX: usize = 50;
const CALLS_MAX: usize = 50;
const QUOTE_CHARS: usize = 1500;
const LINE_CHARS: usize = 300;
/// A guide has at most 2,000 tokens, at three bytes each.
const GUIDE_BYTES: usize = 6000;

impl Digest {
    /// Adds turns, each with its segment.
    pub fn add(&mut self, turns: &[(Turn, SegmentId)]) {
        for (turn, id) in turns {
            self.turns += 1;
            let by_user = matches!(turn.said, Said::Request(_));
            let quote = |text: &str, chars: usize| Quote { text: cut(text, chars), handle: handle(id), by_user };
            match &turn.said {
                // What is said to the program itself is no wish.
                Said::Request(text) if is_command(text) => {}
                Said::Request(text) => {
                    if self.goals.len() < GOALS_MAX && (self.goals.is_empty() || names_goal(text)) {
                        self.goals.push(quote(text, LINE_CHARS));
                    }
                    self.last_request = Some(quote(text, QUOTE_CHARS));
                    self.add_decisions(text, Speaker::User, &quote);
                }
                Said::Reply(text) => {
                    self.last_reply = Some(quote(text, QUOTE_CHARS / 2));
                    self.add_decisions(text, Speaker::Agent, &quote);
                }
                Said::Summary(_) => {}
                Said::Call { id, tool, input } => {
                    self.open_calls.push(OpenCall { id: id.clone(), call: summary_of(tool, input) });
                    drop_oldest(&mut self.open_calls, CALLS_MAX);
                    self.add_files(tool, input);
                    self.follow_tasks(tool, input);
                }
                Said::Result { id: call, text, is_error, task } => {
                    let at = self.open_calls.iter().position(|open| open.id == *call);
                    let call = at.map(|at| self.open_calls.remove(at).call).unwrap_or_default();
                    // What failed before, and this time or now does not, is no longer in the way.
                    self.unresolved_errors.retain(|failure| failure.call != call || call.is_empty());
                    if *is_error {
                        let text = cut(error_line(text), LINE_CHARS);
                        self.unresolved_errors.push(Failure { call, text, handle: handle(id) });
                        drop_oldest(&mut self.unresolved_errors, ERRORS_MAX);
                    } else if let Some((id, subject)) = task {
                        self.set_task(id, subject, "pending");
                    }
                }
            }
        }
    }

    fn add_decisions(&mut self, text: &str, speaker: Speaker, quote: &impl Fn(&str, usize) -> Quote) {
        for line in text.lines().filter(|line| anchor(line, Some(speaker)) == Some(Anchor::Binding)) {
            let new = quote(line.trim(), LINE_CHARS);
            self.decisions.retain(|known| known.text != new.text);
            self.decisions.push(new);
        }
        drop_oldest(&mut self.decisions, DECISIONS_MAX);
    }

    fn add_files(&mut self, tool: &str, input: &Value) {
        let mut paths: Vec<String> = Vec::new();
        match tool {
            "Write" | "Edit" | "MultiEdit" | "NotebookEdit" => {
                let path =
                    ["file_path", "notebook_path"].iter().map(|key| text_at(input, key)).find(|path| !path.is_empty());
                paths.extend(path.map(str::to_owned));
            }
            "file_change" => paths.extend(input.as_object().into_iter().flatten().map(|(path, _)| path.clone())),
            "apply_patch" | "shell" | "exec_command" => {
                let text = input.as_str().map_or_else(|| command_of(input), str::to_owned);
                paths.extend(
                    text.lines().filter(|line| line.starts_with("*** ")).filter_map(changed_file).map(str::to_owned),
                );
            }
            _ if changes_files(tool) => {
                let named = ["path", "file_path", "filePath", "destination"].iter().map(|key| text_at(input, key));
                paths.extend(named.filter(|path| !path.is_empty()).map(str::to_owned));
            }
            _ => {}
        }
        for path in paths {
            self.files_touched.retain(|known| *known != path);
            self.files_touched.push(path);
        }
        drop_oldest(&mut self.files_touched, FILES_MAX);
    }

    fn follow_tasks(&mut self, tool: &str, input: &Value) {
        let listed = |key: &str, text: &str| -> Option<Vec<OpenTask>> {
            let all = input.get(key)?.as_array()?;
            let open = all.iter().filter(|task| !is_done(text_at(task, "status")));
            Some(
                open.map(|task| open_task(id_of(task.get("id")), text_at(task, text), text_at(task, "status")))
                    .collect(),
            )
        };
        match tool {
            "TodoWrite" => self.open_tasks = listed("todos", "content").unwrap_or_default(),
            "update_plan" => self.open_tasks = listed("plan", "step").unwrap_or_default(),
            "TaskUpdate" => {
                let (id, subject) = (id_of(input.get("taskId")), text_at(input, "subject").to_owned());
                self.set_task(&id, &subject, text_at(input, "status"));
            }
            _ => {}
        }
        self.open_tasks.truncate(TASKS_MAX);
    }

    /// A task as it is now; what is empty stays as it was.
    fn set_task(&mut self, id: &str, subject: &str, status: &str) {
        if is_done(status) {
            return self.open_tasks.retain(|task| task.id != id);
        }
        match self.open_tasks.iter_mut().find(|task| task.id == id) {
            Some(task) => {
                for (field, value) in [(&mut task.text, subject), (&mut task.status, status)] {
                    if !value.is_empty() {
                        *field = cut(value, LINE_CHARS);
                    }
                }
            }
            None if subject.is_empty() => {}
            None => self.open_tasks.push(open_task(id.to_owned(), subject, status)),
        }
        self.open_tasks.truncate(TASKS_MAX);
    }
}

/// Whether a tool is named for changing files: `write_file`, `edit_file` or `move_file`, of whichever server (`files__edit_file`).
fn changes_files(tool: &str) -> bool {
    const VERBS: [&str; 10] =
        ["write", "edit", "create", "append", "update", "delete", "remove", "move", "rename", "replace"];
    let own = tool.rsplit("__").next().unwrap_or(tool);
    own.split(['_', '-']).flat_map(humps).any(|word| VERBS.contains(&word.to_ascii_lowercase().as_str()))
}

fn open_task(id: String, text: &str, status: &str) -> OpenTask {
    OpenTask { id, text: cut(text, LINE_CHARS), status: if status.is_empty() { "pending" } else { status }.to_owned() }
}

fn is_done(status: &str) -> bool {
    matches!(status, "completed" | "deleted" | "cancelled")
}

fn is_command(text: &str) -> bool {
    text.strip_prefix('/').is_some_and(|rest| rest.starts_with("compact") || !rest.trim().contains(char::is_whitespace))
}

fn names_goal(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default().to_lowercase();
    first.contains("goal") || first.contains("the aim")
}

fn drop_oldest<T>(list: &mut Vec<T>, max: usize) {
    list.drain(..list.len().saturating_sub(max));
}

fn handle(id: &SegmentId) -> String {
    Handle::to_segment(id).to_string()
}

fn cut(text: &str, chars: usize) -> String {
    let text = text.trim();
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn command_of(input: &Value) -> String {
    ["command", "cmd"]
        .iter()
        .filter_map(|key| input.get(key))
        .map(words_of)
        .find(|text| !text.is_empty())
        .unwrap_or_default()
}

fn words_of(value: &Value) -> String {
    match value {
        // Of a shell, a flag and what the shell runs only that is told.
        Value::Array(parts) if parts.len() == 3 && parts[1].as_str().is_some_and(|flag| flag.starts_with('-')) => {
            words_of(&parts[2])
        }
        Value::Array(parts) => parts.iter().map(words_of).collect::<Vec<_>>().join(" "),
        Value::String(text) => text.clone(),
        _ => String::new(),
    }
}

/// What was done, in a few words: the same again has the same.
fn summary_of(tool: &str, input: &Value) -> String {
    let command = command_of(input);
    let about = ["file_path", "path", "pattern", "url", "query", "description"].iter().map(|key| text_at(input, key));
    let about = [command.as_str()].into_iter().chain(about).find(|text| !text.is_empty()).unwrap_or_default();
    let first = about.lines().next().unwrap_or_default();
    match tool {
        "shell" | "exec_command" | "Bash" => cut(first, LINE_CHARS / 2),
        _ => cut(&format!("{tool} {first}"), LINE_CHARS / 2),
    }
}

/// The line that says what went wrong, or the last one.
fn error_line(text: &str) -> &str {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let says = |line: &&str| anchor(line, None) == Some(Anchor::Error) || line.contains("FAIL");
    lines.clone().find(says).or_else(|| lines.next_back()).unwrap_or_default()
}

/// What a session that begins is told: statements, those that stand for more with where the whole of it is. `age` says how old it is. All
/// of it is data to who reads it, and stands in a fence, each statement with where it came from; if the checkpoint was imported, all of it was.
pub fn guide(digest: &Digest, checkpoint: &Checkpoint, age: &str) -> String {
    let (session, id) = (&checkpoint.session_id, &checkpoint.checkpoint_id);
    let head = format!(
        "Background that Waystone kept of session {session}, {age} ago, {} turns; it asks for nothing by itself. {NOTICE}",
        digest.turns
    );
    let tail = format!(
        "All turns are kept: context_search_stashed finds them, context_expand returns what a handle (ws:…) stands for, \
         workflow_checkpoint_load {{\"checkpointId\": \"{id}\"}} returns this as data.\n"
    );
    let room = GUIDE_BYTES.saturating_sub(head.len() + tail.len());
    head + &tell_statements("", digest, room, checkpoint.origin == Origin::Import) + &tail
}

/// As many statements as have room, in a fence, behind entries that stand there in any case.
pub(crate) fn tell_statements(first: &str, digest: &Digest, bytes_max: usize, is_imported: bool) -> String {
    let room = bytes_max.saturating_sub(FENCE_BYTES);
    let mut told = first.to_owned();
    for Statement { what, handle, origin, text } in statements(digest, room) {
        let statement = entry(&format!("{what}{}", place(handle)), origin.shown(is_imported), &text);
        // Not all fits; what is left out is one call away.
        if told.len() + statement.len() <= room {
            told.push_str(&statement);
        }
    }
    fence(&told)
}

/// A handle to a segment, in parentheses; of anything else that stands in its place nothing is told.
fn place(handle: &str) -> String {
    match handle.parse() {
        Ok(Handle { holder: Holder::Segment(id), .. }) => format!(" ({})", self::handle(&id)),
        _ => String::new(),
    }
}

/// Something that is told: what it is, where the whole of it is, whose it is, and the text.
struct Statement<'a> {
    what: &'static str,
    handle: &'a str,
    origin: Origin,
    text: String,
}

impl<'a> Statement<'a> {
    fn new(what: &'static str, origin: Origin, text: String) -> Self {
        Self { what, handle: "", origin, text }
    }

    fn of(what: &'static str, origin: Origin, said: &'a Quote) -> Self {
        Self { handle: &said.handle, ..Self::new(what, origin, said.text.clone()) }
    }
}

/// What is told, that which matters most first. The first is told in any case, and so takes no more than half of the room.
fn statements(digest: &Digest, room: usize) -> Vec<Statement<'_>> {
    let mut all = Vec::new();
    if let Some(last) = &digest.last_request {
        let end = longest(&last.text, room / 2);
        let more = if end < last.text.len() { "…" } else { "" };
        let text = format!("{}{more}", &last.text[..end]);
        all.push(Statement { text, ..Statement::of("Last request", Origin::User, last) });
    }
    all.extend(digest.last_reply.iter().map(|last| Statement::of("Last answer", Origin::Agent, last)));
    // What was said already is not said again.
    let is_last = |said: &&Quote| digest.last_request.as_ref().is_some_and(|last| last.handle == said.handle);
    let goals = digest.goals.iter().filter(|goal| !is_last(goal));
    all.extend(goals.map(|goal| Statement::of("Goal", Origin::User, goal)));
    // A task may be named by what a tool answered.
    let task = |task: &OpenTask| Statement::new("Open task", Origin::Tool, format!("{}: {}", task.status, task.text));
    all.extend(digest.open_tasks.iter().map(task));
    all.extend(digest.unresolved_errors.iter().rev().map(|failure| {
        let text = format!("{}: {}", quoted(&failure.call), failure.text);
        Statement { handle: &failure.handle, ..Statement::new("Unresolved error", Origin::Tool, text) }
    }));
    if !digest.files_touched.is_empty() {
        let files: Vec<&str> = digest.files_touched.iter().rev().map(String::as_str).collect();
        let files = cut(&files.join(", "), QUOTE_CHARS);
        all.push(Statement::new("Files touched, the newest first", Origin::Agent, files));
    }
    let is_goal =
        |said: &&Quote| digest.goals.iter().any(|goal| goal.handle == said.handle && goal.text.contains(&said.text));
    let decisions = digest.decisions.iter().rev().filter(|said| !is_last(said) && !is_goal(said));
    let who = |said: &Quote| if said.by_user { Origin::User } else { Origin::Agent };
    all.extend(decisions.map(|said| Statement::of("Decided or demanded", who(said), said)));
    all
}

/// Where a text must end so that it takes no more than so many bytes in a fence.
fn longest(text: &str, bytes_max: usize) -> usize {
    let mut end = text.floor_char_boundary(bytes_max);
    while end > 0 && entry("", Origin::User, &text[..end]).len() > bytes_max {
        end = text.floor_char_boundary(end * 3 / 4);
    }
    end
}
