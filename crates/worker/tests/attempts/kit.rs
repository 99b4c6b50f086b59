//! Undos and drift without servers.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use worker::testkit::Kit;
use worker::{
    Arguments, CallToolResult, Context, Definition, Step, Tool, ToolError, ToolSpec, Undo, Undoing,
};

/// Rents two machines, and gives them back when there is no third.
#[derive(Default)]
struct Rent {
    undos: AtomicU32,
}

#[worker::async_trait]
impl Tool for Rent {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new(Definition::new("rent", &json!({ "type": "object" })))
    }

    async fn call(
        &self,
        context: &mut Context,
        arguments: Arguments,
    ) -> Result<CallToolResult, ToolError> {
        let wanted: Value = arguments.parse()?;
        for key in ["one", "two"] {
            let undo = Undo::new(json!({ "machine": key })).idempotent();
            let step = Step::new(key).undo(undo);
            context.step(step, |_| async move { Ok(key.len()) }).await?;
        }
        if wanted["three"].as_bool() == Some(true) {
            return Err(ToolError::failed(507, "no machine left"));
        }
        context
            .step(Step::new("start"), |_| async { Ok(()) })
            .await?;
        Ok(CallToolResult::text("running"))
    }

    async fn undo(&self, undoing: &mut Undoing) -> Result<(), ToolError> {
        let how: Value = undoing.how()?;
        assert_eq!(how["machine"], undoing.step());
        assert_eq!(undoing.output::<usize>()?, 3);
        assert!(undoing.idempotency_key().ends_with(":undo"));
        let wanted: Value = undoing.arguments().parse()?;
        match undoing.step() {
            "one" if wanted["stuck"] == true => Err(ToolError::failed(500, "bolted down")),
            _ if self.undos.fetch_add(1, Ordering::SeqCst) == 0 => {
                Err(ToolError::retryable("not yet"))
            }
            _ => Ok(()),
        }
    }
}

#[tokio::test]
async fn a_failure_is_undone_the_last_step_first() {
    let run = Kit::new(Rent::default())
        .arguments(json!({ "three": true }))
        .run()
        .await;
    assert_eq!(run.result().unwrap_err().to_string(), "no machine left");
    assert_eq!(run.undone(), ["two", "one"]);
    assert!(run.not_undone().is_empty());
}

#[tokio::test]
async fn a_cancel_is_undone_and_a_result_is_not() {
    let run = Kit::new(Rent::default()).cancel_at("start").run().await;
    assert!(run.result().unwrap_err().is_stopped());
    assert_eq!(run.acts(), ["one", "two"]);
    assert_eq!(run.undone(), ["two", "one"]);
    let run = Kit::new(Rent::default()).run().await;
    assert!(run.result().is_ok());
    assert!(run.undone().is_empty());
}

#[tokio::test]
async fn what_cannot_be_undone_is_told() {
    let run = Kit::new(Rent::default())
        .arguments(json!({ "stuck": true }))
        .cancel_at("start")
        .run()
        .await;
    assert_eq!(run.undone(), ["two"]);
    assert_eq!(
        run.not_undone(),
        [("one".to_owned(), "bolted down".to_owned())]
    );
}

#[tokio::test]
async fn a_journal_that_goes_on_is_drift() {
    let run = Kit::new(Rent::default())
        .finished("one", json!(3))
        .finished("two", json!(3))
        .finished("start", json!(null))
        .finished("more", json!(null))
        .run()
        .await;
    let error = run.result().unwrap_err();
    assert!(error.to_string().contains("\"more\""), "{error}");
}
