//! What JSON we take, and how we read it.
//!
//! A context must come back equal, so what cannot be kept is refused by name: integers outside 64 bits, numbers beyond
//! a double, duplicate keys, lone surrogates, nesting without end. [`parse_strict`] finds all of these. Where a library parses
//! for us (MCP), [`parse_message`] looks at the text first; only duplicate keys, of which the last counts, go unnoticed there.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Value};

/// Levels of nesting in a context: `{}` is one.
pub(crate) const DEPTH_MAX: usize = 128;

/// Levels that a request may put around a context.
const ENVELOPE_DEPTH_MAX: usize = 8;

/// Reads `text` into a value that holds all of it, or says what cannot be held.
pub fn parse_strict(text: &[u8]) -> Result<Value, String> {
    check_text(text)?;
    read(text, Strict).map_err(|error| why_unread(&error))
}

/// Reads a message into a library's type. The last of duplicate keys counts.
pub fn parse_message<'a, T: serde::Deserialize<'a>>(text: &'a [u8]) -> Result<T, String> {
    check_message(text)?;
    read(text, PhantomData).map_err(|error| why_unread(&error))
}

/// Reads JSON that we wrote ourselves, whose depth was bounded then.
pub fn parse_trusted(text: &[u8]) -> serde_json::Result<Value> {
    read(text, Strict)
}

fn read<'a, S: DeserializeSeed<'a>>(text: &'a [u8], seed: S) -> serde_json::Result<S::Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    deserializer.disable_recursion_limit();
    let value = seed.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Reads whatever a client sent.
pub(crate) fn any<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    Strict.deserialize(deserializer)
}

/// Reads an object that a client sent. The library's own way to read one takes [`RAW_KEY`] in it for an instruction.
pub(crate) fn object<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    match Strict.deserialize(deserializer)? {
        Value::Object(map) => Ok(map),
        other => Err(D::Error::custom(format!("{}, where an object is wanted", kind(&other)))),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Whether a value that was parsed has more than so many levels of nesting.
pub fn is_deeper(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels == 0 || items.iter().any(|item| is_deeper(item, levels - 1)),
        Value::Object(map) => levels == 0 || map.values().any(|value| is_deeper(value, levels - 1)),
        _ => false,
    }
}

/// Whether `map` has about `bytes` bytes as text, or fewer. It is an estimate that stops at the bound.
pub(crate) fn is_within(map: &Map<String, Value>, bytes: usize) -> bool {
    fn spend(value: &Value, left: &mut usize) -> bool {
        let cost = match value {
            Value::String(text) => text.len() + 3,
            _ => 8,
        };
        if cost > *left {
            return false;
        }
        *left -= cost;
        match value {
            Value::Array(items) => items.iter().all(|item| spend(item, left)),
            Value::Object(map) => spend_all(map, left),
            _ => true,
        }
    }
    fn spend_all(map: &Map<String, Value>, left: &mut usize) -> bool {
        map.iter().all(|(key, value)| {
            *left = left.saturating_sub(key.len() + 4);
            spend(value, left)
        })
    }
    spend_all(map, &mut bytes.clone())
}

/// The parser's words, with what is meant where they do not say it.
pub(crate) fn describe(error: &dyn fmt::Display) -> String {
    let text = error.to_string();
    if text.starts_with("unexpected end of hex escape") || text.starts_with("lone leading surrogate") {
        return format!("a lone surrogate in a text cannot be kept: {text}");
    }
    text
}

/// Why text could not be read: it is no JSON, or it says what cannot be kept.
fn why_unread(error: &serde_json::Error) -> String {
    let text = describe(error);
    match error.classify() {
        Category::Eof if (error.line(), error.column()) == (1, 0) => "not valid JSON: there is nothing".to_owned(),
        Category::Syntax | Category::Eof => format!("not valid JSON: {text}"),
        Category::Data | Category::Io => text,
    }
}

pub(crate) fn too_deep() -> String {
    format!("JSON is nested deeper than {DEPTH_MAX} levels")
}

/// A key by which `serde_json` marks text to be taken for the value itself. Only where the library reads for us must it be refused.
const RAW_KEY: &str = "$serde_json::private::RawValue";

/// Refuses on the text what a parsed value no longer shows: numbers that would become others, and so much depth that a parser
/// which recurses could run out of stack.
fn check_text(text: &[u8]) -> Result<(), String> {
    scan(text, |_, _| Ok(()))
}

/// [`check_text`], for text that a library parses: it must not hold a key that means something to the library.
fn check_message(text: &[u8]) -> Result<(), String> {
    scan(text, |string, rest| {
        let is_it = || serde_json::from_slice::<String>(string).is_ok_and(|key| key == RAW_KEY);
        // Even with every letter escaped it is no longer than this.
        let may_be =
            string.len() == RAW_KEY.len() + 2 || string.len() <= 6 * RAW_KEY.len() + 2 && string.contains(&b'\\');
        if may_be && is_it() && rest.trim_ascii_start().first() == Some(&b':') {
            return Err(format!("the key `{RAW_KEY}` cannot be kept over MCP; save it over REST or the command line"));
        }
        Ok(())
    })
}

