//! What a tool sees of its task: steps, questions, progress, and the wish that it stop.

mod ask;
mod callback;
mod recall;
mod reporter;

use std::sync::Arc;
use std::time::Duration;

use protocol::TaskId;
use protocol::code::reason;
use protocol::input::{InputKind, InputResponses};
use protocol::meta::ClientCapabilities;
use protocol::progress::Progress;
use protocol::tools::Tool as Definition;
use serde::Serialize;
use serde::de::DeserializeOwned;
use store::{JournalEntry, JournalKind, Principal, StepSpec, TaskSupport, ToolPolicy, UndoSpec};
use telemetry::TraceContext;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::backend::{Backend, Begun, Ticket, Unreachable};
use crate::callbacks::Callbacks;
use crate::error::{Ending, ToolError};
use crate::process::Commands;
use crate::replay::{Limits, Replay, drift};
use crate::step::{Step, StepInfo};
use crate::trace;

pub use self::callback::{Address, Callback, Doubt};
pub use self::recall::Recalled;
pub use self::reporter::Reporter;

/// Who runs what, for whom.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) id: TaskId,
    pub(crate) attempt: i32,
    pub(crate) principal: Principal,
    pub(crate) capabilities: ClientCapabilities,
    pub(crate) offered: Option<InputResponses>,
    pub(crate) policy: ToolPolicy,
    pub(crate) definition: Definition,
    pub(crate) limits: Limits,
    /// `None`: nothing is configured that services could call.
    pub(crate) callbacks: Option<Arc<Callbacks>>,
}

/// A task as its tool sees it.
pub struct Context {
    about: About,
    backend: Arc<dyn Backend>,
    stop: CancellationToken,
    commands: Commands,
    replay: Replay,
    reporter: Reporter,
}

/// Stands in the journal for the output of a step that acted and put out too much. No JSON, so
/// that nobody takes it for an output.
const NOT_KEPT: &[u8] = b"not kept";

/// Waits for `duration`, or until `stop` is cancelled.
///
/// # Errors
/// That the work shall stop. Inside a step this says that the act did not happen.
pub async fn pause(stop: &CancellationToken, duration: Duration) -> Result<(), ToolError> {
    tokio::select! {
        () = stop.cancelled() => Err(ToolError::stopped()),
        () = tokio::time::sleep(duration) => Ok(()),
    }
}

fn unreachable(error: &Unreachable) -> ToolError {
    tracing::warn!(error = ?error, "the journal cannot be reached: the tool stops before it acts");
    ToolError::retryable(error.to_string())
}

fn lost() -> ToolError {
    ToolError::stopped()
}

impl Context {
    pub(crate) fn new(
        about: About,
        backend: Arc<dyn Backend>,
        journal: Vec<JournalEntry>,
        stop: CancellationToken,
        status: watch::Sender<String>,
    ) -> Self {
        let replay = Replay::new(journal, about.limits);
        Self {
            reporter: Reporter::new(Arc::clone(&backend), status),
            about,
            backend,
            commands: Commands::alone(stop.clone()),
            stop,
            replay,
        }
    }

    /// The task.
    #[must_use]
    pub fn task_id(&self) -> TaskId {
        self.about.id
    }

    /// Which attempt this is, from 1. Nothing that steers the work may depend on it.
    #[must_use]
    pub fn attempt(&self) -> i32 {
        self.about.attempt
    }

