//! A program that speaks the line protocol: it says what its steps are, asks, and leaves
//! checkpoints; the journal keeps all of it, and every run of the program begins with it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::time::Instant;
use worker::process::{Command, Output as Outputs, Talk};
use worker::{
    Arguments, CallToolResult, CancellationToken, Content, Context, InputKind, Recalled, Step,
    ToolError, Undo,
};

use super::ask::Asks;
use super::message::{Said, Told, UndoSaid};
use super::prepare::{Names, Refused};
use super::result::{self, INTERNAL};
use super::wire::Wire;
use super::{Channel, Output, Program};

/// Steps that hold checkpoints: `checkpoint:1`, `checkpoint:2` …
const CHECKPOINT: &str = "checkpoint:";
/// Between two checkpoints that are written, at first; more the more there are, so that a journal
/// of bounded length lasts for days.
const CHECKPOINT_PAUSE: Duration = Duration::from_secs(1);
const CHECKPOINT_PAUSE_MORE: Duration = Duration::from_millis(10);
/// More than that is not put into the environment beside the first line.
const ENV_BYTES_MAX: usize = 64 * 1024;

/// What earlier runs have left for this one.
#[derive(Default)]
struct Memory {
    answers: Map<String, Value>,
    steps: BTreeMap<String, Value>,
    checkpoint: Value,
    checkpoints: u32,
    /// A step that began and did not end: the program must come to it again before anything else
    /// is written.
    begun: Option<String>,
}

impl Memory {
    fn of(recalled: Vec<Recalled>) -> Self {
        let mut memory = Self::default();
        for one in recalled {
            match one {
                Recalled::Step { key, output } if key.starts_with(CHECKPOINT) => {
                    memory.checkpoint = output;
                    memory.checkpoints += 1;
                }
                Recalled::Step { key, output } => {
                    memory.steps.insert(key, output);
                }
                Recalled::Answer { key, response } => {
                    memory.answers.insert(key, response);
                }
                Recalled::Begun { key } => memory.begun = Some(key),
            }
        }
        memory
    }

    /// Writes a checkpoint into the journal.
    async fn write(&mut self, context: &mut Context, value: Value) -> Result<(), ToolError> {
        let key = format!("{CHECKPOINT}{}", self.checkpoints + 1);
        let step = Step::new(&key).idempotent();
        self.checkpoint = context.step(step, |_| async move { Ok(value) }).await?;
        self.checkpoints += 1;
        Ok(())
    }
}

/// How a run of the program ended.
enum Run {
    Result(CallToolResult),
    /// It was ended because it asked something.
    Asked(Asks),
}

pub(super) async fn call(
    program: &Program,
    channel: Channel,
    context: &mut Context,
    arguments: &Arguments,
) -> Result<CallToolResult, ToolError> {
    let mut memory = Memory::of(context.recall()?);
    if memory
        .begun
        .as_ref()
        .is_some_and(|key| key.starts_with(CHECKPOINT))
    {
        memory.begun = None;
        let last = memory.checkpoint.clone();
        memory.write(context, last).await?;
    }
    loop {
        match run(program, channel, context, arguments, &mut memory).await? {
            Run::Result(result) => return Ok(result),
            Run::Asked(asks) => memory.answers.extend(asks.put(context).await?),
        }
    }
}

