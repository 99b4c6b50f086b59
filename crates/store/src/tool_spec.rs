//! What a tool is and by which rules it is run: written by workers, read by gateways.

use std::time::Duration;

use protocol::tools::Tool;
use serde::{Deserialize, Serialize};

use crate::config::ms;

/// Keys are kept at least this long, and with them their tasks (I7).
const KEY_KEPT_MIN: Duration = Duration::from_secs(24 * 3600);

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
    /// Poll interval, at least; `None` = the gateway's setting.
    #[serde(with = "humantime_serde")]
    pub poll_min: Option<Duration>,
    /// Poll interval, at most; `None` = the gateway's setting.
    #[serde(with = "humantime_serde")]
    pub poll_max: Option<Duration>,
    /// Argument that serves as idempotency key.
    pub idempotency_key_argument: Option<String>,
    /// Name of the queue.
    pub queue: String,
    /// Higher runs first.
    pub priority: i16,
    /// Jobs at once over all workers; `None` = as many as there are slots.
    pub concurrency: Option<u32>,
    /// Scopes that a caller needs.
    pub scopes: Vec<String>,
    /// Client capabilities that a call needs (as in `_meta`): a call without is refused.
    pub required_capabilities: Option<serde_json::Map<String, serde_json::Value>>,
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
            poll_min: None,
            poll_max: None,
            idempotency_key_argument: None,
            queue: "default".to_owned(),
            priority: 0,
            concurrency: None,
            scopes: Vec::new(),
            required_capabilities: None,
            argument_bytes_max: None,
            result_bytes_max: None,
        }
    }
}

/// A policy that cannot work.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("tool {tool}: {problem}")]
pub struct PolicyError {
    /// The tool.
    pub tool: String,
    /// What is wrong and what is allowed.
    pub problem: String,
}

impl ToolPolicy {
    /// The TTL that covers waiting, all tries with their pauses, one undo, and the client's absence.
    #[must_use]
    pub fn ttl_needed(&self) -> Duration {
        let tries = u32::from(self.tries_max.max(1));
        let lease = Duration::from_secs(30);
        self.queue_wait
            + tries * (self.work_limit + self.backoff.max + lease)
            + self.undo_limit
            + self.client_absence
    }

    /// TTL of a new task, in ms; a task with an idempotency key is kept for a day at least.
    #[must_use]
    pub fn ttl_ms(&self, keyed: bool) -> Option<i64> {
        let ttl = self.ttl.unwrap_or_else(|| self.ttl_needed());
        Some(ms(if keyed { ttl.max(KEY_KEPT_MIN) } else { ttl }))
    }

    /// Checks what cannot work.
    ///
    /// # Errors
    /// Says the first setting that contradicts another, with the numbers.
    pub fn validate(&self, tool: &str) -> Result<(), PolicyError> {
        let refuse = |problem: String| {
            Err(PolicyError {
                tool: tool.to_owned(),
                problem,
            })
        };
        if self.tries_max == 0 {
            return refuse("tries_max is 0; at least 1 is needed to run at all".to_owned());
        }
        if self.undo_tries_max == 0 || self.undo_limit.is_zero() {
            return refuse("undo_tries_max and undo_limit must be above 0".to_owned());
        }
        if self.work_limit.is_zero() || self.input_deadline.is_zero() {
            return refuse("work_limit and input_deadline must be above 0".to_owned());
        }
        if let Some(ttl) = self.ttl {
            if ttl <= self.work_limit {
                return refuse(format!(
                    "ttl {ttl:?} is not longer than work_limit {:?}: the task would expire at work",
                    self.work_limit
                ));
            }
            if self.ttl_max.is_some_and(|max| max < ttl) {
                return refuse(format!(
                    "ttl {ttl:?} is longer than ttl_max {:?}",
                    self.ttl_max
                ));
            }
        }
        if let (Some(min), Some(max)) = (self.poll_min, self.poll_max)
            && min > max
        {
            return refuse(format!("poll_min {min:?} is longer than poll_max {max:?}"));
        }
        Ok(())
    }
}

/// A tool: its definition as `tools/list` shows it, its version and its policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ToolSpec {
    /// As listed.
    pub definition: Tool,
    /// Version, from 1. A new one when the journal of the old one cannot be resumed.
    #[serde(default = "one")]
    pub version: i32,
    /// Older versions whose journals this one can resume.
    #[serde(default)]
    pub resumes: Vec<i32>,
    /// Rules.
    #[serde(default)]
    pub policy: ToolPolicy,
}

fn one() -> i32 {
    1
}

impl ToolSpec {
    /// Version 1 with the default policy.
    #[must_use]
    pub fn new(definition: Tool) -> Self {
        Self {
            definition,
            version: 1,
            resumes: Vec::new(),
            policy: ToolPolicy::default(),
        }
    }

    /// Name of the tool.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.definition.name
    }
}
