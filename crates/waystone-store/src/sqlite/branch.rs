//! Branches of conversations as rows. A branch has its fork point and its own messages; what comes before is the others'.

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::json;
use waystone_core::Error;
use waystone_core::api::{Branch, SwitchedBranch};
use waystone_core::clock::Timestamp;
use waystone_core::error::Conflict;
use waystone_core::id::{BranchName, SegmentId, SessionId};
use waystone_core::store::{Fork, Idempotency, NewBranch, Scope};

use super::conversation::{self, ConversationRow, operation};
use super::error::{DbResult, unreadable};
use super::log::append_and_publish;
use super::{message, retry};

/// As many branches a conversation has at most.
const BRANCHES_MAX: u64 = 1000;

/// What is needed of a branch to go on with it.
#[derive(Debug, Clone)]
pub(crate) struct BranchRow {
    pub(crate) key: i64,
    pub(crate) name: BranchName,
    pub(crate) fork: Option<i64>,
    pub(crate) head: Option<i64>,
    pub(crate) message_count: u64,
    pub(crate) is_archived: bool,
}

impl BranchRow {
    /// The newest message of it, or what it continues.
    pub(crate) fn tip(&self) -> Option<i64> {
        self.head.or(self.fork)
    }
}

const NAME: &str = "unsealed(b.name, 'branch', 'session:' || s.id, 'session:' || s.id, s.wrapped_key)";
const FROM: &str = "FROM branch AS b JOIN session AS s ON s.key = b.session";

pub(crate) fn insert(db: &Connection, session: i64, name: &str, fork: Option<i64>, at: Timestamp) -> DbResult<i64> {
    db.prepare_cached(
        "INSERT INTO branch (session, name, fork, head, message_count, created_at_ms)
         SELECT s.key, sealed_alike(?2, 'branch', 'session:' || s.id, s.wrapped_key), ?3, NULL, 0, ?4
         FROM session AS s WHERE s.key = ?1",
    )?
    .execute(params![session, name, fork, at.ms()])?;
    Ok(db.last_insert_rowid())
}

pub(crate) fn find_by_key(db: &Connection, key: i64) -> DbResult<BranchRow> {
    let sql =
        format!("SELECT {NAME}, b.fork, b.head, b.message_count, b.archived_at_ms IS NOT NULL {FROM} WHERE b.key = ?1");
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params![key])?;
    let row = rows.next()?.ok_or_else(|| unreadable("a branch", "it is missing"))?;
    Ok(BranchRow {
        key,
        name: row.get::<_, String>(0)?.parse().map_err(|error| unreadable("a branch's name", error))?,
        fork: row.get(1)?,
        head: row.get(2)?,
        message_count: row.get(3)?,
        is_archived: row.get(4)?,
    })
}

fn find_key(db: &Connection, session: i64, name: &BranchName) -> DbResult<Option<i64>> {
    Ok(db
        .prepare_cached(
            "SELECT b.key FROM branch AS b WHERE b.session = ?1 AND b.archived_at_ms IS NULL
                 AND b.name = (SELECT sealed_alike(?2, 'branch', 'session:' || s.id, s.wrapped_key) FROM session AS s WHERE s.key = ?1)",
        )?
        .query_row(params![session, name.as_str()], |row| row.get(0))
        .optional()?)
}

/// The branch of that name.
pub(crate) fn find(db: &Connection, session: i64, context: &SessionId, name: &BranchName) -> DbResult<BranchRow> {
    match find_key(db, session, name)? {
        Some(key) => find_by_key(db, key),
        None => Err(Error::BranchNotFound { context: context.clone(), name: name.clone() }.into()),
    }
}

