//! Runs a tool without servers: a journal in memory, and a client that answers from a script.
//!
//! The tool runs as it would in a worker: from the top again after every question, with its
//! finished steps replayed; and what they did is undone when it ends without a result.
//!
//! - [`Kit::simulate`] runs the whole life of a task: tries with their backoff, deadlines and
//!   defaults of questions, the work limit, lost workers. All of its time is Tokio's, so a test
//!   that pauses Tokio's clock has a fake one: a day passes in no time, and
//!   [`Run::elapsed`] says that it did.
//! - [`Kit::run`] stops where a worker would give the job another try, and knows no limits: for
//!   a tool that speaks to real programs, whose time cannot be faked.
//!
//! ```
//! # use mcp_tasks_worker as worker;
//! use std::time::Duration;
//! use serde_json::json;
//! use worker::testkit::Kit;
//! # use worker::{Arguments, CallToolResult, Context, Definition, Question, Step, Tool, ToolError, ToolSpec};
//! # struct Deploy;
//! # #[worker::async_trait]
//! # impl Tool for Deploy {
//! #     fn spec(&self) -> ToolSpec {
//! #         ToolSpec::new(Definition::new("deploy", &json!({ "type": "object" })))
//! #     }
//! #     async fn call(&self, context: &mut Context, _: Arguments) -> Result<CallToolResult, ToolError> {
//! #         context.step(Step::new("build").idempotent(), |_| async move { Ok(()) }).await?;
//! #         let schema = json!({ "type": "object", "properties": { "go": { "type": "boolean" } } });
//! #         let question = Question::elicit("approve", "Deploy?", schema)
//! #             .wait(Duration::from_secs(3600))
//! #             .default_content(json!({ "go": false }));
//! #         let answers = context.ask(vec![question]).await?;
//! #         let go = answers.elicited::<serde_json::Value>("approve")?;
//! #         if go.accepted().is_some_and(|answer| answer["go"] == true) {
//! #             context.step(Step::new("deploy"), |_| async move { Ok(()) }).await?;
//! #         }
//! #         Ok(CallToolResult::text("done"))
//! #     }
//! # }
//! # let runtime = tokio::runtime::Builder::new_current_thread()
//! #     .enable_all()
//! #     .start_paused(true)
//! #     .build()
//! #     .unwrap();
//! # runtime.block_on(async {
//! // In a test: #[tokio::test(start_paused = true)], with Tokio's feature `test-util`.
//! let hour = Duration::from_secs(3600);
//!
//! // Nobody answers: after an hour the question's default is taken, and nothing is deployed.
//! let run = Kit::new(Deploy).silent("approve").simulate().await;
//! assert_eq!(run.status(), "completed");
//! assert_eq!(run.acts(), ["build"]);
//! assert!(run.elapsed() >= hour);
//!
//! // The worker dies just after it has built: another goes on, and does not build again.
//! let yes = json!({ "action": "accept", "content": { "go": true } });
//! let kit = Kit::new(Deploy).answer_after("approve", hour / 2, yes);
//! let run = kit.lost_after("build").simulate().await;
//! assert_eq!(run.acts(), ["build", "deploy"]);
//! assert_eq!(run.tries().len(), 1);
//! # });
//! ```

