//! Rows by the names of their columns: read whole, and written with as much of it as the table has. A column that a later migration
//! adds needs no code here.

use rusqlite::types::{Value as Sql, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use serde_json::Value;

use super::error::DbResult;
use crate::mirror::{Columns, hex, unhex};

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
    let marks = vec!["?"; names.len()].join(", ");
    let sql = format!("INSERT INTO {table} ({}) VALUES ({marks})", names.join(", "));
    db.prepare_cached(&sql)?.execute(params_from_iter(given.iter().map(|(_, value)| to_sql(value))))?;
    Ok(db.last_insert_rowid())
}

/// Gives the row with that key, if there is one, another value. `name` is one of the table's own columns, never from outside.
pub(crate) fn update(db: &Connection, table: &str, key: Option<i64>, name: &str, value: &Value) -> DbResult<()> {
    let sql = format!("UPDATE {table} SET \"{name}\" = ?2 WHERE key = ?1");
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
