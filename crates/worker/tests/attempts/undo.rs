//! What finished steps did is taken back before a task ends without a result.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use store::{Backoff, Cancel, ToolPolicy};
use worker::{Context, Question, Step, ToolError, Undo, Undoing};

use crate::retries::counted;
use crate::world::{Body, Running, Script, UndoBody, World, done, error, reason};

/// Three steps, of which the second declares no undo.
pub async fn build(world: &World, context: &mut Context) -> Result<(), ToolError> {
    for key in ["a", "b", "c"] {
        let step = match key {
            "b" => Step::new(key),
            _ => Step::new(key).undo(Undo::new(json!({ "take": key }))),
        };
        context
            .step(step, |_| async {
                world.act(key);
                Ok(format!("made {key}"))
            })
            .await?;
    }
    Ok(())
}

/// Takes back what [`build`] made.
pub fn take_back(world: &World, undoing: &Undoing) -> Result<(), ToolError> {
    let how: Value = undoing.how()?;
    let output: String = undoing.output()?;
    assert_eq!(how["take"], undoing.step());
    assert_eq!(output, format!("made {}", undoing.step()));
    world.act(&format!("undo {}", undoing.step()));
    Ok(())
}

const TAKE_BACK: UndoBody = |world, undoing| Box::pin(async move { take_back(world, undoing) });
/// Builds, and fails.
const FAIL: Body = |world, context| {
    Box::pin(async move {
        build(world, context).await?;
        Err(ToolError::failed_with(7, "no room", json!({ "room": 1 })))
    })
};
/// Builds, and waits for a stop.
const WAIT: Body = |world, context| {
    Box::pin(async move {
        build(world, context).await?;
        world.act("waiting");
        context.cancelled().cancelled().await;
        Err(ToolError::retryable("told to stop"))
    })
};

pub fn script(body: Body, undo: UndoBody) -> Script {
    let backoff = Backoff {
        first: Duration::from_millis(50),
        max: Duration::from_millis(200),
    };
    let policy = ToolPolicy {
        backoff,
        undo_tries_max: 3,
        ..ToolPolicy::default()
    };
    Script {
        policy,
        body,
        undo: Some(undo),
    }
}

fn undos(worker: &Running, outcome: &str) -> u64 {
    let labels = format!("outcome=\"{outcome}\",tool=\"scripted\"");
    worker.counter("mcp_tasks_undos_total", &labels)
}

async fn undo_states(world: &World, id: protocol::TaskId) -> String {
    let sql = format!(
        "SELECT string_agg(key || '=' || undo_state, ' ' ORDER BY seq) FROM steps \
         WHERE task_id = '{id}'"
    );
    world.rows(&sql).await[0][0].clone().unwrap_or_default()
}

