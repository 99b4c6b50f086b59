//! What a task costs, measured: the numbers that `docs/capacity.md` calculates with.

use std::fmt::Write as _;
use std::time::Duration;

use harness::config::Role;
use harness::{Error, Result};
use tokio::time::sleep;

use super::drive::{self, Load, Worker};
use super::machine::{self, Machine};
use super::pairs::driving;
use super::processors::{Look, resident};
use super::run::{Bench, INLINE, Options, TASK, arguments, say};
use super::works;

/// After a load: whatever it still writes is written.
const REST: Duration = Duration::from_secs(2);

/// What one kind of work costs.
#[derive(Debug)]
struct Cost {
    name: &'static str,
    per_second: f64,
    /// Bytes of the journal each.
    wal: f64,
    /// Commits each.
    commits: f64,
    /// Processor time each, ms, by whom.
    cpu_ms: Vec<(String, f64)>,
}

/// Measures, and tells it.
///
/// # Errors
/// If the system can't be started, or a request fails.
pub async fn measure(options: &Options) -> Result<String> {
    let load_before = machine::load();
    let mut bench = Bench::start(options).await?;
    let machine = Machine::look(&bench.system, load_before).await?;
    let mut text = format!("{}\n", machine.told());
    at_rest(&bench, &mut text).await?;
    queued(&mut bench, &mut text).await?;
    connections(&mut bench, &mut text).await?;
    bench.with_worker().await?;
    let wire = bench.wire();
    let (inline, handle) = (
        wire.call(INLINE, &arguments()),
        wire.call(TASK, &arguments()),
    );
    let rows = bench.options.rows;
    let mut costs = Vec::new();
    let read = async |worker: &mut Worker| works::read(worker, &wire, (1, rows)).await;
    costs.push(cost(&bench, "read of a task", read).await?);
    let call = async |worker: &mut Worker| works::call(worker, &inline).await;
    costs.push(cost(&bench, "inline call", call).await?);
    let live = async |worker: &mut Worker| works::live(worker, &wire, &handle).await;
    costs.push(cost(&bench, "task: call, run, read", live).await?);
    tell(&costs, &mut text);
    Ok(text)
}

async fn at_rest(bench: &Bench, text: &mut String) -> Result<()> {
    say("bytes at rest");
    let system = &bench.system;
    let rows = float(bench.options.rows);
    let heap = system.number("SELECT pg_table_size('tasks')").await? / rows;
    let indexes = system.number("SELECT pg_indexes_size('tasks')").await? / rows;
    let payload = "SELECT avg(length(arguments) + coalesce(length(result), 0)) FROM tasks";
    let payload = system.number(payload).await?;
    let _ = writeln!(
        text,
        "finished task at rest:       {:.0} bytes ({heap:.0} in the table, {indexes:.0} in indexes), of them \
         {payload:.0} of arguments and result",
        heap + indexes
    );
    Ok(())
}

async fn queued(bench: &mut Bench, text: &mut String) -> Result<()> {
    say("bytes of what is queued");
    bench.without_worker();
    let wire = bench.wire();
    let at = [bench.system.address(bench.gateway)?];
    let request = wire.call(TASK, &arguments());
    let (before, table) = (bench.system.redis_bytes().await?, size(bench).await?);
    let load = bench.options.load(bench.options.connections);
    let work = async |worker: &mut Worker| works::handle(worker, &request).await.map(drop);
    drive::closed(&at, load, work).await.map_err(driving)?;
    sleep(REST).await;
    let entries = bench.system.stream_entries().await?.max(1.0);
    let redis = (bench.system.redis_bytes().await? - before) / entries;
    let count = bench
        .system
        .number("SELECT count(*) FROM tasks WHERE phase = 'queued'")
        .await?;
    let postgres = (size(bench).await? - table) / count.max(1.0);
    let _ = writeln!(
        text,
        "queued task:                 {redis:.0} bytes in Redis, {postgres:.0} in Postgres ({count:.0} tasks)"
    );
    bench.clear().await
}

