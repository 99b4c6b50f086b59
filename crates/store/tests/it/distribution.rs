//! Which statements name the task they are about, so that tables spread by task id (Citus) would
//! keep each of them on one server: read from the plans of a real Postgres, and from its schema. What
//! does not name its task, or names many, is listed here with the reason; `docs/scaling.md` says what
//! that would cost.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::support::World;

/// Spread by task id in `deploy/postgres/citus.sql`, and the column that holds it.
const SPREAD: &[(&str, &str)] = &[
    ("tasks", "id"),
    ("steps", "task_id"),
    ("inputs", "task_id"),
    ("attempts", "task_id"),
    ("callbacks", "task_id"),
    ("tombstones", "task_id"),
];

/// Not spread by task id, and what their rows say names a task: first one server is asked, then
/// another.
const LEADS_TO_TASKS: &[&str] = &["idempotency_keys", "alerts"];

/// Statements that look at tasks which they do not name: all servers would be asked.
const ACROSS: &[(&str, &str)] = &[
    // Of requests and jobs.
    (
        "claim",
        "limits of a tool: what runs of it; nothing where it has none",
    ),
    (
        "claim_best",
        "whose turn it is, over all that waits in a queue",
    ),
    (
        "claimed_as",
        "a worker whose reply was lost does not know which task it has",
    ),
    (
        "count_live",
        "quotas: the live tasks of a principal and of a tenant",
    ),
    (
        "list_owned",
        "a principal's own, for clients of MCP 2025-11-25",
    ),
    (
        "queue_waits",
        "how long a call would wait; at times, for each gateway",
    ),
    ("slots", "what runs and waits of tools with limits"),
    (
        "unhinted",
        "jobs without a good hint: cron, and workers while Redis is away",
    ),
    // Of cron.
    ("end_holds", "a sweep"),
    ("expire", "a sweep"),
    ("expiring", "a sweep"),
    ("forsaken", "a sweep"),
    ("gauges", "metrics"),
    ("purge", "a sweep"),
    ("purge_audit", "a sweep"),
    ("purge_tombstones", "a sweep"),
    ("purgeable", "a sweep"),
    ("queue_ages", "metrics"),
    ("raise_live", "a sweep"),
    ("raise_unfetched", "a sweep"),
    ("rewrappable", "a sweep"),
    ("sealed_by", "metrics"),
    ("unanswered", "a sweep"),
    ("undo_forsaken", "a sweep"),
    ("unfetched", "metrics"),
    ("unheld", "a sweep"),
    ("unhinted_ages", "metrics"),
    ("unjudged", "a sweep"),
    ("version_gone", "a sweep"),
    ("waiting_callbacks", "a sweep"),
    ("wake", "a sweep"),
    // Of operators.
    ("elsewhere", "all of a principal"),
    ("erase", "all of a principal"),
    ("erase_traces", "all of a principal"),
    ("list_tasks", "a filter"),
    ("live_of", "all of a principal"),
    ("members_of", "all of a tenant"),
    ("queues", "an overview"),
    ("stoppable", "a filter"),
    ("traces", "all of a principal"),
    ("workers", "what each runs"),
];

/// Statements that name many tasks at once: those of concurrent callers, sent together. Each row is
/// found by its id, on as many servers as there are ids.
const TOGETHER: &[&str] = &[
    "abandon",
    "claim_queued",
    "complete",
    "create",
    "delivered_inline",
    "get",
    "heartbeat",
    "hinted",
    "hold",
    "list_tasks",
    "mark_fetched",
    "mark_hinted",
    "rewrap",
    "settle_stopped",
    "tombstones",
];

/// What a plan says of itself: every scan of a table, and every condition.
#[derive(Default)]
struct Plan {
    /// Table and alias.
    scans: Vec<(String, String)>,
    /// Those that all must hold, taken apart: `t.id = $1`.
    conditions: Vec<String>,
}

impl Plan {
    fn read(&mut self, node: &Value) {
        let text = |name: &str| node[name].as_str().unwrap_or_default().to_owned();
        for (name, value) in node.as_object().into_iter().flatten() {
            if let Some(text) = value.as_str()
                && (name.ends_with("Cond") || name.ends_with("Filter"))
            {
                take_apart(text, &mut self.conditions);
            }
        }
        if !text("Relation Name").is_empty() && text("Node Type").ends_with("Scan") {
            self.scans.push((text("Relation Name"), text("Alias")));
        }
        for below in node["Plans"].as_array().into_iter().flatten() {
            self.read(below);
        }
    }

