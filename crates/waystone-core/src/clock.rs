//! Time and fresh ids, as the engine sees them.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Where time and randomness come from. The binary has the real one, the testkit one that only moves when told.
#[async_trait]
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;

    /// Returns when so much time has passed.
    async fn sleep(&self, time: Duration);

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

    /// How long ago another moment was, for who reads it.
    pub fn age_of(self, since: Self) -> String {
        let seconds = self.0.saturating_sub(since.0).max(0) / 1000;
        match seconds {
            0..120 => format!("{seconds} s"),
            120..7200 => format!("{} min", seconds / 60),
            7200..172_800 => format!("{} h", seconds / 3600),
            _ => format!("{} days", seconds / 86_400),
        }
    }
}

/// A moment, given as a time or as how long ago it was: `90s`, `30m`, `24h`, `7d`, `2w`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Since {
    At(Timestamp),
    /// As it was written, and in milliseconds.
    Ago(String, i64),
}

impl Since {
    pub fn before(&self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => *at,
            Self::Ago(_, ms) => Timestamp(now.0.saturating_sub(*ms)),
        }
    }
}

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400), ('w', 604_800)];
        let split = text.char_indices().next_back().map(|(at, unit)| (&text[..at], unit));
        let ago = split.and_then(|(number, unit)| {
            let (_, seconds) = units.iter().find(|(known, _)| *known == unit)?;
            Some(i64::from(number.parse::<u32>().ok()?) * seconds * 1000)
        });
        match ago {
            Some(ms) => Ok(Self::Ago(text.to_owned(), ms)),
            None => text.parse().map(Self::At).map_err(|error| format!("{error}; or how long ago, like 24h or 7d")),
        }
    }
}

impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(at) => at.fmt(f),
            Self::Ago(text, _) => f.write_str(text),
        }
    }
}

impl Serialize for Since {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Since {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Since {
    fn schema_name() -> Cow<'static, str> {
        "Since".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "string", "format": "date-time" },
                                 { "type": "string", "pattern": "^[0-9]{1,9}[smhdw]$" }] })
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
            let date = text.parse::<jiff::civil::DateTime>();
            // The last days of the year 9999 are past what can be told, and mean no end.
            let without_zone = || text.strip_suffix('Z').filter(|_| text.starts_with("9999-12-3"));
            let date = date.or_else(|_| without_zone().unwrap_or_default().parse()).map_err(|_| error)?;
            let utc = jiff::tz::TimeZone::UTC.to_timestamp(date);
            if date.year() < 9999 {
                utc
            } else {
                utc.or(jiff::Timestamp::from_second(jiff::Timestamp::MAX.as_second()))
            }
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
        check("9999-12-31T23:59:59Z", 253_402_207_200_000, "9999-12-30T22:00:00.000Z");
        check("9999-12-31T23:59:59", 253_402_207_200_000, "9999-12-30T22:00:00.000Z");
        for wrong in ["yesterday", "2026-11-15ZZ", "-009999-01-01", "2026-11-15T18:00:00+02:00Z"] {
            assert!(wrong.parse::<Timestamp>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_moment_is_also_given_by_how_long_ago_it_was() {
        let now = Timestamp::from_ms(1_000_000_000);
        let check = |text: &str, ms: i64| {
            let since: Since = text.parse().unwrap();
            assert_eq!((since.before(now).ms(), since.to_string()), (ms, text.to_owned()));
        };
        check("90s", 1_000_000_000 - 90_000);
        check("24h", 1_000_000_000 - 86_400_000);
        check("2w", 1_000_000_000 - 1_209_600_000);
        check("1970-01-01T00:00:01.000Z", 1_000);
        for wrong in ["", "h", "-1h", "1.5h", "24 h", "24x", "99999999999d", "é"] {
            assert!(wrong.parse::<Since>().unwrap_err().contains("24h"), "{wrong}");
        }
        let age = |ms: i64| now.age_of(Timestamp::from_ms(1_000_000_000 - ms));
        assert_eq!([age(-5), age(119_000), age(120_000), age(7_200_000)], ["0 s", "119 s", "2 min", "2 h"]);
        assert_eq!(age(200_000_000), "2 days");
    }
}
