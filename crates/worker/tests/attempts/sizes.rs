//! Below, at and above what a tool may return, say of itself, and call its steps and questions.

use std::time::Duration;

use protocol::ErrorObject;
use serde_json::json;
use store::{Backoff, ToolPolicy};
use worker::{CallToolResult, Question, Step, ToolError};

use crate::world::{Body, World, done, reason};

/// A result of so many bytes.
fn result(bytes: usize) -> CallToolResult {
    let frame = CallToolResult::text("").to_json().len();
    let result = CallToolResult::text("x".repeat(bytes - frame));
    assert_eq!(result.to_json().len(), bytes);
    result
}

#[tokio::test(flavor = "multi_thread")]
async fn results() {
    let world = World::new().await;
    let policy = ToolPolicy {
        result_bytes_max: Some(1000),
        ..ToolPolicy::default()
    };
    let _worker = world.worker(policy.clone(), |world, _| {
        let run = world.run();
        Box::pin(async move { Ok(result(998 + run as usize)) })
    });
    three_results(&world, &policy).await;
}

/// Where the tool's policy says nothing.
#[tokio::test(flavor = "multi_thread")]
async fn results_by_the_setting() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    let body: Body = |world, _| {
        let run = world.run();
        Box::pin(async move { Ok(result(998 + run as usize)) })
    };
    let _worker = world.worker_with(policy.clone(), body, |settings| {
        settings.result_bytes_max = 1000;
    });
    three_results(&world, &policy).await;
}

async fn three_results(world: &World, policy: &ToolPolicy) {
    for (bytes, end) in [(999, "completed"), (1000, "completed"), (1001, "failed")] {
        let id = world.start(policy).await;
        let task = world.wait(id, &[end]).await;
        if end == "failed" {
            let message = task.status_message.unwrap();
            assert!(message.contains("1000 are allowed"), "{bytes}: {message}");
        } else {
            assert_eq!(task.result.unwrap().len(), bytes);
        }
    }
}

/// An error of so many bytes, without data.
fn error(bytes: usize) -> ToolError {
    let frame = serde_json::to_vec(&ErrorObject::new(-7, "")).unwrap().len();
    ToolError::failed(-7, "m".repeat(bytes - frame))
}

/// What a failure says is kept, and read with many others: as much of it as is allowed.
#[tokio::test(flavor = "multi_thread")]
async fn errors() {
    let world = World::new().await;
    let moment = Duration::from_millis(1);
    let policy = ToolPolicy {
        tries_max: 2,
        backoff: Backoff {
            first: moment,
            max: moment,
        },
        ..ToolPolicy::default()
    };
    let body: Body = |world, _| {
        let run = world.run();
        Box::pin(async move {
            Err(match run {
                1..=3 => error(998 + run as usize),
                4 => ToolError::failed_with(-7, "m", json!({"more": "x".repeat(3000)})),
                _ => ToolError::retryable("é".repeat(3000)),
            })
        })
    };
    let _worker = world.worker_with(policy.clone(), body, |settings| {
        settings.error_bytes_max = 1000;
        settings.status_bytes_max = 99;
    });
    for (stored, said) in [(999, 99), (1000, 99), (1000, 99), (25, 1), (1000, 99)] {
        let id = world.start(&policy).await;
        let task = world.wait(id, &["failed"]).await;
        let error = task.error.clone().unwrap();
        // Two bytes a letter: one may be left.
        assert!(
            (stored - 1..=stored).contains(&error.len()),
            "{stored}: {}",
            error.len()
        );
        let status = task.status_message.as_ref().unwrap().len();
        assert!((said - 1..=said).contains(&status), "{said}: {status}");
        let last = world
            .column(id, "coalesce(octet_length(last_error), 0)")
            .await;
        assert!(last.parse::<usize>().unwrap() <= 99, "{last}");
        if world.run() > 4 {
            assert_eq!(reason(&task), "attempts_exhausted");
        }
    }
}

/// Longer ones are cut between two letters: what a tool says of itself is no reason to fail.
#[tokio::test(flavor = "multi_thread")]
async fn status_messages() {
    assert_eq!(worker::Config::default().status_bytes_max, 1024);
    status_messages_of::<1024>().await;
    status_messages_of::<50>().await;
}

