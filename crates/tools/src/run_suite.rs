//! `run_suite`: runs a test suite in journaled steps, asks before it deploys in spite of flaky
//! tests, and deploys only on yes.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use worker::{
    Arguments, CallToolResult, CancellationToken, Context, Definition, Elicited, Progress,
    Question, Step, Tool, ToolAnnotations, ToolError, ToolSpec, pause,
};

/// Tests of a suite.
const TESTS: u32 = 30;
/// Tests of one step.
const BATCH: u32 = 5;
/// A test that fails so often is broken and not flaky.
const RUNS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(60);
const KEY: &str = "deploy";

/// Runs a suite and deploys when it may.
pub(crate) struct RunSuite;

#[derive(Deserialize)]
struct Wanted {
    suite: Suite,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Suite {
    Green,
    Flaky,
    Broken,
}

#[derive(Deserialize)]
struct Decision {
    deploy: bool,
}

/// What a batch of tests came to.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Batch {
    passed: u32,
    flaky: Vec<String>,
    failed: Vec<String>,
}

/// One run of one test: sorts numbers and looks whether they are sorted. What makes some tests
/// flaky is that their first run looks before it sorts.
fn run_once(suite: Suite, test: u32, run: u32) -> bool {
    let mut numbers: Vec<u32> = (0..200)
        .map(|n: u32| (n.wrapping_mul(7919) ^ test.wrapping_mul(104_729)) % 1009)
        .collect();
    let hasty = match suite {
        Suite::Green => false,
        Suite::Flaky => run == 0 && [4, 13, 22].contains(&test),
        Suite::Broken => test == 7,
    };
    if !hasty {
        numbers.sort_unstable();
    }
    numbers.is_sorted()
}

fn run_test(suite: Suite, test: u32, batch: &mut Batch) {
    let name = format!("sorts_{test:02}");
    match (0..RUNS).position(|run| run_once(suite, test, run)) {
        Some(0) => batch.passed += 1,
        Some(_) => batch.flaky.push(name),
        None => batch.failed.push(name),
    }
}

#[worker::async_trait]
impl Tool for RunSuite {
    fn spec(&self) -> ToolSpec {
        let schema = json!({
            "type": "object",
            "properties": {
                "suite": {
                    "type": "string",
                    "enum": ["green", "flaky", "broken"],
                    "description": "green deploys, flaky asks first, broken never deploys."
                }
            },
            "required": ["suite"]
        });
        let definition = Definition::new("run_suite", &schema)
            .with_title("Run tests and deploy")
            .with_description(
                "Runs a test suite and deploys if it passes; asks first if tests were flaky.",
            )
            .with_annotations(ToolAnnotations {
                destructive_hint: Some(true),
                ..Default::default()
            });
        let mut spec = ToolSpec::new(definition);
        spec.policy.inline_budget = Some(Duration::ZERO);
        spec.policy.work_limit = Duration::from_secs(1800);
        spec
    }

    async fn call(
        &self,
        context: &mut Context,
        arguments: Arguments,
    ) -> Result<CallToolResult, ToolError> {
        let Wanted { suite } = arguments.parse()?;
        let mut sum = Batch::default();
        for first in (0..TESTS).step_by(BATCH as usize) {
            let message = format!("{first} of {TESTS} tests run");
            context
                .report(Progress::new(first).of(TESTS).with_message(message))
                .await;
            let stop = context.cancelled();
            let batch: Batch = context
                .step(Step::new(&format!("tests {first}")).idempotent(), |_| {
                    batch(suite, first, stop)
                })
                .await?;
            sum.passed += batch.passed;
            sum.flaky.extend(batch.flaky);
            sum.failed.extend(batch.failed);
        }
        if !sum.failed.is_empty() {
            let failed = sum.failed.join(", ");
            return Ok(CallToolResult::error(format!(
                "not deployed: these tests fail: {failed}"
            )));
        }
        if !sum.flaky.is_empty() && !approved(context, sum.flaky.len()).await? {
            return Ok(report(&sum, None));
        }
        // Not idempotent: when its end is unknown, a person must look.
        let release: String = context
            .step(Step::new("deploy"), |info| async move {
                tokio::time::sleep(PAUSE).await;
                Ok(format!("release of {}", info.idempotency_key))
            })
            .await?;
        Ok(report(&sum, Some(release)))
    }
}

