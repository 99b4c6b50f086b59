//! What is measured, against what, and how much is good enough.

/// One work of the bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// Its name on the command line and in the history.
    pub key: &'static str,
    /// For people.
    pub name: &'static str,
    /// What it is measured against, in the same run.
    pub baseline: &'static str,
    /// When it is run.
    pub when: When,
}

/// When a work is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Always.
    Always,
    /// With this argument only: it takes long.
    Asked(&'static str),
}

/// What a ratio must be.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Target {
    /// So much or more.
    AtLeast(f64),
    /// So much or less.
    AtMost(f64),
}

impl Target {
    /// Whether this is good enough.
    #[must_use]
    pub fn is_met(self, ratio: f64) -> bool {
        match self {
            Target::AtLeast(least) => ratio >= least,
            Target::AtMost(most) => ratio <= most,
        }
    }

    /// For people.
    #[must_use]
    pub fn told(self) -> String {
        match self {
            Target::AtLeast(least) => format!("≥ {least}"),
            Target::AtMost(most) => format!("≤ {most}"),
        }
    }
}

const fn always(key: &'static str, name: &'static str, baseline: &'static str) -> Work {
    Work {
        key,
        name,
        baseline,
        when: When::Always,
    }
}

const fn asked(
    key: &'static str,
    name: &'static str,
    baseline: &'static str,
    argument: &'static str,
) -> Work {
    Work {
        key,
        name,
        baseline,
        when: When::Asked(argument),
    }
}

const SELECT: &str = "pgbench prepared select, 32 clients";
const INSERT: &str = "pgbench insert of the same row, 32 clients";

/// All of them, in the order in which they are told.
pub const ALL: [Work; 17] = [
    always("get", "tasks/get, 64 connections, random ids", SELECT),
    always("get_jwt", "the same with JWT", SELECT),
    always("create", "tools/call → handle, no worker", INSERT),
    always("life", "call → no-op → completed → read", INSERT),
    always(
        "inline_p50",
        "inline no-op call, 1 connection, p50",
        "pgbench insert p50, 1 client",
    ),
    always(
        "inline_p99",
        "the same, p99 at half of saturation",
        "pgbench insert p50, 1 client",
    ),
    always(
        "crowd",
        "inline no-op calls, 64 principals, 384 at once",
        "64 at once",
    ),
    always(
        "lone",
        "lone tasks/get, p50",
        "pgbench select p50, 1 client",
    ),
    always("gateways_get", "tasks/get, 3 gateways", "1 gateway"),
    always(
        "gateways_create",
        "tools/call → handle, 3 gateways",
        "1 gateway",
    ),
    always(
        "create_sealed",
        "tools/call → handle, contents sealed",
        "in clear",
    ),
    always("get_sealed", "tasks/get, contents sealed", "in clear"),
    always("listens_memory", "open listens, kB each", "empty gateway"),
    always(
        "listens_event",
        "event p99 while 500 tasks/s finish, ms",
        "none: milliseconds",
    ),
    asked(
        "rows_10m",
        "tasks/get with 10 million tasks in the table",
        "the same with few",
        "--only rows_10m",
    ),
    asked(
        "soak_latency",
        "p99 in the last part of a soak at 50 % load",
        "first part",
        "--only soak --time 1h",
    ),
    asked(
        "soak_sizes",
        "memory, table and streams, the most grown",
        "first part",
        "--only soak --time 1h",
    ),
];

/// The target of a work, if it has one.
#[must_use]
pub fn target(key: &str) -> Option<Target> {
    Some(match key {
        "get" => Target::AtLeast(1.5),
        "get_jwt" => Target::AtLeast(1.4),
        "create" => Target::AtLeast(2.0),
        "life" => Target::AtLeast(0.7),
        "inline_p50" => Target::AtMost(6.0),
        "inline_p99" => Target::AtMost(15.0),
        // Who is overloaded must not be able to do less, or it stays so.
        "crowd" | "rows_10m" => Target::AtLeast(0.9),
        "listens_memory" => Target::AtMost(30.0),
        "listens_event" => Target::AtMost(100.0),
        // A share of the same two cores: what each replica costs by itself must stay small.
        "gateways_get" | "gateways_create" => Target::AtLeast(0.9),
        "soak_latency" => Target::AtMost(1.5),
        "soak_sizes" => Target::AtMost(1.1),
        _ => return None,
    })
}

/// Works that are measured together, by one name.
pub const GROUPS: [(&str, &[&str]); 4] = [
    ("inline", &["inline_p50", "inline_p99"]),
    ("gateways", &["gateways_get", "gateways_create"]),
    ("listens", &["listens_memory", "listens_event"]),
    ("soak", &["soak_latency", "soak_sizes"]),
];

/// The works of a name, which may be that of a group; none if nothing has it.
#[must_use]
pub fn named(name: &str) -> Vec<&'static str> {
    let group = GROUPS.iter().find(|(group, _)| *group == name);
    match (group, find(name)) {
        (Some((_, works)), _) => works.to_vec(),
        (None, Some(work)) => vec![work.key],
        (None, None) => Vec::new(),
    }
}

/// The work of this name.
#[must_use]
pub fn find(key: &str) -> Option<Work> {
    ALL.into_iter().find(|work| work.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_judge_both_ways() {
        assert!(target("get").is_some_and(|target| target.is_met(1.5) && !target.is_met(1.49)));
        assert!(
            target("inline_p50").is_some_and(|target| target.is_met(6.0) && !target.is_met(6.1))
        );
        assert!(target("lone").is_none());
        for work in ALL {
            assert_eq!(find(work.key), Some(work));
        }
    }

    #[test]
    fn names_of_groups_stand_for_works() {
        assert_eq!(named("soak"), ["soak_latency", "soak_sizes"]);
        assert_eq!(named("get"), ["get"]);
        assert!(named("gets").is_empty());
        for (group, works) in GROUPS {
            assert!(find(group).is_none(), "{group} is a work");
            assert!(works.iter().all(|work| find(work).is_some()), "{group}");
        }
    }
}
