//! Sealing in SQL: functions by which statements seal what they write and open what they read, so that a statement shows what is
//! sealed, and under which key. In a plain store they return what they are given.
//!
//! | function | |
//! |---|---|
//! | `new_key(owner)` | a wrapped key for a new session or project |
//! | `sealed(value, name, id, owner, wrapped_key)` | the value, bound to the name of its column and the id of its row |
//! | `unsealed(value, name, id, owner, wrapped_key)` | the value again; NULL where it does not open |
//! | `sealed_alike(value, name, owner, wrapped_key)` | the same bytes whenever the value is the same; opened with the owner as id |
//! | `keyed(hash, owner, wrapped_key)` | a hash that tells nothing without the key |
//! | `keyed_text(text)` | the same, as text in place of a text |
//!
//! Without owner and key they take the key of the store itself.

use std::sync::{Arc, OnceLock};

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, Error, Result};

use crate::seal::{DataKey, Form, MasterKey, NotOpened, Opened, Place};

/// A column of `row` that is sealed under the key of session `owner`, opened.
macro_rules! session_column {
    ($row:literal, $column:literal, $owner:literal) => {
        concat!(
            "unsealed(",
            $row,
            ".",
            $column,
            ", '",
            $column,
            "', ",
            $row,
            ".id, 'session:' || ",
            $owner,
            ".id, ",
            $owner,
            ".wrapped_key)"
        )
    };
}

/// A column of `row` that is sealed under the key of project `owner`, opened.
macro_rules! project_column {
    ($row:literal, $column:literal, $owner:literal) => {
        concat!(
            "unsealed(",
            $row,
            ".",
            $column,
            ", '",
            $column,
            "', ",
            $row,
            ".id, 'project:' || ",
            $owner,
            ".id, ",
            $owner,
            ".wrapped_key)"
        )
    };
}

/// The same of a segment, whose project is looked up.
macro_rules! segment_column {
    ($row:literal, $column:literal) => {
        concat!(
            "unsealed(",
            $row,
            ".",
            $column,
            ", '",
            $column,
            "', ",
            $row,
            ".id,
             (SELECT 'project:' || id FROM project WHERE key = ",
            $row,
            ".project),
             (SELECT wrapped_key FROM project WHERE key = ",
            $row,
            ".project))"
        )
    };
}

/// By whose key the text of `segment AS s` is sealed: that of its conversation, if it is a message, or of its project.
macro_rules! text_owner {
    () => {
        "coalesce((SELECT 'session:' || id FROM session WHERE key = s.conversation),
                  (SELECT 'project:' || id FROM project WHERE key = s.project)),
         coalesce((SELECT wrapped_key FROM session WHERE key = s.conversation),
                  (SELECT wrapped_key FROM project WHERE key = s.project))"
    };
}

/// The text in `segment_text AS x` of `segment AS s`.
macro_rules! segment_text {
    () => {
        concat!("unsealed(x.text, 'text', s.id, ", text_owner!(), ")")
    };
}

/// What a message calls tools with, if `segment AS s` is such a message: its parts as JSON.
macro_rules! segment_calls {
    () => {
        "(SELECT unsealed(m.parts, 'parts', s.id, 'session:' || c.id, c.wrapped_key) FROM message AS m
          JOIN session AS c ON c.key = m.session WHERE m.segment = s.key AND m.type = 'tool_call')"
    };
}

pub(crate) const SEGMENT_TEXT: &str = segment_text!();
pub(crate) const SEGMENT_CALLS: &str = segment_calls!();

pub(crate) use {project_column, segment_calls, segment_column, segment_text, session_column, text_owner};

/// Whether what is kept in a database is sealed.
pub(crate) fn is_sealed(db: &Connection) -> Result<bool> {
    db.prepare_cached("SELECT EXISTS (SELECT 1 FROM space WHERE wrapped_key IS NOT NULL)")?
        .query_row([], |row| row.get(0))
}

/// The keys of a store. Without a master key it is a plain one.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    master: Option<MasterKey>,
    /// That of the store itself.
    own: OnceLock<DataKey>,
}

