//! `Timestamp`: a moment of Postgres' clock as the wire shows it.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Serialize, Serializer};

/// Microseconds since 1970-01-01 UTC: Postgres' own precision, so that two
/// changes inside one millisecond still show different `lastUpdatedAt`.
///
/// Prints as ISO 8601 UTC, `2026-07-28T10:30:00.000000Z` (SEP-2663 §Tasks).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// Of a moment of the years 0 to 9999.
const TEXT: [u8; 27] = *b"0000-00-00T00:00:00.000000Z";

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

impl Timestamp {
    /// From microseconds since 1970-01-01 UTC.
    #[must_use]
    pub const fn from_unix_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// From milliseconds since 1970-01-01 UTC; saturates.
    #[must_use]
    pub const fn from_unix_ms(ms: i64) -> Self {
        Self(ms.saturating_mul(1_000))
    }

    /// Microseconds since 1970-01-01 UTC.
    #[must_use]
    pub const fn unix_micros(self) -> i64 {
        self.0
    }

    /// Year, month, day, hour, minute, second, microsecond.
    fn fields(self) -> [i64; 7] {
        let seconds = self.0.div_euclid(MICROS_PER_SECOND);
        let micros = self.0.rem_euclid(MICROS_PER_SECOND);
        let (year, month, day) = civil_from_days(seconds.div_euclid(SECONDS_PER_DAY));
        let of_day = seconds.rem_euclid(SECONDS_PER_DAY);
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        [year, month, day, hour, minute, second, micros]
    }

    /// What it prints as, without what a formatter costs: each answer about a task shows two of them. `None` for a year
    /// that has not four digits.
    fn write(self, room: &mut [u8; TEXT.len()]) -> Option<&str> {
        let fields = self.fields();
        if !(0..=9999).contains(&fields[0]) {
            return None;
        }
        *room = TEXT;
        let places = [0..4, 5..7, 8..10, 11..13, 14..16, 17..19, 20..26];
        for (mut number, place) in fields.into_iter().zip(places) {
            for digit in room[place].iter_mut().rev() {
                *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
                number /= 10;
            }
        }
        std::str::from_utf8(room).ok()
    }
}

impl From<SystemTime> for Timestamp {
    /// A `timestamptz` as the Postgres driver gives it; saturates.
    fn from(time: SystemTime) -> Self {
        let micros = |span: Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        Self(match time.duration_since(UNIX_EPOCH) {
            Ok(after) => micros(after),
            Err(before) => micros(before.duration()).saturating_neg(),
        })
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = self.write(&mut TEXT.clone()) {
            return f.write_str(text);
        }
        let [year, month, day, hour, minute, second, micros] = self.fields();
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z"
        )
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.write(&mut TEXT.clone()) {
            Some(text) => serializer.serialize_str(text),
            None => serializer.collect_str(self),
        }
    }
}

/// Year, month and day of the proleptic Gregorian calendar for a count of days
/// since 1970-01-01 (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_iso_8601_utc() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
            (1_764_412_245_123_456, "2025-11-29T10:30:45.123456Z"),
            (4_107_542_399_000_000, "2100-02-28T23:59:59.000000Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z"),
        ] {
            let time = Timestamp::from_unix_micros(micros);
            assert_eq!(time.to_string(), text);
            assert_eq!(serde_json::to_string(&time).unwrap(), format!("\"{text}\""));
        }
        assert_eq!(
            Timestamp::from_unix_ms(1_000).to_string(),
            "1970-01-01T00:00:01.000000Z"
        );
    }

    #[test]
    fn years_have_four_digits_or_all_that_they_have() {
        for (seconds, text) in [
            (-62_167_219_200, "0000-01-01T00:00:00.000000Z"),
            (-62_167_219_201, "-001-12-31T23:59:59.000000Z"),
            (253_402_300_799, "9999-12-31T23:59:59.000000Z"),
            (253_402_300_800, "10000-01-01T00:00:00.000000Z"),
        ] {
            let time = Timestamp::from_unix_ms(seconds * 1_000);
            assert_eq!(time.to_string(), text);
            assert_eq!(serde_json::to_string(&time).unwrap(), format!("\"{text}\""));
        }
    }

    #[test]
    fn extremes_do_not_panic() {
        for micros in [i64::MIN, i64::MAX] {
            assert!(
                Timestamp::from_unix_micros(micros)
                    .to_string()
                    .ends_with('Z')
            );
        }
        assert_eq!(Timestamp::from_unix_ms(i64::MAX).unix_micros(), i64::MAX);
    }

    #[test]
    fn takes_the_drivers_type() {
        let time = UNIX_EPOCH + Duration::from_micros(1_500);
        assert_eq!(Timestamp::from(time).unix_micros(), 1_500);
        let time = UNIX_EPOCH - Duration::from_micros(1_500);
        assert_eq!(Timestamp::from(time).unix_micros(), -1_500);
    }
}
