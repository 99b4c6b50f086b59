//! The run: all tables against one system, several times.

use std::collections::BTreeSet;

use futures::StreamExt as _;
use harness::client::exchange;

use crate::growth::{Held, Kept};
use crate::row::{Answer, Row};
use crate::stack::{SOON, Stack};

/// Rows at once.
const AT_ONCE: usize = 8;
/// So often the tables are sent: once only what is bad in them, then all of them.
const ROUNDS: usize = 3;
/// After so many rounds caches, pools and the allocator have what they will have.
const WARM: usize = 1;
/// What was asked for.
const DISTINCT_MIN: usize = 300;

async fn tables(stack: &Stack) -> Vec<(&'static str, Vec<Row>)> {
    vec![
        ("framing", crate::framing::rows()),
        ("heads", crate::heads::rows()),
        ("smuggling", crate::smuggling::rows()),
        ("chunks", crate::chunks::rows()),
        ("sizes", crate::sizes::rows()),
        ("frames of HTTP/2", crate::frames::rows()),
        ("streams of HTTP/2", crate::streams::rows()),
        ("heads of HTTP/2", crate::unpacked::rows()),
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
    println!("{} bad requests", bad.len());
    let (mut bytes, mut names) = (BTreeSet::new(), BTreeSet::new());
    let mut twice = Vec::new();
    for row in &bad {
        if !bytes.insert(&row.sent) | !names.insert(&row.name) {
            twice.push(&row.name);
        }
    }
    assert!(
        twice.is_empty(),
        "rows of the same bytes or name: {twice:?}"
    );
    assert!(bytes.len() >= DISTINCT_MIN);
    assert!(bad.iter().all(|row| !row.expects_failure()));
    let (kept, mut held) = (Kept::count(&stack).await, Vec::new());
    for round in 0..ROUNDS {
        let begun = std::time::Instant::now();
        let mut wrong = Vec::new();
        for (subject, rows) in &tables {
            let all = rows.iter().filter(|row| round > 0 || row.is_bad());
            wrong.extend(sent(&stack, subject, all).await);
            if round > 0 {
                stack.serves(subject).await;
            }
        }
        assert!(wrong.is_empty(), "round {round}:\n{}", wrong.join("\n"));
        if round == 0 {
            kept.stays(&stack).await;
        }
        held.push(Held::count(&stack));
        let seconds = begun.elapsed().as_secs_f64();
        println!("round {round}: {seconds:.1} s, {:?}", held[round]);
    }
    crate::odd::listens(&stack).await;
    held[WARM].stays(&stack).await;
    for gateway in &stack.cluster.gateways {
        for (metric, labels) in [
            ("mcp_tasks_gateway_panics_total", ""),
            ("mcp_tasks_gateway_held_calls", ""),
            ("mcp_tasks_gateway_requests_total", "http_status=\"5"),
        ] {
            let value = gateway.metric(metric, labels).await.unwrap();
            assert!(value < 0.5, "{metric} {labels}: {value}");
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
    // The issuer of the tokens is nowhere.
    let issuer = "the issuer's keys cannot be read";
    stack.cluster.quiet(&[issuer]).unwrap();
}

/// What is wrong with the answers to a table.
async fn sent(stack: &Stack, subject: &str, rows: impl Iterator<Item = &Row>) -> Vec<String> {
    let all = futures::stream::iter(rows.map(|row| async move {
        let address = stack.address(row);
        let begun = std::time::Instant::now();
        let got = match row.answer {
            Answer::Frames(_) => crate::h2::exchange(address, &row.sent).await,
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
