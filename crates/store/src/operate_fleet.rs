//! Tools, workers and queues, for operators; and tools that are paused.

use std::time::{Duration, SystemTime};

use crate::config::ms;
use crate::operate_list::seconds;
use crate::pool::{sql, with_connection};
use crate::tools::ALIVE;
use crate::{Error, Store};

/// What a worker says of itself.
#[derive(Clone, Debug)]
pub struct Introduction<'a> {
    /// Its name, as in its claims.
    pub name: &'a str,
    /// The machine it runs on.
    pub host: &'a str,
    /// Jobs at once.
    pub slots: usize,
    /// What it serves: name and version.
    pub tools: &'a [(String, i32)],
}

/// What of a tool is paused or resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseScope {
    /// New calls.
    pub calls: bool,
    /// New jobs: attempts of calls taken before.
    pub jobs: bool,
}

/// A pause and who ordered it.
#[derive(Clone, Copy, Debug)]
pub struct Pause<'a> {
    /// The tool.
    pub tool: &'a str,
    /// What of it.
    pub scope: PauseScope,
    /// Who.
    pub operator: &'a str,
    /// Why, in the operator's words.
    pub reason: Option<&'a str>,
}

/// One version of a tool.
#[derive(Clone, Debug)]
pub struct ToolState {
    /// The tool.
    pub name: String,
    /// Its version.
    pub version: i32,
    /// New calls get this version.
    pub current: bool,
    /// It is listed.
    pub listed: bool,
    /// Since a worker last said that it serves it.
    pub seen: Duration,
    /// Workers alive that serve it and have introduced themselves.
    pub workers: i64,
    /// A worker said so lately.
    pub alive: bool,
    /// Decayed average of a whole run, ms.
    pub run_ms: Option<f64>,
    /// What is paused.
    pub paused: PauseScope,
    /// Since when it takes no new calls.
    pub calls_since: Option<SystemTime>,
    /// Since when it takes no new jobs.
    pub jobs_since: Option<SystemTime>,
    /// Why.
    pub pause_reason: Option<String>,
    /// Who paused or resumed it last.
    pub changed_by: Option<String>,
}

/// One worker.
#[derive(Clone, Debug)]
pub struct WorkerState {
    /// Its name.
    pub name: String,
    /// The machine it runs on; `None` = it never introduced itself (an older release).
    pub host: Option<String>,
    /// Its release.
    pub release: Option<String>,
    /// Jobs at once.
    pub slots: Option<i32>,
    /// What it serves, "name version" each.
    pub tools: Vec<String>,
    /// When it started.
    pub started_at: Option<SystemTime>,
    /// Since its last sign of life.
    pub seen: Option<Duration>,
    /// It was heard of lately.
    pub alive: bool,
    /// Jobs that it owns.
    pub running: i64,
    /// Jobs whose lease ran out under it.
    pub lost: i64,
    /// Since the oldest of them was claimed.
    pub oldest: Option<Duration>,
}

/// Live tasks of one version of a tool in one queue.
#[derive(Clone, Debug)]
pub struct QueueState {
    /// The queue.
    pub queue: String,
    /// Their priority in it.
    pub priority: i16,
    /// The tool.
    pub tool: String,
    /// Its version.
    pub version: i32,
    /// Jobs that wait.
    pub queued: i64,
    /// Those of them that a worker could take now.
    pub due: i64,
    /// Those that wait for another try.
    pub backing_off: i64,
    /// Jobs that run.
    pub running: i64,
    /// Tasks that wait for people.
    pub parked: i64,
    /// Tasks whose steps are being undone.
    pub undoing: i64,
    /// Tasks that were told to stop.
    pub stopping: i64,
    /// How long the oldest due job has waited.
    pub oldest_due: Option<Duration>,
    /// Since the oldest was created.
    pub oldest: Duration,
}

