//! `mcp-tasks tasks`: look at anybody's tasks, and act on them.

use std::process::ExitCode;
use std::time::Duration;

use protocol::TaskId;
use serde_json::{Value, json};
use store::{TaskAct, TaskFilter, TaskSummary};

use super::operator::{Desk, Options, at, at_maybe, object};
use super::{Failure, operator, tasks_act, tasks_erase, tasks_show};

/// `mcp-tasks tasks …`.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List tasks, the newest first.
    List {
        #[command(flatten)]
        filter: Filter,
        /// At most so many.
        #[arg(long, default_value_t = 50)]
        limit: i64,
        /// Also what tools said of tasks that are sealed, if the settings have their keys.
        #[arg(long)]
        open: bool,
        #[command(flatten)]
        operator: Options,
    },
    /// Show what happened to one task, and when. Never arguments, answers or results.
    Show {
        /// The task.
        id: TaskId,
        /// Also what tools said of a task that is sealed, if the settings have its key.
        #[arg(long)]
        open: bool,
        #[command(flatten)]
        operator: Options,
    },
    /// Stop tasks, as their owners could.
    Cancel(Touch),
    /// Repeat failed tasks by new ones: same owner, tool and arguments.
    Retry {
        /// Also where a step is in doubt, or where a new task repeats it already.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        touch: Touch,
    },
    /// Make waiting jobs due now.
    Requeue(Touch),
    /// End the time of tasks: live ones fail, of finished ones a tombstone stays.
    Expire(Touch),
    /// Erase everything that is kept of a principal, or of all of a tenant: tasks, and names.
    Erase(tasks_erase::Erase),
}

/// Which tasks. Everything that is given must hold.
#[derive(Debug, clap::Args)]
pub struct Filter {
    /// With one of these statuses (separated by commas).
    #[arg(long, value_delimiter = ',', value_parser = ["working", "input_required", "completed", "failed", "cancelled"])]
    status: Vec<String>,
    /// In one of these phases (separated by commas).
    #[arg(long, value_delimiter = ',', value_parser = ["queued", "running", "parked", "undoing"])]
    phase: Vec<String>,
    /// Of this tool.
    #[arg(long)]
    tool: Option<String>,
    /// Of this owner: the subject of the token.
    #[arg(long)]
    principal: Option<String>,
    /// Of owners with tokens of this issuer.
    #[arg(long)]
    issuer: Option<String>,
    /// Created longer ago, e.g. `90m`, `2days`.
    #[arg(long, value_parser = humantime::parse_duration)]
    older_than: Option<Duration>,
    /// Over, and not read by the owner.
    #[arg(long)]
    unread: bool,
    /// Over, and no success: `failed`, or `completed` with a result that is an error (`isError`).
    #[arg(long)]
    errors: bool,
}

/// On which tasks to act: those named, or those that fit a filter.
#[derive(Debug, clap::Args)]
pub struct Touch {
    /// The tasks.
    pub ids: Vec<TaskId>,
    #[command(flatten)]
    pub filter: Filter,
    /// At most so many, the newest first.
    #[arg(long)]
    pub limit: Option<i64>,
    /// Only show what would be touched.
    #[arg(long)]
    pub dry_run: bool,
    /// Do it to all that fit the filter.
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub operator: Options,
}

impl Filter {
    /// As the store takes it.
    pub fn for_store(&self) -> TaskFilter {
        TaskFilter {
            statuses: self.status.clone(),
            phases: self.phase.clone(),
            tool: self.tool.clone(),
            subject: self.principal.clone(),
            issuer: self.issuer.clone(),
            older_than: self.older_than,
            unread: self.unread,
            errors: self.errors,
            ids: Vec::new(),
        }
    }

    /// As the audit keeps it; without what is not set.
    pub fn to_json(&self) -> Value {
        let list = |list: &Vec<String>| (!list.is_empty()).then(|| list.clone());
        let older = self.older_than;
        object([
            ("status", json!(list(&self.status))),
            ("phase", json!(list(&self.phase))),
            ("tool", json!(self.tool)),
            ("principal", json!(self.principal)),
            ("issuer", json!(self.issuer)),
            (
                "older_than",
                json!(older.map(|d| humantime::format_duration(d).to_string())),
            ),
            ("unread", json!(self.unread.then_some(true))),
            ("errors", json!(self.errors.then_some(true))),
        ])
    }
}

/// Runs the command.
///
/// # Errors
/// When it cannot, or refuses to.
pub fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::List {
            filter,
            limit,
            open,
            operator,
        } => operator::run(&operator, true, async |desk| {
            list(desk, &filter, (limit, open)).await
        }),
        Command::Show { id, open, operator } => operator::run(&operator, true, async |desk| {
            tasks_show::show(desk, (id, open)).await
        }),
        Command::Cancel(touch) => tasks_act::run(TaskAct::Cancel, &touch, false),
        Command::Retry { force, touch } => tasks_act::run(TaskAct::Retry, &touch, force),
        Command::Requeue(touch) => tasks_act::run(TaskAct::Requeue, &touch, false),
        Command::Expire(touch) => tasks_act::run(TaskAct::Expire, &touch, false),
        Command::Erase(erase) => tasks_erase::run(&erase),
    }
}

async fn list(
    desk: &Desk,
    filter: &Filter,
    (limit, open): (i64, bool),
) -> Result<ExitCode, Failure> {
    let tasks = desk
        .reading(open)
        .list_tasks(&filter.for_store(), None, (None, limit))
        .await?;
    let rows: Vec<Value> = tasks.iter().map(row).collect();
    desk.rows(
        &[
            "id",
            "tool",
            "status",
            "phase",
            "age_seconds",
            "principal",
            "attempt",
            "tries",
            "reason",
        ],
        &rows,
    );
    Ok(ExitCode::SUCCESS)
}

/// A task as JSON.
pub fn row(task: &TaskSummary) -> Value {
    let reason = task.is_error.then(|| "is_error".to_owned());
    object([
        ("id", json!(task.id.to_string())),
        ("tool", json!(task.tool)),
        ("version", json!(task.version)),
        ("status", json!(task.status)),
        ("phase", json!(task.phase)),
        ("status_message", json!(task.status_message)),
        ("principal", json!(task.principal.subject)),
        ("issuer", json!(task.principal.issuer)),
        ("tenant", json!(task.principal.tenant)),
        ("age_seconds", json!(task.age.as_secs())),
        ("created_at", at(task.created_at)),
        ("finished_at", at_maybe(task.finished_at)),
        ("expires_at", at_maybe(task.expires_at)),
        (
            "due_in_seconds",
            json!((!task.due_in.is_zero()).then_some(task.due_in.as_secs())),
        ),
        ("attempt", json!(task.attempt)),
        ("tries", json!(task.tries)),
        ("tries_max", json!(task.tries_max)),
        ("worker", json!(task.worker)),
        ("stop_reason", json!(task.stop_reason)),
        ("last_error", json!(task.last_error)),
        ("reason", json!(task.reason.clone().or(reason))),
        ("is_error", json!(task.is_error)),
        ("fetched", json!(task.fetched)),
        ("handed_out", json!(task.handed_out)),
    ])
}