/// All branches of a conversation, oldest first.
pub(crate) fn list(db: &Connection, session: i64) -> DbResult<Vec<Branch>> {
    let sql = format!(
        "SELECT b.key, {NAME}, (SELECT id FROM segment WHERE key = b.fork),
                b.key IS (SELECT active_branch FROM conversation WHERE session = b.session)
         {FROM} WHERE b.session = ?1 AND b.archived_at_ms IS NULL ORDER BY b.key"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params![session])?;
    let mut branches = Vec::new();
    while let Some(row) = rows.next()? {
        let fork: Option<String> = row.get(2)?;
        branches.push(Branch {
            name: row.get(1)?,
            message_ids: message::ids_of_branch(db, row.get(0)?)?,
            parent_message_id: fork
                .map(|id| id.parse())
                .transpose()
                .map_err(|error: String| unreadable("an id", error))?,
            is_active: row.get(3)?,
        });
    }
    Ok(branches)
}

/// A branch of that name is not there, and there is room for one more.
fn check_new(db: &Connection, session: i64, name: &BranchName) -> DbResult<()> {
    if find_key(db, session, name)?.is_some() {
        return Err(Error::Conflict(Conflict::BranchExists(name.clone())).into());
    }
    let count: u64 = db
        .prepare_cached("SELECT count(*) FROM branch WHERE session = ?1 AND archived_at_ms IS NULL")?
        .query_row(params![session], |row| row.get(0))?;
    match count < BRANCHES_MAX {
        true => Ok(()),
        false => {
            let why = format!("there are {count} branches, and no more are kept; delete some");
            Err(Error::InvalidInput(why).into())
        }
    }
}

/// Begins a branch inside a change that tells of it.
pub(crate) fn begin(
    db: &Connection,
    row: &ConversationRow,
    context: &SessionId,
    new: &NewBranch,
    at: Timestamp,
) -> DbResult<BranchRow> {
    check_new(db, row.session, &new.name)?;
    let known = |id: &SegmentId| message::find_key(db, row.session, context, id);
    let fork = match &new.fork {
        Fork::Active => find_by_key(db, row.active_branch)?.tip(),
        Fork::After(id) => Some(known(id)?),
        Fork::InPlaceOf(id) => message::parent_of(db, known(id)?)?,
    };
    let key = insert(db, row.session, new.name.as_str(), fork, at)?;
    find_by_key(db, key)
}

const CREATED: &str = "branch.created";

pub(crate) fn add(
    db: &Connection,
    scope: &Scope,
    context: &SessionId,
    new: &NewBranch,
    at: Timestamp,
    idempotency: Option<&Idempotency>,
) -> DbResult<Branch> {
    let begun = |parent_message_id| Branch {
        name: new.name.to_string(),
        message_ids: Vec::new(),
        parent_message_id,
        is_active: false,
    };
    if let Some(first) = retry::find(db, scope, CREATED, idempotency, at)? {
        return Ok(begun(first["parent_message_id"].as_str().and_then(|id| id.parse().ok())));
    }
    let row = conversation::find_row(db, scope, context)?;
    let branch = begin(db, &row, context, new, at)?;
    tell(db, scope, context, &row, &branch, CREATED, at)?;
    let parent = branch.fork.map(|key| message::id_of(db, key)).transpose()?;
    retry::remember(db, scope, CREATED, idempotency, &json!({ "parent_message_id": parent }), at)?;
    Ok(begun(parent))
}

fn tell(
    db: &Connection,
    scope: &Scope,
    context: &SessionId,
    row: &ConversationRow,
    branch: &BranchRow,
    kind: &str,
    at: Timestamp,
) -> DbResult<()> {
    let payload = json!({ "context_id": context, "project_id": row.project, "branch": branch.name });
    append_and_publish(db, scope, &operation(context, &row.project, kind, at, payload))?;
    conversation::touch(db, scope, row.session, at)
}

pub(crate) fn switch(
    db: &Connection,
    scope: &Scope,
    context: &SessionId,
    name: &BranchName,
    at: Timestamp,
) -> DbResult<SwitchedBranch> {
    let row = conversation::find_row(db, scope, context)?;
    let branch = find(db, row.session, context, name)?;
    if branch.key != row.active_branch {
        conversation::set_active(db, row.session, branch.key)?;
        tell(db, scope, context, &row, &branch, "branch.switched", at)?;
    }
    Ok(SwitchedBranch {
        active_branch_name: branch.name.to_string(),
        message_count: branch.message_count,
        warnings: Vec::new(),
    })
}

pub(crate) fn archive(
    db: &Connection,
    scope: &Scope,
    context: &SessionId,
    name: &BranchName,
    at: Timestamp,
) -> DbResult<()> {
    let row = conversation::find_row(db, scope, context)?;
    let branch = find(db, row.session, context, name)?;
    let refuse = |why, hint| Err(Error::InvalidState { context: context.clone(), state: row.state, why, hint }.into());
    if branch.key == row.active_branch {
        return refuse("the active branch cannot be deleted", "switch to another branch first");
    }
    if row.state.is_running() && row.turn_branch == Some(branch.key) {
        return refuse(
            "a turn is under way on this branch",
            "wait until it is Idle, or end the turn with POST …/cancel",
        );
    }
    db.prepare_cached("UPDATE branch SET archived_at_ms = ?2 WHERE key = ?1")?.execute(params![branch.key, at.ms()])?;
    tell(db, scope, context, &row, &branch, "branch.deleted", at)
}

const RESTORED: &str = "branch.restored";

pub(crate) fn restore(
    db: &Connection,
    scope: &Scope,
    context: &SessionId,
    name: &BranchName,
    at: Timestamp,
    idempotency: Option<&Idempotency>,
) -> DbResult<Branch> {
    let row = conversation::find_row(db, scope, context)?;
    if let Some(first) = retry::find(db, scope, RESTORED, idempotency, at)? {
        // It may have been deleted again since.
        let branch = match first["branch"].as_i64() {
            Some(key) => find_by_key(db, key)?,
            None => find(db, row.session, context, name)?,
        };
        return shown(db, &row, &branch);
    }
    let hidden: Option<i64> = db
        .prepare_cached(
            "SELECT b.key FROM branch AS b WHERE b.session = ?1 AND b.archived_at_ms IS NOT NULL
                 AND b.name = (SELECT sealed_alike(?2, 'branch', 'session:' || s.id, s.wrapped_key) FROM session AS s WHERE s.key = ?1)
             ORDER BY b.archived_at_ms DESC, b.key DESC LIMIT 1",
        )?
        .query_row(params![row.session, name.as_str()], |row| row.get(0))
        .optional()?;
    check_new(db, row.session, name)?;
    let key = hidden.ok_or_else(|| Error::BranchNotFound { context: context.clone(), name: name.clone() })?;
    db.prepare_cached("UPDATE branch SET archived_at_ms = NULL WHERE key = ?1")?.execute(params![key])?;
    let branch = find_by_key(db, key)?;
    tell(db, scope, context, &row, &branch, RESTORED, at)?;
    retry::remember(db, scope, RESTORED, idempotency, &json!({ "branch": key }), at)?;
    shown(db, &row, &branch)
}

fn shown(db: &Connection, row: &ConversationRow, branch: &BranchRow) -> DbResult<Branch> {
    Ok(Branch {
        name: branch.name.to_string(),
        message_ids: message::ids_of_branch(db, branch.key)?,
        parent_message_id: branch.fork.map(|fork| message::id_of(db, fork)).transpose()?,
        is_active: branch.key == row.active_branch,
    })
}
