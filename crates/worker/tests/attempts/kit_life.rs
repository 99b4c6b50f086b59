//! The whole life of a task without servers, by a clock that is paused.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use worker::testkit::{Kit, Run};
use worker::{
    Arguments, Backoff, CallToolResult, Context, Definition, OnLost, OnPanic, Progress, Question,
    Step, Tool, ToolError, ToolPolicy, ToolSpec, Undo, Undoing,
};

const HOUR: Duration = Duration::from_secs(3600);

type Does = fn(&Sample) -> Result<(), ToolError>;

/// Begins, works for a minute, asks, and ends.
#[derive(Default)]
struct Sample {
    policy: ToolPolicy,
    /// In the step `work`, which may be repeated.
    does: Option<Does>,
    calls: AtomicU32,
    once: bool,
}

#[worker::async_trait]
impl Tool for Sample {
    fn spec(&self) -> ToolSpec {
        let mut spec = ToolSpec::new(Definition::new("sample", &json!({ "type": "object" })));
        spec.policy = self.policy.clone();
        spec
    }

    async fn call(
        &self,
        context: &mut Context,
        arguments: Arguments,
    ) -> Result<CallToolResult, ToolError> {
        let wanted: Value = arguments.parse()?;
        let undo = Step::new("begin").undo(Undo::new("end").idempotent());
        context.step(undo, |_| async { Ok(1) }).await?;
        context
            .report(Progress::new(1).with_message("working"))
            .await;
        let stop = context.cancelled();
        let step = Step::new("work");
        let step = if self.once { step } else { step.idempotent() };
        let work = |_| async move {
            self.calls.fetch_add(1, Ordering::SeqCst);
            worker::pause(&stop, HOUR / 60).await?;
            self.does.map_or(Ok(()), |does| does(self))
        };
        context.step(step, work).await?;
        if wanted["ask"] == true {
            let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
            let mut question = Question::elicit("n", "How many?", schema).wait(HOUR);
            if wanted["default"] == true {
                question = question.default_content(json!({ "n": 7 }));
            }
            let answers = context.ask(vec![question]).await?;
            let n = answers.elicited::<Value>("n")?.accepted();
            return Ok(CallToolResult::text(n.unwrap_or_default()["n"].to_string()));
        }
        Ok(CallToolResult::text("done"))
    }

    async fn undo(&self, _: &mut Undoing) -> Result<(), ToolError> {
        Ok(())
    }
}

fn sample(policy: ToolPolicy, does: Does) -> Kit {
    Kit::new(Sample {
        policy,
        does: Some(does),
        ..Sample::default()
    })
}

fn asking(default: bool) -> Kit {
    Kit::new(Sample::default()).arguments(json!({ "ask": true, "default": default }))
}

fn text(run: &Run) -> &str {
    run.result().unwrap().content[0].as_text().unwrap()
}

fn five(n: u32) -> Value {
    json!({ "action": "accept", "content": { "n": n } })
}

#[tokio::test(start_paused = true)]
async fn tries_and_their_pauses_follow_the_policy() {
    let policy = ToolPolicy {
        tries_max: 4,
        backoff: Backoff {
            first: HOUR,
            max: HOUR * 3,
        },
        retry_codes: vec![7],
        ..ToolPolicy::default()
    };
    let run = sample(policy.clone(), |s| match s.calls.load(Ordering::SeqCst) {
        1 => Err(ToolError::retryable("away")),
        2 => Err(ToolError::failed(7, "still away")),
        _ => Ok(()),
    });
    let run = run.simulate().await;
    assert_eq!(text(&run), "done");
    assert_eq!(run.acts(), ["begin", "work", "work", "work"]);
    let pauses: Vec<Duration> = run.tries().iter().map(|t| t.pause).collect();
    assert_eq!(pauses, [HOUR, HOUR * 2]);
    assert_eq!(run.tries()[1].message, "still away");
    assert!(run.elapsed() >= HOUR * 3 && run.elapsed() < HOUR * 4);

    let run = sample(policy.clone(), |_| Err(ToolError::retryable("away")));
    let run = run.simulate().await;
    assert_eq!(run.status(), "failed");
    assert_eq!(run.reason().as_deref(), Some("attempts_exhausted"));
    assert_eq!(run.tries().len(), 3);
    assert_eq!(run.undone(), ["begin"]);

    let run = sample(policy.clone(), |_| Err(ToolError::failed(8, "no")));
    let run = run.simulate().await;
    assert_eq!(run.error().unwrap().code, 8);
    assert!(run.tries().is_empty());

    let run = sample(policy, |_| Err(ToolError::retryable("away")));
    let run = run.run().await;
    assert_eq!((run.status(), run.tries().len()), ("working", 0));
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_try_or_the_end() {
    let panics: Does = |s| match s.calls.load(Ordering::SeqCst) {
        1 => panic!("on purpose"),
        _ => Ok(()),
    };
    let run = sample(ToolPolicy::default(), panics).simulate().await;
    assert_eq!(run.status(), "completed");
    assert!(run.tries()[0].message.contains("on purpose"));
    let policy = ToolPolicy {
        on_panic: OnPanic::Fail,
        ..ToolPolicy::default()
    };
    let run = sample(policy, panics).simulate().await;
    // Its step may be repeated, and nobody will: it was open when it ended.
    assert_eq!(run.status(), "failed");
    assert_eq!(run.reason().as_deref(), Some("step_in_doubt"));
}

#[tokio::test(start_paused = true)]
async fn answers_come_in_time_or_their_default_does() {
    let run = asking(true).answer("n", five(5)).simulate().await;
    assert_eq!(text(&run), "5");
    let run = asking(true)
        .answer_after("n", HOUR / 2, five(5))
        .simulate()
        .await;
    assert_eq!(text(&run), "5");
    assert!(run.elapsed() >= HOUR / 2 && run.elapsed() < HOUR);
    let run = asking(true)
        .answer_after("n", HOUR * 2, five(5))
        .simulate()
        .await;
    assert_eq!(text(&run), "7");
    assert_eq!(run.asked()[0].0, "n");
    let run = asking(true).silent("n").simulate().await;
    assert_eq!(text(&run), "7");
    let run = asking(false).silent("n").simulate().await;
    assert_eq!(run.reason().as_deref(), Some("input_deadline"));
    assert_eq!(run.undone(), ["begin"]);
    let run = asking(true).simulate().await;
    assert_eq!(run.status(), "input_required");
    assert!(run.undone().is_empty() && run.error().is_none());
    let run = asking(true).silent("n").run().await;
    assert_eq!(run.status(), "input_required");
    // One that cannot be asked is not.
    let run = asking(true).capabilities(json!({})).simulate().await;
    assert_eq!((text(&run), run.asked().len()), ("7", 0));
    let run = asking(false).capabilities(json!({})).simulate().await;
    assert_eq!(run.error().unwrap().code, -32021);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "the answer to \"n\" is none")]