mod backend;
mod life;
mod run;
mod undoing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::completion::CompleteParams;
use protocol::meta::ClientCapabilities;
use protocol::progress::Progress;
use protocol::{TaskId, code};
use serde_json::{Value, json};
use store::{Asked, JournalEntry, JournalKind, Principal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use self::run::{Run, Try};

use self::backend::{KitBackend, entry};
use self::life::Life;
use crate::backend::Backend;
use crate::config::Config;
use crate::context::{About, Context};
use crate::error::ToolError;
use crate::provider::{Job, PromptArguments, Provider};
use crate::replay::Limits;
use crate::tool::{Tool, ToolSet};

/// A tool and the client that calls it.
#[must_use = "nothing runs before `run` or `simulate`"]
pub struct Kit {
    tool: Arc<dyn Tool>,
    arguments: Value,
    capabilities: Value,
    answers: BTreeMap<String, Scripted>,
    journal: Vec<JournalEntry>,
    undos: BTreeMap<String, Declared>,
    questions: BTreeMap<String, store::Question>,
    cancel_at: Option<String>,
    cancel_after: Option<Duration>,
    losses: Vec<Loss>,
    stop: CancellationToken,
}

/// What the client does with a question.
#[derive(Clone, Debug)]
struct Scripted {
    /// So long after it was asked.
    after: Duration,
    /// `None`: nothing, until its deadline has passed.
    response: Option<Value>,
}

/// Where a worker is lost, once.
#[derive(Clone, Debug, PartialEq)]
enum Loss {
    /// In the act of this step, which may have taken effect.
    In(String),
    /// When the step had finished and was journaled.
    After(String),
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
    /// Questions by their keys.
    questions: BTreeMap<String, store::Question>,
    tries: Vec<Try>,
    losses: Vec<Loss>,
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
            undos: BTreeMap::new(),
            questions: BTreeMap::new(),
            cancel_at: None,
            cancel_after: None,
            losses: Vec::new(),
            stop: CancellationToken::new(),
        }
    }

    /// A resource of a provider, read.
    pub fn reading(provider: Arc<dyn Provider>, uri: impl Into<String>) -> Self {
        Self::asking(provider, &Asked::Read { uri: uri.into() })
    }

    /// A prompt of a provider, filled in.
    pub fn prompting(
        provider: Arc<dyn Provider>,
        name: impl Into<String>,
        arguments: PromptArguments,
    ) -> Self {
        let name = name.into();
        Self::asking(provider, &Asked::Prompt { name, arguments })
    }

    /// A value that a provider completes.
    pub fn completing(provider: Arc<dyn Provider>, asked: CompleteParams) -> Self {
        Self::asking(provider, &Asked::Complete(asked))
    }

    fn asking(provider: Arc<dyn Provider>, asked: &Asked) -> Self {
        let job = Job::new(provider.spec(), provider);
        let arguments = serde_json::to_value(asked).unwrap_or_default();
        Self::of(Arc::new(job)).arguments(arguments)
    }

    /// With these arguments.
    pub fn arguments(mut self, arguments: Value) -> Self {
        self.arguments = arguments;
        self
    }

    /// With these client capabilities.
    pub fn capabilities(mut self, capabilities: Value) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// The client's answer to a question, as soon as it is asked: the whole response, `action`
    /// and `content` for a form.
    pub fn answer(self, key: &str, response: Value) -> Self {
        self.answer_after(key, Duration::ZERO, response)
    }

    /// The same so long after it was asked. [`Kit::run`] does not wait.
    pub fn answer_after(mut self, key: &str, after: Duration, response: Value) -> Self {
        let response = Some(response);
        let scripted = Scripted { after, response };
        self.answers.insert(key.to_owned(), scripted);
        self
    }

    /// The client never answers this question: its deadline passes, and its default is taken or
    /// its task fails. In [`Kit::run`] the task waits for ever.
    pub fn silent(mut self, key: &str) -> Self {
        let scripted = Scripted {
            after: Duration::MAX,
            response: None,
        };
        self.answers.insert(key.to_owned(), scripted);
        self
    }

    /// An earlier attempt finished this step.
    pub fn finished(mut self, key: &str, output: Value) -> Self {
        self.push(key, true, false, Some(output));
        self
    }

    /// An earlier attempt began this step, and its end is unknown.
    pub fn begun(mut self, key: &str) -> Self {
        self.push(key, false, false, None);
        self
    }

    /// The client cancels just before the tool comes to the step or question of this key.
    pub fn cancel_at(mut self, key: &str) -> Self {
        self.cancel_at = Some(key.to_owned());
        self
    }

    /// The client cancels when this much time has passed, whatever the tool is at: in
    /// [`Kit::simulate`] only.
    pub fn cancel_after(mut self, after: Duration) -> Self {
        self.cancel_after = Some(after);
        self
    }

    /// The worker is lost in the middle of this step: the act was carried out, and nobody knows.
    /// Happens once; the next attempt is another worker's.
    pub fn lost_in(mut self, key: &str) -> Self {
        self.losses.push(Loss::In(key.to_owned()));
        self
    }

    /// The worker is lost just after this step has finished. Happens once; the next attempt is
    /// another worker's, which finds the step's output in the journal.
    pub fn lost_after(mut self, key: &str) -> Self {
        self.losses.push(Loss::After(key.to_owned()));
        self
    }

    /// Goes on from where another run has ended, as a task does whose tool was deployed anew:
    /// steps, their undos and answers are in the journal. Whether a changed tool still fits the
    /// journals of the one before (`resumes` of its [`crate::ToolSpec`]) is tested so.
    pub fn after(mut self, run: &Run) -> Self {
        self.journal.clone_from(&run.world.journal);
        self.undos.clone_from(&run.world.undos);
        self.questions.clone_from(&run.world.questions);
        self
    }

    /// The client cancels when this is cancelled, for one in the middle of a step.
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
        Life::begin(self, false).live().await
    }

    /// Runs it until its task has ended, or waits for an answer that nobody has scripted: with
    /// all the tries of its policy, the backoff between them, the deadlines of its questions and
    /// its work limit. Waiting takes as long as Tokio's clock says: pause that
    /// (`#[tokio::test(start_paused = true)]`, feature `test-util`), and it takes no time.
    ///
    /// # Panics
    /// When a scripted answer is none that a gateway would take.
    pub async fn simulate(self) -> Run {
        Life::begin(self, true).live().await
    }

    fn context(
        &self,
        id: TaskId,
        attempt: i32,
        backend: &Arc<KitBackend>,
        stop: CancellationToken,
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
            callbacks: None,
        };
        let journal = backend.lock().journal.clone();
        let status = watch::Sender::new(String::new());
        let shared: Arc<dyn Backend> = Arc::<KitBackend>::clone(backend);
        Ok(Context::new(about, shared, journal, stop, status))
    }
}

/// The resources that providers of a set said to have changed, since this was asked last; waits
/// for one if there is none.
pub async fn updated(tools: &ToolSet) -> Vec<String> {
    tools.providers.take_updated().await
}

fn caller() -> Principal {
    Principal::verified("kit".to_owned(), "caller".to_owned(), None)
}
