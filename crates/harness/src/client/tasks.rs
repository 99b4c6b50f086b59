//! Following a task, as a test does: start it, wait for a state, read its end.

use std::time::Duration;

use serde_json::Value;

use super::Client;
use crate::error::{Error, Result};
use crate::wait;

impl Client {
    /// Calls a tool that must become a task: its id.
    ///
    /// # Errors
    /// As [`Client::call`], and [`Error::Failed`] if it was answered inline.
    pub async fn start(&self, tool: &str, arguments: Value) -> Result<String> {
        let result = self.call(tool, arguments).await?;
        match (&result["resultType"], &result["taskId"]) {
            (Value::String(kind), Value::String(id)) if kind == "task" => Ok(id.clone()),
            _ => {
                let what = format!("{tool} did not become a task: {result}");
                Err(Error::Failed { what, log: None })
            }
        }
    }

    /// Reads the task until `good` accepts it, and returns it. Errors of single reads are tolerated:
    /// replicas die in tests.
    ///
    /// # Errors
    /// [`Error::Timeout`] that shows the last thing seen.
    pub async fn wait(
        &self,
        task_id: &str,
        within: Duration,
        good: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let look = async || self.get(task_id).await.map_err(|error| error.to_string());
        let good = |seen: &Result<Value, String>| seen.as_ref().is_ok_and(&good);
        let seen = wait::for_state(&format!("state of task {task_id}"), within, look, good).await?;
        seen.map_err(Error::Other)
    }

    /// Reads the task until it has this status.
    ///
    /// # Errors
    /// As [`Client::wait`].
    pub async fn wait_status(
        &self,
        task_id: &str,
        status: &str,
        within: Duration,
    ) -> Result<Value> {
        self.wait(task_id, within, |task| task["status"] == status)
            .await
    }

    /// Reads the task until it is completed, failed or cancelled.
    ///
    /// # Errors
    /// As [`Client::wait`].
    pub async fn wait_end(&self, task_id: &str, within: Duration) -> Result<Value> {
        let ends = ["completed", "failed", "cancelled"];
        self.wait(task_id, within, |task| {
            ends.iter().any(|end| task["status"] == *end)
        })
        .await
    }
}