/// One run of the program, to its end.
async fn run(
    program: &Program,
    channel: Channel,
    context: &mut Context,
    arguments: &Arguments,
    memory: &mut Memory,
) -> Result<Run, ToolError> {
    let task = context.task_id().to_string();
    let names = Names {
        task: &task,
        attempt: context.attempt(),
        key: task.clone(),
        principal: context.principal(),
    };
    let prepared = match program.prepare(arguments, &names) {
        Ok(prepared) => prepared,
        Err(Refused(why)) => return Ok(Run::Result(CallToolResult::error(why))),
    };
    // Outside of its steps nothing that it does matters; a step in the middle of which it ends is
    // in doubt by itself.
    let mut command = prepared.command.interruptible();
    let answers = Value::Object(memory.answers.clone());
    let can_ask = Value::Bool(context.can_ask(InputKind::ElicitForm));
    for (name, value) in [
        ("MCP_TASKS_ANSWERS", &answers),
        ("MCP_TASKS_CHECKPOINT", &memory.checkpoint),
        ("MCP_TASKS_CAN_ASK", &can_ask),
    ] {
        command = in_environment(command, name, value);
    }
    let (command, talk) = match channel {
        Channel::Stdout => command.talk(),
        Channel::Fd3 => command.talk_on_fd3(),
    };
    let stop = CancellationToken::new();
    let commands = context.commands();
    let running = command.stop_on(stop.clone()).run(&commands);
    tokio::pin!(running);
    let mut ended = None;
    let mut talking = Talking::new(program, context, memory, talk);
    let talked = {
        let talked = talking.talk(&task, arguments);
        tokio::pin!(talked);
        loop {
            tokio::select! {
                talked = &mut talked => break talked,
                outcome = &mut running, if ended.is_none() => ended = Some(outcome),
            }
        }
    };
    // It hears that nobody talks with it any more.
    let Talking {
        result, pending, ..
    } = talking;
    let end = match &talked {
        Ok(None) => true,
        // It is asked to end, and has its grace.
        Ok(Some(_)) => {
            stop.cancel();
            true
        }
        Err(error) if error.is_stopped() => {
            stop.cancel();
            true
        }
        // It has broken the rules, or its task is over: killed with the future that runs it.
        Err(_) => false,
    };
    if end && ended.is_none() {
        ended = Some(running.await);
    }
    if let Some(asks) = talked? {
        return Ok(Run::Asked(asks));
    }
    let output = ended.expect("it was waited for")?;
    if program.asks_for_another_try(&output) {
        if let Some(value) = pending {
            memory.write(context, value).await?;
        }
        let ended = program.ended(&output, &prepared.secrets);
        return Err(ToolError::retryable(result::failure(&ended)));
    }
    of_end(program, channel, &output, &prepared.secrets, result).map(Run::Result)
}

/// A value as a variable, if it is not too long for one.
pub(super) fn in_environment(command: Command, name: &str, value: &Value) -> Command {
    let text = value.to_string();
    if text.len() <= ENV_BYTES_MAX && !text.contains('\0') {
        command.env(name, text)
    } else {
        command
    }
}

fn of_end(
    program: &Program,
    channel: Channel,
    output: &Outputs,
    secrets: &[String],
    said: Option<CallToolResult>,
) -> Result<CallToolResult, ToolError> {
    let ended = program.ended(output, secrets);
    match (said, channel) {
        (Some(said), _) if ended.code == Some(0) => Ok(said),
        (None, Channel::Stdout) if ended.code == Some(0) => {
            Err(broken("it ended without a result"))
        }
        _ => program.result(&ended),
    }
}

/// A program that does not keep to the protocol: no model can mend that.
pub(super) fn broken(why: impl std::fmt::Display) -> ToolError {
    ToolError::failed(INTERNAL, format!("line protocol: {why}"))
}

/// The conversation of one run.
struct Talking<'a> {
    program: &'a Program,
    context: &'a mut Context,
    memory: &'a mut Memory,
    wire: Wire,
    result: Option<CallToolResult>,
    /// The last checkpoint, if it is not written yet.
    pending: Option<Value>,
    written: Option<Instant>,
}

impl<'a> Talking<'a> {
    fn new(
        program: &'a Program,
        context: &'a mut Context,
        memory: &'a mut Memory,
        talk: Talk,
    ) -> Self {
        let wire = Wire::new(talk, Some(context.reporter()));
        Self {
            program,
            context,
            memory,
            wire,
            result: None,
            pending: None,
            written: None,
        }
    }

    /// To the end of what the program says, or to its question.
    async fn talk(&mut self, task: &str, arguments: &Arguments) -> Result<Option<Asks>, ToolError> {
        let arguments: Box<RawValue> = arguments.parse()?;
        let start = Told::Start {
            task,
            attempt: self.context.attempt(),
            arguments: &arguments,
            answers: &self.memory.answers,
            steps: &self.memory.steps,
            checkpoint: &self.memory.checkpoint,
            can_ask: self.context.can_ask(InputKind::ElicitForm),
        };
        self.wire.tell(&start).await;
        loop {
            let pause = CHECKPOINT_PAUSE + CHECKPOINT_PAUSE_MORE * self.memory.checkpoints;
            let due = self
                .written
                .map_or_else(Instant::now, |written| written + pause);
            let may_write = self.pending.is_some() && self.memory.begun.is_none();
            let said = tokio::select! {
                said = self.wire.next() => said.map_err(broken)?,
                () = tokio::time::sleep_until(due), if may_write => {
                    self.flush().await?;
                    continue;
                }
            };
            let Some(said) = said else {
                return Ok(None);
            };
            if let Some(asked) = self.take(said).await? {
                return Ok(Some(asked));
            }
        }
    }