async fn an_answer_that_no_gateway_takes_is_a_mistake_of_the_test() {
    let bad = json!({ "action": "accept", "content": { "n": "five" } });
    asking(true).answer("n", bad).simulate().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_worker_is_replaced_or_leaves_doubt() {
    let kit = || Kit::new(Sample::default());
    let run = kit().lost_after("begin").simulate().await;
    assert_eq!(run.status(), "completed");
    assert_eq!(run.acts(), ["begin", "work"]);
    assert_eq!(run.tries()[0].message, "the worker was lost");
    let run = kit().lost_in("work").lost_in("work").simulate().await;
    assert_eq!(run.acts(), ["begin", "work", "work", "work"]);
    assert_eq!(run.tries().len(), 2);
    let once = Kit::new(Sample {
        once: true,
        ..Sample::default()
    });
    let run = once.lost_in("work").simulate().await;
    assert_eq!(run.reason().as_deref(), Some("step_in_doubt"));
    assert_eq!(run.acts(), ["begin", "work"]);
    assert_eq!(run.undone(), ["begin"]);
    let policy = ToolPolicy {
        on_lost: OnLost::Fail,
        ..ToolPolicy::default()
    };
    let run = sample(policy, |_| Ok(()))
        .lost_after("begin")
        .simulate()
        .await;
    assert_eq!(run.reason().as_deref(), Some("worker_lost"));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_comes_at_its_time_and_limits_hold() {
    let kit = || Kit::new(Sample::default());
    // In the middle of a step that may be repeated, but is not: nothing can be told of it.
    let run = kit().cancel_after(HOUR / 120).simulate().await;
    assert_eq!(run.status(), "cancelled");
    assert_eq!(run.undone(), ["begin"]);
    let run = kit().cancel_at("work").simulate().await;
    assert_eq!((run.status(), run.acts()), ("cancelled", vec!["begin"]));
    // While it is asked.
    let run = asking(true)
        .silent("n")
        .cancel_after(HOUR / 2)
        .simulate()
        .await;
    assert_eq!(run.status(), "cancelled");
    let policy = ToolPolicy {
        work_limit: HOUR / 120,
        ..ToolPolicy::default()
    };
    let run = sample(policy, |_| Ok(())).simulate().await;
    assert_eq!(run.reason().as_deref(), Some("work_limit"));
    assert_eq!(run.progress()[0].message.as_deref(), Some("working"));
}

#[tokio::test(start_paused = true)]
async fn another_version_goes_on_from_the_journal_or_drifts() {
    let parked = asking(true).simulate().await;
    let journal = parked.journal();
    let keys: Vec<&str> = journal.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["begin", "work"]);
    let same = asking(true).after(&parked).answer("n", five(5));
    let run = same.simulate().await;
    assert_eq!((text(&run), run.acts().len()), ("5", 0));
    // A version that asks nothing has not come to what the journal holds.
    let other = Kit::new(Sample::default()).after(&run).simulate().await;
    assert_eq!(other.reason().as_deref(), Some("journal_drift"));
    assert_eq!(other.undone(), ["begin"]);
}
