//! When two contexts are equal: the canonical form, and its hash.
//!
//! Keys are sorted, strings minimally escaped, numbers written as RFC 8785 has them, with one difference: whole numbers
//! within 64 bits are written in full. RFC 8785 would write 2^60 and 2^60+1 alike, and a changed context would be taken
//! for an unchanged one. The form exists only to be hashed; what is stored is the context as it came.

mod text;

use std::io::{self, BufWriter, Write};

use serde_json::{Map, Number, Value};
use sha2::{Digest, Sha256};

use crate::json::DEPTH_MAX;

pub use text::hash_text;

const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;
const TWO_POW_64: f64 = 18_446_744_073_709_551_616.0;

/// A SHA-256 hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// The hash of `parts`, each with its length before it, so that no two lists of parts run together.
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hash({self})")
    }
}

/// The hash of the canonical form of `object`, or `None` when it is nested deeper than [`DEPTH_MAX`].
pub fn hash_object(object: &Map<String, Value>) -> Option<Hash> {
    hash(|out| write_object(out, object, 1))
}

/// The same of a value inside of an object.
pub fn hash_value(value: &Value) -> Option<Hash> {
    hash(|out| write_value(out, value, 1))
}

fn hash(write: impl FnOnce(&mut BufWriter<HashWriter>) -> io::Result<()>) -> Option<Hash> {
    let mut hasher = BufWriter::with_capacity(4096, HashWriter(Sha256::new()));
    write(&mut hasher).ok()?;
    let writer = hasher.into_inner().ok()?;
    Some(Hash(writer.0.finalize().into()))
}

struct HashWriter(Sha256);

impl Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_value(out: &mut impl Write, value: &Value, depth: usize) -> io::Result<()> {
    match value {
        Value::Number(number) => write_number(out, number),
        Value::Array(items) => write_array(out, items, depth + 1),
        Value::Object(object) => write_object(out, object, depth + 1),
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(serde_json::to_writer(out, value)?),
    }
}

fn write_array(out: &mut impl Write, items: &[Value], depth: usize) -> io::Result<()> {
    check_depth(depth)?;
    out.write_all(b"[")?;
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.write_all(b",")?;
        }
        write_value(out, item, depth)?;
    }
    out.write_all(b"]")
}

fn write_object(out: &mut impl Write, object: &Map<String, Value>, depth: usize) -> io::Result<()> {
    check_depth(depth)?;
    let mut entries: Vec<_> = object.iter().collect();
    entries.sort_unstable_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
    out.write_all(b"{")?;
    for (at, (key, value)) in entries.into_iter().enumerate() {
        if at > 0 {
            out.write_all(b",")?;
        }
        serde_json::to_writer(&mut *out, key)?;
        out.write_all(b":")?;
        write_value(out, value, depth)?;
    }
    out.write_all(b"}")
}

