//! `TaskId`: the opaque, unguessable name of a task.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::{Builder, Uuid};

/// The name of a task: a UUID in version-7 layout, so that ids of one period
/// lie together in an index.
///
/// The 74 bits that version 7 leaves free come from the operating system each
/// time; there is no counter, because an id is a bearer secret where
/// authentication is weak (SEP-2663 §Security: high entropy) and a counter makes
/// the next one guessable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(Uuid);

/// The text is not a task id: not 36 characters of lower-case hyphenated UUID.
///
/// To a client such a text names a task that never existed; it gets the same
/// answer as any unknown id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a task id: expected a lower-case hyphenated UUID")]
pub struct NotATaskId;

impl TaskId {
    /// A new id for a task made at `unix_ms`, milliseconds since 1970-01-01 UTC.
    ///
    /// The time only serves index locality; nothing may be derived from it.
    #[must_use]
    pub fn new(unix_ms: u64) -> Self {
        let mut random = [0u8; 10];
        getrandom::fill(&mut random)
            .expect("the operating system's random source is ready once a process runs");
        Self(Builder::from_unix_timestamp_millis(unix_ms, &random).into_uuid())
    }

    /// The id stored in a `uuid` column.
    #[must_use]
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// The value for a `uuid` column.
    #[must_use]
    pub const fn as_uuid(&self) -> &Uuid {
        &self.0
    }

    /// The sixteen bytes, for hashing an id to a shard.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl FromStr for TaskId {
    type Err = NotATaskId;

    /// Accepts exactly what [`Display`](fmt::Display) prints. Other spellings of
    /// the same UUID (upper case, braces, no hyphens) would be second names for
    /// one task, and `Mcp-Name` is compared as text.
    fn from_str(text: &str) -> Result<Self, NotATaskId> {
        let hyphens_and_digits = text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        });
        if text.len() != 36 || !hyphens_and_digits {
            return Err(NotATaskId);
        }
        Uuid::try_parse(text).map(Self).map_err(|_| NotATaskId)
    }
}

impl Serialize for TaskId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut room = Uuid::encode_buffer();
        serializer.serialize_str(self.0.hyphenated().encode_lower(&mut room))
    }
}

impl<'de> Deserialize<'de> for TaskId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const TEXT: &str = "01963d5c-7a10-7abc-8def-0123456789ab";

    #[test]
    fn prints_what_it_reads() {
        assert_eq!(TEXT.parse::<TaskId>().unwrap().to_string(), TEXT);
        assert_eq!(
            serde_json::to_string(&TEXT.parse::<TaskId>().unwrap()).unwrap(),
            { format!("\"{TEXT}\"") }
        );
    }

    #[test]
    fn refuses_every_other_spelling() {
        for other in [
            "",
            "gate-test",
            "01963D5C-7A10-7ABC-8DEF-0123456789AB",
            "{01963d5c-7a10-7abc-8def-0123456789ab}",
            "01963d5c7a107abc8def0123456789ab",
            "urn:uuid:01963d5c-7a10-7abc-8def-0123456789ab",
            " 01963d5c-7a10-7abc-8def-0123456789ab",
            "01963d5c-7a10-7abc-8def-0123456789a",
            "01963d5c-7a10-7abc-8def-0123456789abc",
            "01963d5c-7a10-7abc-8def-0123456789ag",
            "01963d5c07a10-7abc-8def-0123456789ab",
            "éééééééééééééééééé",
        ] {
            assert_eq!(other.parse::<TaskId>(), Err(NotATaskId), "{other}");
            assert!(
                serde_json::from_value::<TaskId>(other.into()).is_err(),
                "{other}"
            );
        }
    }

    #[test]
    fn one_millisecond_gives_unrelated_ids_in_version_7_layout() {
        let ids: Vec<TaskId> = (0..1000).map(|_| TaskId::new(1_764_000_000_000)).collect();
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
        // A counter inside the millisecond would leave them sorted as made.
        assert!(!ids.is_sorted());
        for id in &ids {
            assert_eq!(id.as_uuid().get_version_num(), 7);
            let text = id.to_string();
            assert!(text.starts_with(&ids[0].to_string()[..13]), "{text}");
            assert_eq!(text.parse::<TaskId>().unwrap(), *id);
        }
    }

    #[test]
    fn later_ids_sort_after_earlier_ones() {
        assert!(TaskId::new(1_000) < TaskId::new(2_000));
    }
}
