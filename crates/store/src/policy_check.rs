//! Policies that cannot work are refused, with the sums.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::ToolPolicy;
use crate::config::ms;

/// Keys are kept at least this long, and with them their tasks (I7).
const KEY_KEPT_MIN: Duration = Duration::from_secs(24 * 3600);

/// The longest length of time that a setting may have: a hundred years, as `humantime` counts them.
const LONGEST: Duration = Duration::from_secs(100 * 31_557_600);

/// The longest that a lost worker is waited for, in a TTL's sum: a lease and its grace.
const LEASE: Duration = Duration::from_secs(30);

/// Priorities that a tool may have.
const PRIORITIES: RangeInclusive<i16> = -100..=100;

/// The longest name of a queue.
const QUEUE_NAME_MAX: usize = 64;

/// Checks the name of a queue.
///
/// # Errors
/// Says what is wrong and what is allowed.
pub fn check_queue_name(name: &str) -> Result<(), String> {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if (1..=QUEUE_NAME_MAX).contains(&name.len()) && name.bytes().all(letter) {
        return Ok(());
    }
    Err(format!(
        "{name:?} is not 1 to {QUEUE_NAME_MAX} of A-Z a-z 0-9 _ . -"
    ))
}

/// A policy that cannot work.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("tool {tool}: {problem}")]
pub struct PolicyError {
    /// The tool.
    pub tool: String,
    /// What is wrong and what is allowed.
    pub problem: String,
}

impl ToolPolicy {
    /// The TTL that covers waiting, all tries with their pauses, one undo, and the client's absence.
    #[must_use]
    pub fn ttl_needed(&self) -> Duration {
        let tries = u32::from(self.tries_max.max(1));
        let each = [self.work_limit, self.backoff.max, LEASE];
        let each = each
            .into_iter()
            .fold(Duration::ZERO, Duration::saturating_add);
        [self.queue_wait, self.undo_limit, self.client_absence]
            .into_iter()
            .fold(each.saturating_mul(tries), Duration::saturating_add)
    }

    /// The sum of [`ToolPolicy::ttl_needed`], to be read.
    fn ttl_arithmetic(&self) -> String {
        let say = humantime::format_duration;
        format!(
            "queue_wait {} + tries_max {} x (work_limit {} + backoff.max {} + lease {}) + undo_limit {} \
             + client_absence {} = {}",
            say(self.queue_wait),
            self.tries_max,
            say(self.work_limit),
            say(self.backoff.max),
            say(LEASE),
            say(self.undo_limit),
            say(self.client_absence),
            say(self.ttl_needed())
        )
    }

    /// TTL of a new task, in ms; a task with an idempotency key is kept for a day at least.
    #[must_use]
    pub fn ttl_ms(&self, keyed: bool) -> Option<i64> {
        let ttl = self.ttl.unwrap_or_else(|| self.ttl_needed());
        Some(ms(if keyed { ttl.max(KEY_KEPT_MIN) } else { ttl }))
    }

    /// Checks what cannot work.
    ///
    /// # Errors
    /// Says the first setting that contradicts another, with the numbers.
    pub fn validate(&self, tool: &str) -> Result<(), PolicyError> {
        let refuse = |problem: String| {
            Err(PolicyError {
                tool: tool.to_owned(),
                problem,
            })
        };
        if self.tries_max == 0 {
            return refuse("tries_max is 0; at least 1 is needed to run at all".to_owned());
        }
        if self.undo_tries_max == 0 {
            return refuse("undo_tries_max must be above 0".to_owned());
        }
        for (name, length) in [
            ("undo_limit", Some(self.undo_limit)),
            ("work_limit", Some(self.work_limit)),
            ("input_deadline", Some(self.input_deadline)),
            ("call_limit", self.call_limit),
            ("poll_max", self.poll_max),
        ] {
            if length.is_some_and(|length| length.is_zero()) {
                return refuse(format!("{name} must be above 0"));
            }
        }
        self.validate_answers().or_else(refuse)?;
        self.validate_turn().or_else(refuse)?;
        self.validate_lengths().or_else(refuse)?;
        self.validate_ttl().or_else(refuse)?;
        if let (Some(min), Some(max)) = (self.poll_min, self.poll_max)
            && min > max
        {
            return refuse(format!("poll_min {min:?} is longer than poll_max {max:?}"));
        }
        Ok(())
    }
}

impl ToolPolicy {
    /// A queue that can be named in settings, a priority, and limits under which anything runs.
    fn validate_turn(&self) -> Result<(), String> {
        check_queue_name(&self.queue).map_err(|problem| format!("queue {problem}"))?;
        if !PRIORITIES.contains(&self.priority) {
            let (low, high) = (PRIORITIES.start(), PRIORITIES.end());
            return Err(format!(
                "priority {} is not between {low} and {high}",
                self.priority
            ));
        }
        if self.concurrency == Some(0) {
            return Err("concurrency is 0: nothing would ever run".to_owned());
        }
        if self.concurrency_per_principal == Some(0) {
            return Err("concurrency_per_principal is 0: nothing would ever run".to_owned());
        }
        Ok(())
    }