async fn status_messages_of<const MAX: usize>() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    let body: Body = |world, context| {
        let run = world.run();
        Box::pin(async move {
            let said = match run {
                1 => "m".repeat(MAX - 1),
                2 => "m".repeat(MAX),
                3 => "m".repeat(MAX + 1),
                // Two bytes each.
                _ => format!("m{}", "é".repeat(MAX)),
            };
            context.progress(said).await;
            let question =
                Question::elicit("really", "Go?", json!({"type": "object", "properties": {}}));
            context.ask(vec![question]).await?;
            done()
        })
    };
    let _worker = world.worker_with(policy.clone(), body, |settings| {
        settings.status_bytes_max = MAX;
    });
    for expected in [MAX - 1, MAX, MAX, MAX - 1] {
        let id = world.start(&policy).await;
        world.wait(id, &["input_required"]).await;
        let said = world.column(id, "octet_length(status_message)").await;
        assert_eq!(said, expected.to_string());
    }
}

/// Of a step as of a question: by default, and where settings allow less, or all that they can.
#[tokio::test(flavor = "multi_thread")]
async fn keys() {
    assert_eq!(worker::Config::default().key_bytes_max, 200);
    keys_of::<200>().await;
    keys_of::<64>().await;
    keys_of::<1_024>().await;
}

/// From 1 byte to so many.
async fn keys_of<const MAX: usize>() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    let body: Body = |world, context| {
        let run = world.run();
        Box::pin(async move {
            let length = [0, 1, MAX - 1, MAX, MAX + 1][((run - 1) % 5) as usize];
            let key = "k".repeat(length);
            if run <= 5 {
                context.step(Step::new(&key), |_| async { Ok(()) }).await?;
            } else {
                context.ask(vec![go(&key)]).await?;
            }
            done()
        })
    };
    let _worker = world.worker_with(policy.clone(), body, |settings| {
        settings.key_bytes_max = MAX;
    });
    for kind in ["step", "question"] {
        for (length, fits) in [
            (0, false),
            (1, true),
            (MAX - 1, true),
            (MAX, true),
            (MAX + 1, false),
        ] {
            let id = world.start(&policy).await;
            let task = world
                .wait(id, &["completed", "failed", "input_required"])
                .await;
            let status = task.status.as_str();
            if fits {
                assert_ne!(status, "failed", "a {kind} of {length} bytes of {MAX}");
            } else {
                assert_eq!(status, "failed", "a {kind} of {length} bytes of {MAX}");
                assert_eq!(reason(&task), "journal_drift");
                // Of which the status message is the beginning.
                let error: ErrorObject = serde_json::from_slice(&task.error.unwrap()).unwrap();
                let told = format!("between 1 and {MAX} bytes");
                assert!(error.message.contains(&told), "{}", error.message);
            }
        }
    }
}

/// A task goes on whose keys were not too long when they were journaled.
#[tokio::test(flavor = "multi_thread")]
async fn keys_of_a_journal_stay_good_when_less_is_allowed() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    let body: Body = |_, context| {
        Box::pin(async move {
            let key = "k".repeat(80);
            context.step(Step::new(&key), |_| async { Ok(()) }).await?;
            context.ask(vec![go(&key)]).await?;
            done()
        })
    };
    let before = world.worker(policy.clone(), body);
    let id = world.start(&policy).await;
    world.wait(id, &["input_required"]).await;
    before.drain().await.unwrap();
    let _after = world.worker_with(policy.clone(), body, |settings| settings.key_bytes_max = 79);
    let answer = json!({"action": "accept", "content": {}});
    world.answer(id, &"k".repeat(80), answer).await;
    assert_eq!(world.wait_over(id).await.status.as_str(), "completed");
    let new = world.start(&policy).await;
    assert_eq!(reason(&world.wait_over(new).await), "journal_drift");
}

fn go(key: &str) -> Question {
    Question::elicit(key, "Go?", json!({"type": "object", "properties": {}}))
}

/// Gateways take addresses with keys of 1,024 bytes, and an index rows of more.
#[test]
fn lengths_of_keys_have_bounds() {
    for (bytes, good) in [(63, false), (64, true), (1_024, true), (1_025, false)] {
        let settings = worker::Config {
            key_bytes_max: bytes,
            ..worker::Config::default()
        };
        let told = format!("worker.key_bytes_max: {bytes} is not between 64 and 1024 (");
        let problems = settings.validate();
        assert_eq!(problems.is_empty(), good, "{problems:?}");
        assert!(good || problems.concat().starts_with(&told), "{problems:?}");
    }
}
