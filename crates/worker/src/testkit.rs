//! Runs a tool without servers: a journal in memory, and a client that answers from a script.
//!
//! The tool runs as it would in a worker: from the top again after every question, with its
//! finished steps replayed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use protocol::meta::ClientCapabilities;
use protocol::progress::Progress;
use protocol::tools::CallToolResult;
use protocol::{TaskId, code};
use serde_json::{Value, json};
use store::{JournalEntry, JournalKind, ParkedFor, Principal, StepSpec};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::backend::{Backend, Begun, Ticket, Unreachable};
use crate::context::{About, Context};
use crate::error::ToolError;
use crate::tool::{Arguments, Tool};

/// Attempts after which a tool that keeps asking is given up.
const ATTEMPTS_MAX: i32 = 100;

/// A tool and the client that calls it.
pub struct Kit {
    tool: Arc<dyn Tool>,
    arguments: Value,
    capabilities: Value,
    answers: BTreeMap<String, Value>,
    journal: Vec<JournalEntry>,
}

/// What came of it.
#[derive(Debug)]
pub struct Run {
    outcome: Result<CallToolResult, ToolError>,
    world: World,
}

#[derive(Debug, Default)]
struct World {
    journal: Vec<JournalEntry>,
    acts: Vec<String>,
    asked: Vec<(String, Value)>,
    statuses: Vec<String>,
    progress: Vec<Progress>,
}

impl Kit {
    /// A call without arguments, by a client that declares tasks and every kind of input.
    pub fn new(tool: impl Tool) -> Self {
        Self::of(Arc::new(tool))
    }

    /// The same for a shared tool.
    #[must_use]
    pub fn of(tool: Arc<dyn Tool>) -> Self {
        Self {
            tool,
            arguments: json!({}),
            capabilities: json!({
                "elicitation": { "form": {}, "url": {} },
                "sampling": {},
                "roots": {},
                "extensions": { protocol::EXTENSION_TASKS: {} },
            }),
            answers: BTreeMap::new(),
            journal: Vec::new(),
        }
    }

    /// With these arguments.
    #[must_use]
    pub fn arguments(mut self, arguments: Value) -> Self {
        self.arguments = arguments;
        self
    }

    /// With these client capabilities.
    #[must_use]
    pub fn capabilities(mut self, capabilities: Value) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// The client's answer to a question, whenever it is asked.
    #[must_use]
    pub fn answer(mut self, key: &str, response: Value) -> Self {
        self.answers.insert(key.to_owned(), response);
        self
    }

    /// An earlier attempt finished this step.
    #[must_use]
    pub fn finished(mut self, key: &str, output: Value) -> Self {
        self.push(key, true, false, Some(output));
        self
    }

    /// An earlier attempt began this step, and its end is unknown.
    #[must_use]
    pub fn begun(mut self, key: &str) -> Self {
        self.push(key, false, false, None);
        self
    }

    fn push(&mut self, key: &str, done: bool, idempotent: bool, value: Option<Value>) {
        let seq = i32::try_from(self.journal.len()).unwrap_or(i32::MAX);
        let value = value.map(|value| Bytes::from(value.to_string()));
        let (kind, key) = (JournalKind::Step, key.to_owned());
        self.journal.push(JournalEntry {
            kind,
            key,
            seq,
            done,
            idempotent,
            value,
        });
    }

    /// Runs it until it ends, or asks something that the client has no answer to.
    pub async fn run(self) -> Run {
        let world = World {
            journal: self.journal.clone(),
            ..World::default()
        };
        let backend = Arc::new(KitBackend {
            world: Mutex::new(world),
            answers: self.answers.clone(),
        });
        let id = TaskId::new(0);
        let mut attempt = 0;
        let outcome = loop {
            attempt += 1;
            let outcome = match self.context(id, attempt, &backend) {
                Ok(mut context) => {
                    let arguments = Arguments::new(Bytes::from(self.arguments.to_string()));
                    self.tool.call(&mut context, arguments).await
                }
                Err(error) => Err(error),
            };
            let parked = outcome.as_ref().is_err_and(ToolError::is_parked);
            if !parked || !backend.answered() || attempt >= ATTEMPTS_MAX {
                break outcome;
            }
        };
        let world = std::mem::take(&mut *backend.lock());
        Run { outcome, world }
    }