async fn size(bench: &Bench) -> Result<f64> {
    bench
        .system
        .number("SELECT pg_total_relation_size('tasks')")
        .await
}

async fn connections(bench: &mut Bench, text: &mut String) -> Result<()> {
    say("connections and memory");
    bench.with_worker().await?;
    let cron = bench.system.add(Role::Cron, "").await?;
    sleep(REST).await;
    let _ = writeln!(
        text,
        "connections of all our processes, as they are now (at most postgres.pool_size each, 16 by default):"
    );
    let by_name = "SELECT coalesce(nullif(application_name, ''), 'unnamed') || ': ' || count(*) \
                   FROM pg_stat_activity WHERE backend_type = 'client backend' \
                   AND pid <> pg_backend_pid() GROUP BY application_name ORDER BY 1";
    for row in bench.system.sql(by_name).await? {
        let _ = writeln!(text, "  {}", row.into_iter().flatten().collect::<String>());
    }
    for node in &bench.system.nodes {
        let Some(memory) = node.pid().and_then(resident) else {
            continue;
        };
        let _ = writeln!(
            text,
            "memory of {:<14} {:>8.1} MiB, idle",
            node.name(),
            float(memory) / 1_048_576.0
        );
    }
    bench.system.kill(cron);
    Ok(())
}

async fn cost(
    bench: &Bench,
    name: &'static str,
    work: impl AsyncFn(&mut Worker) -> std::io::Result<()>,
) -> Result<Cost> {
    say(name);
    let at = [bench.system.address(bench.gateway)?];
    let load = Load {
        warmup: Duration::ZERO,
        ..bench.options.load(bench.options.connections)
    };
    bench.system.settle().await?;
    sleep(REST).await;
    let (wal, commits) = (wal(bench).await?, commits(bench).await?);
    let before = Look::now(&bench.system.groups());
    let driven = drive::closed(&at, load, work).await.map_err(driving)?;
    sleep(REST).await;
    let spent = before.spent_until(&Look::now(&bench.system.groups()));
    if let Some(error) = &driven.error {
        return Err(Error::Other(format!(
            "{name}: {} requests failed: {error}",
            driven.errors
        )));
    }
    // Those under way at the end were paid for and are not counted: less than a connection each.
    let done = float(driven.done.max(1));
    let cost = Cost {
        name,
        per_second: driven.rate(),
        wal: (self::wal(bench).await? - wal) / done,
        commits: (self::commits(bench).await? - commits) / done,
        cpu_ms: spent
            .into_iter()
            .map(|(name, time)| (name, time.as_secs_f64() * 1_000.0 / done))
            .collect(),
    };
    bench.clear().await?;
    Ok(cost)
}

async fn wal(bench: &Bench) -> Result<f64> {
    let bytes = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')";
    bench.system.number(bytes).await
}

async fn commits(bench: &Bench) -> Result<f64> {
    let commits = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    bench.system.number(commits).await
}

fn tell(costs: &[Cost], text: &mut String) {
    let _ = writeln!(
        text,
        "\n{:<24} {:>8} {:>12} {:>10}   processor time each, ms",
        "work", "a second", "WAL bytes", "commits"
    );
    for cost in costs {
        let cpu = cost.cpu_ms.iter().filter(|(name, _)| name != "clients");
        let each = cpu.clone().map(|(name, ms)| format!("{name} {ms:.3}"));
        let _ = writeln!(
            text,
            "{:<24} {:>8.0} {:>12.0} {:>10.2}   {}",
            cost.name,
            cost.per_second,
            cost.wal,
            cost.commits,
            each.collect::<Vec<_>>().join(", ")
        );
        let hours: f64 = cpu.map(|(_, ms)| ms).sum::<f64>() / 3.6;
        let _ = writeln!(
            text,
            "  a million of them: {hours:.2} core hours, {:.2} GB of WAL",
            cost.wal / 1e3
        );
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "bytes and counts of one machine"
)]
fn float(number: u64) -> f64 {
    number as f64
}
