//! A whole bench: the system is started once, and each work is measured beside its baseline.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use harness::config::Role;
use harness::{Error, Result};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::connection::Connection;
use super::drive::{Load, unexpected};
use super::fill::{self, Template};
use super::machine::{self, Machine};
use super::report::{Report, Row};
use super::system::System;
use super::table::{ALL, When};
use super::wire::{Wire, text_field};
use super::{listens, many, pairs, sealed, soak, works};

/// On whose behalf everything is done.
pub const PRINCIPAL: &str = "bench";
/// Becomes a task at once.
pub const TASK: &str = "chaos_steps";
/// Is answered with its result.
pub const INLINE: &str = "chaos_quick";
/// Of what measured works leave behind, all ids lie above, and of the filled rows all below.
const NEW: &str = "01900000-0000-7000-8000-000000000000";
const PATIENCE: Duration = Duration::from_secs(30);

/// What to measure, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Our binary.
    pub binary: PathBuf,
    /// Rows in the table.
    pub rows: u64,
    /// Rows in the table for `rows_10m`; ten million if nothing else is said.
    pub many: Option<u64>,
    /// How long each measurement takes.
    pub time: Duration,
    /// Pairs of measurements of each work.
    pub repeats: usize,
    /// Connections of our clients.
    pub connections: usize,
    /// Clients of pgbench.
    pub clients: usize,
    /// Open listens.
    pub listens: u64,
    /// How long to soak.
    pub soak: Option<Duration>,
    /// Works to measure; empty: all that are asked for.
    pub only: Vec<String>,
}

impl Options {
    /// As fast as it can be, and of no use but to see that everything runs.
    #[must_use]
    pub fn quick(self) -> Options {
        Options {
            rows: 1_000,
            many: self.many.map(|many| many.min(3_000)),
            time: Duration::from_secs(1),
            repeats: 1,
            connections: 8,
            clients: 4,
            listens: 40,
            soak: self.soak.map(|soak| soak.min(Duration::from_secs(8))),
            ..self
        }
    }

    /// Where nothing but a soak is wanted, the time is that of the soak, and what is measured before it
    /// takes the usual one.
    #[must_use]
    pub fn soak_only(self, usual: Duration) -> Options {
        let only = !self.only.is_empty() && self.only.iter().all(|key| key.starts_with("soak"));
        if !only || self.soak.is_some() {
            return self;
        }
        Options {
            soak: Some(self.time),
            time: self.time.min(usual),
            ..self
        }
    }

    /// Whether this work is wanted.
    #[must_use]
    pub fn wants(&self, key: &str) -> bool {
        if !self.only.is_empty() {
            return self.only.iter().any(|only| only == key);
        }
        let work = ALL.into_iter().find(|work| work.key == key);
        match work.map(|work| work.when) {
            Some(When::Always) => true,
            Some(When::Asked(_)) if key == "rows_10m" => self.many.is_some(),
            Some(When::Asked(_)) => self.soak.is_some(),
            None => false,
        }
    }

    /// A load of so many connections.
    #[must_use]
    pub fn load(&self, connections: usize) -> Load {
        Load {
            connections,
            warmup: self.time / 4,
            time: self.time,
        }
    }
}

/// The system, filled, and what is known of it.
#[derive(Debug)]
pub struct Bench {
    /// What to measure.
    pub options: Options,
    /// What is measured.
    pub system: System,
    /// The first gateway's position.
    pub gateway: usize,
    /// A finished task.
    pub finished: Template,
    /// A task that waits for a worker that there is not.
    pub waiting: Template,
    /// How many rows the table was filled with, by now.
    pub filled: u64,
    /// The worker's position, while there is one.
    pub worker: Option<usize>,
}

/// Measures.
///
/// # Errors
/// If the system can't be started. A work that can't be measured is told in the report.
pub async fn run(options: &Options) -> Result<Report> {
    let load_before = machine::load();
    let mut bench = Bench::start(options).await?;
    let machine = Machine::look(&bench.system, load_before).await?;
    let at = bench
        .system
        .sql("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')");
    let at = at
        .await?
        .into_iter()
        .flatten()
        .flatten()
        .next()
        .unwrap_or_default();
    let (mut rows, mut failed) = (Vec::new(), BTreeMap::new());
    for work in ALL.into_iter().filter(|work| options.wants(work.key)) {
        if rows.iter().any(|row: &Row| row.key == work.key) {
            continue;
        }
        say(work.name);
        let measured = match work.key {
            "get" => works::get(&bench).await.map(|row| vec![row]),
            "get_jwt" => works::get_jwt(&mut bench).await.map(|row| vec![row]),
            "create" => works::create(&mut bench).await.map(|row| vec![row]),
            "life" => works::life(&mut bench).await.map(|row| vec![row]),
            "inline_p50" | "inline_p99" => works::inline(&mut bench).await,
            "crowd" => works::crowd(&mut bench).await.map(|row| vec![row]),
            "lone" => works::lone(&bench).await.map(|row| vec![row]),
            "gateways_get" | "gateways_create" => pairs::gateways(&mut bench).await,
            "create_sealed" | "get_sealed" => sealed::measure(&mut bench).await,
            "rows_10m" => many::measure(&mut bench).await.map(|row| vec![row]),
            "listens_memory" | "listens_event" => listens::measure(&mut bench).await,
            _ => soak::measure(&mut bench).await,
        };
        match measured {
            Ok(measured) => rows.extend(measured),
            Err(error) => {
                say(&format!("{} failed: {error}", work.key));
                failed.insert(work.key, error.to_string());
            }
        }
    }
    rows.retain(|row| options.wants(row.key));
    Ok(Report {
        machine,
        at,
        how: format!(
            "{} rows; {} s each, {} pairs; {} connections, pgbench {} clients",
            options.rows,
            options.time.as_secs_f64(),
            options.repeats,
            options.connections,
            options.clients
        ),
        rows,
        failed,
    })
}

