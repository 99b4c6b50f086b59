//! The works of the bench that are measured against statements of `pgbench`.

use std::io;
use std::path::Path;
use std::time::Duration;

use harness::config::Role;
use harness::tokens::{Issuer, SigningKey};
use harness::{Error, Result};
use tokio::time::{Instant, sleep};

use super::drive::{self, Driven, Worker, unexpected};
use super::fill;
use super::pairs::{self, Ours, driving};
use super::pgbench::{self, Run};
use super::report::Row;
use super::run::{Bench, INLINE, TASK, arguments, say};
use super::wire::{Wire, text_field};

/// A task that takes longer counts as failed: a server that is slow shall be measured, and not be a failure.
const PATIENCE: Duration = Duration::from_secs(30);
/// Callers of a crowd.
const PRINCIPALS: usize = 64;
/// Its connections are so many times as many as otherwise.
const CROWD: usize = 6;
/// Between two reads of a task that is not over. (Ours holds a read that comes early; others do not.)
const AGAIN: Duration = Duration::from_millis(5);
/// Open-loop connections: more than are ever busy at half of saturation.
const OPEN: usize = 256;
const RESOURCE: &str = "https://bench.example.com/mcp";

/// Reads of random rows.
///
/// # Errors
/// If something can't be started.
pub async fn get(bench: &Bench) -> Result<Row> {
    let wire = bench.wire();
    get_of(
        bench,
        "get",
        (bench.gateway, &wire),
        (1, bench.options.rows),
    )
    .await
}

/// The same, on behalf of a principal who shows a signed token.
///
/// # Errors
/// If something can't be started.
pub async fn get_jwt(bench: &mut Bench) -> Result<Row> {
    let key = SigningKey::p256("bench");
    let issuer = Issuer::start(&[&key]).await?;
    let settings = format!(
        "[auth]\nmode = \"tokens\"\nresource = \"{RESOURCE}\"\n[[auth.issuers]]\nissuer = \"{}\"\n",
        issuer.url
    );
    let gateway = bench.system.add(Role::Gateway, &settings).await?;
    let (first, last) = (bench.filled + 1, bench.filled + bench.options.rows);
    let rows = bench.finished.clone().with("issuer", &issuer.url);
    rows.fill(&bench.system, first, last, |_| ()).await?;
    bench.filled = last;
    let claims = issuer.claims(super::run::PRINCIPAL, RESOURCE);
    let wire = Wire::new(&bench.system.url(gateway), &key.sign(&claims));
    let row = get_of(bench, "get_jwt", (gateway, &wire), (first, last)).await;
    bench.system.kill(gateway);
    row
}

async fn get_of(
    bench: &Bench,
    key: &'static str,
    (gateway, wire): (usize, &Wire),
    (first, last): (u64, u64),
) -> Result<Row> {
    let script = fill::select_script(&bench.system, first)?;
    let at = [bench.system.address(gateway)?];
    let load = bench.options.load(bench.options.connections);
    let baseline = async || {
        let run = run_of(bench, &script, bench.options.clients, last);
        Ok(pgbench::run(run, None).await?.rate)
    };
    let ours = async || {
        let work = async |worker: &mut Worker| read(worker, wire, (first, last)).await;
        let driven = drive::closed(&at, load, work).await.map_err(driving)?;
        note(key, &driven);
        Ok(Ours::rate(&driven))
    };
    pairs::measure(bench, (key, "/s"), baseline, ours).await
}

/// Handles, with nobody to run their tasks.
///
/// # Errors
/// If something can't be started.
pub async fn create(bench: &mut Bench) -> Result<Row> {
    bench.without_worker();
    let bench = &*bench;
    let (wire, at) = (bench.wire(), [bench.system.address(bench.gateway)?]);
    let script = bench.waiting.insert_script(&bench.system)?;
    let baseline = async || inserts(bench, &script).await;
    let ours = async || {
        let driven = pairs::create(bench, &wire, &at).await?;
        note("create", &driven);
        Ok(Ours::rate(&driven))
    };
    pairs::measure(bench, ("create", "/s"), baseline, ours).await
}

