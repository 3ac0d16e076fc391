//! The table of engine methods and the faces that each is on.

use std::collections::BTreeSet;
use std::path::Path;

use waystone_server::http::operations;

/// Every engine method, and the faces it is on. A person has no use for a stream of events on a command line, and an agent
/// none for housekeeping or for figures of all that is kept: `context_analyze_usage` tells it of its own window. What Prometheus
/// reads is for programs only. A model should not retype documents, so it neither writes nor reads them. Only a person is asked before something is deleted, so only there must it be found first. The
/// audit is for people; whether it holds is not to be asked of a server that someone may have changed.
///
/// Conversations are for applications and people: an agent has its own, and asks no other model through us. A person talks with
/// `chat`, which shows an answer as it comes and thus needs no text of a message from a sequence on; a branch that is not gone on with is in no
/// one's way there, so only programs delete branches. The tools of a conversation that
/// is not begun yet, and whether its model can be asked, are asked for where one begins with the first word. Turns whose process is gone are no one's to ask for.
const TABLE: [(&str, bool, Option<&str>, Option<&str>); 92] = [
    ("save_checkpoint", true, Some("workflow_checkpoint_save"), Some("checkpoint save")),
    ("load_checkpoint", true, Some("workflow_checkpoint_load"), Some("checkpoint show")),
    ("list_checkpoints", true, Some("workflow_checkpoint_list"), Some("checkpoint list")),
    ("delete_checkpoint", true, None, Some("checkpoint delete")),
    ("diff_checkpoints", true, None, Some("checkpoint diff")),
    ("mark_critical", true, Some("workflow_mark_critical"), Some("session mark")),
    ("unmark_critical", true, None, Some("session unmark")),
    ("find_class", true, None, Some("session class")),
    ("compress_context", true, Some("workflow_context_compress"), Some("checkpoint view")),
    ("prioritize_context", true, Some("workflow_context_prioritize"), Some("checkpoint view")),
    ("expand_handle", true, Some("context_expand"), Some("expand")),
    ("put_segments", true, Some("context_put"), Some("segment put")),
    ("list_working_set", true, Some("context_get_working_set"), Some("segment list")),
    ("list_task_context", true, Some("context_get_task_context"), Some("segment list")),
    ("list_projects", true, Some("context_list_projects"), Some("segment projects")),
    ("stash_segments", true, Some("context_stash"), Some("segment stash")),
    ("search_stashed", true, Some("context_search_stashed"), Some("segment search")),
    ("retrieve_stashed", true, Some("context_retrieve_stashed"), Some("segment retrieve")),
    ("analyze_usage", true, Some("context_analyze_usage"), Some("segment usage")),
    ("analyze_garbage", true, Some("context_gc_analyze"), Some("segment gc")),
    ("prune_segments", true, Some("context_gc_prune"), Some("segment prune")),
    ("pin_segments", true, Some("context_gc_pin"), Some("segment pin")),
    ("unpin_segments", true, Some("context_gc_unpin"), Some("segment unpin")),
    ("set_current_task", true, Some("context_set_current_task"), Some("task use")),
    ("list_tasks", true, None, Some("task list")),
    ("create_snapshot", true, Some("context_create_task_snapshot"), Some("task snapshot")),
    ("list_snapshots", true, None, Some("task snapshots")),
    ("restore_snapshot", true, Some("context_restore_task_snapshot"), Some("task restore")),
    ("list_operations", true, None, Some("undo")),
    ("list_audit", true, None, Some("audit list")),
    ("verify_audit", false, None, Some("audit verify")),
    ("export_audit", false, None, Some("audit export")),
    ("undo_operation", true, Some("context_undo"), Some("undo")),
    ("search", true, None, Some("search")),
    ("resume_sessions", true, Some("workflow_resume"), Some("resume")),
    ("reindex", false, None, Some("doctor")),
    ("find_transcript", false, None, Some("hook")),
    ("capture_transcript", false, None, Some("hook")),
    ("read_guide", false, None, Some("hook")),
    ("find_checkpoint", false, None, Some("checkpoint delete")),
    ("find_session", true, None, Some("session show")),
    ("list_sessions", true, None, Some("session list")),
    ("update_session", true, None, Some("session rename")),
    ("delete_session", true, None, Some("session delete")),
    ("restore_session", true, None, Some("session restore")),
    ("restore_checkpoint", true, None, Some("checkpoint restore")),
    ("clean_up", true, None, Some("cleanup")),
    ("back_up", true, None, Some("backup")),
    ("export_session", true, None, Some("session export")),
    ("export_project", true, None, Some("segment export")),
    ("import_document", true, None, Some("session import")),
    ("list_events", true, None, None),
    ("status", true, None, Some("status")),
    ("stats", true, None, Some("stats")),
    ("gauge", true, None, None),
    ("check_copies", false, None, Some("doctor")),
    ("list_contexts", true, None, Some("context list")),
    ("create_context", true, None, Some("chat")),
    ("find_context", true, None, Some("context show")),
    ("update_context", true, None, Some("chat")),
    ("delete_context", true, None, Some("context delete")),
    ("list_messages", true, None, Some("context show")),
    ("add_message", true, None, Some("chat")),
    ("find_message", true, None, Some("chat")),
    ("edit_message", true, None, Some("chat")),
    ("read_content", true, None, None),
    ("list_branches", true, None, Some("context branches")),
    ("create_branch", true, None, Some("chat")),
    ("switch_branch", true, None, Some("chat")),
    ("delete_branch", true, None, None),
    ("restore_branch", true, None, None),
    ("diff_branches", true, None, Some("context diff")),
    ("merge_branch", true, None, Some("context merge")),
    ("find_turn", true, None, Some("chat")),
    ("retry_turn", true, None, Some("chat")),
    ("cancel_turn", true, None, Some("chat")),
    ("follow_context", true, None, Some("chat")),
    ("list_tools", true, None, Some("chat")),
    ("list_tools_for", false, None, Some("chat")),
    ("approve_tools", true, None, Some("chat")),
    ("deny_tools", true, None, Some("chat")),
    ("find_tool_call", true, None, Some("chat")),
    ("edit_arguments", true, None, Some("chat")),
    ("answer_tool_call", true, None, None),
    ("expire_tools", false, None, Some("serve")),
    ("expire_tools_of", false, None, Some("chat")),
    ("save_context", true, None, Some("context checkpoint")),
    ("find_window", true, None, Some("context window")),
    ("list_models", true, None, Some("models")),
    ("check_model", false, None, Some("chat")),
    ("adopt_turns", false, None, Some("serve")),
    ("adopt_turn", false, None, Some("chat")),
];

