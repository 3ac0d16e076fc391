//! Rows by the names of their columns: read whole, and written with as much of it as the table has. A column that a later migration
//! adds needs no code here.

use rusqlite::types::{Value as Sql, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use serde_json::Value;

use super::error::DbResult;
use crate::mirror::{Columns, hex, unhex};

/// The columns that are sealed under the session's key, by table.
const SEALED: [(&str, &[&str]); 2] = [
    ("session", &["name", "tags", "critical_keys", "context_rules", "correlation"]),
    ("checkpoint", &["name", "tags", "metadata", "git_branch", "context_hash", "raw_hash"]),
];

/// How each of them is sealed: table, column, and the sealed value, as SQL.
pub(crate) fn sealing() -> Vec<(&'static str, &'static str, String)> {
    let of = |table: &'static str, name: &'static str| {
        (table, name, seal(table, name, name, Some("id"), Some("session"), Some("wrapped_key")))
    };
    SEALED.iter().flat_map(|(table, names)| names.iter().map(|name| of(table, name))).collect()
}

fn is_sealed(table: &str, name: &str) -> bool {
    SEALED.iter().any(|(known, names)| *known == table && names.contains(&name))
}

/// What seals a value of a row of which these are known, as SQL. A row without them cannot be sealed.
fn seal(table: &str, name: &str, value: &str, id: Option<&str>, session: Option<&str>, key: Option<&str>) -> String {
    let [id, session, key] = [id, session, key].map(|known| known.unwrap_or("NULL"));
    match table {
        "session" => format!("sealed({value}, '{name}', {id}, 'session:' || {id}, {key})"),
        _ => format!(
            "sealed({value}, '{name}', {id}, (SELECT 'session:' || s.id FROM session AS s WHERE s.key = {session}),
                    (SELECT s.wrapped_key FROM session AS s WHERE s.key = {session}))"
        ),
    }
}

/// What opens the sealed columns of `row` in a table, under their own names, as SQL to be put after `row.*`. Nothing in a database
/// that is older than sealing.
pub(crate) fn opened(db: &Connection, table: &str, row: &str, owner: &str) -> rusqlite::Result<String> {
    let is_known =
        db.prepare_cached("SELECT 1 FROM pragma_table_info('session') WHERE name = 'wrapped_key'")?.exists([])?;
    let names = SEALED.iter().find(|(known, _)| *known == table && is_known).map_or(&[][..], |(_, names)| names);
    let open = |name: &&str| {
        format!(", unsealed({row}.{name}, '{name}', {row}.id, 'session:' || {owner}.id, {owner}.wrapped_key) AS {name}")
    };
    Ok(names.iter().map(open).collect())
}

pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<Columns> {
    let names = row.as_ref().column_names();
    names.enumerate().map(|(at, name)| Ok((name.to_owned(), to_json(row.get_ref(at)?)))).collect()
}

/// The key of the row with that public id.
pub(crate) fn find(db: &Connection, table: &str, space: i64, id: &str) -> DbResult<Option<i64>> {
    let sql = format!("SELECT key FROM {table} WHERE space = ?1 AND id = ?2");
    Ok(db.prepare_cached(&sql)?.query_row(params![space, id], |row| row.get(0)).optional()?)
}

/// Inserts a row with those of `columns` that the table has. Returns its key.
pub(crate) fn insert(db: &Connection, table: &str, columns: &Columns) -> DbResult<i64> {
    let known: Vec<String> = db
        .prepare_cached("SELECT name FROM pragma_table_info(?1)")?
        .query_map(params![table], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let given: Vec<(&String, &Value)> =
        known.iter().filter_map(|name| columns.get(name).map(|value| (name, value))).collect();
    let names: Vec<String> = given.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    let place = |wanted: &str| given.iter().position(|(name, _)| *name == wanted).map(|at| format!("?{}", at + 1));
    let marks = given.iter().enumerate().map(|(at, (name, _))| {
        let mark = format!("?{}", at + 1);
        let (id, session, key) = (place("id"), place("session"), place("wrapped_key"));
        match is_sealed(table, name) {
            false => mark,
            true => seal(table, name, &mark, id.as_deref(), session.as_deref(), key.as_deref()),
        }
    });
    let sql = format!("INSERT INTO {table} ({}) VALUES ({})", names.join(", "), marks.collect::<Vec<_>>().join(", "));
    db.prepare_cached(&sql)?.execute(params_from_iter(given.iter().map(|(_, value)| to_sql(value))))?;
    Ok(db.last_insert_rowid())
}

/// Gives the row with that key, if there is one, another value. `name` is one of the table's own columns, never from outside.
pub(crate) fn update(db: &Connection, table: &str, key: Option<i64>, name: &str, value: &Value) -> DbResult<()> {
    let value_sql = match is_sealed(table, name) {
        false => "?2".to_owned(),
        true => seal(table, name, "?2", Some("id"), Some("session"), Some("wrapped_key")),
    };
    let sql = format!("UPDATE {table} SET \"{name}\" = {value_sql} WHERE key = ?1");
    db.prepare_cached(&sql)?.execute(params![key, to_sql(value)])?;
    Ok(())
}

fn to_json(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into(),
        ValueRef::Blob(bytes) => hex(bytes),
    }
}

pub(crate) fn to_sql(value: &Value) -> Sql {
    match value {
        Value::Null => Sql::Null,
        Value::Bool(truth) => Sql::Integer(i64::from(*truth)),
        Value::Number(number) => {
            number.as_i64().map_or_else(|| Sql::Real(number.as_f64().unwrap_or(0.0)), Sql::Integer)
        }
        Value::String(text) => Sql::Text(text.clone()),
        other => unhex(other).map_or_else(|| Sql::Text(other.to_string()), Sql::Blob),
    }
}