    /// Scans of tables that are spread whose task nothing names.
    fn unnamed(&self) -> Vec<String> {
        let mut ids = BTreeMap::new();
        let mut strangers = Vec::new();
        for (table, alias) in &self.scans {
            let spread = SPREAD.iter().find(|(name, _)| name == table);
            if let Some((_, column)) = spread {
                ids.insert(format!("{alias}.{column}"), table);
            } else if !LEADS_TO_TASKS.contains(&table.as_str()) {
                strangers.push(format!("{alias}."));
            }
        }
        let mut named: BTreeSet<&str> = BTreeSet::new();
        loop {
            let before = named.len();
            for condition in &self.conditions {
                let Some((left, right)) = condition.split_once(" = ") else {
                    continue;
                };
                for (id, by) in [(left, right), (right, left)] {
                    let says = if ids.contains_key(by) {
                        named.contains(by)
                    } else {
                        !strangers.iter().any(|alias| by.starts_with(alias))
                    };
                    if ids.contains_key(id) && says {
                        named.insert(id);
                    }
                }
            }
            if named.len() == before {
                break;
            }
        }
        let unnamed = ids.iter().filter(|(id, _)| !named.contains(id.as_str()));
        unnamed
            .map(|(id, table)| format!("{table} ({id})"))
            .collect()
    }
}

/// `((a) AND (b))` is a and b; what stands in an OR is no condition that must hold.
fn take_apart(text: &str, parts: &mut Vec<String>) {
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    let mut closes_at = None;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => {
                depth -= 1;
                if depth == 0 && closes_at.is_none() {
                    closes_at = Some(at);
                }
            }
            ' ' if depth == 0 && text[at..].starts_with(" AND ") => {
                found.push(&text[start..at]);
                start = at + " AND ".len();
            }
            _ => {}
        }
    }
    if !found.is_empty() {
        found.push(&text[start..]);
        found.into_iter().for_each(|part| take_apart(part, parts));
    } else if text.starts_with('(') && closes_at == Some(text.len() - 1) {
        take_apart(&text[1..text.len() - 1], parts);
    } else {
        parts.push(text.to_owned());
    }
}

/// Whether it takes a list of ids, in any of its parameters. (`ALL` leaves those out that it is given.)
fn takes_ids(sql: &str) -> bool {
    let takes = |begins: &str, ends: &str| {
        sql.split(begins).skip(1).any(|rest| {
            let after = rest.trim_start_matches(|letter: char| letter.is_ascii_digit());
            after.len() < rest.len() && after.starts_with(ends)
        })
    };
    let begins = ["ANY($", "unnest($", "ANY((SELECT $", "unnest((SELECT $"];
    begins.iter().any(|begins| takes(begins, "::uuid[]")) || takes("(SELECT $", "::uuid[] AS ")
}

#[test]
fn lists_of_ids_are_seen_wherever_they_stand() {
    assert!(takes_ids("… WHERE id = ANY($1::uuid[])"));
    assert!(takes_ids("… OR id = ANY($12::uuid[]))"));
    assert!(takes_ids("FROM unnest($3::uuid[], $4::int[])"));
    assert!(takes_ids("WHERE id = ANY((SELECT $1::uuid[])::uuid[])"));
    assert!(takes_ids(
        "FROM unnest((SELECT $1::uuid[]), (SELECT $2::text[]))"
    ));
    assert!(takes_ids(
        "FROM (SELECT $1::uuid[] AS ids, $2::text[] AS b OFFSET 0) q"
    ));
    assert!(!takes_ids(
        "… tool = ANY($1::text[]) AND id <> ALL($2::uuid[])"
    ));
}

