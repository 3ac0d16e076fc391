//! The log read as an audit: what its hashes cover, exactly as it stands in the rows. Whether it holds is decided in `core/src/audit.rs`.

use async_trait::async_trait;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, named_params, params};
use waystone_core::Result;
use waystone_core::api::{AuditChain, AuditHead, AuditPage, AuditRecord, Exact, ListAudit};
use waystone_core::clock::Timestamp;
use waystone_core::store::{AuditPart, AuditStore, Scope};

use super::error::{DbResult, behind};
use super::{Sqlite, cursor};

/// So many records are read at once.
const PAGE: usize = 2000;
/// So many are looked at for one page of a list.
const LOOKED_AT_MAX: usize = 50_000;

/// What is sealed is read as it is kept, so that it can be checked by who does not have the key.
const AS_KEPT: &str = "iif(typeof(payload) = 'blob', json_quote(lower(hex(payload))), payload)";
/// As people read it.
const OPENED: &str = "unsealed(payload, 'operation', seq)";

fn columns(payload: &str) -> String {
    format!("seq, at_ms, actor, kind, subject, {payload}, lower(hex(payload_hash)), lower(hex(hash))")
}

#[async_trait]
impl AuditStore for Sqlite {
    async fn list_audit(&self, scope: &Scope, filter: &ListAudit) -> Result<AuditPage> {
        let (scope, filter) = (scope.clone(), filter.clone());
        self.readers.read(move |db| list(db, &scope, &filter)).await
    }

    async fn read_audit(&self, scope: &Scope, after: i64) -> Result<AuditPart> {
        let space = scope.space;
        self.readers.read(move |db| read(db, space, after)).await
    }
}

/// A record as it is. What is not what it should be is no error: it does not have its hash, and that is told.
fn record(row: &Row<'_>) -> rusqlite::Result<AuditRecord> {
    let text = |column: usize| -> rusqlite::Result<String> {
        Ok(match row.get_ref(column)? {
            ValueRef::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => String::new(),
        })
    };
    let is_erased = row.get_ref(5)? == ValueRef::Null;
    Ok(AuditRecord {
        seq: row.get(0)?,
        at: Timestamp::from_ms(row.get(1)?),
        actor: text(2)?,
        kind: text(3)?,
        subject: Exact(text(4)?),
        payload: if is_erased { None } else { Some(Exact(text(5)?)) },
        payload_hash: text(6)?,
        hash: text(7)?,
    })
}

/// Records after a number, and how the log says that it begins and ends.
pub(crate) fn read(db: &Connection, space: i64, after: i64) -> DbResult<AuditPart> {
    let columns = columns(AS_KEPT);
    let sql = format!("SELECT {columns} FROM operation WHERE space = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3");
    let mut statement = db.prepare_cached(&sql)?;
    let records: Vec<AuditRecord> =
        statement.query_map(params![space, after, PAGE], record)?.collect::<rusqlite::Result<_>>()?;
    let last = records.iter().try_fold(after, |after, record| behind(after, record.seq))?;
    let next = (records.len() == PAGE).then_some(last);
    Ok(AuditPart { records, next, chains: list_chains(db, space)?, head: head(db, space)? })
}

/// The newest record, as the log itself has it.
pub(crate) fn head(db: &Connection, space: i64) -> DbResult<AuditHead> {
    let sql = "SELECT operation_seq, lower(hex(operation_hash)) FROM space WHERE space = ?1";
    let head = |row: &Row<'_>| Ok(AuditHead { seq: row.get(0)?, hash: row.get(1)? });
    Ok(db.prepare_cached(sql)?.query_row(params![space], head)?)
}

pub(crate) fn list_chains(db: &Connection, space: i64) -> DbResult<Vec<AuditChain>> {
    let mut statement =
        db.prepare_cached("SELECT first_seq, lower(hex(genesis)) FROM chain WHERE space = ?1 ORDER BY first_seq")?;
    let chain = |row: &Row<'_>| Ok(AuditChain { first_seq: row.get(0)?, genesis: row.get(1)? });
    Ok(statement.query_map(params![space], chain)?.collect::<rusqlite::Result<_>>()?)
}

/// No index has what is filtered by, so a page ends also when much was looked at for it.
fn list(db: &Connection, scope: &Scope, filter: &ListAudit) -> DbResult<AuditPage> {
    let columns = columns(OPENED);
    let sql = format!(
        "SELECT {columns}, (:since IS NULL OR at_ms >= :since) AND (:until IS NULL OR at_ms < :until)
             AND (:actor IS NULL OR actor = :actor) AND (:kind IS NULL OR kind = :kind)
             AND (:session IS NULL OR instr(subject, :session) > 0)
         FROM operation WHERE space = :space AND seq < :before ORDER BY seq DESC LIMIT :looked_at_max"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(named_params! {
        ":since": filter.since.as_ref().map(|since| since.before(Timestamp::from_ms(0)).ms()),
        ":until": filter.until.map(Timestamp::ms),
        ":actor": filter.actor,
        ":kind": filter.kind,
        ":session": filter.session_id.as_ref().map(|id| format!("\"ws:session:{id}\"")),
        ":space": scope.space,
        ":before": cursor::read(filter.cursor.as_deref())?,
        ":looked_at_max": LOOKED_AT_MAX,
    })?;
    let (mut records, mut looked_at, mut last, mut has_more) = (Vec::new(), 0, 0, false);
    while let Some(row) = rows.next()? {
        let is_wanted: bool = row.get(8)?;
        has_more = is_wanted && records.len() == filter.limit as usize;
        if has_more {
            break;
        }
        (looked_at, last) = (looked_at + 1, row.get(0)?);
        if is_wanted {
            records.push(record(row)?);
        }
    }
    let goes_on = has_more || looked_at == LOOKED_AT_MAX;
    Ok(AuditPage { records, next_cursor: goes_on.then(|| cursor::write(last)), warnings: Vec::new() })
}