async fn cancel(world: &Arc<World>, id: protocol::TaskId) -> Cancel {
    let cancelled = world.store.cancel(&world.alice, id).await.unwrap();
    world.queue.stop(id).await;
    cancelled
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_task_is_undone_in_reverse_before_it_shows() {
    let world = World::new().await;
    let script = script(FAIL, |world, undoing| {
        Box::pin(async move {
            world.go.cancelled().await;
            assert_eq!(
                undoing.idempotency_key(),
                format!("{}:{}:undo", undoing.task_id(), undoing.step())
            );
            take_back(world, undoing)
        })
    });
    let worker = world.serve(&script, |_| {});
    let id = world.start(&script.policy).await;
    // Nobody but the worker itself hints it.
    let begun = format!("SELECT 1 FROM steps WHERE task_id = '{id}' AND undo_state = 'started'");
    harness::wait::until("an undo", crate::world::SOON, async || {
        (world.rows(&begun).await.len() == 1).then_some(())
    })
    .await
    .unwrap();
    assert_eq!(world.column(id, "phase").await, "undoing");
    assert_eq!(world.get(id).await.status.as_str(), "working");
    world.go.cancel();
    let task = world.wait(id, &["failed"]).await;
    assert_eq!(
        error(&task),
        json!({ "code": 7, "message": "no room", "data": { "room": 1 } })
    );
    assert_eq!(world.acts(), ["a", "b", "c", "undo c", "undo a"]);
    assert_eq!(undo_states(&world, id).await, "a=finished c=finished");
    counted(|| undos(&worker, "undone"), 2).await;
    assert_eq!(world.run(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completed_task_keeps_what_it_did() {
    let world = World::new().await;
    let script = script(
        |world, context| {
            Box::pin(async move {
                build(world, context).await?;
                done()
            })
        },
        TAKE_BACK,
    );
    let _worker = world.serve(&script, |_| {});
    let id = world.start(&script.policy).await;
    world.wait(id, &["completed"]).await;
    assert_eq!(world.acts(), ["a", "b", "c"]);
}

/// A stop is what the undoing began with, so no further one ends it.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_task_is_undone_whoever_cancels_again() {
    let world = World::new().await;
    let script = script(WAIT, |world, undoing| {
        Box::pin(async move {
            world.act(&format!("undoing {}", undoing.step()));
            undoing.pause(Duration::from_millis(900)).await?;
            take_back(world, undoing)
        })
    });
    let _worker = world.serve(&script, |_| {});
    let id = world.start(&script.policy).await;
    world.wait_act("waiting").await;
    assert_eq!(cancel(&world, id).await, Cancel::Requested);
    world.wait_act("undoing c").await;
    assert_eq!(world.get(id).await.status.as_str(), "working");
    cancel(&world, id).await;
    let task = world.wait(id, &["cancelled", "failed"]).await;
    assert_eq!(task.status.as_str(), "cancelled");
    let taken: Vec<_> = world.acts().split_off(4);
    assert_eq!(taken, ["undoing c", "undo c", "undoing a", "undo a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_task_that_is_cancelled_is_undone() {
    let world = World::new().await;
    let script = script(
        |world, context| {
            Box::pin(async move {
                build(world, context).await?;
                let schema = json!({ "type": "object", "properties": {} });
                context
                    .ask(vec![Question::elicit("q", "Go?", schema)])
                    .await?;
                done()
            })
        },
        TAKE_BACK,
    );
    let _worker = world.serve(&script, |_| {});
    let id = world.start(&script.policy).await;
    world.wait(id, &["input_required"]).await;
    let cancelled = cancel(&world, id).await;
    assert!(matches!(cancelled, Cancel::Undoing { .. }), "{cancelled:?}");
    let task = world.wait_over(id).await;
    assert_eq!(task.status.as_str(), "cancelled");
    assert_eq!(world.acts(), ["a", "b", "c", "undo c", "undo a"]);
    assert_eq!(world.run(), 1, "the tool itself is not run again");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_that_fails_for_good_is_told_and_the_others_go_on() {
    let world = World::new().await;
    let script = script(WAIT, |world, undoing| {
        Box::pin(async move {
            if undoing.step() == "c" {
                return Err(ToolError::failed(404, "nothing there"));
            }
            take_back(world, undoing)
        })
    });
    let worker = world.serve(&script, |_| {});
    let id = world.start(&script.policy).await;
    world.wait_act("waiting").await;
    cancel(&world, id).await;
    let task = world.wait(id, &["cancelled", "failed"]).await;
    assert_eq!(task.status.as_str(), "failed");
    assert_eq!(reason(&task), "undo_failed");
    assert_eq!(
        error(&task)["data"]["undoFailed"],
        json!([{ "step": "c", "error": "nothing there" }])
    );
    assert_eq!(undo_states(&world, id).await, "a=finished c=failed");
    counted(|| undos(&worker, "failed"), 1).await;
    counted(|| undos(&worker, "undone"), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_declares_undos_and_implements_none_is_told() {
    let world = World::new().await;
    let mut script = script(FAIL, TAKE_BACK);
    script.undo = None;
    let _worker = world.serve(&script, |_| {});
    let id = world.start(&script.policy).await;
    let task = world.wait_over(id).await;
    let error = error(&task);
    assert_eq!(error["code"], 7, "its own error stays");
    assert_eq!(error["data"]["room"], 1);
    let failed = &error["data"]["undoFailed"];
    assert_eq!(failed[0]["step"], "c");
    assert!(
        failed[1]["error"]
            .as_str()
            .unwrap()
            .contains("implements none")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_is_tried_again_and_not_for_ever() {
    let world = World::new().await;
    let script = script(FAIL, |world, undoing| {
        Box::pin(async move {
            let (step, tries) = (undoing.step(), undoing.tries());
            match (step, tries) {
                ("c", 1) => Err(ToolError::retryable("busy")),
                ("a", _) => Err(ToolError::retryable(format!("no answer at try {tries}"))),
                _ => take_back(world, undoing),
            }
        })
    });
    let worker = world.serve(&script, |_| {});
    let id = world.start(&script.policy).await;
    let task = world.wait_over(id).await;
    assert_eq!(world.acts(), ["a", "b", "c", "undo c"]);
    assert_eq!(
        error(&task)["data"]["undoFailed"],
        json!([{ "step": "a", "error": "gave up after 3 tries: no answer at try 3" }])
    );
    counted(|| undos(&worker, "retried"), 3).await;
    assert_eq!(
        world.column(id, "tries").await,
        "0",
        "tries of the tool are its own"
    );
}

/// One that is dropped or panics may or may not have undone it.
#[tokio::test(flavor = "multi_thread")]
async fn an_undo_without_an_end_is_repeated_only_if_it_may_be() {
    let world = World::new().await;
    let body: Body = |_, context| {
        Box::pin(async move {
            for (key, idempotent) in [("once", false), ("panics", true), ("hangs", true)] {
                let undo = Undo::new(Value::Null);
                let undo = if idempotent { undo.idempotent() } else { undo };
                let step = Step::new(key).undo(undo);
                context.step(step, |_| async { Ok(()) }).await?;
            }
            Err(ToolError::failed(7, "no room"))
        })
    };
    let mut script = script(body, |world, undoing| {
        Box::pin(async move {
            world.act(undoing.step());
            match (undoing.step(), undoing.tries()) {
                ("hangs", 1) => std::future::pending().await,
                ("panics", 1) | ("once", _) => panic!("no such machine"),
                _ => Ok(()),
            }
        })
    });
    script.policy.undo_limit = Duration::from_millis(200);
    let _worker = world.serve(&script, |_| {});
    let id = world.start(&script.policy).await;
    let task = world.wait_over(id).await;
    assert_eq!(world.acts(), ["hangs", "hangs", "panics", "panics", "once"]);
    let failed = error(&task)["data"]["undoFailed"].to_string();
    assert!(
        failed.contains("once") && failed.contains("may have been undone"),
        "{failed}"
    );
    assert!(!failed.contains("hangs"), "{failed}");
}

/// An act whose output is too large did happen all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_put_out_too_much_is_undone() {
    let world = World::new().await;
    let body: Body = |world, context| {
        Box::pin(async move {
            let step = Step::new("rent").undo(Undo::new("give back"));
            let _: String = context
                .step(step, |_| async {
                    world.act("rent");
                    Ok("x".repeat(5000))
                })
                .await?;
            done()
        })
    };
    let script = script(body, |world, undoing| {
        Box::pin(async move {
            assert!(undoing.output::<Value>().is_err());
            world.act(&undoing.how::<String>()?);
            Ok(())
        })
    });
    let settings = |settings: &mut worker::Config| settings.step_bytes_max = 1000;
    let _worker = world.serve(&script, settings);
    let id = world.start(&script.policy).await;
    let task = world.wait_over(id).await;
    assert_eq!(world.acts(), ["rent", "give back"]);
    assert_eq!(reason(&task), "journal_full");
}