#[test]
fn conditions_are_taken_apart() {
    let mut parts = Vec::new();
    take_apart(
        "((t.id = $1) AND ((a = 1) OR (t.id = $2)) AND (f(x) = g(y)))",
        &mut parts,
    );
    assert_eq!(
        parts,
        ["t.id = $1", "(a = 1) OR (t.id = $2)", "f(x) = g(y)"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_name_the_task_they_are_about() {
    let world = World::new().await;
    let client = world.raw().await;
    client
        .batch_execute("SET plan_cache_mode = force_generic_plan")
        .await
        .unwrap();
    let (mut across, mut together) = (BTreeMap::new(), BTreeSet::new());
    for (name, sql) in crate::statements::files() {
        if name == "schema_tables" {
            // Several statements, run by the migrator only.
            continue;
        }
        let parameters = client.prepare(&sql).await.unwrap().params().len();
        let arguments = match parameters {
            0 => String::new(),
            n => format!("({})", vec!["NULL"; n].join(", ")),
        };
        let explain = format!(
            "PREPARE s_{name} AS {sql}; EXPLAIN (FORMAT JSON, VERBOSE) EXECUTE s_{name} {arguments}"
        );
        let told = client.simple_query(&explain).await;
        let told = told.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let rows = told.into_iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        let told: Value = serde_json::from_str(&rows.collect::<String>()).unwrap();
        let mut plan = Plan::default();
        plan.read(&told[0]["Plan"]);
        let unnamed = plan.unnamed();
        if !unnamed.is_empty() {
            across.insert(name.clone(), unnamed);
        }
        let is_spread = |(table, _): &(&str, &str)| sql.contains(&format!(" {table}"));
        let of_tasks = SPREAD.iter().any(is_spread)
            && (plan.scans.is_empty() || !plan.scans.iter().all(|(table, _)| table == "alerts"));
        if of_tasks && takes_ids(&sql) {
            together.insert(name);
        }
    }
    let listed: BTreeSet<&str> = ACROSS.iter().map(|(name, _)| *name).collect();
    let seen: BTreeSet<&str> = across.keys().map(String::as_str).collect();
    let unlisted: Vec<_> = across
        .iter()
        .filter(|(name, _)| !listed.contains(name.as_str()))
        .collect();
    assert!(unlisted.is_empty(), "do not name their task: {unlisted:#?}");
    let needless: Vec<_> = listed.difference(&seen).collect();
    assert!(
        needless.is_empty(),
        "name their task after all: {needless:?}"
    );
    let expected: BTreeSet<String> = TOGETHER.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(together, expected, "statements that name many tasks");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_unique_but_by_task() {
    let world = World::new().await;
    for (table, column) in SPREAD {
        let sql = format!(
            "SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid) FROM pg_index i \
             WHERE i.indrelid = '{table}'::regclass AND (i.indisunique OR i.indisexclusion) \
             AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = i.indrelid \
                 AND a.attname = '{column}' AND a.attnum = ANY (i.indkey))"
        );
        let rows = world.database.rows(&sql).await.unwrap();
        assert!(
            rows.is_empty(),
            "{table}: unique without {column}: {rows:?}"
        );
        // What refers to it lies beside it: by task id, and from a table that is spread.
        let sql = format!(
            "SELECT conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint \
             WHERE contype = 'f' AND (conrelid = '{table}'::regclass OR confrelid = '{table}'::regclass)"
        );
        for row in world.database.rows(&sql).await.unwrap() {
            let (from, says) = (row[0].clone().unwrap(), row[1].clone().unwrap());
            let by_task = says.contains("FOREIGN KEY (task_id) REFERENCES tasks(id)");
            let spread = SPREAD.iter().any(|(name, _)| *name == from);
            assert!(by_task && spread, "{from}: {says}");
        }
    }
}

/// The script names every table, and spreads just these.
#[tokio::test(flavor = "multi_thread")]
async fn the_script_places_every_table() {
    let script =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/postgres/citus.sql");
    let script = std::fs::read_to_string(script).unwrap();
    let world = World::new().await;
    let sql = "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace";
    for row in world.database.rows(sql).await.unwrap() {
        let table = row[0].clone().unwrap();
        if table.starts_with("schema_") {
            // The migrator's own.
            continue;
        }
        let spread = SPREAD.iter().find(|(name, _)| *name == table);
        let placed = match spread {
            Some((_, column)) => format!("create_distributed_table('{table}', '{column}'"),
            None if table == "idempotency_keys" => {
                "create_distributed_table('idempotency_keys', 'key'".to_owned()
            }
            None => format!("create_reference_table('{table}'"),
        };
        assert!(
            script.contains(&placed),
            "{table}: no {placed}…) in citus.sql"
        );
    }
}
