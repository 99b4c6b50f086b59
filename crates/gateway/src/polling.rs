//! `pollIntervalMs`: how soon a task is worth asking for again. Pure.

use std::time::Duration;

use protocol::{TaskId, TaskStatus};
use store::ToolPolicy;

/// A process that is full is polled this many times more slowly than one that is idle.
const SLOWER_WHEN_FULL: u64 = 4;

/// Spread over the tasks of one tool, in percent of the interval, so that what was created
/// together is not polled together.
const JITTER_PERCENT: u64 = 10;

/// The gateway's bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Where the tool has none; at least.
    pub(crate) min: Duration,
    /// Where the tool has none; at most.
    pub(crate) max: Duration,
    /// For a task that waits for a person.
    pub(crate) input: Duration,
}

/// What is known of the tool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Observed<'a> {
    /// The tool's rules; `None` when it is not listed any more.
    pub(crate) policy: Option<&'a ToolPolicy>,
    /// Average time between changes a client can see.
    pub(crate) change: Option<Duration>,
    /// A task that waits in the queue: for how long the oldest one of its tool has.
    pub(crate) queued: Option<Duration>,
    /// How much of what this process takes on is taken, in percent.
    pub(crate) load_percent: u64,
}

/// The interval in whole milliseconds. The same for the same task until its status or what is
/// known of the tool changes.
pub(crate) fn interval_ms(
    bounds: Bounds,
    observed: Observed<'_>,
    id: TaskId,
    status: TaskStatus,
) -> u64 {
    let min = observed
        .policy
        .and_then(|p| p.poll_min)
        .unwrap_or(bounds.min);
    let max = observed
        .policy
        .and_then(|p| p.poll_max)
        .unwrap_or(bounds.max);
    let max = max.max(min);
    let wanted = match status {
        TaskStatus::InputRequired => bounds.input,
        TaskStatus::Working
        | TaskStatus::Completed
        | TaskStatus::Failed
        | TaskStatus::Cancelled => observed.change.unwrap_or(2 * min),
    };
    // Before it is its turn nothing changes; a quarter of the wait is soon enough to see that.
    let wanted = wanted.max(observed.queued.unwrap_or_default() / 4);
    let idle = ms(wanted.clamp(min, max));
    let load = observed.load_percent.min(100);
    let base = idle + idle * (SLOWER_WHEN_FULL - 1) * load / 100;
    // The last byte of an id is random, and the same on every replica.
    let share = u64::from(id.as_bytes()[15]);
    let jitter = |base: u64| base * JITTER_PERCENT * share / (100 * 255);
    if base + jitter(base) <= ms(max) {
        return (base + jitter(base)).max(1);
    }
    // At the upper bound the spread goes down: most tasks of a slow tool are there.
    (ms(max) - jitter(ms(max))).max(ms(min)).max(1)
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 1_000)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const BOUNDS: Bounds = Bounds {
        min: Duration::from_millis(500),
        max: Duration::from_secs(10),
        input: Duration::from_secs(5),
    };

    fn interval(change: Option<u64>, status: TaskStatus, policy: Option<&ToolPolicy>) -> u64 {
        let observed = Observed {
            policy,
            change: change.map(Duration::from_millis),
            ..Observed::default()
        };
        let id = TaskId::from_uuid(uuid::Uuid::nil());
        interval_ms(BOUNDS, observed, id, status)
    }

    #[test]
    fn follows_the_tools_changes_within_the_bounds() {
        assert_eq!(interval(Some(2_000), TaskStatus::Working, None), 2_000);
        assert_eq!(interval(Some(1), TaskStatus::Working, None), 500);
        assert_eq!(interval(Some(600_000), TaskStatus::Working, None), 10_000);
        assert_eq!(interval(None, TaskStatus::Working, None), 1_000);
    }

    #[test]
    fn people_are_waited_for_slowly() {
        assert_eq!(interval(Some(500), TaskStatus::InputRequired, None), 5_000);
    }

    #[test]
    fn the_tools_bounds_come_first() {
        let policy = ToolPolicy {
            poll_min: Some(Duration::from_secs(20)),
            ..ToolPolicy::default()
        };
        assert_eq!(
            interval(Some(1), TaskStatus::Working, Some(&policy)),
            20_000
        );
        let policy = ToolPolicy {
            poll_max: Some(Duration::from_millis(700)),
            ..ToolPolicy::default()
        };
        assert_eq!(
            interval(Some(9_000), TaskStatus::InputRequired, Some(&policy)),
            700
        );
    }

    #[test]
    fn load_and_a_long_queue_slow_polling_down() {
        let id = TaskId::from_uuid(uuid::Uuid::nil());
        let of = |queued: Option<u64>, load_percent| {
            let observed = Observed {
                change: Some(Duration::from_secs(1)),
                queued: queued.map(Duration::from_secs),
                load_percent,
                ..Observed::default()
            };
            interval_ms(BOUNDS, observed, id, TaskStatus::Working)
        };
        assert_eq!(
            (of(None, 0), of(None, 50), of(None, 100)),
            (1_000, 2_500, 4_000)
        );
        assert_eq!(of(None, 400), 4_000, "more than full is full");
        assert_eq!((of(Some(1), 0), of(Some(20), 0)), (1_000, 5_000));
        assert_eq!(of(Some(600), 100), 10_000, "never beyond the bounds");
    }

    /// Tasks that were created together are not polled together, however slow their tool is.
    #[test]
    fn clients_do_not_march_in_step() {
        for change in [500, 2_000, 9_900, 10_000, 600_000] {
            let observed = Observed {
                change: Some(Duration::from_millis(change)),
                ..Observed::default()
            };
            let of = |_| interval_ms(BOUNDS, observed, TaskId::new(0), TaskStatus::Working);
            let intervals: BTreeSet<u64> = (0..200).map(of).collect();
            assert!(intervals.len() > 20, "{change}: {intervals:?}");
        }
    }

    #[test]
    fn jitter_is_stable_and_never_leaves_the_bounds() {
        for _ in 0..200 {
            let id = TaskId::new(0);
            let observed = Observed {
                change: Some(Duration::from_secs(2)),
                ..Observed::default()
            };
            let first = interval_ms(BOUNDS, observed, id, TaskStatus::Working);
            assert_eq!(
                first,
                interval_ms(BOUNDS, observed, id, TaskStatus::Working)
            );
            assert!((2_000..=2_200).contains(&first), "{first}");
            let slow = Observed {
                change: Some(Duration::from_secs(600)),
                ..Observed::default()
            };
            let slow = interval_ms(BOUNDS, slow, id, TaskStatus::Working);
            assert!((9_000..=10_000).contains(&slow), "{slow}");
        }
    }
}
