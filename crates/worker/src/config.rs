//! Settings of a worker.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Room for the keys that the tools of this project choose themselves, by the names that upstream servers give.
const KEY_BYTES_MIN: usize = 64;

/// A code, a reason and a few words.
const ERROR_BYTES_MIN: usize = 256;

/// `[worker]`: running tools.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Jobs at once.
    pub slots: usize,
    /// Queues to serve: tools whose policy names another one are left to other workers, and not
    /// published by this one. Empty: all.
    pub queues: Vec<String>,
    /// After a tool was told to stop, how long it may take before its work is dropped.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub stop_grace: Duration,
    /// After SIGTERM, how long running jobs may go on before they are stopped and handed back.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub drain_deadline: Duration,
    /// Between two signs of life for the tools it serves.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub publish_interval: Duration,
    /// Between two written status messages of one job.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub status_interval: Duration,
    /// Key of a step, a question or a callback, at most (bytes); a tool that comes to a longer one fails.
    /// 64 to 1024, which is the most in an address of a callback. Above 213 the idempotency keys that
    /// services are handed (`task_id:key:undo`) may be longer than the 255 bytes that many take. The same for all
    /// workers that serve a tool: raise it once all workers and gateways know it, and lower it before they go back.
    pub key_bytes_max: usize,
    /// Output of one step, at most (bytes); also what undoes it.
    pub step_bytes_max: usize,
    /// One question with its default, at most (bytes).
    pub question_bytes_max: usize,
    /// Steps and questions of one task, at most; a tool that comes to one more fails.
    pub journal_entries_max: usize,
    /// Journal of one task, at most (bytes): outputs of steps and what undoes them, questions
    /// and answers. A tool that writes more fails.
    pub journal_bytes_max: usize,
    /// Result of a tool, at most (bytes), if its policy says nothing.
    pub result_bytes_max: usize,
    /// What a failed task says of its error (code, message and data as JSON), at most (bytes), 256 at least. Of a longer
    /// one the code is left, the beginning of the message, and `data.reason` if it is a word of the protocol.
    pub error_bytes_max: usize,
    /// Status message, at most (bytes); more is cut. Also of a failure, and of why a try failed.
    pub status_bytes_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            slots: 100,
            queues: Vec::new(),
            stop_grace: Duration::from_secs(5),
            drain_deadline: Duration::from_secs(10),
            publish_interval: Duration::from_secs(20),
            status_interval: Duration::from_millis(250),
            key_bytes_max: 200,
            step_bytes_max: 1024 * 1024,
            question_bytes_max: 64 * 1024,
            journal_entries_max: 10_000,
            journal_bytes_max: 16 * 1024 * 1024,
            result_bytes_max: 8 * 1024 * 1024,
            error_bytes_max: 64 * 1024,
            status_bytes_max: 1024,
        }
    }
}

impl Config {
    /// Everything wrong with these settings, each naming its field; empty when they work.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.slots == 0 {
            problems.push("worker.slots: must be at least 1".to_owned());
        }
        for queue in &self.queues {
            if let Err(problem) = store::check_queue_name(queue) {
                problems.push(format!("worker.queues: {problem}"));
            }
        }
        if self.publish_interval < Duration::from_secs(1)
            || self.publish_interval > Duration::from_secs(30)
        {
            problems.push(format!(
                "worker.publish_interval: {:?} is not between 1s and 30s",
                self.publish_interval
            ));
        }
        let (least, most) = (KEY_BYTES_MIN, protocol::callback::KEY_BYTES_MAX);
        if !(least..=most).contains(&self.key_bytes_max) {
            problems.push(format!(
                "worker.key_bytes_max: {} is not between {least} and {most} ({most}: the most in an \
                 address of a callback)",
                self.key_bytes_max
            ));
        }
        if self.journal_entries_max == 0 {
            problems.push("worker.journal_entries_max: must be at least 1".to_owned());
        }
        if self.error_bytes_max < ERROR_BYTES_MIN {
            problems.push(format!(
                "worker.error_bytes_max: {} is less than {ERROR_BYTES_MIN}",
                self.error_bytes_max
            ));
        }
        for (field, bytes) in [
            ("step_bytes_max", self.step_bytes_max),
            ("question_bytes_max", self.question_bytes_max),
        ] {
            if bytes > self.journal_bytes_max {
                problems.push(format!(
                    "worker.{field}: {bytes} is more than journal_bytes_max, {}",
                    self.journal_bytes_max
                ));
            }
        }
        problems
    }
}
