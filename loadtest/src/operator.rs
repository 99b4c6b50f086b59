//! An operator who cannot leave the system alone: commands that change nothing that clients were
//! promised, over and over, while everything is broken. Sweeps are run beside the crons', waiting
//! jobs are made due, tools are paused and resumed, and everything is looked at.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::figures::Figures;
use crate::rng::Rng;
use crate::run::TOOLS;

/// Between two commands, ms.
const PAUSE_MS: (u64, u64) = (500, 3_000);
/// For how long a tool begins no jobs, ms.
const PAUSED_MS: (u64, u64) = (300, 2_000);
/// A command that takes longer hangs: requests wait for Postgres, and judges look on for a while.
const COMMAND_MAX: Duration = Duration::from_secs(60);

const LOOKS: [&[&str]; 7] = [
    &["tasks", "list", "--unread", "--limit", "20"],
    &["tasks", "list", "--older-than", "5s", "--status", "working"],
    &["tools", "list"],
    &["workers"],
    &["queues"],
    &["doctor", "--processes", "8"],
    &["audit", "list"],
];
const REQUEUE: &[&str] = &["tasks", "requeue", "--phase", "queued", "--yes"];
const SWEEPS: &[&str] = &[
    "cron",
    "run",
    "requeue",
    "holds",
    "expire",
    "inputs",
    "stopped",
    "alerts",
    "deliveries",
    "purge",
    "consumers",
];

/// The operator's desk.
pub struct Operator<'a> {
    /// Our binary.
    pub binary: &'a Path,
    /// Straight to the database.
    pub postgres_url: &'a str,
    /// Straight to Redis.
    pub redis_url: &'a str,
    /// Where trouble is told.
    pub figures: &'a Figures,
}

impl Operator<'_> {
    /// Works until dropped. What is paused then stays so: see [`Operator::leave`].
    pub async fn work(&self, mut rng: Rng) {
        loop {
            match rng.below(5) {
                0 => self.run(REQUEUE).await,
                1 => self.run(SWEEPS).await,
                2 => {
                    let tool = *rng.pick(&TOOLS);
                    self.run(&["tools", "pause", tool, "--jobs"]).await;
                    sleep(millis(&mut rng, PAUSED_MS)).await;
                    self.resume(tool).await;
                }
                _ => self.run(rng.pick::<&[&str]>(&LOOKS)).await,
            }
            sleep(millis(&mut rng, PAUSE_MS)).await;
        }
    }

    /// Resumes every tool.
    pub async fn leave(&self) {
        for tool in TOOLS {
            self.resume(tool).await;
        }
    }

    async fn resume(&self, tool: &str) {
        self.run(&["tools", "resume", tool]).await;
    }

    /// A command may fail while Postgres is away; it may not hang, panic or be killed.
    async fn run(&self, words: &[&str]) {
        let trouble = |what: String| {
            let said = format!("mcp-tasks {}: {what}", words.join(" "));
            self.figures.trouble(said);
        };
        let command = Command::new(self.binary)
            .args(words)
            .env("MCP_TASKS__POSTGRES__URL", self.postgres_url)
            .env("MCP_TASKS__REDIS__URL", self.redis_url)
            .env("MCP_TASKS__POSTGRES__LEASE", "2s")
            .env("MCP_TASKS__POSTGRES__HEARTBEAT", "600ms")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        match timeout(COMMAND_MAX, command).await {
            Ok(Ok(output)) if matches!(output.status.code(), Some(0 | 1)) => {}
            Ok(Ok(output)) => trouble(ended(&output)),
            Ok(Err(error)) => trouble(error.to_string()),
            Err(_) => trouble(format!("not over after {COMMAND_MAX:?}")),
        }
    }
}

fn ended(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    format!("{}: {said}", output.status)
}

fn millis(rng: &mut Rng, (low, high): (u64, u64)) -> Duration {
    Duration::from_millis(rng.between(low, high))
}