/// Who the key of the store itself is wrapped for.
pub(crate) const STORE: &str = "store";

impl Keys {
    pub(crate) fn new(master: Option<MasterKey>) -> Self {
        Self { master, own: OnceLock::new() }
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.master.is_some()
    }

    pub(crate) fn master(&self) -> Option<&MasterKey> {
        self.master.as_ref()
    }

    /// Takes the store's own key into use.
    pub(crate) fn unlock(&self, wrapped: &[u8]) -> Result<(), NotOpened> {
        let key = self.master.as_ref().ok_or(NotOpened)?.unwrap(wrapped, STORE)?;
        // Whoever was first had the same.
        let _ = self.own.set(key);
        Ok(())
    }

    /// The key that the arguments from `at` on name, or the store's own when there are none. `None` in a plain store.
    fn key(&self, context: &Context<'_>, at: usize) -> Result<Option<DataKey>> {
        let Some(master) = &self.master else { return Ok(None) };
        if context.len() == at {
            return self.own.get().cloned().ok_or_else(|| failed("the key of the store is not known")).map(Some);
        }
        let (owner, wrapped) = (context.get_raw(at).as_str()?, context.get_raw(at + 1).as_blob()?);
        Ok(Some(master.unwrap(wrapped, owner).map_err(failed)?))
    }
}

fn failed(error: impl ToString) -> Error {
    Error::UserFunctionError(error.to_string().into())
}

fn id_of(value: ValueRef<'_>) -> Result<String> {
    Ok(match value {
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Blob(bytes) => hex::encode(bytes),
        other => other.as_str()?.to_owned(),
    })
}

/// What a function returns. In a plain store that is what it was given, whatever that is.
type Answer = Result<ToSqlOutput<'static>>;

fn as_given() -> Answer {
    Ok(ToSqlOutput::Arg(0))
}

fn answer(value: Value) -> Answer {
    Ok(ToSqlOutput::Owned(value))
}

fn to_value(opened: Opened) -> Option<Value> {
    match opened.form {
        Form::Text => String::from_utf8(opened.bytes).map(Value::Text).ok(),
        Form::Bytes => Some(Value::Blob(opened.bytes)),
        Form::Key => None,
    }
}

