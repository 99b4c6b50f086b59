//! A program as a tool: how a call becomes a command line, and how its end becomes a result.
//!
//! Without a protocol the whole run is one act: free to be repeated, or one step of the journal.
//! With one, the program itself says what its steps are ([`script`]).

mod ask;
mod message;
mod prepare;
pub(crate) mod result;
mod script;
mod undo;
mod wire;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use worker::process::{Command, Commands, Error};
use worker::{Arguments, CallToolResult, Context, Step, Tool, ToolError, ToolSpec, Undoing};

pub use message::lines;

use prepare::{Names, Refused};

/// What a run does outside, and so what follows when its end is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effects {
    /// Nothing: it is repeated.
    None,
    /// Repeating it changes nothing more, because it hands on its idempotency key, for one.
    Repeatable,
    /// It must not be repeated.
    Once,
}

/// What standard output is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Text,
    Json,
}

/// Where the line protocol is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    Stdout,
    Fd3,
}

/// A program, as a tools file describes it.
pub(crate) struct Program {
    pub(crate) spec: ToolSpec,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// Arguments of the call, and their flags.
    pub(crate) flags: Vec<(String, String)>,
    pub(crate) positional: Vec<String>,
    /// Before the positional ones; empty for none.
    pub(crate) separator: String,
    pub(crate) stdin: bool,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) secret_env: Vec<(String, PathBuf)>,
    pub(crate) dir: PathBuf,
    pub(crate) output: Output,
    pub(crate) output_schema: Option<jsonschema::Validator>,
    pub(crate) channel: Option<Channel>,
    pub(crate) effects: Effects,
    pub(crate) grace: Option<Duration>,
    pub(crate) memory_bytes_max: Option<u64>,
    pub(crate) output_bytes_max: usize,
    pub(crate) retry_exit_codes: Vec<u8>,
}

/// The step that the whole run is.
const RUN: &str = "run";

/// What a run left behind.
#[derive(Debug, Serialize, Deserialize)]
struct Ended {
    code: Option<i32>,
    signal: Option<i32>,
    /// As it was written; what is no UTF-8 is lost only in a text.
    #[serde(with = "result::text_or_bytes")]
    stdout: Vec<u8>,
    /// How much was written, if it is more than was kept.
    cut_of: Option<u64>,
    /// The last part of standard error.
    stderr: String,
}

#[worker::async_trait]
impl Tool for Program {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    async fn call(
        &self,
        context: &mut Context,
        arguments: Arguments,
    ) -> Result<CallToolResult, ToolError> {
        if let Some(channel) = self.channel {
            return script::call(self, channel, context, &arguments).await;
        }
        let task = context.task_id().to_string();
        let names = Names {
            task: &task,
            attempt: context.attempt(),
            key: format!("{task}:{RUN}"),
            principal: context.principal(),
        };
        let prepared = match self.prepare(&arguments, &names) {
            Ok(prepared) => prepared,
            Err(Refused(why)) => return Ok(CallToolResult::error(why)),
        };
        let stdin = if self.stdin { arguments.as_json() } else { b"" };
        let command = prepared.command.stdin(stdin.to_vec());
        let commands = context.commands();
        let run = Run {
            program: self,
            secrets: &prepared.secrets,
        };
        let ended = match self.effects {
            Effects::None => run.once(command.interruptible(), &commands).await?,
            Effects::Repeatable => {
                let step = Step::new(RUN).idempotent();
                let acted = context.step(step, |_| run.once(command, &commands));
                acted.await?
            }
            Effects::Once => {
                let acted = context.step(Step::new(RUN), |_| run.once(command, &commands));
                acted.await?
            }
        };
        self.result(&ended)
    }

    async fn undo(&self, undoing: &mut Undoing) -> Result<(), ToolError> {
        // Without the protocol no step declares an undo; a file that was changed since may lack it.
        let Some(channel) = self.channel else {
            let why = "its tool speaks no line protocol any more: nobody can undo that step";
            return Err(ToolError::failed(result::INTERNAL, why));
        };
        undo::undo(self, channel, undoing).await
    }
}

struct Run<'a> {
    program: &'a Program,
    /// Not to be seen in what is told.
    secrets: &'a [String],
}

impl Run<'_> {
    /// Runs it. An error says that nothing happened, or that nobody knows.
    async fn once(&self, command: Command, commands: &Commands) -> Result<Ended, ToolError> {
        let free = self.program.effects == Effects::None;
        // One that acts is read to its end instead, so that nobody has to wonder how far it came.
        let command = if free {
            command.stop_when_full()
        } else {
            command
        };
        let output = match command.run(commands).await {
            Ok(output) => output,
            Err(Error::Stopped { output, .. }) if free && output.stdout.is_cut() => *output,
            Err(error) => return Err(error.into()),
        };
        let ended = self.program.ended(&output, self.secrets);
        if self.program.asks_for_another_try(&output) {
            return Err(ToolError::retryable(result::failure(&ended)));
        }
        Ok(ended)
    }
}