async fn batch(suite: Suite, first: u32, stop: CancellationToken) -> Result<Batch, ToolError> {
    let mut batch = Batch::default();
    for test in first..first + BATCH {
        run_test(suite, test, &mut batch);
        pause(&stop, PAUSE).await?;
    }
    Ok(batch)
}

async fn approved(context: &mut Context, flaky: usize) -> Result<bool, ToolError> {
    let schema = json!({
        "type": "object",
        "properties": { "deploy": { "type": "boolean", "title": "Deploy anyway" } },
        "required": ["deploy"]
    });
    let message = format!("{flaky} flaky tests failed. Deploy anyway?");
    let question = Question::elicit(KEY, message, schema)
        // Nobody to ask means nobody said yes.
        .default_content(json!({ "deploy": false }));
    let answers = context.ask(vec![question]).await?;
    Ok(matches!(
        answers.elicited::<Decision>(KEY)?,
        Elicited::Accepted(Decision { deploy: true })
    ))
}

fn report(sum: &Batch, release: Option<String>) -> CallToolResult {
    let (passed, flaky) = (sum.passed, sum.flaky.len());
    let verdict = if release.is_some() {
        "deployed"
    } else {
        "not deployed"
    };
    let mut result = CallToolResult::text(format!("{passed} passed, {flaky} flaky: {verdict}."));
    result.structured_content = Some(json!({
        "passed": passed,
        "flaky": sum.flaky,
        "deployed": release.is_some(),
        "release": release,
    }));
    result
}

#[cfg(test)]
mod tests {
    use worker::testkit::{Kit, Run};

    use super::*;

    fn kit(suite: &str) -> Kit {
        Kit::new(RunSuite).arguments(json!({ "suite": suite }))
    }

    fn deployed(run: &Run) -> bool {
        let acted = run.acts().contains(&"deploy");
        let content = run
            .result()
            .unwrap()
            .structured_content
            .clone()
            .unwrap_or_default();
        assert_eq!(content["deployed"].as_bool().unwrap_or(false), acted);
        acted
    }

    #[tokio::test(start_paused = true)]
    async fn deploys_only_when_it_may() {
        assert!(deployed(&kit("green").run().await));
        for (answer, expected) in [(true, true), (false, false)] {
            let answer = json!({ "action": "accept", "content": { "deploy": answer } });
            let run = kit("flaky").answer(KEY, answer).run().await;
            assert_eq!(
                run.asked()[0].1["params"]["message"],
                "3 flaky tests failed. Deploy anyway?"
            );
            assert_eq!(deployed(&run), expected);
        }
        let refused = kit("flaky")
            .answer(KEY, json!({ "action": "decline" }))
            .run()
            .await;
        assert!(!deployed(&refused));
        let broken = kit("broken").run().await;
        assert!(broken.result().unwrap().is_error);
        assert!(!deployed(&broken));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deployment_whose_end_is_unknown_is_not_repeated() {
        let mut kit = kit("green");
        for first in (0..TESTS).step_by(BATCH as usize) {
            let batch = serde_json::to_value(Batch {
                passed: BATCH,
                ..Batch::default()
            })
            .unwrap();
            kit = kit.finished(&format!("tests {first}"), batch);
        }
        let run = kit.begun("deploy").run().await;
        let error = run.result().unwrap_err().as_failed().unwrap().clone();
        assert_eq!(error.data.unwrap()["reason"], "step_in_doubt");
        assert!(run.acts().is_empty());
    }
}