/// Whole lives.
///
/// # Errors
/// If something can't be started.
pub async fn life(bench: &mut Bench) -> Result<Row> {
    bench.with_worker().await?;
    let bench = &*bench;
    let (wire, at) = (bench.wire(), [bench.system.address(bench.gateway)?]);
    let script = bench.waiting.insert_script(&bench.system)?;
    let request = wire.call(TASK, &arguments());
    let load = bench.options.load(bench.options.connections);
    let baseline = async || inserts(bench, &script).await;
    let ours = async || {
        let work = async |worker: &mut Worker| live(worker, &wire, &request).await;
        let driven = drive::closed(&at, load, work).await.map_err(driving)?;
        note("life", &driven);
        bench.clear().await?;
        Ok(Ours::rate(&driven))
    };
    pairs::measure(bench, ("life", "/s"), baseline, ours).await
}

/// Calls that are answered with their result: alone, and at half of what the system can do.
///
/// # Errors
/// If something can't be started.
pub async fn inline(bench: &mut Bench) -> Result<Vec<Row>> {
    bench.with_worker().await?;
    let bench = &*bench;
    let (wire, at) = (bench.wire(), [bench.system.address(bench.gateway)?]);
    let script = bench.waiting.insert_script(&bench.system)?;
    let request = wire.call(INLINE, &arguments());
    let work = async |worker: &mut Worker| call(worker, &request).await;
    let baseline = async || {
        let run = run_of(bench, &script, 1, 1);
        let measured = pgbench::run(run, Some(bench.system.dir())).await?;
        bench.clear().await?;
        measured
            .p50_ms
            .ok_or_else(|| Error::Other("pgbench told no median".to_owned()))
    };
    let alone = async || {
        let driven = drive::closed(&at, bench.options.load(1), work)
            .await
            .map_err(driving)?;
        bench.clear().await?;
        Ok(Ours::figure(&driven, driven.ms(50.0)))
    };
    let mut rows = Vec::new();
    if bench.options.wants("inline_p50") {
        rows.push(pairs::measure(bench, ("inline_p50", "ms"), baseline, alone).await?);
    }
    if bench.options.wants("inline_p99") {
        let load = bench.options.load(bench.options.connections);
        let full = drive::closed(&at, load, work).await.map_err(driving)?;
        bench.clear().await?;
        let half = full.rate() / 2.0;
        let busy = async || {
            let driven = drive::open(&at, bench.options.load(OPEN), half, work)
                .await
                .map_err(driving)?;
            bench.clear().await?;
            Ok(Ours::figure(&driven, driven.ms(99.0)))
        };
        let mut row = pairs::measure(bench, ("inline_p99", "ms"), baseline, busy).await?;
        row.notes.push(format!(
            "saturated at {:.0} calls/s, measured at {half:.0}",
            full.rate()
        ));
        rows.push(row);
    }
    Ok(rows)
}

/// Calls of many principals: far more at once than the worker has places, against as many as it has places for.
/// Where more waits than there are places, everybody's turn is looked for.
///
/// # Errors
/// If something can't be started.
pub async fn crowd(bench: &mut Bench) -> Result<Row> {
    bench.with_worker().await?;
    let bench = &*bench;
    let at = [bench.system.address(bench.gateway)?];
    let url = bench.system.url(bench.gateway);
    let of = |number| Wire::new(&url, &format!("bench-{number}"));
    let requests = (0..PRINCIPALS).map(|number| of(number).call(INLINE, &arguments()));
    let requests: Vec<_> = requests.collect();
    let work =
        async |worker: &mut Worker| call(worker, &requests[worker.number % PRINCIPALS]).await;
    let drive = async |connections: usize| {
        let load = bench.options.load(connections);
        let driven = drive::closed(&at, load, work).await.map_err(driving)?;
        bench.clear().await?;
        Ok(driven)
    };
    let few = async || {
        drive(bench.options.connections)
            .await
            .map(|driven| driven.rate())
    };
    let many = async || {
        let driven = drive(bench.options.connections * CROWD).await?;
        note("crowd", &driven);
        Ok(Ours::rate(&driven))
    };
    pairs::measure(bench, ("crowd", "/s"), few, many).await
}

