//! What all commands for operators share: whom they act for, on what, and how they print.
//!
//! Their credentials are those of the database: they go to Postgres directly, on purpose. MCP has no
//! list of tasks, and nobody acts on another's tasks through a gateway.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use queue::{Lane, Queue};
use serde_json::{Map, Value};
use store::Store;
use telemetry::Registry;
use uuid::Uuid;

use super::Failure;
use crate::config::Config;
use crate::out::{out, outln};

/// A look over many tasks may take longer than a request may.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);
/// Statements at a time.
const POOL: usize = 2;
/// Redis is waited for so long: it only makes things happen sooner.
const REDIS_WAIT: Duration = Duration::from_secs(2);
/// What a cell of a table shows, at most.
const CELL_MAX: usize = 60;

/// Where the settings are, who acts, and how it is printed.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    pub settings: crate::Settings,
    /// `table` for eyes, `json` for programs.
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
    /// Who acts, for the audit; else the user and the machine.
    #[arg(long, env = "MCP_TASKS_OPERATOR")]
    operator: Option<String>,
    #[arg(
        long = "unix-user",
        env = "USER",
        default_value = "unknown",
        hide = true
    )]
    user: String,
}

/// How a command prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// Columns.
    #[default]
    Table,
    /// One JSON value.
    Json,
}

/// What a command works with.
pub struct Desk {
    pub store: Store,
    pub config: Config,
    pub operator: String,
    pub output: Output,
    pub registry: Registry,
}

impl Options {
    fn name(&self) -> String {
        if let Some(name) = &self.operator {
            return name.clone();
        }
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        match host.trim() {
            "" => self.user.clone(),
            host => format!("{}@{host}", self.user),
        }
    }
}

/// Runs a command. `schema`: it needs this binary's schema.
///
/// # Errors
/// When the settings cannot be used, the schema does not fit, or the command fails.
pub fn run(
    options: &Options,
    schema: bool,
    command: impl AsyncFnOnce(&Desk) -> Result<ExitCode, Failure>,
) -> Result<ExitCode, Failure> {
    let mut config = crate::config::load(options.settings.config.as_deref())?;
    config.logs.format = telemetry::config::LogFormat::Text;
    "warn".clone_into(&mut config.logs.filter);
    config.traces.endpoint = None;
    let url = config.postgres.url.clone();
    let guard = telemetry::init(&config.telemetry(), "mcp-tasks-operator")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(async {
        let registry = Registry::new();
        let mut postgres = config.postgres.clone();
        postgres.pool_size = POOL;
        postgres.statement_timeout = postgres.statement_timeout.max(STATEMENT_TIMEOUT);
        let desk = Desk {
            store: Store::new(postgres, &registry)?.with_encryption(&config.encryption),
            config,
            operator: options.name(),
            output: options.output,
            registry,
        };
        if schema {
            desk.store.check_schema().await?;
        }
        command(&desk).await
    });
    drop(guard);
    if let Err(failure) = &ended
        && let Some(store::Error::Unavailable(_)) = failure.downcast_ref()
    {
        let named = options.settings.config.as_ref();
        let named = named.map_or("no settings file is named (--config)".to_owned(), |file| {
            format!("settings: {}", file.display())
        });
        eprintln!("mcp-tasks: asked {}; {named}", place(&url));
    }
    ended
}

/// Where a URL leads, without who asks and how.
fn place(url: &str) -> &str {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    match authority.rsplit_once('@') {
        Some((_, host)) => host,
        // An `@` that comes later may be part of a password.
        None if rest.contains('@') || authority.is_empty() => "postgres.url",
        None => authority,
    }
}

impl Desk {
    /// Writes down what is about to be done, and for what.
    pub async fn begin(&self, command: &str, target: &Value) -> Result<Uuid, Failure> {
        let audit = Uuid::new_v4();
        let by = (self.operator.as_str(), command);
        self.store.audit(audit, by, target).await?;
        Ok(audit)
    }

    /// Writes down what became of it. What was done is done, also if that cannot be written down.
    pub async fn end(&self, audit: Uuid, outcome: &str) {
        if let Err(error) = self.store.audit_ended(audit, outcome).await {
            eprintln!("mcp-tasks: the audit does not say what became of this: {error}");
        }
    }

    /// Writes down that it failed, if it did: as far as that can be told to the database that may be why.
    pub async fn ended<T>(&self, audit: Uuid, ended: Result<T, Failure>) -> Result<T, Failure> {
        if ended.is_err() {
            let _ = self.store.audit_ended(audit, "failed").await;
        }
        ended
    }

    /// Where to read; with `open`, what is sealed is shown as far as the settings have its keys.
    pub fn reading(&self, open: bool) -> Store {
        if open {
            self.store.opening()
        } else {
            self.store.clone()
        }
    }

    /// Redis, if it is there.
    pub async fn queue(&self) -> Option<Queue> {
        let queue = Queue::new(self.config.redis.clone(), &self.registry).ok()?;
        let mut up = queue.connected();
        let waiting = tokio::time::timeout(REDIS_WAIT, up.wait_for(|up| *up));
        let is_up = matches!(waiting.await, Ok(Ok(_)));
        if !is_up {
            eprintln!(
                "mcp-tasks: redis is not reachable; nothing depends on it, but what a command changes takes effect a little later"
            );
        }
        is_up.then_some(queue)
    }

