//! Whose task it is decides the statement that looks, not code after it: every function of the store
//! that a gateway calls is listed here with the statement that names its owner, or with the reason why it
//! needs none. A new one fails until it is.

use std::collections::BTreeSet;

use mcp_tasks_tidy::{files, root, text};

/// Functions that get an id, a key or a cursor from a caller, and the first statement that each runs.
const OF_CALLERS: [(&str, &str); 10] = [
    ("look", "get"),
    ("get_whole", "get"),
    ("get_many", "get"),
    ("list_owned", "list_owned"),
    ("cancel", "lock_task"),
    ("answer", "lock_for_answer"),
    ("answer_for_tenant", "lock_for_answer"),
    ("create", "create"),
    ("find_keyed", "existing"),
    ("count_live", "count_live"),
];

/// The others, and why nobody reaches another's task by them.
const OF_NOBODY: [(&str, &str); 16] = [
    (
        "abandon",
        "ids of tasks that this process made for its caller",
    ),
    ("clock", "the time"),
    ("clone", "Rust's own"),
    (
        "delivered_inline",
        "ids of tasks whose outcome this process wrote to their owner",
    ),
    (
        "hand_out",
        "the id of a task that this process made for its caller",
    ),
    ("hold", "ids of tasks that callers of this process wait for"),
    ("hold_asked", "the id of a task that was read for its owner"),
    (
        "mark_fetched",
        "ids of tasks that this process showed their owner",
    ),
    (
        "mark_hinted",
        "the id of a task that was just made or resumed",
    ),
    (
        "progress_callback",
        "the id is signed: whoever has the address may say this",
    ),
    ("providers", "what workers registered"),
    ("queue_waits", "how long queues are"),
    (
        "receive_callback",
        "the id is signed: whoever has the address may say this",
    ),
    ("resource_updates", "what workers told of resources"),
    ("tools", "what workers registered"),
    ("want_resources", "names of resources"),
];

/// Neither reads nor writes.
const SETTINGS: [&str; 2] = ["config", "with_wait"];

/// What is called on a store in the gateway.
fn called() -> BTreeSet<String> {
    let mut called = BTreeSet::new();
    for file in files(&root().join("crates/gateway/src"), ".rs") {
        let code: String = text(&file).split_whitespace().collect();
        for rest in code.split("store.").skip(1) {
            let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
            let name = rest.split(|c| !is_name(c)).next().unwrap_or_default();
            if rest[name.len()..].starts_with('(') {
                called.insert(name.to_owned());
            }
        }
    }
    called
}

#[test]
fn every_function_that_a_caller_reaches_is_listed() {
    let listed = OF_CALLERS.iter().chain(&OF_NOBODY).map(|(name, _)| *name);
    let listed: BTreeSet<String> = listed.chain(SETTINGS).map(str::to_owned).collect();
    let called = called();
    let unknown: Vec<_> = called.difference(&listed).collect();
    assert!(
        unknown.is_empty(),
        "say in crates/tidy/tests/owners.rs whose tasks these reach: {unknown:?}"
    );
    let gone: Vec<_> = listed.difference(&called).collect();
    assert!(gone.is_empty(), "no gateway calls these any more: {gone:?}");
}

#[test]
fn their_statements_name_the_owner() {
    for (function, statement) in OF_CALLERS {
        let file = root().join(format!("crates/store/src/sql/{statement}.sql"));
        let text = text(&file);
        let code: Vec<&str> = text
            .lines()
            .filter(|line| !line.starts_with("--"))
            .collect();
        let code = code.join(" ");
        for column in ["issuer", "subject"] {
            // A row that is made has an owner; of one that is looked for, the owner is compared.
            let named = match function {
                "create" => code.contains(column),
                _ => code.contains(&format!("{column} = ")),
            };
            assert!(
                named,
                "{function} looks by {statement}.sql, which compares no {column}"
            );
        }
    }
}