/// One read at a time: what coalescing must not slow down.
///
/// # Errors
/// If something can't be started.
pub async fn lone(bench: &Bench) -> Result<Row> {
    let (wire, rows) = (bench.wire(), bench.options.rows);
    let at = [bench.system.address(bench.gateway)?];
    let script = fill::select_script(&bench.system, 1)?;
    let baseline = async || {
        let run = run_of(bench, &script, 1, rows);
        let measured = pgbench::run(run, Some(bench.system.dir())).await?;
        measured
            .p50_ms
            .ok_or_else(|| Error::Other("pgbench told no median".to_owned()))
    };
    let ours = async || {
        let work = async |worker: &mut Worker| read(worker, &wire, (1, rows)).await;
        let driven = drive::closed(&at, bench.options.load(1), work)
            .await
            .map_err(driving)?;
        Ok(Ours::figure(&driven, driven.ms(50.0)))
    };
    let (statements, reads) = shared(bench).await?;
    let mut row = pairs::measure(bench, ("lone", "ms"), baseline, ours).await?;
    let (later, read) = shared(bench).await?;
    row.notes.push(format!(
        "{:.3} reads a statement: 1 where whoever is alone waits for nobody",
        (read - reads) / (later - statements).max(1.0)
    ));
    Ok(row)
}

/// Statements of reads so far, and the reads that they were for.
async fn shared(bench: &Bench) -> Result<(f64, f64)> {
    let gateway = &bench.system.nodes[bench.gateway];
    let metric = async |end: &str| {
        let name = format!("mcp_tasks_store_reads_together_{end}");
        gateway.metric(&name, "").await
    };
    Ok((metric("count").await?, metric("sum").await?))
}

fn run_of<'a>(bench: &'a Bench, script: &'a Path, clients: usize, rows: u64) -> Run<'a> {
    Run {
        url: &bench.system.database_url,
        script,
        clients,
        time: bench.options.time,
        rows,
    }
}

/// Inserts a second; what they inserted is forgotten.
async fn inserts(bench: &Bench, script: &Path) -> Result<f64> {
    let measured = pgbench::run(run_of(bench, script, bench.options.clients, 1), None).await?;
    bench.clear().await?;
    Ok(measured.rate)
}

fn note(key: &str, driven: &Driven) {
    say(&format!(
        "  {key}: p50 {:.1} ms, p99 {:.1} ms, {} errors",
        driven.ms(50.0),
        driven.ms(99.0),
        driven.errors
    ));
}

/// One read of one of these rows, which must be a finished task.
///
/// # Errors
/// If it is answered with anything else.
pub async fn read(worker: &mut Worker, wire: &Wire, (first, last): (u64, u64)) -> io::Result<()> {
    let n = worker.rng.between(first, last + 1);
    let connection = &mut worker.connection;
    let status = connection.ask(&wire.get(&fill::id(n))).await?;
    if status == 200 && connection.holds("\"status\":\"completed\"") {
        return Ok(());
    }
    Err(unexpected(status, connection.body()))
}

/// One call that becomes a task: its id.
///
/// # Errors
/// If it is answered with anything else.
pub async fn handle(worker: &mut Worker, request: &[u8]) -> io::Result<String> {
    let connection = &mut worker.connection;
    let status = connection.ask(request).await?;
    let task = text_field(connection.body(), "taskId").map(str::to_owned);
    task.ok_or_else(|| unexpected(status, connection.body()))
}

/// One call that is answered with its result.
///
/// # Errors
/// If it is answered with anything else.
pub async fn call(worker: &mut Worker, request: &[u8]) -> io::Result<()> {
    let connection = &mut worker.connection;
    let status = connection.ask(request).await?;
    if status == 200
        && connection.holds("\"resultType\":\"complete\"")
        && connection.holds("\"digest")
    {
        return Ok(());
    }
    Err(unexpected(status, connection.body()))
}

/// One whole life: a call, its task until it is over.
///
/// # Errors
/// If anything is answered with something else.
pub async fn live(worker: &mut Worker, wire: &Wire, request: &[u8]) -> io::Result<()> {
    let task = handle(worker, request).await?;
    let read = wire.get(&task);
    let connection = &mut worker.connection;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = connection.ask(&read).await?;
        if connection.holds("\"status\":\"completed\"") {
            return Ok(());
        }
        if !connection.holds("\"status\":\"working\"") || Instant::now() > deadline {
            return Err(unexpected(status, connection.body()));
        }
        sleep(AGAIN).await;
    }
}