/// Teaches a connection the functions.
pub(crate) fn register(db: &Connection, keys: &Arc<Keys>) -> Result<()> {
    type Function = fn(&Keys, &Context<'_>) -> Answer;
    let functions: [(&str, i32, Function); 9] = [
        ("new_key", 1, new_key),
        ("sealed", 3, seal),
        ("sealed", 5, seal),
        ("unsealed", 3, open),
        ("unsealed", 5, open),
        ("sealed_alike", 4, seal_alike),
        ("keyed", 1, hash),
        ("keyed", 3, hash),
        ("keyed_text", 1, hash_text),
    ];
    for (name, arguments, function) in functions {
        let keys = Arc::clone(keys);
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DIRECTONLY;
        db.create_scalar_function(name, arguments, flags, move |context| function(&keys, context))?;
    }
    Ok(())
}

fn new_key(keys: &Keys, context: &Context<'_>) -> Answer {
    let Some(master) = &keys.master else { return answer(Value::Null) };
    let key = DataKey::generate().map_err(failed)?;
    answer(Value::Blob(master.wrap(&key, context.get_raw(0).as_str()?).map_err(failed)?))
}

/// What a value is sealed as; nothing when it is none.
fn form_of(value: ValueRef<'_>) -> Result<Option<(Form, &[u8])>> {
    match value {
        ValueRef::Null => Ok(None),
        ValueRef::Text(bytes) => Ok(Some((Form::Text, bytes))),
        ValueRef::Blob(bytes) => Ok(Some((Form::Bytes, bytes))),
        ValueRef::Integer(_) | ValueRef::Real(_) => Err(failed("a number is not sealed")),
    }
}

fn seal(keys: &Keys, context: &Context<'_>) -> Answer {
    let Some(key) = keys.key(context, 3)? else { return as_given() };
    let Some((form, bytes)) = form_of(context.get_raw(0))? else { return as_given() };
    let (name, id) = (context.get_raw(1).as_str()?, id_of(context.get_raw(2))?);
    answer(Value::Blob(key.seal(form, bytes, &Place { name, id: &id }).map_err(failed)?))
}

fn seal_alike(keys: &Keys, context: &Context<'_>) -> Answer {
    let Some(key) = keys.key(context, 2)? else { return as_given() };
    let Some((form, bytes)) = form_of(context.get_raw(0))? else { return as_given() };
    let (name, id) = (context.get_raw(1).as_str()?, context.get_raw(2).as_str()?);
    answer(Value::Blob(key.seal_alike(form, bytes, &Place { name, id })))
}

/// One value or key that was damaged does not keep others from being read.
fn open(keys: &Keys, context: &Context<'_>) -> Answer {
    let value = context.get_raw(0);
    if keys.master.is_none() || value == ValueRef::Null {
        return as_given();
    }
    let (name, id) = (context.get_raw(1).as_str()?, id_of(context.get_raw(2))?);
    let opened = match (keys.key(context, 3), value.as_blob()) {
        (Ok(Some(key)), Ok(sealed)) => key.open(sealed, &Place { name, id: &id }).ok().and_then(to_value),
        _ => None,
    };
    if opened.is_none() {
        tracing::error!(name, id, "a sealed value does not open");
    }
    answer(opened.unwrap_or(Value::Null))
}

fn hash(keys: &Keys, context: &Context<'_>) -> Answer {
    let value = context.get_raw(0);
    let (Some(key), false) = (keys.key(context, 1)?, value == ValueRef::Null) else { return as_given() };
    let hash = key.hash(value.as_bytes()?);
    // A hash stays as short as it was.
    let length = value.as_blob().map_or(hash.len(), |bytes| bytes.len().min(hash.len()));
    answer(Value::Blob(hash[..length].to_vec()))
}

fn hash_text(keys: &Keys, context: &Context<'_>) -> Answer {
    let Some(key) = keys.key(context, 1)? else { return as_given() };
    answer(Value::Text(hex::encode(key.hash(context.get_raw(0).as_bytes()?))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::connection::open_empty;

    #[test]
    fn in_a_plain_store_every_value_comes_back_as_it_was_given_whatever_it_is() {
        let db = open_empty().unwrap();
        register(&db, &Arc::default()).unwrap();
        for value in ["NULL", "1", "1.5", "x'ff00'", "CAST(x'ff' AS TEXT)", "'text'"] {
            for function in [
                "sealed({}, 'a', 'b')",
                "unsealed({}, 'a', 'b', 'o', NULL)",
                "sealed_alike({}, 'a', 'o', NULL)",
                "keyed({})",
            ] {
                let call = function.replace("{}", value);
                let sql = format!("SELECT typeof({call}) = typeof({value}) AND {call} IS {value}");
                assert!(db.query_row(&sql, [], |row| row.get::<_, bool>(0)).unwrap(), "{call}");
            }
        }
    }

    #[test]
    fn what_does_not_open_is_nothing_and_a_number_is_not_sealed() {
        let db = open_empty().unwrap();
        let keys = Arc::new(Keys::new(Some(MasterKey::generate().unwrap())));
        register(&db, &keys).unwrap();
        let wrapped: Vec<u8> = db.query_row("SELECT new_key('store')", [], |row| row.get(0)).unwrap();
        keys.unlock(&wrapped).unwrap();
        let is_nothing = |value: &str| -> bool {
            db.query_row(&format!("SELECT unsealed({value}, 'a', 1) IS NULL"), [], |row| row.get(0)).unwrap()
        };
        for value in ["'plain'", "x''", "x'01'", "1", "sealed('a', 'b', 1)", "sealed('a', 'a', 2)", "NULL"] {
            assert!(is_nothing(value), "{value}");
        }
        assert!(!is_nothing("sealed('a', 'a', 1)") && !is_nothing("sealed(x'ff', 'a', 1)"));
        assert!(db.query_row("SELECT sealed(1, 'a', 1)", [], |_| Ok(())).is_err());
    }
}
