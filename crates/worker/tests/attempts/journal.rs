//! Steps and questions: replayed, never silently done twice.

use serde_json::json;
use store::{Answer, ToolPolicy};
use worker::{Question, Step, ToolError};

use crate::world::{World, done, reason};

fn boolean() -> serde_json::Value {
    json!({ "type": "object", "properties": { "yes": { "type": "boolean" } } })
}

fn yes() -> serde_json::Value {
    json!({ "action": "accept", "content": { "yes": true } })
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_and_resumed_without_doing_anything_twice() {
    let world = World::new().await;
    let _worker = world.worker(ToolPolicy::default(), |world, context| {
        Box::pin(async move {
            let before: u32 = context
                .step(Step::new("before"), |_| async {
                    world.act("before");
                    Ok(7)
                })
                .await?;
            let answers = context
                .ask(vec![Question::elicit("q", "Go?", boolean())])
                .await?;
            let said: serde_json::Value = answers.result("q")?;
            context
                .step(Step::new("after"), |_| async {
                    world.act(&format!("after {before} {}", said["content"]["yes"]));
                    Ok(())
                })
                .await?;
            done()
        })
    });
    let id = world.start(&ToolPolicy::default()).await;
    let parked = world.wait(id, &["input_required"]).await;
    assert!(parked.input_requests.is_some());
    assert_eq!(world.column(id, "lease_until").await, "", "nothing is held");
    assert_eq!(world.answer(id, "other", yes()).await, Answer::Ignored);
    assert!(matches!(
        world.answer(id, "q", yes()).await,
        Answer::Resumed { .. }
    ));
    world.wait(id, &["completed"]).await;
    assert_eq!(world.acts(), ["before", "after 7 true"]);
    assert_eq!(world.run(), 2);
    assert_eq!(
        world.column(id, "tries").await,
        "0",
        "a resumption is no try"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_lost_between_steps_is_replayed() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    let body: crate::world::Body = |world, context| {
        Box::pin(async move {
            for key in ["one", "two"] {
                context
                    .step(Step::new(key), |_| async {
                        world.act(key);
                        Ok(())
                    })
                    .await?;
                if world.run() == 1 {
                    world.go.cancelled().await;
                }
            }
            done()
        })
    };
    let first = world.worker(policy.clone(), body);
    let id = world.start(&policy).await;
    harness::wait::until("the first step", crate::world::SOON, async || {
        (world.acts().len() == 1).then_some(())
    })
    .await
    .unwrap();
    drop(first);
    let _second = world.worker(policy, body);
    harness::wait::until("the second attempt", crate::world::SOON, async || {
        world.hint(id).await;
        (world.run() == 2).then_some(())
    })
    .await
    .unwrap();
    world.wait(id, &["completed"]).await;
    assert_eq!(world.acts(), ["one", "two"]);
    assert_eq!(
        world.column(id, "tries").await,
        "1",
        "a lost worker is a try"
    );
}

/// Runs a tool whose first run is lost in the middle of its step.
async fn lost_in_a_step(body: crate::world::Body) -> (std::sync::Arc<World>, store::Task) {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    let first = world.worker(policy.clone(), body);
    let id = world.start(&policy).await;
    world.wait_column(id, "open_step", "charge").await;
    // Lost after its act, not between permission and act.
    harness::wait::until("the act", crate::world::SOON, async || {
        (!world.acts().is_empty()).then_some(())
    })
    .await
    .unwrap();
    drop(first);
    let _second = world.worker(policy, body);
    let ended = harness::wait::until("an end", crate::world::SOON, async || {
        world.hint(id).await;
        let task = world.get(id).await;
        task.status.is_terminal().then_some(task)
    })
    .await
    .unwrap();
    (world, ended)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_whose_end_is_unknown_is_never_repeated() {
    let (world, task) = lost_in_a_step(|world, context| {
        Box::pin(async move {
            context
                .step(Step::new("charge"), |_| async {
                    world.act("charge");
                    world.go.cancelled().await;
                    Ok(())
                })
                .await?;
            done()
        })
    })
    .await;
    assert_eq!(reason(&task), "step_in_doubt");
    assert!(task.status_message.unwrap().contains("charge"));
    assert_eq!(world.acts(), ["charge"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotent_step_is_repeated_with_the_same_key() {
    let (world, task) = lost_in_a_step(|world, context| {
        Box::pin(async move {
            context
                .step(Step::new("charge").idempotent(), |info| async move {
                    world.act(&info.idempotency_key);
                    if world.run() == 1 {
                        world.go.cancelled().await;
                    }
                    Ok(())
                })
                .await?;
            done()
        })
    })
    .await;
    assert_eq!(task.status.as_str(), "completed");
    let key = format!("{}:charge", task.id);
    assert_eq!(world.acts(), [key.clone(), key]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_way_at_a_replay_is_drift() {
    let world = World::new().await;
    let _worker = world.worker(ToolPolicy::default(), |world, context| {
        Box::pin(async move {
            let key = if world.run() == 1 { "left" } else { "right" };
            context.step(Step::new(key), |_| async { Ok(()) }).await?;
            context
                .ask(vec![Question::elicit("q", "Go?", boolean())])
                .await?;
            done()
        })
    });
    let id = world.start(&ToolPolicy::default()).await;
    world.wait(id, &["input_required"]).await;
    world.answer(id, "q", yes()).await;
    let task = world.wait(id, &["failed"]).await;
    assert_eq!(reason(&task), "journal_drift");
    let message = task.status_message.unwrap();
    assert!(
        message.contains("right") && message.contains("left"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_act_that_says_it_did_not_happen_may_be_tried_again() {
    let world = World::new().await;
    let policy = ToolPolicy {
        backoff: store::Backoff {
            first: std::time::Duration::from_millis(50),
            ..Default::default()
        },
        ..ToolPolicy::default()
    };
    let _worker = world.worker(policy.clone(), |world, context| {
        Box::pin(async move {
            context
                .step(Step::new("send"), |_| async {
                    world.act("send");
                    if world.run() == 1 {
                        return Err(ToolError::retryable("refused"));
                    }
                    Ok(())
                })
                .await?;
            done()
        })
    });
    let id = world.start(&policy).await;
    world.wait(id, &["completed"]).await;
    assert_eq!(world.acts(), ["send", "send"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_came_with_the_call_is_taken() {
    let world = World::new().await;
    let policy = ToolPolicy {
        asks_first: true,
        ..ToolPolicy::default()
    };
    let _worker = world.worker(policy.clone(), |_, context| {
        Box::pin(async move {
            context
                .ask_first(vec![Question::elicit("q", "Go?", boolean())])
                .await?;
            done()
        })
    });
    let offered = json!({ "q": yes(), "other": 1 }).to_string();
    let id = world
        .start_with(&policy, |new| new.offered_responses = Some(offered.into()))
        .await;
    world.wait(id, &["completed"]).await;
    // One that does not fit is as good as none.
    let wrong = json!({ "q": 12345 }).to_string();
    let id = world
        .start_with(&policy, |new| new.offered_responses = Some(wrong.into()))
        .await;
    let parked = world.wait(id, &["input_required"]).await;
    assert_eq!(parked.parked_for, Some(store::ParkedFor::Caller));
}

/// A step that failed leaves nothing in the journal, so nothing may be decided from its failure:
/// at a replay it might succeed, and then both ways would have been gone.
#[tokio::test(flavor = "multi_thread")]
async fn no_step_follows_one_that_failed() {
    let world = World::new().await;
    let policy = ToolPolicy {
        backoff: store::Backoff {
            first: std::time::Duration::from_millis(50),
            ..Default::default()
        },
        ..ToolPolicy::default()
    };
    let _worker = world.worker(policy.clone(), |world, context| {
        Box::pin(async move {
            let by_mail = context
                .step(Step::new("mail"), |_| async {
                    if world.run() == 1 {
                        return Err(ToolError::retryable("the mail server is away"));
                    }
                    world.act("mailed");
                    Ok(())
                })
                .await;
            if by_mail.is_err() {
                context
                    .step(Step::new("letter"), |_| async {
                        world.act("wrote a letter");
                        Ok(())
                    })
                    .await?;
                // The worker is lost here, say.
                return Err(ToolError::retryable("lost"));
            }
            done()
        })
    });
    let id = world.start(&policy).await;
    let task = world.wait(id, &["completed", "failed"]).await;
    assert!(world.acts().len() <= 1, "both ways: {:?}", world.acts());
    assert_eq!(task.status.as_str(), "failed");
    let error = String::from_utf8(task.error.unwrap().to_vec()).unwrap();
    assert!(
        error.contains("mail") && error.contains("letter"),
        "{error}"
    );
}

/// A heartbeat that crosses the end of an attempt does not find its row any more: no lease is
/// lost by that.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_an_attempt_is_no_lost_lease() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    let worker = world.worker(policy.clone(), |world, context| {
        Box::pin(async move {
            if world.run().is_multiple_of(2) {
                context
                    .ask(vec![Question::elicit("q", "Go?", boolean())])
                    .await?;
            }
            done()
        })
    });
    let mut ids = Vec::new();
    for _ in 0..150 {
        ids.push(world.start(&policy).await);
    }
    for id in ids {
        world.wait(id, &["input_required", "completed"]).await;
    }
    let scraped = worker.registry.render();
    let lost: Vec<&str> = scraped
        .lines()
        .filter(|line| line.starts_with("mcp_tasks_worker_leases_lost_total"))
        .filter(|line| !line.ends_with(" 0"))
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
}
