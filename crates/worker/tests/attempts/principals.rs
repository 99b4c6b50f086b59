//! Whose job it is: every attempt has the principal, the trace and the client of its own task, whatever
//! ran on the same worker before or runs beside it, and also after a loss and a retry.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde_json::json;
use store::Principal;
use worker::ToolError;

use crate::retries::soon;
use crate::world::{World, done};

/// A trace that shows by its digits whose it is.
fn trace(digit: usize) -> String {
    let (trace, span) = (format!("{digit:032x}"), format!("{digit:016x}"));
    json!({ "traceparent": format!("00-{trace}-{span}-01") }).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_the_job_before() {
    let world = World::new().await;
    let policy = soon(5);
    let worker = world.worker(policy.clone(), |world, context| {
        Box::pin(async move {
            let who = context.principal();
            let line = json!({
                "task": context.task_id().to_string(),
                "attempt": context.attempt(),
                "who": [who.issuer, who.subject],
                "tenant": who.tenant,
                "declared": context.declared_tasks(),
            });
            world.ledger.lock().unwrap().push(line.to_string());
            // A name that another task's job would find if anything were shared.
            if context.attempt() < 3 {
                return Err(ToolError::retryable("once more"));
            }
            done()
        })
    });
    let principal = |issuer: &str, subject: &str, tenant: Option<&str>| {
        Principal::verified(
            issuer.to_owned(),
            subject.to_owned(),
            tenant.map(str::to_owned),
        )
    };
    // For as long as the test: what starts a task asks for that.
    let owners: &'static [Principal] = vec![
        principal("one", "alice", Some("acme")),
        principal("one", "bob", None),
        principal("two", "alice", Some("other")),
        principal("one", "carol", Some("acme")),
    ]
    .leak();
    let mut expected = BTreeMap::new();
    for n in 0..12 {
        let owner = &owners[n % owners.len()];
        let declared = n % 3 != 0;
        let capabilities = match declared {
            true => json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } }),
            false => json!({}),
        };
        let id = world
            .start_with(&policy, |new| {
                new.principal = owner;
                new.client_capabilities = Bytes::from(capabilities.to_string());
                new.trace_context = Some(Bytes::from(trace(n + 1)));
            })
            .await;
        let of = json!([[owner.issuer, owner.subject], owner.tenant, declared]);
        expected.insert(id.to_string(), of.to_string());
    }
    let all = async || {
        let lines = world.ledger.lock().unwrap().clone();
        (lines.len() >= 3 * expected.len()).then_some(lines)
    };
    let lines = harness::wait::until("all have run three times", crate::world::SOON, async || {
        for id in expected.keys() {
            world.hint(id.parse().unwrap()).await;
        }
        all().await
    })
    .await
    .unwrap();
    let mut attempts: BTreeMap<String, BTreeSet<i64>> = BTreeMap::new();
    for line in &lines {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let task = line["task"].as_str().unwrap().to_owned();
        let seen = json!([line["who"], line["tenant"], line["declared"]]).to_string();
        assert_eq!(&seen, &expected[&task], "{line}");
        attempts
            .entry(task)
            .or_default()
            .insert(line["attempt"].as_i64().unwrap());
    }
    assert!(attempts.values().all(|of| of.len() == 3), "{attempts:?}");
    drop(worker);
}
