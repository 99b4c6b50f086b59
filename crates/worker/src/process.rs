//! External commands, kept on the lease of the attempt that runs them.
//!
//! ```no_run
//! # use mcp_tasks_worker as worker;
//! # use worker::{Context, Step, ToolError, process::Command};
//! # async fn push(context: &mut Context) -> Result<(), ToolError> {
//! let commands = context.commands();
//! let pushed: String = context
//!     .step(Step::new("push"), |_| async move {
//!         let output = Command::new("git").args(["push", "origin"]).run(&commands).await?;
//!         Ok(output.stderr.text())
//!     })
//!     .await?;
//! # Ok(()) }
//! ```
//!
//! A command is not run by the worker but by a small supervisor between the two: the worker's
//! own program, started again. Command and supervisor hold on to each other so that whatever
//! dies or freezes, the work ends:
//!
//! | what happens | who ends the command, and all that it started |
//! |---|---|
//! | the task is stopped | the supervisor, by SIGTERM, after a grace by SIGKILL |
//! | the future of [`Command::run`] is dropped | the supervisor, by SIGKILL |
//! | the worker is killed | the supervisor: its pipe to the worker has closed |
//! | the worker is frozen, or cannot renew its lease | the supervisor, before the lease ends |
//! | the supervisor is killed or frozen | the worker, by session and by the mark in the environment |
//! | both are killed at once | the next supervisor that is started on this machine |
//!
//! The supervisor adopts whatever its command leaves behind (`PR_SET_CHILD_SUBREAPER`), so that
//! neither a new process group nor a new session nor a double fork gets out of its reach, and it
//! reports the end only when it has no child left. The row of a task is not written before that.
//!
//! Out of reach is what the command has others do for it: a container daemon, `systemd-run`,
//! `at`, another machine. And while the supervisor is dead, what left the session *and* emptied
//! its environment.

mod capture;
mod command;
mod commands;
mod frames;
mod group;
mod keeper;
mod proc;
mod supervisor;
mod talk;

pub use capture::Captured;
pub use command::{Command, Error, Output};
pub use commands::Commands;
pub use supervisor::supervise_if_asked;
pub use talk::Talk;

/// The first arguments of a program that is asked to supervise. The second one changes with the
/// frames, since a worker may run while its program is replaced.
const ASKED: [&str; 2] = ["supervise", "--pipe=2"];

/// The same where the command's file descriptor 3 is to be what its standard output would be, and
/// its standard output is to be reported.
const ASKED_FD3: [&str; 2] = ["supervise", "--pipe=2,fd3"];

/// The variable that marks whatever a command starts: the command's supervisor.
const MARK: &str = "MCP_TASKS_SUPERVISOR";

/// `CLOCK_MONOTONIC` in microseconds: one clock for worker and supervisor, which nobody sets.
fn monotonic_us() -> std::io::Result<u64> {
    use nix::time::{ClockId, clock_gettime};
    let now = std::time::Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?);
    Ok(u64::try_from(now.as_micros()).unwrap_or(u64::MAX))
}