fn write_number(out: &mut impl Write, number: &Number) -> io::Result<()> {
    match number.as_f64() {
        Some(double) if number.is_f64() => write_double(out, double),
        _ => write!(out, "{number}"),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the double is whole and within range")]
fn write_double(out: &mut impl Write, double: f64) -> io::Result<()> {
    if double.fract() != 0.0 || !(-TWO_POW_63..TWO_POW_64).contains(&double) {
        out.write_all(ryu_js::Buffer::new().format_finite(double).as_bytes())
    } else if double < 0.0 {
        write!(out, "{}", double as i64)
    } else {
        write!(out, "{}", double as u64)
    }
}

fn check_depth(depth: usize) -> io::Result<()> {
    if depth > DEPTH_MAX { Err(io::ErrorKind::InvalidInput.into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn canonical(value: &Value) -> String {
        let mut out = Vec::new();
        write_value(&mut out, value, 0).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn hash(value: &Value) -> Hash {
        hash_object(json!({ "v": value }).as_object().unwrap()).unwrap()
    }

    #[test]
    fn the_form_is_that_of_rfc_8785_with_whole_numbers_in_full() {
        let check = |value: Value, form: &str| assert_eq!(canonical(&value), form);
        check(json!({ "b": 1, "a": [true, null] }), r#"{"a":[true,null],"b":1}"#);
        check(json!([1.0, -0.0, 0.1, 1e21, 1e-7, 333_333_333.333_333_3]), "[1,0,0.1,1e+21,1e-7,333333333.3333333]");
        check(
            json!([1u64 << 60, (1u64 << 60) + 1, u64::MAX]),
            "[1152921504606846976,1152921504606846977,18446744073709551615]",
        );
        check(json!([1_152_921_504_606_846_976.0]), "[1152921504606846976]");
        check(json!("\u{8}\t\n\u{c}\r\"\\\u{1f}é\u{2028}"), "\"\\b\\t\\n\\f\\r\\\"\\\\\\u001fé\u{2028}\"");
        check(
            json!({ "\u{20ac}": 1, "\u{1f600}": 2, "\u{fb33}": 3 }),
            "{\"\u{20ac}\":1,\"\u{1f600}\":2,\"\u{fb33}\":3}",
        );
    }

    #[test]
    fn nesting_beyond_the_bound_has_no_hash() {
        let nested = |levels: usize| (1..levels).fold(json!({}), |inner, _| json!({ "k": inner }));
        assert!(hash_object(nested(DEPTH_MAX).as_object().unwrap()).is_some());
        assert!(hash_object(nested(DEPTH_MAX + 1).as_object().unwrap()).is_none());
    }

    #[test]
    fn text_is_hashed_as_it_is_read_or_refused_by_name() {
        let same = |text: &str| {
            let value = crate::json::parse_strict(text.as_bytes()).unwrap();
            assert_eq!(hash_text(text), Ok(hash_object(value.as_object().unwrap()).unwrap()), "{text}");
        };
        same("{}");
        same(
            r#"{"b":{"z":[],"a":{"y":{},"x":[{"q":1,"p":"}"}]}},"a":[[],[1,-0,-0.0,1.0,1e2,"\u0041\"{"],null,true,false]}"#,
        );
        same("{\"\u{fb33}\":3,\"\u{1f600}\":2,\"\\u20ac\":1,\"\":0}");
        same(&format!("{}1{}", r#"{"k":"#.repeat(128), "}".repeat(128)));
        let refused = |text: &str, names: &str| {
            let error = hash_text(text).unwrap_err();
            assert!(error.contains(names), "{text}: {error}");
        };
        refused("[]", "not an object");
        refused(r#"{"a":{"k":1,"b":2,"k":3}}"#, "duplicate key `k`");
        refused(r#"{"\u0061":1,"a":2}"#, "duplicate key `a`");
        refused(r#"{"n":18446744073709551616}"#, "18446744073709551616");
        refused(r#"{"n":1e999}"#, "out of range");
        refused(r#"{"n":1e-999}"#, "too small");
        refused(r#"{"s":"\ud800"}"#, "surrogate");
        refused(&format!("{}1{}", r#"{"k":"#.repeat(129), "}".repeat(129)), "128 levels");
    }

    /// Equality of JSON values: numbers by value, objects without regard to order.
    fn equal(a: &Value, b: &Value) -> bool {
        match (a, b) {
            (Value::Number(a), Value::Number(b)) => match (a.as_i128(), b.as_i128()) {
                (Some(a), Some(b)) => a == b,
                (Some(whole), None) => {
                    b.as_f64().is_some_and(|b| b.fract() == 0.0 && b.abs() < 1e30 && b as i128 == whole)
                }
                (None, Some(_)) => equal(&Value::Number(b.clone()), &Value::Number(a.clone())),
                (None, None) => a.as_f64() == b.as_f64(),
            },
            (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
            (Value::Object(a), Value::Object(b)) => {
                a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| equal(a, b)))
            }
            _ => a == b,
        }
    }

    fn any_number() -> impl Strategy<Value = Value> {
        let near =
            prop::sample::select(vec![0i128, 1 << 53, 1 << 60, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -(1 << 63)]);
        prop_oneof![
            (near, -2i128..3).prop_filter_map("fits", |(near, offset)| {
                let whole = near + offset;
                i64::try_from(whole).map(Value::from).or_else(|_| u64::try_from(whole).map(Value::from)).ok()
            }),
            any::<f64>().prop_map(Value::from),
            (-4i32..70).prop_map(|power| Value::from(2f64.powi(power))),
            (-3i8..3).prop_map(Value::from),
            (-3i8..3).prop_map(|small| Value::from(f64::from(small))),
        ]
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![any_number(), any::<bool>().prop_map(Value::from), "[ab\"\\n]{0,2}".prop_map(Value::from)];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::vec(("[ab]{1,2}", inner), 0..3)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn the_hash_is_equal_exactly_when_the_values_are(a in any_value(), b in any_value()) {
            prop_assert_eq!(hash(&a) == hash(&b), equal(&a, &b));
        }

        #[test]
        fn numbers_hash_alike_exactly_when_they_are_equal(a in any_number(), b in any_number()) {
            prop_assert_eq!(hash(&a) == hash(&b), equal(&a, &b));
        }

        #[test]
        fn the_order_of_keys_does_not_matter(value in any_value()) {
            fn reversed(value: &Value) -> Value {
                match value {
                    Value::Object(map) => Value::Object(map.iter().rev().map(|(k, v)| (k.clone(), reversed(v))).collect()),
                    Value::Array(items) => items.iter().map(reversed).collect(),
                    other => other.clone(),
                }
            }
            prop_assert_eq!(hash(&value), hash(&reversed(&value)));
        }

        #[test]
        fn text_has_the_hash_of_what_it_says(value in any_value()) {
            prop_assert_eq!(hash_text(&json!({ "v": &value }).to_string()), Ok(hash(&value)));
        }
    }
}
