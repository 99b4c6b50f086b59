//! `build_report`: works in stages, and asks one question on the way.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use worker::{
    Arguments, CallToolResult, Context, Definition, Elicited, Progress, Question, Step, Tool,
    ToolAnnotations, ToolError, ToolSpec, pause,
};

/// Stages before the question, 2 s each.
const STAGES: [&str; 4] = [
    "collecting invoices",
    "matching payments",
    "converting currencies",
    "summing up",
];
const STAGE: Duration = Duration::from_secs(2);
const KEY: &str = "charts";

/// Builds a month's report. A client with tasks is asked after about 8 s whether it wants
/// charts; any other gets a report with charts after about 10 s, unasked.
pub(crate) struct BuildReport;

#[derive(Deserialize)]
struct Wanted {
    month: String,
}

#[derive(Deserialize)]
struct Charts {
    charts: bool,
}

/// What a stage found.
#[derive(Serialize, Deserialize)]
struct Found {
    rows: u64,
    total_cents: u64,
}

/// The month's books: invented, but always the same for the same month.
fn books(month: &str, stage: &str) -> Found {
    let seed = month.bytes().chain(stage.bytes()).fold(7_u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    Found {
        rows: 100 + seed % 400,
        total_cents: 1_000_000 + seed % 9_000_000,
    }
}

#[worker::async_trait]
impl Tool for BuildReport {
    fn spec(&self) -> ToolSpec {
        let schema = json!({
            "type": "object",
            "properties": {
                "month": {
                    "type": "string",
                    "description": "Month of the report, e.g. 2026-11.",
                    "minLength": 1,
                    "maxLength": 32
                }
            },
            "required": ["month"]
        });
        let definition = Definition::new("build_report", &schema)
            .with_title("Build a monthly report")
            .with_description("Builds the report of a month in stages; takes about ten seconds.")
            .with_annotations(ToolAnnotations {
                read_only_hint: Some(true),
                ..Default::default()
            });
        let mut spec = ToolSpec::new(definition);
        spec.policy.inline_budget = Some(Duration::ZERO);
        spec.policy.work_limit = Duration::from_secs(300);
        spec
    }

    async fn call(
        &self,
        context: &mut Context,
        arguments: Arguments,
    ) -> Result<CallToolResult, ToolError> {
        let Wanted { month } = arguments.parse()?;
        let of = u64::try_from(STAGES.len() + 1).unwrap_or(u64::MAX);
        let mut total_cents = 0;
        let mut rows = 0;
        for (done, stage) in (0_u64..).zip(STAGES) {
            let progress = Progress::new(done)
                .of(of)
                .with_message(format!("{month}: {stage}"));
            context.report(progress).await;
            let books = books(&month, stage);
            let stop = context.cancelled();
            // Journaled, so that the answer to the question does not start the month again.
            let found: Found = context
                .step(Step::new(stage).idempotent(), |_| async move {
                    pause(&stop, STAGE).await?;
                    Ok(books)
                })
                .await?;
            rows += found.rows;
            total_cents += found.total_cents;
        }
        let charts = ask(context).await?;
        let last = if charts {
            "drawing charts"
        } else {
            "writing the summary"
        };
        let progress = Progress::new(of - 1)
            .of(of)
            .with_message(format!("{month}: {last}"));
        context.report(progress).await;
        context.pause(STAGE).await?;
        let euros = total_cents / 100;
        let with = if charts { "with" } else { "without" };
        let text = format!("Report for {month}: {rows} rows, {euros} EUR, {with} charts.");
        let mut result = CallToolResult::text(text);
        result.structured_content = Some(
            json!({ "month": month, "rows": rows, "totalCents": total_cents, "charts": charts }),
        );
        Ok(result)
    }
}

async fn ask(context: &mut Context) -> Result<bool, ToolError> {
    let schema = json!({
        "type": "object",
        "properties": { "charts": { "type": "boolean", "title": "Include charts" } },
        "required": ["charts"]
    });
    let question = Question::elicit(KEY, "Include charts in the report?", schema)
        .default_content(json!({ "charts": true }))
        .task_only();
    let answers = context.ask(vec![question]).await?;
    Ok(match answers.elicited::<Charts>(KEY)? {
        Elicited::Accepted(Charts { charts }) => charts,
        Elicited::Declined | Elicited::Cancelled => false,
    })
}

#[cfg(test)]
mod tests {
    use worker::testkit::Kit;

    use super::*;

    fn kit() -> Kit {
        Kit::new(BuildReport).arguments(json!({ "month": "2026-11" }))
    }

    #[tokio::test(start_paused = true)]
    async fn asks_once_and_builds_what_was_answered() {
        let run = kit()
            .answer(
                KEY,
                json!({ "action": "accept", "content": { "charts": false } }),
            )
            .run()
            .await;
        let result = run.result().unwrap();
        assert_eq!(result.structured_content.as_ref().unwrap()["charts"], false);
        assert_eq!(run.asked().len(), 1);
        assert_eq!(run.acts(), STAGES, "no stage ran twice");
    }

    #[tokio::test(start_paused = true)]
    async fn without_tasks_nobody_is_asked() {
        let run = kit().capabilities(json!({ "elicitation": {} })).run().await;
        assert_eq!(
            run.result().unwrap().structured_content.as_ref().unwrap()["charts"],
            true
        );
        assert!(run.asked().is_empty());
        assert!(run.progress().len() > STAGES.len());
    }
}