    fn context(
        &self,
        id: TaskId,
        attempt: i32,
        backend: &Arc<KitBackend>,
    ) -> Result<Context, ToolError> {
        let capabilities = self.capabilities.to_string();
        let spec = self.tool.spec();
        let about = About {
            id,
            attempt,
            principal: Principal::verified("kit".to_owned(), "caller".to_owned(), None),
            capabilities: ClientCapabilities::parse(capabilities.as_bytes())
                .map_err(|error| ToolError::failed(code::INTERNAL_ERROR, error.to_string()))?,
            offered: None,
            policy: spec.policy,
            definition: spec.definition,
            step_bytes_max: 1024 * 1024,
        };
        let journal = backend.lock().journal.clone();
        let status = watch::Sender::new(String::new());
        let shared: Arc<dyn Backend> = Arc::<KitBackend>::clone(backend);
        Ok(Context::new(
            about,
            shared,
            journal,
            CancellationToken::new(),
            status,
        ))
    }
}

impl Run {
    /// The result, if there is one.
    ///
    /// # Errors
    /// How it ended instead.
    pub fn result(&self) -> Result<&CallToolResult, &ToolError> {
        self.outcome.as_ref()
    }

    /// Keys of the steps that acted, in order; replayed ones did not.
    #[must_use]
    pub fn acts(&self) -> Vec<&str> {
        self.world.acts.iter().map(String::as_str).collect()
    }

    /// The questions that were asked: key and request.
    #[must_use]
    pub fn asked(&self) -> &[(String, Value)] {
        &self.world.asked
    }

    /// The progress that was reported.
    #[must_use]
    pub fn progress(&self) -> &[Progress] {
        &self.world.progress
    }
}

struct KitBackend {
    world: Mutex<World>,
    answers: BTreeMap<String, Value>,
}

impl KitBackend {
    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether every question has an answer now.
    fn answered(&self) -> bool {
        self.lock()
            .journal
            .iter()
            .all(|e| e.kind == JournalKind::Step || e.done)
    }

    fn question(&self, question: &store::Question, response: Option<Bytes>) {
        let request = serde_json::from_slice(&question.request).unwrap_or_default();
        let mut world = self.lock();
        world.asked.push((question.key.clone(), request));
        world.journal.push(JournalEntry {
            kind: JournalKind::Input,
            key: question.key.clone(),
            seq: question.seq,
            done: response.is_some(),
            idempotent: false,
            value: response,
        });
    }
}

#[async_trait]
impl Backend for KitBackend {
    async fn begin_step(&self, step: StepSpec<'_>) -> Result<Begun, Unreachable> {
        let mut world = self.lock();
        world.acts.push(step.key.to_owned());
        world
            .journal
            .retain(|entry| entry.kind == JournalKind::Input || entry.key != step.key);
        world.journal.push(JournalEntry {
            kind: JournalKind::Step,
            key: step.key.to_owned(),
            seq: step.seq,
            done: false,
            idempotent: step.idempotent,
            value: None,
        });
        Ok(Begun::Act(Ticket::Kit(step.key.to_owned())))
    }

    async fn finish_step(&self, ticket: Ticket, output: &[u8]) -> Result<bool, Unreachable> {
        let Ticket::Kit(key) = ticket else {
            return Ok(false);
        };
        let mut world = self.lock();
        let entry = world
            .journal
            .iter_mut()
            .find(|e| e.kind == JournalKind::Step && e.key == key);
        if let Some(entry) = entry {
            entry.done = true;
            entry.value = Some(Bytes::copy_from_slice(output));
        }
        Ok(true)
    }

    async fn abandon_step(&self, ticket: Ticket) -> Result<bool, Unreachable> {
        let Ticket::Kit(key) = ticket else {
            return Ok(false);
        };
        self.lock()
            .journal
            .retain(|e| e.kind == JournalKind::Input || e.key != key);
        Ok(true)
    }

    async fn park(&self, _: ParkedFor, questions: &[store::Question]) -> Result<bool, Unreachable> {
        for question in questions {
            let response = self.answers.get(&question.key);
            self.question(
                question,
                response.map(|value| Bytes::from(value.to_string())),
            );
        }
        Ok(true)
    }

    async fn record_answer(
        &self,
        question: &store::Question,
        response: &[u8],
        _answered_by: &str,
    ) -> Result<bool, Unreachable> {
        self.lock().journal.push(JournalEntry {
            kind: JournalKind::Input,
            key: question.key.clone(),
            seq: question.seq,
            done: true,
            idempotent: false,
            value: Some(Bytes::copy_from_slice(response)),
        });
        Ok(true)
    }

    async fn status(&self, message: &str) -> Result<bool, Unreachable> {
        self.lock().statuses.push(message.to_owned());
        Ok(true)
    }

    async fn publish(&self, progress: &Progress) {
        self.lock().progress.push(progress.clone());
    }
}