/// Methods that are not something a client asks for by itself.
const INTERNAL: [&str; 3] = ["close", "next", "next_part"];

/// All files in a folder and in those inside it.
fn sources(folder: &Path) -> String {
    let read = |path: &Path| match path.is_dir() {
        true => sources(path),
        false => std::fs::read_to_string(path).unwrap(),
    };
    std::fs::read_dir(folder).unwrap().map(|entry| read(&entry.unwrap().path())).collect()
}

#[test]
fn every_engine_method_is_on_the_faces_its_row_says() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let engine = sources(&crates.join("waystone-core/src/engine"));
    let methods: BTreeSet<&str> = engine
        .split("pub async fn ")
        .skip(1)
        .map(|rest| rest.split('(').next().unwrap())
        .filter(|name| !INTERNAL.contains(name))
        .collect();
    assert_eq!(methods, TABLE.iter().map(|row| row.0).collect(), "the table has a row for each engine method");

    let routes: BTreeSet<&str> = operations().iter().map(|(_, _, operation)| *operation).collect();
    let (tools, commands) =
        (sources(&crates.join("waystone-server/src/mcp")), sources(&crates.join("waystone/src/cli")));
    for (method, on_rest, tool, command) in TABLE {
        assert_eq!(routes.contains(method), on_rest, "{method} over REST");
        let calls = |text: &str| text.contains(&format!("engine.{method}("));
        assert_eq!(calls(&tools), tool.is_some(), "{method} over MCP");
        assert_eq!(calls(&commands), command.is_some(), "{method} on the command line");
        if let Some(tool) = tool {
            assert!(tools.contains(&format!("\"{tool}\"")), "{tool}");
        }
        if let Some(command) = command {
            let (noun, verb) = command.split_once(' ').unwrap_or((command, command));
            let read = |path: &str| std::fs::read_to_string(crates.join("waystone/src").join(path)).unwrap();
            let list = if noun == verb { read("cli.rs") } else { read(&format!("cli/{noun}.rs")) };
            let variant = format!("    {}{}", verb[..1].to_uppercase(), &verb[1..]);
            let is_variant = |rest: &str| rest.starts_with(['(', ' ', ',']);
            assert!(list.lines().any(|line| line.strip_prefix(&variant).is_some_and(is_variant)), "`{command}`");
        }
    }
}