/// Tells whoever waits.
pub fn say(what: &str) {
    eprintln!("bench: {what}");
}

impl Bench {
    /// Starts everything and fills the table.
    ///
    /// # Errors
    /// If something can't be started.
    pub async fn start(options: &Options) -> Result<Bench> {
        say("starting Postgres, Redis, a gateway and a worker");
        let mut system = System::start(&options.binary).await?;
        let worker = system.add(Role::Worker, "").await?;
        let gateway = system.add(Role::Gateway, "").await?;
        system
            .wait_for_tools(gateway, PRINCIPAL, &[TASK, INLINE])
            .await?;
        let finished = a_task(&system, gateway, Some("completed")).await?;
        let finished = Template::of(&system, &finished).await?.read();
        system.kill(worker);
        let waiting = a_task(&system, gateway, None).await?;
        let waiting = Template::of(&system, &waiting)
            .await?
            .with("tool", fill::NOBODYS);
        let bench = Bench {
            options: options.clone(),
            system,
            gateway,
            finished,
            waiting,
            filled: options.rows,
            worker: None,
        };
        bench.clear().await?;
        say(&format!("filling the table with {} rows", options.rows));
        bench
            .finished
            .fill(&bench.system, 1, options.rows, |_| ())
            .await?;
        Ok(bench)
    }

    /// Requests as the bench's principal, to the first gateway.
    #[must_use]
    pub fn wire(&self) -> Wire {
        Wire::new(&self.system.url(self.gateway), PRINCIPAL)
    }

    /// Starts a worker if there is none.
    ///
    /// # Errors
    /// If it does not become ready.
    pub async fn with_worker(&mut self) -> Result<()> {
        if self.worker.is_none() {
            self.worker = Some(self.system.add(Role::Worker, "").await?);
        }
        Ok(())
    }

    /// Ends the worker, as if the machine had taken it.
    pub fn without_worker(&mut self) {
        if let Some(worker) = self.worker.take() {
            self.system.kill(worker);
        }
    }

    /// Forgets whatever measured works left behind.
    ///
    /// # Errors
    /// If a server does not answer.
    pub async fn clear(&self) -> Result<()> {
        self.system
            .sql(&format!("DELETE FROM tasks WHERE id > '{NEW}'"))
            .await?;
        self.system.sql("DELETE FROM attempts").await?;
        self.system.empty_streams().await?;
        self.system.sql("VACUUM tasks").await?;
        self.system.sql("VACUUM attempts").await?;
        self.system.settle().await
    }
}

/// The arguments of all calls, so long that a finished task's result has half a kilobyte: the tool takes names
/// of at most a hundred characters, and these have four bytes each.
#[must_use]
pub fn arguments() -> Value {
    json!({"call": "🧾".repeat(80)})
}

/// The id of a new task that has this status by now.
async fn a_task(system: &System, gateway: usize, status: Option<&str>) -> Result<String> {
    let at = system.address(gateway)?;
    let wire = Wire::new(&system.url(gateway), PRINCIPAL);
    let failed = |error: std::io::Error| Error::Other(format!("the first task: {error}"));
    let mut connection = Connection::open(at).await.map_err(failed)?;
    let request = wire.call(TASK, &arguments());
    let http = connection.ask(&request).await.map_err(failed)?;
    let task = text_field(connection.body(), "taskId").map(str::to_owned);
    let task = task.ok_or_else(|| failed(unexpected(http, connection.body())))?;
    let Some(status) = status else {
        return Ok(task);
    };
    let deadline = Instant::now() + PATIENCE;
    let wanted = format!("\"status\":\"{status}\"");
    loop {
        let http = connection.ask(&wire.get(&task)).await.map_err(failed)?;
        if connection.holds(&wanted) {
            return Ok(task);
        }
        if Instant::now() > deadline {
            return Err(failed(unexpected(http, connection.body())));
        }
        sleep(Duration::from_millis(50)).await;
    }
}
