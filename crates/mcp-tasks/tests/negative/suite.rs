//! The run: all tables against one system, several times.

use std::collections::BTreeSet;

use futures::StreamExt as _;
use harness::client::exchange;

use crate::row::{Answer, Row};
use crate::stack::{SOON, Stack};

/// Rows at once.
const AT_ONCE: usize = 8;
/// So often all tables are sent.
const ROUNDS: usize = 3;
/// After so many rounds caches, pools and the allocator have what they will have.
const WARM: usize = 1;
/// What the allocator may keep more of pages after the rounds that follow: less than one row's body
/// lost in each of them would take.
const GROWTH_MAX: u64 = 16 * 1024 * 1024;
/// What was asked for.
const DISTINCT_MIN: usize = 300;

async fn tables(stack: &Stack) -> Vec<(&'static str, Vec<Row>)> {
    vec![
        ("framing", crate::framing::rows()),
        ("heads", crate::heads::rows()),
        ("frames of HTTP/2", crate::frames::rows()),
        ("bodies", crate::bodies::rows()),
        ("envelopes", crate::envelopes::rows()),
        ("meta", crate::meta::rows()),
        ("mirrors", crate::mirrors::rows()),
        ("params", crate::params::rows()),
        ("odd", crate::odd::rows(stack).await),
        ("cursors", crate::cursors::rows(stack).await),
        ("legacy", crate::legacy::rows()),
        ("legacy params", crate::legacy_params::rows()),
        ("callbacks", crate::callbacks::rows()),
        ("tokens", crate::tokens::rows()),
        ("admin", crate::admin::rows()),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_bad_request_is_refused_as_documented() {
    let stack = Stack::new().await;
    stack.serves("the start").await;
    let tables = tables(&stack).await;
    let bad = tables.iter().flat_map(|(_, rows)| rows);
    let bad: Vec<&Row> = bad.filter(|row| row.is_bad()).collect();
    let distinct: BTreeSet<_> = bad.iter().map(|row| &row.sent).collect();
    println!(
        "{} bad requests, {} of them distinct",
        bad.len(),
        distinct.len()
    );
    assert_eq!(distinct.len(), bad.len(), "rows that send the same");
    let mut names = BTreeSet::new();
    let twice: Vec<_> = bad.iter().filter(|row| !names.insert(&row.name)).collect();
    let twice: Vec<&str> = twice.iter().map(|row| row.name.as_str()).collect();
    assert!(twice.is_empty(), "rows of one name: {twice:?}");
    assert!(distinct.len() >= DISTINCT_MIN);
    let tasks = stack.count("SELECT count(*) FROM tasks").await;

    let mut resident = Vec::new();
    for round in 0..ROUNDS {
        let mut wrong = Vec::new();
        for (subject, rows) in &tables {
            wrong.extend(sent(&stack, subject, rows).await);
            stack.serves(subject).await;
        }
        assert!(wrong.is_empty(), "round {round}:\n{}", wrong.join("\n"));
        resident.push(stack.resident());
    }
    crate::odd::listens(&stack).await;
    println!("resident after each round: {resident:?}");
    let (warm, last) = (resident[WARM - 1], resident[ROUNDS - 1]);
    assert!(last < warm + GROWTH_MAX, "{resident:?}");

    for gateway in &stack.cluster.gateways {
        for metric in [
            "mcp_tasks_gateway_panics_total",
            "mcp_tasks_gateway_held_calls",
        ] {
            assert!(gateway.metric(metric, "").await.unwrap() < 0.5, "{metric}");
        }
        let connections = async || {
            let open = gateway.metric("mcp_tasks_gateway_connections", "").await;
            open.unwrap()
        };
        // Those of the clients that called between the tables stay.
        harness::wait::for_state("few connections", SOON, connections, |n| *n < 8.5)
            .await
            .unwrap();
    }
    let made = stack.count("SELECT count(*) FROM tasks").await - tasks;
    println!("{made} tasks were made by rows that are odd, and no others");
    // The issuer of the tokens is nowhere.
    let issuer = "the issuer's keys cannot be read";
    stack.cluster.quiet(&[issuer]).unwrap();
}

/// What is wrong with the answers to a table.
async fn sent(stack: &Stack, subject: &str, rows: &[Row]) -> Vec<String> {
    let all = futures::stream::iter(rows.iter().map(|row| async move {
        let address = stack.address(row.door);
        let begun = std::time::Instant::now();
        let got = match row.answer {
            Answer::Frames(_) => crate::frames::exchange(address, &row.sent).await,
            _ => exchange(address, &row.sent, SOON).await.unwrap(),
        };
        if begun.elapsed() >= SOON {
            return Some(format!("{subject}: {}: hangs", row.name));
        }
        let wrong = row.judge(&got).err()?;
        Some(format!("{subject}: {}: {wrong}", row.name))
    }));
    let judged: Vec<Option<String>> = all.buffer_unordered(AT_ONCE).collect().await;
    judged.into_iter().flatten().collect()
}