    /// For whom the work is done.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.about.principal
    }

    /// What the client of the creating call can do.
    #[must_use]
    pub fn client(&self) -> &ClientCapabilities {
        &self.about.capabilities
    }

    /// Whether the client of the creating call declared the tasks extension.
    #[must_use]
    pub fn declared_tasks(&self) -> bool {
        self.about.capabilities.declares_tasks()
    }

    /// Whether a question of this kind can be put to the client of the creating call. A scheduled
    /// caller, which declares no way to answer, never parks a task: such a question is answered by
    /// its default, or fails the task (`-32021`, reason `cannot_ask`). A tool that can do without
    /// looks here first.
    #[must_use]
    pub fn can_ask(&self, kind: InputKind) -> bool {
        self.about.capabilities.supports(kind)
    }

    /// Whether the call is a task, or may become one.
    fn may_be_a_task(&self) -> bool {
        self.declared_tasks() && self.about.policy.task_support != TaskSupport::None
    }

    /// Cancelled when the work shall stop: on `tasks/cancel`, expiry, the work limit, a lost
    /// lease, or a drain whose time is up. After a grace period the tool's future is dropped.
    #[must_use]
    pub fn cancelled(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// The trace that the work belongs to, to send along to what the tool calls: of the step that
    /// acts, else of the attempt; of the call where this worker exports no spans. Commands get it
    /// as `TRACEPARENT`, `TRACESTATE` and `BAGGAGE`.
    #[must_use]
    pub fn trace_context(&self) -> TraceContext {
        self.commands.trace()
    }

    /// What runs external commands, and ends them with this attempt.
    #[must_use]
    pub fn commands(&self) -> Commands {
        self.commands.clone()
    }

    /// Waits, but not beyond the wish that the work stop. Inside a step use [`pause`] with
    /// [`Context::cancelled`].
    ///
    /// # Errors
    /// That the work shall stop: pass it on with `?`.
    pub async fn pause(&self, duration: Duration) -> Result<(), ToolError> {
        pause(&self.stop, duration).await
    }

    /// Says how the work goes: the task's `statusMessage`, and progress for a held call.
    /// Written at most four times a second; the last word is never lost. Silent while finished
    /// steps are replayed.
    pub async fn progress(&mut self, message: impl Into<String>) {
        // What a replay says again was said before.
        if !self.replay.is_behind() {
            self.reporter.progress(message).await;
        }
    }

    /// The same with numbers of the tool's own.
    pub async fn report(&mut self, progress: Progress) {
        if !self.replay.is_behind() {
            self.reporter.report(progress).await;
        }
    }

    /// What says how the work goes from inside a step, where the context is not at hand. Acts
    /// never happen in a replay, so whatever is said there is new.
    #[must_use]
    pub fn reporter(&self) -> Reporter {
        self.reporter.clone()
    }

    /// Does something externally visible, once: asks for permission, journals that it began,
    /// acts, and journals what came out. At a replay the journaled output is returned and
    /// nothing acts.
    ///
    /// A step that fails leaves nothing in the journal, so neither a step nor a question may
    /// follow it: at a replay it might succeed, and then both ways would have been gone. What
    /// the tool decides from belongs into the output, a `Result` for one.
    ///
    /// # Errors
    /// What the act returned; or that the work shall stop, that an earlier attempt's end is
    /// unknown, or that the journal disagrees. Pass all of them on with `?`.
    pub async fn step<T, F>(
        &mut self,
        step: Step<'_>,
        act: impl FnOnce(StepInfo) -> F + Send,
    ) -> Result<T, ToolError>
    where
        T: Serialize + DeserializeOwned + Send,
        F: Future<Output = Result<T, ToolError>> + Send,
    {
        let seq = self.next(JournalKind::Step, step.key)?;
        let replayed = self.replay.step(seq, step.key)?;
        if let Some(entry) = &replayed {
            if let Some(output) = entry.value.as_ref().filter(|_| entry.done) {
                return read_output(step.key, output);
            }
            if !step.idempotent {
                return Err(ToolError::in_doubt(step.key));
            }
        }
        if self.stop.is_cancelled() {
            return Err(ToolError::stopped());
        }
        let how = step.undo.as_ref().map(|undo| undo.how.to_string());
        let how_bytes = how.as_ref().map_or(0, String::len);
        self.replay.check_undo(step.key, how_bytes)?;
        if replayed.is_none() {
            let bytes = step.key.len() + how_bytes;
            self.replay.add(JournalKind::Step, step.key, bytes)?;
        }
        let spec = StepSpec {
            key: step.key,
            seq,
            idempotent: step.idempotent,
            undo: step
                .undo
                .as_ref()
                .zip(how.as_ref())
                .map(|(undo, how)| UndoSpec {
                    how: how.as_bytes(),
                    idempotent: undo.idempotent,
                }),
        };
        let span = trace::step(step.key, step.idempotent);
        let acting = Box::pin(self.act(&step, spec, act).instrument(span.clone()));
        let acted = acting.await;
        if let Err(error) = &acted {
            trace::failed(&span, error);
        }
        acted
    }

    /// The step is not in the journal, or may be repeated.
    async fn act<T, F>(
        &mut self,
        step: &Step<'_>,
        spec: StepSpec<'_>,
        act: impl FnOnce(StepInfo) -> F + Send,
    ) -> Result<T, ToolError>
    where
        T: Serialize + Send,
        F: Future<Output = Result<T, ToolError>> + Send,
    {
        let begun = self.backend.begin_step(spec).await;
        let ticket = match begun.map_err(|e| unreachable(&e))? {
            Begun::Act(ticket) => ticket,
            Begun::InDoubt => return Err(ToolError::in_doubt(step.key)),
            Begun::Stop => return Err(ToolError::stopped()),
        };
        let info = StepInfo {
            idempotency_key: format!("{}:{}", self.about.id, step.key),
            trace_context: self.trace_context(),
        };
        let output = match act(info).await {
            Ok(output) => output,
            Err(ToolError(Ending::Unknown(message))) if step.idempotent => {
                return Err(ToolError::retryable(message));
            }
            Err(ToolError(Ending::Unknown(message))) => {
                return Err(ToolError::in_doubt_after(step.key, &message));
            }
            Err(error) => {
                let abandoned = self.backend.abandon_step(ticket).await;
                abandoned.map_err(|e| unreachable(&e))?;
                self.replay.step_failed(step.key);
                return Err(error);
            }
        };
        match self.encode(step.key, &output) {
            Ok(bytes) => self.finish_step(ticket, &bytes).await.map(|()| output),
            Err(error) => {
                // It did act: it is finished all the same, so that what it did can be undone.
                self.finish_step(ticket, NOT_KEPT).await?;
                Err(error)
            }
        }
    }

    async fn finish_step(&self, ticket: Ticket, output: &[u8]) -> Result<(), ToolError> {
        let finished = self.backend.finish_step(ticket, output).await;
        if finished.map_err(|e| unreachable(&e))? {
            Ok(())
        } else {
            Err(lost())
        }
    }

    /// The next place in the journal, for an entry of this key.
    fn next(&mut self, kind: JournalKind, key: &str) -> Result<i32, ToolError> {
        let Some(failed) = self.replay.failed() else {
            return self.replay.next(kind, key);
        };
        if self.stop.is_cancelled() {
            return Err(ToolError::stopped());
        }
        let what = match kind {
            JournalKind::Step => "step",
            JournalKind::Input => "question",
            JournalKind::Callback => "callback",
        };
        Err(ToolError::refused(format!(
            "{what} \"{key}\" comes after step \"{failed}\" has failed, of which the journal \
             knows nothing: end the try, or put what may go wrong into the step's output"
        )))
    }

    /// The tool has a result: nothing may be left in its journal that it did not come to.
    pub(crate) fn finish(&self) -> Result<(), ToolError> {
        self.replay.finish()
    }

    fn encode<T: Serialize>(&mut self, key: &str, output: &T) -> Result<Vec<u8>, ToolError> {
        let bytes = serde_json::to_vec(output)
            .map_err(|error| ToolError::refused(format!("output of step \"{key}\": {error}")))?;
        self.replay.take_output(key, bytes.len())?;
        Ok(bytes)
    }

    /// The tool's own definition, as it is listed.
    #[must_use]
    pub fn definition(&self) -> &Definition {
        &self.about.definition
    }
}

fn read_output<T: DeserializeOwned>(key: &str, output: &[u8]) -> Result<T, ToolError> {
    if output == NOT_KEPT {
        let message = format!("output of step \"{key}\" was too large to be kept");
        return Err(ToolError::reason(reason::JOURNAL_FULL, message));
    }
    serde_json::from_slice(output).map_err(|error| {
        drift(format!(
            "the journaled output of step \"{key}\" does not fit: {error}"
        ))
    })
}
