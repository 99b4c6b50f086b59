//! By which rules a tool is run.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Whether a call of the tool may, or must, become a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskSupport {
    /// Always answered inline.
    None,
    /// By deadline, when the client declared the extension.
    #[default]
    Optional,
    /// Only offered as a task: a client without the extension is refused.
    Required,
}

/// What happens to a task whose worker was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLost {
    /// Another attempt replays it from its journal.
    #[default]
    Retry,
    /// It fails.
    Fail,
}

/// What a panic of the tool means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnPanic {
    /// Another try may help.
    #[default]
    Retry,
    /// The task fails.
    Fail,
}

/// Pause before another try: doubles from `first` to `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// Before the second try.
    #[serde(with = "humantime_serde")]
    pub first: Duration,
    /// At most.
    #[serde(with = "humantime_serde")]
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            max: Duration::from_secs(60),
        }
    }
}

/// By which rules a tool is run. Durations travel as text with a unit, never as bare numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolPolicy {
    /// Whether calls may become tasks.
    pub task_support: TaskSupport,
    /// How long a call is held open for its result before it becomes a task; `None` = the
    /// gateway's setting. 0 = at once.
    #[serde(with = "humantime_serde")]
    pub inline_budget: Option<Duration>,
    /// How long a call that cannot become a task is held for its result, before it is answered with
    /// an error and its work is stopped; `None` = the gateway's setting.
    #[serde(with = "humantime_serde")]
    pub call_limit: Option<Duration>,
    /// The tool may ask the caller before the task exists, so that even a budget of 0 waits
    /// for that question.
    pub asks_first: bool,
    /// How long all attempts together may work; waiting for people does not count.
    #[serde(with = "humantime_serde")]
    pub work_limit: Duration,
    /// For how long the result is kept for a client that is away.
    #[serde(with = "humantime_serde")]
    pub client_absence: Duration,
    /// How long a job may wait for a worker before its TTL suffers.
    #[serde(with = "humantime_serde")]
    pub queue_wait: Duration,
    /// Tries, the first included (at least 1).
    pub tries_max: u16,
    /// Pause between tries.
    pub backoff: Backoff,
    /// What a lost worker means.
    pub on_lost: OnLost,
    /// What a panic means.
    pub on_panic: OnPanic,
    /// JSON-RPC error codes that are worth another try, though the tool says `failed`.
    pub retry_codes: Vec<i64>,
    /// How long one try of one step's undo may take.
    #[serde(with = "humantime_serde")]
    pub undo_limit: Duration,
    /// Tries of one step's undo, the first included (at least 1).
    pub undo_tries_max: u16,
    /// TTL from creation; `None` = computed from the other settings.
    #[serde(with = "humantime_serde")]
    pub ttl: Option<Duration>,
    /// A TTL that grows while people are asked ends here; `None` = no end.
    #[serde(with = "humantime_serde")]
    pub ttl_max: Option<Duration>,
    /// How long a question waits for its answer.
    #[serde(with = "humantime_serde")]
    pub input_deadline: Duration,
    /// What stands for an answer when there is none by the deadline, or when the client cannot be
    /// asked, by the keys of questions. Comes before the tool's own defaults; see
    /// [`ToolPolicy::default_answer`].
    pub default_answers: BTreeMap<String, Value>,
    /// A failure that its owner has not read for this long raises an alert; `None` = the setting
    /// of cron.
    #[serde(with = "humantime_serde")]
    pub alert_after: Option<Duration>,
    /// Poll interval, at least; `None` = the gateway's setting.
    #[serde(with = "humantime_serde")]
    pub poll_min: Option<Duration>,
    /// Poll interval, at most; `None` = the gateway's setting.
    #[serde(with = "humantime_serde")]
    pub poll_max: Option<Duration>,
    /// Argument that serves as idempotency key.
    pub idempotency_key_argument: Option<String>,
    /// Name of the queue: workers may serve some queues only.
    pub queue: String,
    /// Within the queue, higher runs first.
    pub priority: i16,
    /// Jobs at once over all workers; `None` = as many as there are slots.
    pub concurrency: Option<u32>,
    /// The same of one principal.
    pub concurrency_per_principal: Option<u32>,
    /// Scopes that a caller needs.
    pub scopes: Vec<String>,
    /// Client capabilities that a call needs (as in `_meta`): a call without is refused.
    pub required_capabilities: Option<serde_json::Map<String, Value>>,
    /// Arguments, at most (bytes); `None` = the gateway's setting.
    pub argument_bytes_max: Option<u64>,
    /// Result, at most (bytes); `None` = the worker's setting.
    pub result_bytes_max: Option<u64>,
}

impl Default for ToolPolicy {
    fn default() -> Self {
        Self {
            task_support: TaskSupport::default(),
            inline_budget: None,
            call_limit: None,
            asks_first: false,
            work_limit: Duration::from_secs(3600),
            client_absence: Duration::from_secs(24 * 3600),
            queue_wait: Duration::from_secs(3600),
            tries_max: 5,
            backoff: Backoff::default(),
            on_lost: OnLost::default(),
            on_panic: OnPanic::default(),
            retry_codes: Vec::new(),
            undo_limit: Duration::from_secs(5 * 60),
            undo_tries_max: 10,
            ttl: None,
            ttl_max: Some(Duration::from_secs(30 * 24 * 3600)),
            input_deadline: Duration::from_secs(24 * 3600),
            default_answers: BTreeMap::new(),
            alert_after: None,
            poll_min: None,
            poll_max: None,
            idempotency_key_argument: None,
            queue: "default".to_owned(),
            priority: 0,
            concurrency: None,
            concurrency_per_principal: None,
            scopes: Vec::new(),
            required_capabilities: None,
            argument_bytes_max: None,
            result_bytes_max: None,
        }
    }
}
