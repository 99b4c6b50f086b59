//! Undoing a step of a program: it is started once more, for that alone.

use serde_json::Value;
use serde_json::value::RawValue;
use worker::process::Error;
use worker::{CancellationToken, ToolError, Undoing};

use super::message::Told;
use super::prepare::{Names, Prepared, Refused};
use super::script::in_environment;
use super::wire::Wire;
use super::{Channel, Program, result};

pub(super) async fn undo(
    program: &Program,
    channel: Channel,
    undoing: &mut Undoing,
) -> Result<(), ToolError> {
    let data: Value = undoing.how()?;
    // One that was too large is not kept: what an undo cannot do without is in its data.
    let output: Value = undoing.output().unwrap_or_default();
    let task = undoing.task_id().to_string();
    let key = undoing.step().to_owned();
    let names = Names {
        task: &task,
        attempt: undoing.tries(),
        key: undoing.idempotency_key(),
        principal: undoing.principal(),
    };
    let Prepared { command, secrets } = program
        .prepare(undoing.arguments(), &names)
        // Nothing was run. The same call made a command line before, but for its secrets.
        .map_err(|Refused(why)| ToolError::retryable(why))?;
    let mut command = command.env("MCP_TASKS_UNDO", &key);
    for (name, value) in [
        ("MCP_TASKS_UNDO_DATA", &data),
        ("MCP_TASKS_UNDO_OUTPUT", &output),
    ] {
        command = in_environment(command, name, value);
    }
    let (command, talk) = match channel {
        Channel::Stdout => command.talk(),
        Channel::Fd3 => command.talk_on_fd3(),
    };
    let arguments: Box<RawValue> = undoing.arguments().parse()?;
    let told = Told::Undo {
        task: &task,
        attempt: names.attempt,
        arguments: &arguments,
        key: &key,
        data: &data,
        output: &output,
        idempotency_key: &names.key,
    };
    let mut wire = Wire::new(talk, None);
    let stop = CancellationToken::new();
    let commands = undoing.commands();
    let running = command.stop_on(stop.clone()).run(&commands);
    tokio::pin!(running);
    let mut ended = None;
    let undone = {
        let talked = async {
            wire.tell(&told).await;
            wire.act(&key).await
        };
        tokio::pin!(talked);
        loop {
            tokio::select! {
                undone = &mut talked => break undone,
                outcome = &mut running, if ended.is_none() => ended = Some(outcome),
            }
        }
    };
    // One that says what it should not has no more to do. One that is silent may be about to end,
    // and its exit code to say how it went.
    if undone.as_ref().is_err_and(ToolError::is_outcome_unknown) && !wire.is_over() {
        stop.cancel();
    }
    // It hears that nobody talks with it any more.
    drop(wire);
    let ended = match ended {
        Some(ended) => ended,
        None => running.await,
    };
    let doubt = match undone {
        // What it said counts, however it ended then.
        Ok(_) => return Ok(()),
        Err(error) if !error.is_outcome_unknown() => return Err(error),
        Err(doubt) => doubt,
    };
    match ended {
        Ok(output) if program.asks_for_another_try(&output) => {
            let ended = program.ended(&output, &secrets);
            Err(ToolError::retryable(result::failure(&ended)))
        }
        Ok(_) | Err(Error::Stopped { .. } | Error::Lost { .. }) => Err(doubt),
        // Nothing ran.
        Err(error) => Err(error.into()),
    }
}