    /// Hints a job, and writes that down; cron does so otherwise.
    pub async fn hint(&self, queue: Option<&Queue>, lane: &Lane, id: protocol::TaskId) {
        let Some(queue) = queue else { return };
        let epoch = queue.epoch(id);
        if queue.push(lane, id).await.is_ok() {
            // Else it is hinted twice, which does no harm.
            let _ = self.store.mark_hinted(&[(id, epoch)]).await;
        }
    }

    /// Rows: as a JSON array of objects, or these members of them as columns.
    pub fn rows(&self, columns: &[&str], rows: &[Value]) {
        match self.output {
            Output::Json => self.json(&Value::Array(rows.to_vec())),
            Output::Table if rows.is_empty() => outln!("nothing"),
            Output::Table => out!("{}", table(columns, rows)),
        }
    }

    /// One JSON value.
    pub fn json(&self, value: &Value) {
        outln!("{value:#}");
    }
}

/// So many tasks, as people say it.
pub fn tasks(count: usize) -> String {
    match count {
        1 => "1 task".to_owned(),
        more => format!("{more} tasks"),
    }
}

/// Which outcomes, and how many of each where there are several.
pub fn counted<'a>(outcomes: impl Iterator<Item = &'a str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for outcome in outcomes {
        *counts.entry(outcome).or_default() += 1;
    }
    let total: usize = counts.values().sum();
    let told = counts.into_iter().map(|(outcome, count)| match total {
        1 => outcome.to_owned(),
        _ => format!("{count} {outcome}"),
    });
    let told = told.collect::<Vec<_>>().join(", ");
    if told.is_empty() {
        "nothing".to_owned()
    } else {
        told
    }
}

/// A JSON object of these members; without those that are null.
pub fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    let members = members.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(
        members
            .map(|(name, value)| (name.to_owned(), value))
            .collect::<Map<_, _>>(),
    )
}

/// A moment, ISO 8601.
pub fn at(time: SystemTime) -> Value {
    Value::String(protocol::Timestamp::from(time).to_string())
}

/// The same, if there is one.
pub fn at_maybe(time: Option<SystemTime>) -> Value {
    time.map_or(Value::Null, at)
}

/// Aligned columns. Names that end with `_seconds` hold durations.
pub fn table(columns: &[&str], rows: &[Value]) -> String {
    let heads = columns
        .iter()
        .map(|name| name.trim_end_matches("_seconds").to_uppercase());
    let mut lines: Vec<Vec<String>> = vec![heads.collect()];
    for row in rows {
        lines.push(columns.iter().map(|name| cell(name, &row[*name])).collect());
    }
    let width = |column: usize| {
        let cells = lines.iter().map(|line| line[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let padded = line
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn cell(name: &str, value: &Value) -> String {
    let text = match value {
        Value::Null => "-".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(number) if name.ends_with("_seconds") => age(number.as_u64().unwrap_or(0)),
        Value::String(text) => one_line(text),
        Value::Array(items) => {
            let items = items.iter().map(|item| cell("", item));
            items.collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    };
    if text.chars().count() <= CELL_MAX {
        return text;
    }
    let kept: String = text.chars().take(CELL_MAX - 1).collect();
    format!("{kept}…")
}

/// Text of tools is not to be trusted with a terminal.
pub fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// The two largest units of a duration.
pub fn age(seconds: u64) -> String {
    let text = humantime::format_duration(Duration::from_secs(seconds)).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_aligned_and_durations_are_read() {
        let rows = [
            json!({"tool": "a", "age_seconds": 3700, "note": null, "also": true}),
            json!({"tool": "long_name", "age_seconds": 5, "note": "x\u{1b}[2J\ny", "also": false}),
        ];
        let text = table(&["tool", "age_seconds", "note", "also"], &rows);
        assert_eq!(
            text,
            "TOOL       AGE    NOTE     ALSO\n\
             a          1h 1m  -        yes\n\
             long_name  5s     x [2J y  no\n"
        );
    }

    #[test]
    fn long_cells_are_cut() {
        let rows = [json!({"note": "ä".repeat(100)})];
        let text = table(&["note"], &rows);
        assert_eq!(text.lines().nth(1).unwrap().chars().count(), CELL_MAX);
    }

    #[test]
    fn a_place_holds_no_password() {
        for (url, host) in [
            (
                "postgres://me:secret@db:5432/mcp?sslmode=require",
                "db:5432",
            ),
            ("postgres://db/mcp", "db"),
            ("postgres://me:p@ss@db/mcp", "db"),
            ("postgres://me:p/ss@db/mcp", "postgres.url"),
            ("postgres:///mcp?host=/run/postgresql", "postgres.url"),
            ("host=db password=secret", "postgres.url"),
        ] {
            assert_eq!(place(url), host, "{url}");
        }
    }
}
