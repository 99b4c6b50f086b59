//! Runs a tool without servers: a journal in memory, and a client that answers from a script.
//!
//! The tool runs as it would in a worker: from the top again after every question, with its
//! finished steps replayed; and what they did is undone when it ends without a result.

mod backend;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use protocol::meta::ClientCapabilities;
use protocol::progress::Progress;
use protocol::tools::CallToolResult;
use protocol::{TaskId, code};
use serde_json::{Value, json};
use store::{JournalEntry, JournalKind, Principal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::backend::{KitBackend, entry};
use crate::backend::Backend;
use crate::compensate::{Verdict, verdict};
use crate::config::Config;
use crate::context::{About, Context};
use crate::drive::Work;
use crate::error::ToolError;
use crate::process::Commands;
use crate::replay::Limits;
use crate::tool::{Arguments, Tool, call};
use crate::undo::Undoing;

/// Attempts after which a tool that keeps asking is given up.
const ATTEMPTS_MAX: i32 = 100;

/// A tool and the client that calls it.
pub struct Kit {
    tool: Arc<dyn Tool>,
    arguments: Value,
    capabilities: Value,
    answers: BTreeMap<String, Value>,
    journal: Vec<JournalEntry>,
    cancel_at: Option<String>,
    stop: CancellationToken,
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
    undos: BTreeMap<String, Declared>,
    undone: Vec<String>,
    not_undone: Vec<(String, String)>,
}

/// An undo that a step declared.
#[derive(Clone, Debug)]
struct Declared {
    how: Bytes,
    idempotent: bool,
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
            cancel_at: None,
            stop: CancellationToken::new(),
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

    /// The client cancels just before the tool comes to the step or question of this key.
    #[must_use]
    pub fn cancel_at(mut self, key: &str) -> Self {
        self.cancel_at = Some(key.to_owned());
        self
    }

    /// The client cancels when this is cancelled, for one in the middle of a step.
    #[must_use]
    pub fn stopped_by(mut self, stop: CancellationToken) -> Self {
        self.stop = stop;
        self
    }

    fn push(&mut self, key: &str, done: bool, idempotent: bool, value: Option<Value>) {
        let seq = i32::try_from(self.journal.len()).unwrap_or(i32::MAX);
        let value = value.map(|value| Bytes::from(value.to_string()));
        self.journal.push(JournalEntry {
            done,
            idempotent,
            ..entry(JournalKind::Step, key, seq, value)
        });
    }

    /// Runs it until it ends, asks something that the client has no answer to, or wants another
    /// try. When it ends without a result, its finished steps are undone.
    pub async fn run(self) -> Run {
        let world = World {
            journal: self.journal.clone(),
            ..World::default()
        };
        let backend = Arc::new(KitBackend {
            world: Mutex::new(world),
            answers: self.answers.clone(),
            cancel_at: self.cancel_at.clone(),
        });
        let id = TaskId::new(0);
        let mut attempt = 0;
        let outcome = loop {
            attempt += 1;
            let outcome = match self.context(id, attempt, &backend) {
                Ok(mut context) => {
                    let arguments = Arguments::new(Bytes::from(self.arguments.to_string()));
                    call(&*self.tool, &mut context, arguments).await
                }
                Err(error) => Err(error),
            };
            let parked = outcome.as_ref().is_err_and(ToolError::is_parked);
            if !parked || !backend.answered() || attempt >= ATTEMPTS_MAX {
                break outcome;
            }
        };
        if let Err(error) = &outcome
            && !error.is_parked()
            && !error.is_retryable()
        {
            self.undo(id, &backend).await;
        }
        let world = std::mem::take(&mut *backend.lock());
        Run { outcome, world }
    }

    /// Undoes the finished steps that declared how, the last one first.
    async fn undo(&self, id: TaskId, backend: &KitBackend) {
        let (mut finished, undos) = {
            let world = backend.lock();
            let finished = world.journal.iter().filter(|entry| entry.done);
            (finished.cloned().collect::<Vec<_>>(), world.undos.clone())
        };
        finished.sort_by_key(|entry| std::cmp::Reverse(entry.seq));
        for entry in finished {
            let declared = undos.get(&entry.key);
            let Some(declared) = declared.filter(|_| entry.kind == JournalKind::Step) else {
                continue;
            };
            let undone = self.undo_step(id, &entry, declared).await;
            let mut world = backend.lock();
            match undone {
                Ok(()) => world.undone.push(entry.key),
                Err(why) => world.not_undone.push((entry.key, why)),
            }
        }
    }

    /// Without a pause between tries.
    async fn undo_step(
        &self,
        id: TaskId,
        entry: &JournalEntry,
        declared: &Declared,
    ) -> Result<(), String> {
        let policy = self.tool.spec().policy;
        let mut tries = 0;
        loop {
            tries += 1;
            let mut undoing = Undoing {
                task_id: id,
                principal: caller(),
                arguments: Arguments::new(Bytes::from(self.arguments.to_string())),
                step: entry.key.clone(),
                how: declared.how.clone(),
                output: entry.value.clone().unwrap_or_default(),
                tries,
                stop: CancellationToken::new(),
                commands: Commands::alone(CancellationToken::new()),
            };
            let ended = Work::Ended(self.tool.undo(&mut undoing).await);
            match verdict(ended, &policy, declared.idempotent) {
                Verdict::Undone => return Ok(()),
                Verdict::GiveUp(why) => return Err(why),
                Verdict::Again(why) if tries >= i32::from(policy.undo_tries_max) => {
                    return Err(why);
                }
                Verdict::Again(_) => {}
            }
        }
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
            principal: caller(),
            capabilities: ClientCapabilities::parse(capabilities.as_bytes())
                .map_err(|error| ToolError::failed(code::INTERNAL_ERROR, error.to_string()))?,
            offered: None,
            policy: spec.policy,
            definition: spec.definition,
            limits: Limits::from(&Config::default()),
        };
        let journal = backend.lock().journal.clone();
        let status = watch::Sender::new(String::new());
        let shared: Arc<dyn Backend> = Arc::<KitBackend>::clone(backend);
        Ok(Context::new(
            about,
            shared,
            journal,
            self.stop.clone(),
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

    /// Keys of the steps that were undone, in order.
    #[must_use]
    pub fn undone(&self) -> Vec<&str> {
        self.world.undone.iter().map(String::as_str).collect()
    }

    /// Steps that could not be undone: key and why.
    #[must_use]
    pub fn not_undone(&self) -> &[(String, String)] {
        &self.world.not_undone
    }

    /// The progress that was reported.
    #[must_use]
    pub fn progress(&self) -> &[Progress] {
        &self.world.progress
    }
}

fn caller() -> Principal {
    Principal::verified("kit".to_owned(), "caller".to_owned(), None)
}
