//! `mcp-tasks tools`: what is served, and taking a tool out of service without a deploy.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};
use store::{Pause, PauseScope, ToolState};
use uuid::Uuid;

use super::Failure;
use super::operator::{self, Desk, Options, at_maybe, object};

/// `mcp-tasks tools …`.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List every version of every tool.
    List {
        #[command(flatten)]
        operator: Options,
    },
    /// Show the policy of a tool in force, and where each value comes from. Tools that are in no
    /// tools file are looked for among those that workers serve.
    Show {
        /// The tool.
        name: String,
        /// The tools file; else the one that the settings name (`tools.file`).
        #[arg(long)]
        tools: Option<PathBuf>,
        #[command(flatten)]
        operator: Options,
    },
    /// Take no new calls of a tool, begin no new jobs of it, or both. What runs goes on.
    Pause {
        /// The tool.
        name: String,
        #[command(flatten)]
        scope: Scope,
        /// Why; shown to operators.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        operator: Options,
    },
    /// Put a tool back into service.
    Resume {
        /// The tool.
        name: String,
        #[command(flatten)]
        scope: Scope,
        #[command(flatten)]
        operator: Options,
    },
}

/// What of a tool; neither means both.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Scope {
    /// New calls only: gateways refuse them (`tool_paused`).
    #[arg(long)]
    calls: bool,
    /// New jobs only: calls are taken, and wait.
    #[arg(long)]
    jobs: bool,
}

impl Scope {
    fn for_store(self) -> PauseScope {
        let both = !self.calls && !self.jobs;
        PauseScope {
            calls: self.calls || both,
            jobs: self.jobs || both,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// When it cannot.
pub fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Show {
            name,
            tools,
            operator,
        } => super::tools_show::run(&name, tools, &operator),
        Command::List { operator } => operator::run(&operator, true, list),
        Command::Pause {
            name,
            scope,
            reason,
            operator,
        } => operator::run(&operator, true, async |desk| {
            let scope = scope.for_store();
            let audit = begin(desk, "tools pause", &name, (scope, reason.as_deref())).await?;
            let pause = Pause {
                tool: &name,
                scope,
                operator: &desk.operator,
                reason: reason.as_deref(),
            };
            let paused = desk.store.pause_tool(pause).await;
            match desk.ended(audit, paused.map_err(Failure::from)).await? {
                Some(now) => {
                    desk.end(audit, "paused").await;
                    told(desk, &name, now).await
                }
                None => {
                    desk.end(audit, "unknown").await;
                    Err(format!("no worker has ever served a tool {name}").into())
                }
            }
        }),
        Command::Resume {
            name,
            scope,
            operator,
        } => operator::run(&operator, true, async |desk| {
            let scope = scope.for_store();
            let audit = begin(desk, "tools resume", &name, (scope, None)).await?;
            let by = &desk.operator;
            let resumed = desk.store.resume_tool(&name, scope, by).await;
            match desk.ended(audit, resumed.map_err(Failure::from)).await? {
                Some(now) => {
                    desk.end(audit, "resumed").await;
                    told(desk, &name, now).await
                }
                None => {
                    desk.end(audit, "not_paused").await;
                    Err(format!("nothing of that is paused for {name}").into())
                }
            }
        }),
    }
}

async fn begin(
    desk: &Desk,
    command: &str,
    tool: &str,
    (scope, reason): (PauseScope, Option<&str>),
) -> Result<Uuid, Failure> {
    let target = object([
        ("tool", json!(tool)),
        ("calls", json!(scope.calls)),
        ("jobs", json!(scope.jobs)),
        ("reason", json!(reason)),
    ]);
    desk.begin(command, &target).await
}

/// Gateways look at the catalogue every second or two; told, they look at once.
async fn told(desk: &Desk, tool: &str, now: PauseScope) -> Result<ExitCode, Failure> {
    if let Some(queue) = desk.queue().await {
        queue.catalogue_changed().await;
    }
    let row = json!({"tool": tool, "calls_paused": now.calls, "jobs_paused": now.jobs});
    desk.rows(&["tool", "calls_paused", "jobs_paused"], &[row]);
    Ok(ExitCode::SUCCESS)
}

async fn list(desk: &Desk) -> Result<ExitCode, Failure> {
    let tools = desk.store.tool_states().await?;
    let rows: Vec<Value> = tools.iter().map(row).collect();
    desk.rows(
        &[
            "tool",
            "version",
            "current",
            "listed",
            "workers",
            "seen_seconds",
            "paused",
            "pause_reason",
            "changed_by",
        ],
        &rows,
    );
    Ok(ExitCode::SUCCESS)
}

fn row(tool: &ToolState) -> Value {
    let paused = match (tool.paused.calls, tool.paused.jobs) {
        (true, true) => Some("calls, jobs"),
        (true, false) => Some("calls"),
        (false, true) => Some("jobs"),
        (false, false) => None,
    };
    object([
        ("tool", json!(tool.name)),
        ("version", json!(tool.version)),
        ("current", json!(tool.current)),
        ("listed", json!(tool.listed)),
        ("alive", json!(tool.alive)),
        ("workers", json!(tool.workers)),
        ("seen_seconds", json!(tool.seen.as_secs())),
        ("run_ms", json!(tool.run_ms)),
        ("paused", json!(paused)),
        ("calls_paused", json!(tool.paused.calls)),
        ("jobs_paused", json!(tool.paused.jobs)),
        ("calls_paused_since", at_maybe(tool.calls_since)),
        ("jobs_paused_since", at_maybe(tool.jobs_since)),
        ("pause_reason", json!(tool.pause_reason)),
        ("changed_by", json!(tool.changed_by)),
    ])
}