    async fn take(&mut self, said: Said) -> Result<Option<Asks>, ToolError> {
        match said {
            Said::Progress { .. } => unreachable!("was passed on"),
            Said::Checkpoint { value } => self.pending = Some(value),
            Said::Step {
                key,
                idempotent,
                undo,
            } => self.step(&key, idempotent, undo).await?,
            Said::End { key, .. } => {
                return Err(broken(format!(
                    "it ended step \"{key}\" and had not begun it"
                )));
            }
            Said::Ask { .. } => return self.ask(Asks::read(said)?).await,
            Said::Result {
                text,
                structured,
                error,
            } => self.result = Some(self.result_of(text, structured, error)?),
        }
        Ok(None)
    }

    /// What is answered is told; what is not ends the run.
    async fn ask(&mut self, asks: Asks) -> Result<Option<Asks>, ToolError> {
        let Some(open) = asks.open(&self.memory.answers) else {
            let told = asks.told(&self.memory.answers);
            self.wire.tell(&told).await;
            return Ok(None);
        };
        self.flush().await?;
        if open.is_first() && !self.program.spec.policy.asks_first {
            return Err(broken("it asks first, and policy.asks_first is not true"));
        }
        Ok(Some(open))
    }

    async fn step(
        &mut self,
        key: &str,
        idempotent: bool,
        undo: Option<UndoSaid>,
    ) -> Result<(), ToolError> {
        if key.starts_with(CHECKPOINT) {
            let why = format!("keys of steps may not begin with \"{CHECKPOINT}\"");
            return Err(broken(why));
        }
        if let Some(output) = self.memory.steps.get(key) {
            self.wire.tell(&Told::Done { key, output }).await;
            return Ok(());
        }
        if self.memory.begun.as_deref() == Some(key) {
            self.memory.begun = None;
        } else {
            self.flush().await?;
        }
        let mut step = Step::new(key);
        if idempotent {
            step = step.idempotent();
        }
        if let Some(UndoSaid { data, idempotent }) = undo {
            let undo = Undo::new(data);
            step = step.undo(if idempotent { undo.idempotent() } else { undo });
        }
        let wire = &mut self.wire;
        let acted = self.context.step(step, |info| async move {
            let idempotency_key = info.idempotency_key.as_str();
            wire.tell(&Told::Go {
                key,
                idempotency_key,
            })
            .await;
            wire.act(key).await
        });
        let acted = acted.await;
        if acted.as_ref().is_err_and(ToolError::is_stopped) {
            self.wire.tell(&Told::Stop).await;
        }
        self.memory.steps.insert(key.to_owned(), acted?);
        Ok(())
    }

    /// Writes the last checkpoint, if it may be written.
    async fn flush(&mut self) -> Result<(), ToolError> {
        if self.memory.begun.is_some() {
            return Ok(());
        }
        if let Some(value) = self.pending.take() {
            self.memory.write(self.context, value).await?;
            self.written = Some(Instant::now());
        }
        Ok(())
    }

    fn result_of(
        &self,
        text: Option<String>,
        structured: Option<Value>,
        error: bool,
    ) -> Result<CallToolResult, ToolError> {
        if error {
            let text = text.or_else(|| structured.map(|value| value.to_string()));
            return Ok(CallToolResult::error(text.unwrap_or_default()));
        }
        let Some(value) = structured else {
            if self.program.output == Output::Json {
                return Err(broken("its result must be \"structured\""));
            }
            return Ok(CallToolResult::text(text.unwrap_or_default()));
        };
        let mut result = self.program.structured(value)?;
        if let Some(text) = text {
            result.content = vec![Content::text(text)];
        }
        Ok(result)
    }
}