/// Looks at every number and every level of nesting, without recursion, and shows `look` every string, quotes included, with what
/// follows it.
fn scan(text: &[u8], look: impl Fn(&[u8], &[u8]) -> Result<(), String>) -> Result<(), String> {
    let (mut at, mut depth) = (0, 0usize);
    while let Some(&byte) = text.get(at) {
        let mut end = at + 1;
        match byte {
            b'"' => {
                end = string_end(text, end);
                look(&text[at..end], &text[end..])?;
            }
            b'-' | b'0'..=b'9' => {
                end += text[end..].iter().take_while(|b| b.is_ascii_digit() || b"+-.eE".contains(b)).count();
                check_number(&text[at..end])?;
            }
            b'{' | b'[' => {
                depth += 1;
                if depth > DEPTH_MAX + ENVELOPE_DEPTH_MAX {
                    return Err(too_deep());
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at = end;
    }
    Ok(())
}

/// Where a string that has begun before `at` ends, its last quote included.
pub(crate) fn string_end(text: &[u8], mut at: usize) -> usize {
    while let Some(found) = memchr::memchr2(b'"', b'\\', &text[at..]) {
        at += found + 1;
        if text[at - 1] == b'"' {
            return at;
        }
        // What is escaped does not end it.
        at = (at + 1).min(text.len());
    }
    text.len()
}

/// Takes the white space out of JSON text.
pub(crate) fn compact(text: &mut Vec<u8>) {
    let (mut from, mut to) = (0, 0);
    while let Some(&byte) = text.get(from) {
        let end = if byte == b'"' { string_end(text, from + 1) } else { from + 1 };
        if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
            text.copy_within(from..end, to);
            to += end - from;
        }
        from = end;
    }
    text.truncate(to);
}

pub(crate) fn check_number(literal: &[u8]) -> Result<(), String> {
    // Nothing this short is out of range.
    if literal.len() < 4 {
        return Ok(());
    }
    let literal = &*String::from_utf8_lossy(literal);
    let shown = || literal.chars().take(40).collect::<String>();
    let integer = !literal.contains(['.', 'e', 'E']);
    if integer && literal.parse::<i64>().is_err() && literal.parse::<u64>().is_err() {
        return Err(format!(
            "the integer {} does not fit into 64 bits and cannot be kept; send it as a string",
            shown()
        ));
    }
    let mantissa = literal.split(['e', 'E']).next().unwrap_or_default();
    let is_zero = !integer && literal.parse::<f64>().is_ok_and(|number| number == 0.0);
    if is_zero && mantissa.contains(|digit: char| ('1'..='9').contains(&digit)) {
        return Err(format!(
            "the number {} is too small for a double and would become 0; send it as a string",
            shown()
        ));
    }
    Ok(())
}

/// Builds a [`Value`] and refuses duplicate keys.
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(Strict)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("duplicate key `{}`", key.escape_debug())));
            }
            map.insert(key, access.next_value_seed(Strict)?);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_can_be_kept_is_read_as_it_stands() {
        let check = |text: &str| assert_eq!(parse_strict(text.as_bytes()).unwrap().to_string(), text);
        check(r#"{"z":1,"a":[1.0,-0.0,0.1,1e+20,9007199254740993,-9223372036854775808,18446744073709551615]}"#);
        check(r#"{"text":"99999999999999999999999 \" \\","é":null,"t":true}"#);
        check(&format!("{}{}", "[".repeat(128), "]".repeat(128)));
    }

    #[test]
    fn a_key_that_means_something_to_the_library_is_kept_where_we_read_and_refused_where_it_reads() {
        let check = |text: &str, is_refused: bool| {
            assert_eq!(parse_strict(text.as_bytes()).unwrap(), parse_trusted(text.as_bytes()).unwrap());
            assert_eq!(check_message(text.as_bytes()).is_err(), is_refused, "{text}");
        };
        let text = format!(r#"{{"x":{{"{RAW_KEY}":"[1,2]"}}}}"#);
        assert_eq!(parse_strict(text.as_bytes()).unwrap().to_string(), text);
        check(&text, true);
        check(&text.replace('$', "\\u0024"), true);
        check(&text.replace(":\"", " \n : \""), true);
        check(&format!(r#"{{"x":"{RAW_KEY}","{RAW_KEY}s":1,"\n":2}}"#), false);
    }

    #[test]
    fn text_that_cannot_be_kept_is_refused_by_name() {
        let check = |text: &str, names: &str| {
            let error = parse_strict(text.as_bytes()).unwrap_err();
            assert!(error.contains(names), "{text}: {error}");
        };
        check(r#"{"n":18446744073709551616}"#, "18446744073709551616");
        check(r#"[-9223372036854775809]"#, "-9223372036854775809");
        check(r#"{"n":1e999}"#, "out of range");
        check(r#"{"n":-0.3e-400}"#, "too small");
        check(r#"{"a":{"k":1,"k":2}}"#, "duplicate key `k`");
        check(r#"{"s":"\ud800"}"#, "surrogate");
        check(r#"{"a":1} x"#, "trailing");
        check(&format!("{}{}", "[".repeat(137), "]".repeat(137)), "128 levels");
    }

    #[test]
    fn white_space_goes_only_where_it_means_nothing() {
        let mut text = b" {\n\t\"a b\" : [ 1 ,\r\n \" \\\" \" ] } ".to_vec();
        compact(&mut text);
        assert_eq!(text, b"{\"a b\":[1,\" \\\" \"]}");
    }

    #[test]
    fn invalid_utf_8_is_refused() {
        assert!(parse_strict(b"{\"a\":\"\xff\"}").is_err());
    }

    #[test]
    fn an_integer_is_refused_where_it_would_be_rounded_and_a_double_is_not() {
        let check = |text: &str, good: bool| assert_eq!(check_text(text.as_bytes()).is_ok(), good, "{text}");
        check("[1152921504606846977, 18446744073709551615, -9223372036854775808, 1.5, 0.1, 1e15, 1e20, 1.5e300]", true);
        check(r#"{"18446744073709551616": "18446744073709551616 \" 18446744073709551616"}"#, true);
        check("[18446744073709551616]", false);
        check(r#"{"a": -9223372036854775809}"#, false);
    }
}
