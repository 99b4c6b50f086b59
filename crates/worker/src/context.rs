//! What a tool sees of its task: steps, questions, progress, and the wish that it stop.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::input::{InputKind, InputResponses};
use protocol::meta::ClientCapabilities;
use protocol::progress::Progress;
use protocol::tools::Tool as Definition;
use protocol::{TaskId, code};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use store::{JournalEntry, JournalKind, ParkedFor, Principal, StepSpec, ToolPolicy};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::backend::{Backend, Begun, Unreachable};
use crate::error::{Ending, ToolError};
use crate::question::{Answers, Elicited, Question};

/// A named, externally visible act. Its key is unique in the task.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    key: &'a str,
    idempotent: bool,
}

impl<'a> Step<'a> {
    /// An act that must not be repeated when its end is unknown.
    #[must_use]
    pub fn new(key: &'a str) -> Self {
        Self {
            key,
            idempotent: false,
        }
    }

    /// An act that may be repeated with the same [`StepInfo::idempotency_key`].
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }
}

/// What an act is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepInfo {
    /// `task_id:step`, the same at every attempt: hand it to the outside.
    pub idempotency_key: String,
}

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
    pub(crate) step_bytes_max: usize,
}

/// A task as its tool sees it.
pub struct Context {
    about: About,
    backend: Arc<dyn Backend>,
    stop: CancellationToken,
    journal: BTreeMap<i32, Vec<JournalEntry>>,
    position: i32,
    /// Keys used in this run; a step and a question may share one.
    keys: BTreeSet<(&'static str, String)>,
    status: watch::Sender<String>,
    reports: u64,
    /// A step that said it did not take effect: the journal knows nothing of it.
    failed: Option<String>,
}

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
        let mut by_seq: BTreeMap<i32, Vec<JournalEntry>> = BTreeMap::new();
        for entry in journal {
            by_seq.entry(entry.seq).or_default().push(entry);
        }
        Self {
            about,
            backend,
            stop,
            journal: by_seq,
            position: 0,
            keys: BTreeSet::new(),
            status,
            reports: 0,
            failed: None,
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

    /// Cancelled when the work shall stop: on `tasks/cancel`, expiry, the work limit, a lost
    /// lease, or a drain whose time is up. After a grace period the tool's future is dropped.
    #[must_use]
    pub fn cancelled(&self) -> CancellationToken {
        self.stop.clone()
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
        self.reports += 1;
        let report = Progress::new(self.reports).with_message(message);
        self.report(report).await;
    }

    /// The same with numbers of the tool's own.
    pub async fn report(&mut self, progress: Progress) {
        // What a replay says again was said before.
        let last = self.journal.keys().next_back();
        if last.is_some_and(|last| self.position <= *last) {
            return;
        }
        if let Some(message) = &progress.message {
            self.status.send_replace(message.clone());
        }
        self.backend.publish(&progress).await;
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
        let seq = self.next("step", step.key)?;
        if let Some(entry) = self.replayed_step(seq, step)? {
            if let Some(output) = entry.value.filter(|_| entry.done) {
                return serde_json::from_slice(&output).map_err(|error| {
                    drift(format!(
                        "the journaled output of step \"{}\" does not fit: {error}",
                        step.key
                    ))
                });
            }
            if !step.idempotent {
                return Err(ToolError::in_doubt(step.key));
            }
        }
        if self.stop.is_cancelled() {
            return Err(ToolError::stopped());
        }
        let spec = StepSpec {
            key: step.key,
            seq,
            idempotent: step.idempotent,
        };
        let ticket = match self
            .backend
            .begin_step(spec)
            .await
            .map_err(|e| unreachable(&e))?
        {
            Begun::Act(ticket) => ticket,
            Begun::InDoubt => return Err(ToolError::in_doubt(step.key)),
            Begun::Stop => return Err(ToolError::stopped()),
        };
        let info = StepInfo {
            idempotency_key: format!("{}:{}", self.about.id, step.key),
        };
        let output = match act(info).await {
            Ok(output) => output,
            Err(ToolError(Ending::Unknown(message))) if step.idempotent => {
                return Err(ToolError::retryable(message));
            }
            Err(ToolError(Ending::Unknown(_))) => return Err(ToolError::in_doubt(step.key)),
            Err(error) => {
                self.backend
                    .abandon_step(ticket)
                    .await
                    .map_err(|e| unreachable(&e))?;
                self.failed = Some(step.key.to_owned());
                return Err(error);
            }
        };
        let bytes = self.encode(step.key, &output)?;
        if self
            .backend
            .finish_step(ticket, &bytes)
            .await
            .map_err(|e| unreachable(&e))?
        {
            Ok(output)
        } else {
            Err(lost())
        }
    }

    /// Asks a form and waits for its answer: the job ends here, and starts again from the top
    /// when it is answered.
    ///
    /// # Errors
    /// As [`Context::ask`].
    pub async fn elicit<T: DeserializeOwned>(
        &mut self,
        key: &str,
        message: &str,
        schema: Value,
    ) -> Result<Elicited<T>, ToolError> {
        self.ask(vec![Question::elicit(key, message, schema)])
            .await?
            .elicited(key)
    }

    /// Asks several questions at once and waits until all are answered.
    ///
    /// # Errors
    /// That the job ended to wait (pass it on with `?`); that the work shall stop; `-32021` when
    /// the client cannot be asked and the question has no default; that the journal disagrees.
    pub async fn ask(&mut self, questions: Vec<Question>) -> Result<Answers, ToolError> {
        self.ask_for(ParkedFor::Task, questions).await
    }

    /// Asks before the task exists: the caller of `tools/call` is asked and repeats its call with
    /// the answers. The tool's policy must say `asks_first`.
    ///
    /// # Errors
    /// As [`Context::ask`].
    pub async fn ask_first(&mut self, questions: Vec<Question>) -> Result<Answers, ToolError> {
        self.ask_for(ParkedFor::Caller, questions).await
    }

    async fn ask_for(
        &mut self,
        parked_for: ParkedFor,
        questions: Vec<Question>,
    ) -> Result<Answers, ToolError> {
        let Some(first) = questions.first() else {
            return Ok(Answers::default());
        };
        let seq = self.next("question", &first.key)?;
        for question in &questions[1..] {
            self.claim_key("question", &question.key)?;
        }
        let mut answers = self.replayed_answers(seq, &questions)?;
        let mut open = Vec::new();
        for question in &questions {
            if answers.contains_key(&question.key) {
                continue;
            }
            let stored = self.stored(seq, question)?;
            match self.without_asking(parked_for, question, &stored)? {
                Some((response, answered_by)) => {
                    let recorded = self
                        .backend
                        .record_answer(&stored, response.get().as_bytes(), answered_by)
                        .await;
                    if !recorded.map_err(|e| unreachable(&e))? {
                        return Err(lost());
                    }
                    answers.insert(question.key.clone(), response);
                }
                None => open.push(stored),
            }
        }
        if open.is_empty() {
            return Ok(Answers(answers));
        }
        // The last word before the silence.
        let said = self.status.borrow().clone();
        if !said.is_empty() {
            self.backend
                .status(&said)
                .await
                .map_err(|e| unreachable(&e))?;
        }
        if self
            .backend
            .park(parked_for, &open)
            .await
            .map_err(|e| unreachable(&e))?
        {
            Err(ToolError::parked())
        } else {
            Err(ToolError::stopped())
        }
    }

    /// An answer that needs no asking, and where it comes from.
    fn without_asking(
        &self,
        parked_for: ParkedFor,
        question: &Question,
        stored: &store::Question,
    ) -> Result<Option<(Box<RawValue>, &'static str)>, ToolError> {
        if parked_for == ParkedFor::Caller
            && let Some(offered) = self
                .about
                .offered
                .as_ref()
                .and_then(|o| o.get(&question.key))
        {
            let request = question.request.to_raw();
            if protocol::input::validate_response(&request, offered).is_ok() {
                return Ok(Some((offered.to_owned(), "offered")));
            }
        }
        let kind = question.kind();
        let supported = kind.is_some_and(|kind| self.about.capabilities.supports(kind));
        if supported && (!question.task_only || self.declared_tasks()) {
            return Ok(None);
        }
        match &stored.default_response {
            Some(default) => {
                let text = String::from_utf8_lossy(default).into_owned();
                let default = RawValue::from_string(text)
                    .map_err(|e| ToolError::failed(code::INTERNAL_ERROR, e.to_string()))?;
                Ok(Some((default, "default")))
            }
            None => Err(cannot_ask(&question.key, kind)),
        }
    }

    fn stored(&self, seq: i32, question: &Question) -> Result<store::Question, ToolError> {
        question.request.check().map_err(|problem| {
            ToolError::failed(
                code::INTERNAL_ERROR,
                format!("question \"{}\": {problem}", question.key),
            )
        })?;
        Ok(store::Question {
            key: question.key.clone(),
            seq,
            request: Bytes::from(question.request.to_raw().get().to_owned()),
            default_response: question
                .default
                .as_ref()
                .map(|d| Bytes::from(d.to_string())),
            wait: question
                .wait
                .unwrap_or(self.about.policy.input_deadline)
                .max(Duration::from_millis(1)),
        })
    }

    /// The next place in the journal, for an entry of this key.
    fn next(&mut self, kind: &'static str, key: &str) -> Result<i32, ToolError> {
        if let Some(failed) = &self.failed {
            if self.stop.is_cancelled() {
                return Err(ToolError::stopped());
            }
            let message = format!(
                "{kind} \"{key}\" comes after step \"{failed}\" has failed, of which the journal \
                 knows nothing: end the try, or put what may go wrong into the step's output"
            );
            return Err(ToolError::failed(code::INTERNAL_ERROR, message));
        }
        self.claim_key(kind, key)?;
        let seq = self.position;
        self.position += 1;
        Ok(seq)
    }

    fn claim_key(&mut self, kind: &'static str, key: &str) -> Result<(), ToolError> {
        if key.is_empty() || key.len() > 200 {
            return Err(drift(format!(
                "the key \"{key}\" is not between 1 and 200 bytes long"
            )));
        }
        if self.keys.insert((kind, key.to_owned())) {
            Ok(())
        } else {
            Err(drift(format!("{kind} \"{key}\" comes twice")))
        }
    }

    fn replayed_step(&self, seq: i32, step: Step<'_>) -> Result<Option<JournalEntry>, ToolError> {
        let Some(entries) = self.journal.get(&seq) else {
            return Ok(None);
        };
        match entries.as_slice() {
            [entry] if entry.kind == JournalKind::Step && entry.key == step.key => {
                Ok(Some(entry.clone()))
            }
            others => Err(drift(format!(
                "the tool comes to step \"{}\" where its journal holds {}",
                step.key,
                describe(others)
            ))),
        }
    }

    fn replayed_answers(
        &self,
        seq: i32,
        questions: &[Question],
    ) -> Result<BTreeMap<String, Box<RawValue>>, ToolError> {
        let mut answers = BTreeMap::new();
        for entry in self.journal.get(&seq).into_iter().flatten() {
            let asked = questions.iter().any(|question| question.key == entry.key);
            if entry.kind != JournalKind::Input || !asked {
                let keys: Vec<&str> = questions.iter().map(|q| q.key.as_str()).collect();
                return Err(drift(format!(
                    "the tool asks {keys:?} where its journal holds {}",
                    describe(std::slice::from_ref(entry))
                )));
            }
            let answer = entry.value.as_ref().and_then(|value| {
                RawValue::from_string(String::from_utf8_lossy(value).into_owned()).ok()
            });
            let Some(answer) = answer else {
                return Err(drift(format!(
                    "question \"{}\" has no answer yet",
                    entry.key
                )));
            };
            answers.insert(entry.key.clone(), answer);
        }
        Ok(answers)
    }

    fn encode<T: Serialize>(&self, key: &str, output: &T) -> Result<Vec<u8>, ToolError> {
        let bytes = serde_json::to_vec(output).map_err(|error| {
            ToolError::failed(
                code::INTERNAL_ERROR,
                format!("output of step \"{key}\": {error}"),
            )
        })?;
        let max = self.about.step_bytes_max;
        if bytes.len() > max {
            return Err(ToolError::failed(
                code::INTERNAL_ERROR,
                format!(
                    "output of step \"{key}\" is {} bytes long; {max} are allowed",
                    bytes.len()
                ),
            ));
        }
        Ok(bytes)
    }

    /// The tool's own definition, as it is listed.
    #[must_use]
    pub fn definition(&self) -> &Definition {
        &self.about.definition
    }
}

fn describe(entries: &[JournalEntry]) -> String {
    let words: Vec<String> = entries
        .iter()
        .map(|entry| match entry.kind {
            JournalKind::Step => format!("step \"{}\"", entry.key),
            JournalKind::Input => format!("question \"{}\"", entry.key),
        })
        .collect();
    words.join(", ")
}

fn drift(message: String) -> ToolError {
    ToolError::reason("journal_drift", message)
}

fn cannot_ask(key: &str, kind: Option<InputKind>) -> ToolError {
    let required = kind.map(InputKind::required_capability).unwrap_or_default();
    ToolError::failed_with(
        code::MISSING_CAPABILITY,
        format!("question \"{key}\" cannot be asked: the client did not declare the capability"),
        json!({ "requiredCapabilities": required }),
    )
}
