//! Our answers in the words of an older revision.

use protocol::TaskId;
use protocol::jsonrpc::InvalidParams;
use protocol::legacy;
use protocol::meta::NotAnObject;
use protocol::tasks::TaskIdParams;
use store::TaskSupport;

use super::refusal::told;
use crate::Shared;
use crate::endpoint::Call;
use crate::error::Error;
use crate::reply::Reply;

/// In which revision, and how, a request is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dialect {
    pub(crate) version: &'static str,
    pub(crate) shape: Shape,
}

/// How an answer looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// As today, without what came later.
    Plain,
    /// A tool's result.
    ToolResult,
    /// `CreateTaskResult`.
    Handle,
    /// A `Task`.
    Task,
    /// A tool's result with the task's name.
    TaskResult,
    /// A page of tools.
    Tools,
    /// In those words already.
    Own,
}

impl Shape {
    /// Whether what is asked for is about a task.
    pub(crate) fn is_about_a_task(self) -> bool {
        matches!(self, Self::Handle | Self::Task | Self::TaskResult)
    }
}

impl Dialect {
    /// The answer as this revision knows it.
    pub(crate) fn reply(
        self,
        shared: &Shared,
        call: &Call,
        result: Result<Reply, Error>,
    ) -> Result<Reply, Error> {
        let reply = result.map_err(told)?;
        let Reply::Result { json, mark, label } = reply else {
            return Ok(reply);
        };
        // Answers come by requests of the server there, and an ordinary call has no way for them.
        if label == "input_required" {
            return Err(told(Error::NobodyToAsk));
        }
        // A tool's result is no answer to who asked for a task.
        if self.shape == Shape::Handle && label == "invalid_arguments" {
            return Err(told(Error::Params(InvalidParams::new(text_of(&json)))));
        }
        let (json, mark) = match self.shape {
            Shape::Plain => (legacy::plain(&json), mark),
            Shape::ToolResult => (legacy::tool_result(&json), mark),
            Shape::Handle => (legacy::create_result(&json), mark),
            Shape::Task => {
                let task = legacy::task(&json);
                // The result of a completed task was not shown, so it is not fetched.
                let is_all = task.as_ref().is_ok_and(|task| !is_completed(task));
                (task, mark.filter(|_| is_all))
            }
            Shape::TaskResult => (task_result(call, &json), mark),
            Shape::Tools => (
                legacy::tools(&json, |name| self.support(shared, name)),
                mark,
            ),
            Shape::Own => (Ok(json), mark),
        };
        match json {
            Ok(json) => Ok(Reply::Result { json, mark, label }),
            Err(error) => Err(told(Error::Bug(error.to_string()))),
        }
    }

    /// `execution.taskSupport` of a tool; none where the revision knows no tasks.
    fn support(self, shared: &Shared, name: &str) -> Option<&'static str> {
        if self.version != legacy::WITH_TASKS {
            return None;
        }
        let snapshot = shared.catalog.known();
        let entry = snapshot.get(name)?;
        Some(match entry.tool.spec.policy.task_support {
            TaskSupport::None => "forbidden",
            TaskSupport::Optional => "optional",
            TaskSupport::Required => "required",
        })
    }
}

/// The first block of text of a result of ours.
fn text_of(result: &[u8]) -> String {
    let result: serde_json::Value = serde_json::from_slice(result).unwrap_or_default();
    let text = result["content"][0]["text"].as_str();
    text.unwrap_or("the arguments are not valid").to_owned()
}

fn is_completed(task: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Shown<'a> {
        #[serde(borrow)]
        status: &'a str,
    }
    serde_json::from_slice::<Shown<'_>>(task).is_ok_and(|task| task.status == "completed")
}

fn task_result(call: &Call, json: &[u8]) -> Result<bytes::Bytes, NotAnObject> {
    let id = TaskIdParams::parse(call.params()).ok();
    let id: Option<TaskId> = id.and_then(|params| params.id());
    match id {
        Some(id) => legacy::task_result(json, id),
        None => legacy::tool_result(json),
    }
}
