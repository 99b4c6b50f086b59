//! Below, at and above what a tool may return, say of itself, and call its steps and questions.

use serde_json::json;
use store::ToolPolicy;
use worker::{CallToolResult, Question, Step};

use crate::world::{World, done, reason};

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

/// 1 to 200 bytes, of a step as of a question.
#[tokio::test(flavor = "multi_thread")]
async fn keys() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    let _worker = world.worker(policy.clone(), |world, context| {
        let run = world.run();
        Box::pin(async move {
            let length = [0, 1, 199, 200, 201][((run - 1) % 5) as usize];
            let key = "k".repeat(length);
            if run <= 5 {
                context.step(Step::new(&key), |_| async { Ok(()) }).await?;
            } else {
                let question =
                    Question::elicit(&key, "Go?", json!({"type": "object", "properties": {}}));
                context.ask(vec![question]).await?;
            }
            done()
        })
    });
    for kind in ["step", "question"] {
        for (length, fits) in [
            (0, false),
            (1, true),
            (199, true),
            (200, true),
            (201, false),
        ] {
            let id = world.start(&policy).await;
            let task = world
                .wait(id, &["completed", "failed", "input_required"])
                .await;
            let status = task.status.as_str();
            if fits {
                assert_ne!(status, "failed", "a {kind} of {length} bytes");
            } else {
                assert_eq!(status, "failed", "a {kind} of {length} bytes");
                assert_eq!(reason(&task), "journal_drift");
                let message = task.status_message.unwrap();
                assert!(message.contains("between 1 and 200 bytes"), "{message}");
            }
        }
    }
}