impl Store {
    /// A worker's sign of life.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn worker_alive(&self, worker: &Introduction<'_>) -> Result<(), Error> {
        let tools = worker.tools.iter();
        let tools: Vec<String> = tools.map(|(name, n)| format!("{name} {n}")).collect();
        let slots = i32::try_from(worker.slots).unwrap_or(i32::MAX);
        let release = crate::migrate::release();
        with_connection!(self, "worker_alive", |connection| {
            let statement = connection.prepare_cached(sql!("worker_alive")).await?;
            connection
                .execute(
                    &statement,
                    &[&worker.name, &worker.host, &release, &slots, &tools],
                )
                .await?;
            Ok(())
        })
    }

    /// Pauses a tool, for new calls, new jobs or both; says what is paused now. `None`: there is no
    /// such tool.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn pause_tool(&self, pause: Pause<'_>) -> Result<Option<PauseScope>, Error> {
        with_connection!(self, "pause_tool", |connection| {
            let statement = connection.prepare_cached(sql!("pause_tool")).await?;
            let row = connection
                .query_opt(
                    &statement,
                    &[
                        &pause.tool,
                        &pause.scope.calls,
                        &pause.scope.jobs,
                        &pause.reason,
                        &pause.operator,
                    ],
                )
                .await?;
            Ok(row.map(|row| PauseScope {
                calls: row.get("calls"),
                jobs: row.get("jobs"),
            }))
        })
    }

    /// Resumes a tool; says what is still paused. `None`: nothing of that was.
    ///
    /// # Errors
    /// When Postgres could not be asked; repeating is safe.
    pub async fn resume_tool(
        &self,
        tool: &str,
        scope: PauseScope,
        operator: &str,
    ) -> Result<Option<PauseScope>, Error> {
        with_connection!(self, "resume_tool", |connection| {
            let statement = connection.prepare_cached(sql!("resume_tool")).await?;
            let row = connection
                .query_opt(&statement, &[&tool, &scope.calls, &scope.jobs, &operator])
                .await?;
            Ok(row.map(|row| PauseScope {
                calls: row.get("calls"),
                jobs: row.get("jobs"),
            }))
        })
    }

    /// Every version of every tool, by name, the newest version first.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn tool_states(&self) -> Result<Vec<ToolState>, Error> {
        with_connection!(self, "tool_states", |connection| {
            let statement = connection.prepare_cached(sql!("tool_states")).await?;
            let rows = connection.query(&statement, &[&ms(ALIVE)]).await?;
            Ok(rows
                .iter()
                .map(|row| {
                    let seen = seconds(row.get("seen_s"));
                    ToolState {
                        name: row.get("name"),
                        version: row.get("version"),
                        current: row.get("current"),
                        listed: row.get("listed"),
                        seen,
                        workers: row.get("workers"),
                        alive: seen < ALIVE,
                        run_ms: row.get("run_ms"),
                        paused: PauseScope {
                            calls: row.get("calls_paused"),
                            jobs: row.get("jobs_paused"),
                        },
                        calls_since: row.get("calls_since"),
                        jobs_since: row.get("jobs_since"),
                        pause_reason: row.get("reason"),
                        changed_by: row.get("changed_by"),
                    }
                })
                .collect())
        })
    }

    /// Workers that were heard of within a day, and whoever owns a job.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn workers(&self) -> Result<Vec<WorkerState>, Error> {
        with_connection!(self, "workers", |connection| {
            let statement = connection.prepare_cached(sql!("workers")).await?;
            let rows = connection.query(&statement, &[&ms(ALIVE)]).await?;
            Ok(rows
                .iter()
                .map(|row| WorkerState {
                    name: row.get("name"),
                    host: row.get("host"),
                    release: row.get("release"),
                    slots: row.get("slots"),
                    tools: row
                        .get::<_, Option<Vec<String>>>("tools")
                        .unwrap_or_default(),
                    started_at: row.get("started_at"),
                    seen: row.get::<_, Option<i64>>("seen_s").map(seconds),
                    alive: row.get("alive"),
                    running: row.get("running"),
                    lost: row.get("lost"),
                    oldest: row.get::<_, Option<i64>>("oldest_s").map(seconds),
                })
                .collect())
        })
    }

    /// Live tasks by tool and version.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub async fn queues(&self) -> Result<Vec<QueueState>, Error> {
        with_connection!(self, "queues", |connection| {
            let statement = connection.prepare_cached(sql!("queues")).await?;
            let rows = connection.query(&statement, &[]).await?;
            Ok(rows
                .iter()
                .map(|row| QueueState {
                    queue: row.get("queue"),
                    priority: row.get("priority"),
                    tool: row.get("tool"),
                    version: row.get("tool_version"),
                    queued: row.get("queued"),
                    due: row.get("due"),
                    backing_off: row.get("backing_off"),
                    running: row.get("running"),
                    parked: row.get("parked"),
                    undoing: row.get("undoing"),
                    stopping: row.get("stopping"),
                    oldest_due: row.get::<_, Option<i64>>("oldest_due_s").map(seconds),
                    oldest: seconds(row.get("oldest_s")),
                })
                .collect())
        })
    }
}
