//! The words of each face for what hints and warnings name.
//!
//! What to do is said once, where something is found, and names what is at hand there: a tool, a route, a command. Here each of these stands
//! beside what agents, applications and people have for the same. Nothing is decided: what is not here is said to all alike.

/// Who is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Face {
    /// An agent, over MCP.
    Agent,
    /// An application, over REST.
    Application,
    /// A person, on the command line.
    Person,
}

/// What is said, and what each face is told instead; where that is empty, it stays. What contains another stands before it.
/// Agents are not told of conversations, for which they have no tools.
const WORDS: [(&str, [&str; 3]); 27] = [
    (
        "; this one is at GET /api/contexts/{id} and `waystone context`",
        [
            " for checkpoints",
            "; this one is at GET /api/contexts/{id}",
            "; `waystone context show` and `waystone context export` are for this one",
        ],
    ),
    ("GET /api/contexts/{id}/tools/{call}", ["", "", "`waystone context show`"]),
    ("with POST /api/contexts/{id}/tools/approve", ["", "", "in `waystone chat --context`"]),
    (
        "end the turn with POST /api/contexts/{id}/cancel",
        ["", "", "end it where it was begun, with Ctrl-C in `waystone chat`"],
    ),
    ("GET /api/contexts/{id}/state", ["", "", "`waystone context show`"]),
    ("GET /api/contexts/{id}/branches", ["", "", "`waystone context branches`"]),
    ("GET /api/contexts/{id}/messages", ["", "", "`waystone context show`"]),
    ("the ToolCallRequested event or in the message that calls it", ["", "", "what `waystone context show` prints"]),
    ("GET /api/contexts or `waystone context list`", ["", "GET /api/contexts", "`waystone context list`"]),
    (
        "list them with GET /api/operations or `waystone undo --list`",
        [
            "use the operation_id of a reply, or leave it out for your newest that can be undone",
            "list them with GET /api/operations",
            "list them with `waystone undo --list`",
        ],
    ),
    (
        "see what was done with GET /api/operations or `waystone undo --list`",
        [
            "leave operation_id out to undo your newest that can be undone",
            "see what was done with GET /api/operations",
            "see what was done with `waystone undo --list`",
        ],
    ),
    (
        "list them with GET /api/projects/{project_id}/snapshots or `waystone task snapshots`",
        [
            "use an id that context_create_task_snapshot returned",
            "list them with GET /api/projects/{project_id}/snapshots",
            "list them with `waystone task snapshots`",
        ],
    ),
    (
        "look for its id in the list of checkpoints",
        [
            "find it with workflow_checkpoint_list",
            "look for its id in GET /api/checkpoints",
            "look for its id with `waystone checkpoint list`",
        ],
    ),
    (
        "look for its id in the list of sessions, or of those that were deleted",
        [
            "find it with workflow_resume",
            "look for its id in GET /api/sessions, or with deleted=true among those that were deleted",
            "look for its id with `waystone session list`, or with --deleted among those that were deleted",
        ],
    ),
    (
        "restore it (`waystone session restore`), or use another session",
        [
            "use another session, or ask your user to bring it back with `waystone session restore`",
            "restore it with POST /api/sessions/{sessionId}/restore, or use another session",
            "",
        ],
    ),
    (
        "bring it back with `waystone session restore`",
        ["", "bring it back with POST /api/sessions/{sessionId}/restore", ""],
    ),
    (
        "context_get_working_set or context_search_stashed returned",
        [
            "",
            "/api/projects/{project_id}/working-set or /stash/search returned",
            "`waystone segment list` or `waystone search` prints",
        ],
    ),
    ("context_search_stashed", ["", "POST /api/projects/{project_id}/stash/search", "`waystone search`"]),
    ("context_gc_unpin", ["", "POST /api/projects/{project_id}/unpin", "`waystone segment unpin`"]),
    ("context_gc_analyze", ["", "POST /api/projects/{project_id}/gc/analyze", "`waystone segment gc --target TOKENS`"]),
    ("context_expand", ["", "GET /api/handles", "`waystone expand`"]),
    ("a load without maxTokens", ["", "", "`waystone checkpoint show` without --max-tokens"]),
    ("what details.pinned names", ["", "", "details.pinned"]),
    ("load details.nearestCheckpointId", ["", "", "see `waystone checkpoint show details.nearestCheckpointId`"]),
    ("see /docs for what there is", ["", "", "look at what there is with `list` or `show`"]),
    ("or use model `demo`", ["", "", "or take the built-in one with `--model demo`"]),
    ("a shorter answer (max_tokens)", ["", "", "a shorter answer"]),
];

impl Face {
    /// A hint or a warning as this face can follow it.
    pub fn words(self, text: &str) -> String {
        WORDS.iter().fold(text.to_owned(), |text, (said, told)| match told[self as usize] {
            "" => text,
            told => text.replace(said, told),
        })
    }

    /// What is said in other words to some face.
    pub fn translated() -> impl Iterator<Item = &'static str> {
        WORDS.iter().map(|(said, _)| *said)
    }
}
