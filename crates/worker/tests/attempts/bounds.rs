//! Journals are bounded, and a tool must come through all of its own.

use serde_json::json;
use store::ToolPolicy;
use worker::{Question, Step, ToolError};

use crate::retries::soon;
use crate::world::{World, done, error, reason};

fn boolean() -> serde_json::Value {
    json!({ "type": "object", "properties": { "yes": { "type": "boolean" } } })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_before_a_journaled_step_is_drift() {
    let world = World::new().await;
    let policy = soon(3);
    let _worker = world.worker(policy.clone(), |world, context| {
        Box::pin(async move {
            let keys: &[&str] = match world.run() {
                1 => &["a", "b", "c"],
                _ => &["a"],
            };
            for key in keys {
                context.step(Step::new(key), |_| async { Ok(()) }).await?;
            }
            if world.run() == 1 {
                return Err(ToolError::retryable("once more"));
            }
            done()
        })
    });
    let id = world.start(&policy).await;
    let task = world.wait_over(id).await;
    assert_eq!(task.status.as_str(), "failed");
    assert_eq!(reason(&task), "journal_drift");
    let message = task.status_message.unwrap();
    assert!(
        message.contains("\"b\"") && !message.contains("\"c\""),
        "the first of them: {message}"
    );
    assert_eq!(world.run(), 2, "drift is not tried again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_before_an_answered_question_is_drift() {
    let world = World::new().await;
    let _worker = world.worker(ToolPolicy::default(), |world, context| {
        Box::pin(async move {
            context.step(Step::new("a"), |_| async { Ok(()) }).await?;
            if world.run() == 1 {
                let question = Question::elicit("really", "Go?", boolean());
                context.ask(vec![question]).await?;
            }
            done()
        })
    });
    let id = world.start(&ToolPolicy::default()).await;
    world.wait(id, &["input_required"]).await;
    let yes = json!({ "action": "accept", "content": { "yes": true } });
    world.answer(id, "really", yes).await;
    let task = world.wait_over(id).await;
    assert_eq!(task.status.as_str(), "failed");
    assert_eq!(reason(&task), "journal_drift");
    assert!(task.status_message.unwrap().contains("\"really\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_entry_too_many_does_not_act() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    let body: crate::world::Body = |world, context| {
        Box::pin(async move {
            for key in ["a", "b", "c"] {
                context
                    .step(Step::new(key), |_| async {
                        world.act(key);
                        Ok(())
                    })
                    .await?;
            }
            done()
        })
    };
    let _worker = world.worker_with(policy.clone(), body, |settings| {
        settings.journal_entries_max = 2;
    });
    let id = world.start(&policy).await;
    let task = world.wait_over(id).await;
    assert_eq!(reason(&task), "journal_full");
    let message = task.status_message.unwrap();
    assert!(
        message.contains("\"c\"") && message.contains("2 entries"),
        "{message}"
    );
    assert_eq!(world.acts(), ["a", "b"]);
}

/// The sum counts over all attempts, and what an earlier one journaled is not counted twice.
#[tokio::test(flavor = "multi_thread")]
async fn one_byte_too_many_says_so() {
    let world = World::new().await;
    let policy = soon(2);
    let body: crate::world::Body = |world, context| {
        Box::pin(async move {
            // 1 + 1 + 302 bytes each.
            for key in ["a", "b", "c"] {
                let _: String = context
                    .step(Step::new(key), |_| async {
                        world.act(key);
                        Ok("x".repeat(300))
                    })
                    .await?;
                if key == "b" && world.run() == 1 {
                    return Err(ToolError::retryable("once more"));
                }
            }
            done()
        })
    };
    let settings = |settings: &mut worker::Config| {
        settings.journal_bytes_max = 800;
        settings.step_bytes_max = 400;
        settings.question_bytes_max = 400;
    };
    let _worker = world.worker_with(policy.clone(), body, settings);
    let id = world.start(&policy).await;
    let task = world.wait_over(id).await;
    assert_eq!(reason(&task), "journal_full");
    let message = task.status_message.unwrap();
    assert!(
        message.contains("\"c\"") && message.contains("800 are allowed"),
        "{message}"
    );
    // It acted, and its output did not fit: it is not left open for that.
    assert_eq!(world.acts(), ["a", "b", "c"]);
    assert_eq!(world.column(id, "open_step").await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_too_long_is_not_asked() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    let body: crate::world::Body = |_, context| {
        Box::pin(async move {
            let question = Question::elicit("long", "Go? ".repeat(200), boolean());
            context.ask(vec![question]).await?;
            done()
        })
    };
    let settings = |settings: &mut worker::Config| settings.question_bytes_max = 500;
    let _worker = world.worker_with(policy.clone(), body, settings);
    let id = world.start(&policy).await;
    let task = world.wait_over(id).await;
    assert_eq!(reason(&task), "journal_full");
    let said = error(&task).to_string();
    assert!(said.contains("500 are allowed"), "{said}");
}

#[test]
fn bounds_that_contradict_each_other_are_refused() {
    let settings = worker::Config {
        journal_entries_max: 0,
        journal_bytes_max: 1000,
        ..worker::Config::default()
    };
    let problems = settings.validate().join("\n");
    for field in [
        "journal_entries_max",
        "step_bytes_max",
        "question_bytes_max",
    ] {
        assert!(problems.contains(field), "{field}: {problems}");
    }
    assert!(worker::Config::default().validate().is_empty());
}
