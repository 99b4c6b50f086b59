//! Below, at and above what a tool may return, say of itself, and call its steps and questions.

use serde_json::json;
use store::ToolPolicy;
use worker::{CallToolResult, Question, Step};

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
    for (bytes, end) in [(999, "completed"), (1000, "completed"), (1001, "failed")] {
        let id = world.start(&policy).await;
        let task = world.wait(id, &[end]).await;
        if end == "failed" {
            let message = task.status_message.unwrap();
            assert!(message.contains("1000 are allowed"), "{bytes}: {message}");
        } else {
            assert_eq!(task.result.unwrap().len(), bytes);
        }
    }
}

/// Longer ones are cut between two letters: what a tool says of itself is no reason to fail.
#[tokio::test(flavor = "multi_thread")]
async fn status_messages() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    let _worker = world.worker(policy.clone(), |world, context| {
        let run = world.run();
        Box::pin(async move {
            // Two bytes each.
            let said = match run {
                1 => "m".repeat(1023),
                2 => "m".repeat(1024),
                3 => "m".repeat(1025),
                _ => format!("m{}", "é".repeat(600)),
            };
            context.progress(said).await;
            let question =
                Question::elicit("really", "Go?", json!({"type": "object", "properties": {}}));
            context.ask(vec![question]).await?;
            done()
        })
    });
    for expected in [1023, 1024, 1024, 1023] {
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
                let message = task.status_message.unwrap();
                let told = format!("between 1 and {MAX} bytes");
                assert!(message.contains(&told), "{message}");
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