    /// What is added to a time of creation must still be a time: else every call would fail.
    fn validate_lengths(&self) -> Result<(), String> {
        let needed = self.ttl_needed();
        let lengths = [
            ("ttl", self.ttl),
            ("ttl_max", self.ttl_max),
            ("input_deadline", Some(self.input_deadline)),
            ("alert_after", self.alert_after),
            (
                "the sum of queue_wait, tries, undo_limit and client_absence",
                Some(needed),
            ),
        ];
        for (name, length) in lengths {
            if length.is_some_and(|length| length > LONGEST) {
                let most = humantime::format_duration(LONGEST);
                return Err(format!("{name} is longer than {most}"));
            }
        }
        Ok(())
    }

    /// A task must be able to live as long as its work, its questions and its reader need.
    fn validate_ttl(&self) -> Result<(), String> {
        let say = humantime::format_duration;
        let ttl = self.ttl.unwrap_or_else(|| self.ttl_needed());
        if ttl < self.ttl_needed() {
            return Err(format!(
                "ttl {} is too short: {}. Raise ttl, or lower what it is made of",
                say(ttl),
                self.ttl_arithmetic()
            ));
        }
        let Some(max) = self.ttl_max else {
            return Ok(());
        };
        if max < ttl {
            let why = match self.ttl {
                Some(ttl) => format!("ttl {}", say(ttl)),
                None => self.ttl_arithmetic(),
            };
            return Err(format!("ttl_max {} is shorter than {why}", say(max)));
        }
        let asked_last = self.work_limit.saturating_add(self.input_deadline);
        if max < asked_last {
            return Err(format!(
                "ttl_max {} is shorter than work_limit {} + input_deadline {} = {}: a question \
                 asked at the end of the work could never wait that long",
                say(max),
                say(self.work_limit),
                say(self.input_deadline),
                say(asked_last)
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn problem(policy: &ToolPolicy) -> String {
        policy.validate("deploy").unwrap_err().to_string()
    }

    #[test]
    fn the_default_works_and_lives_as_long_as_its_parts() {
        let policy = ToolPolicy::default();
        policy.validate("deploy").unwrap();
        let parts =
            HOUR + 5 * (HOUR + Duration::from_secs(90)) + Duration::from_secs(300) + 24 * HOUR;
        assert_eq!(policy.ttl_needed(), parts);
        assert_eq!(policy.ttl_ms(false), Some(ms(parts)));
    }

    #[test]
    fn a_ttl_shorter_than_its_work_is_refused_with_the_sum() {
        let policy = ToolPolicy {
            ttl: Some(2 * HOUR),
            ..ToolPolicy::default()
        };
        assert_eq!(
            problem(&policy),
            "tool deploy: ttl 2h is too short: queue_wait 1h + tries_max 5 x (work_limit 1h + \
             backoff.max 1m + lease 30s) + undo_limit 5m + client_absence 1day = 1day 6h 12m 30s. \
             Raise ttl, or lower what it is made of"
        );
    }

    #[test]
    fn a_cap_that_no_ttl_fits_under_is_refused() {
        let policy = ToolPolicy {
            ttl_max: Some(2 * HOUR),
            ..ToolPolicy::default()
        };
        assert!(problem(&policy).contains("ttl_max 2h is shorter than queue_wait 1h"));
    }

    #[test]
    fn a_question_that_could_never_wait_is_refused() {
        let policy = ToolPolicy {
            input_deadline: 31 * 24 * HOUR,
            ..ToolPolicy::default()
        };
        assert!(
            problem(&policy).contains("input_deadline 1month 13h 26m 24s"),
            "{}",
            problem(&policy)
        );
    }

    /// Else every call would fail, with an error of Postgres.
    #[test]
    fn a_time_that_is_no_time_is_refused() {
        let for_ever = Duration::from_secs(u64::MAX / 1_000);
        let policies = [
            ToolPolicy {
                ttl: Some(for_ever),
                ttl_max: None,
                ..ToolPolicy::default()
            },
            ToolPolicy {
                input_deadline: for_ever,
                ttl_max: None,
                ..ToolPolicy::default()
            },
            ToolPolicy {
                alert_after: Some(for_ever),
                ..ToolPolicy::default()
            },
            ToolPolicy {
                work_limit: Duration::MAX,
                ttl_max: None,
                ..ToolPolicy::default()
            },
        ];
        for policy in policies {
            assert!(problem(&policy).contains("is longer than"), "{policy:?}");
        }
    }

    #[test]
    fn a_number_without_a_unit_is_no_duration() {
        for text in ["{\"ttl\": 7000}", "{\"ttl\": \"7000\"}"] {
            assert!(serde_json::from_str::<ToolPolicy>(text).is_err(), "{text}");
        }
        let policy: ToolPolicy = serde_json::from_str("{\"ttl\": \"7s\"}").unwrap();
        assert_eq!(policy.ttl, Some(Duration::from_secs(7)));
    }
}
