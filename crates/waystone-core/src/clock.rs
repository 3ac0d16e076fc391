//! Time and fresh ids, as the engine sees them.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Where time and randomness come from. The binary has the real one, the testkit one that only moves when told.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;

    /// A fresh UUIDv7 as text.
    fn new_id(&self) -> String;
}

/// A moment, in UTC milliseconds. On the wire RFC 3339 with `Z` and milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(i64);

impl Timestamp {
    pub fn from_ms(ms: i64) -> Self {
        Self(ms)
    }

    pub fn ms(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(at) => write!(f, "{at:.3}"),
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

/// Takes RFC 3339 with any offset; without one it is in UTC, and a bare date is its midnight.
impl FromStr for Timestamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let at = text.parse::<jiff::Timestamp>().or_else(|error| {
            let date = text.parse::<jiff::civil::DateTime>().map_err(|_| error)?;
            Ok::<_, jiff::Error>(date.to_zoned(jiff::tz::TimeZone::UTC)?.timestamp())
        });
        at.map(|at| Self(at.as_millisecond())).map_err(|_| {
            format!("`{text}` is not a time; write it like 2026-11-01T12:00:00Z, or a date like 2026-11-01")
        })
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Timestamp {
    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_with_z_and_milliseconds_and_read_in_any_zone() {
        let check = |text: &str, ms: i64, written: &str| {
            let at: Timestamp = text.parse().unwrap();
            assert_eq!((at.ms(), at.to_string().as_str()), (ms, written), "{text}");
        };
        check("1970-01-01T00:00:01Z", 1_000, "1970-01-01T00:00:01.000Z");
        check("2026-11-15T12:00:00.120+01:00", 1_794_740_400_120, "2026-11-15T11:00:00.120Z");
        check("2026-11-15", 1_794_700_800_000, "2026-11-15T00:00:00.000Z");
        check("2026-11-15T18:00:00", 1_794_765_600_000, "2026-11-15T18:00:00.000Z");
        check("2026-11-15 18:00", 1_794_765_600_000, "2026-11-15T18:00:00.000Z");
        assert!("yesterday".parse::<Timestamp>().is_err());
    }
}
