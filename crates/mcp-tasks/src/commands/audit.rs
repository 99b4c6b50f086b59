//! `mcp-tasks audit`: what operators did.

use std::process::ExitCode;

use protocol::TaskId;
use serde_json::{Value, json};
use store::{Audit, AuditFilter};

use super::Failure;
use super::operator::{self, Options, Output, at, object};

/// `mcp-tasks audit …`.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List what operators did, the last first. Looks and dry runs are not in it.
    List {
        /// Of this operator.
        #[arg(long)]
        by: Option<String>,
        /// That did something to this task, or made it.
        #[arg(long)]
        task: Option<TaskId>,
        /// At most so many.
        #[arg(long, default_value_t = 50)]
        limit: i64,
        #[command(flatten)]
        operator: Options,
    },
}

/// Runs the command.
///
/// # Errors
/// When Postgres could not be asked.
pub fn run(command: Command) -> Result<ExitCode, Failure> {
    let Command::List {
        by,
        task,
        limit,
        operator,
    } = command;
    operator::run(&operator, true, async |desk| {
        let filter = AuditFilter {
            operator: by.as_deref(),
            task,
            limit,
        };
        let audits = desk.store.audits(filter).await?;
        let rows: Vec<Value> = audits.iter().map(|audit| row(audit, desk.output)).collect();
        desk.rows(
            &["at", "operator", "command", "target", "tasks", "outcome"],
            &rows,
        );
        Ok(ExitCode::SUCCESS)
    })
}

/// What became of it. Releases that did not write that down wrote what they did to each task.
fn outcome(audit: &Audit) -> Option<String> {
    if audit.outcome != Audit::UNRECORDED {
        return Some(audit.outcome.clone());
    }
    let of_tasks = audit.tasks.iter().map(|task| task.outcome.as_str());
    (!audit.tasks.is_empty()).then(|| operator::counted(of_tasks))
}

/// In a table a number says enough of the tasks.
fn row(audit: &Audit, output: Output) -> Value {
    let tasks = audit.tasks.iter().map(|task| {
        object([
            ("id", json!(TaskId::from_uuid(task.task_id).to_string())),
            ("outcome", json!(task.outcome)),
            (
                "new_id",
                json!(task.new_task_id.map(|id| TaskId::from_uuid(id).to_string())),
            ),
        ])
    });
    object([
        ("id", json!(audit.id.to_string())),
        ("at", at(audit.at)),
        ("operator", json!(audit.operator)),
        ("command", json!(audit.command)),
        ("target", audit.target.clone()),
        ("outcome", json!(outcome(audit))),
        (
            "tasks",
            match output {
                Output::Json => tasks.collect(),
                Output::Table => json!(audit.tasks.len()),
            },
        ),
    ])
}
