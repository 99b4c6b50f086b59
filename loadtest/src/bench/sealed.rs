//! What sealing costs: the same calls and the same reads, of tasks that are sealed and of tasks that are not.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use harness::config::Role;
use harness::{Error, Result, wait};

use super::connection::Connection;
use super::drive::{self, Driven, Worker, unexpected};
use super::pairs::{self, Ours, driving};
use super::report::Row;
use super::run::{Bench, PRINCIPAL, TASK, arguments};
use super::wire::Wire;
use super::works;

/// One key, which seals.
const SEALING: &str = "[encryption]\nkeys = [{ id = \"bench\", \
    key = \"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\" }]\n";
/// Finished tasks of each kind that are read, at most.
const TASKS: u64 = 1_000;
/// Until they are finished.
const PATIENCE: Duration = Duration::from_secs(120);

/// Calls, and reads, through a gateway that seals and through one that does not.
///
/// # Errors
/// If a process does not start, or its tasks are not finished.
pub async fn measure(bench: &mut Bench) -> Result<Vec<Row>> {
    bench.without_worker();
    let gateway = bench.system.add(Role::Gateway, SEALING).await?;
    let rows = both(bench, gateway).await;
    bench.system.kill(gateway);
    rows
}

async fn both(bench: &mut Bench, sealing: usize) -> Result<Vec<Row>> {
    let tools = bench.system.wait_for_tools(sealing, PRINCIPAL, &[TASK]);
    tools.await?;
    let at = [bench.gateway, sealing].map(|at| bench.system.address(at));
    let [clear, sealed] = at;
    let (clear, sealed) = ([clear?], [sealed?]);
    let wires = [bench.gateway, sealing].map(|at| Wire::new(&bench.system.url(at), PRINCIPAL));
    let mut rows = Vec::new();
    if bench.options.wants("create_sealed") {
        let bench = &*bench;
        let baseline = async || Ok(pairs::create(bench, &wires[0], &clear).await?.rate());
        let ours = async || Ok(Ours::rate(&pairs::create(bench, &wires[1], &sealed).await?));
        rows.push(pairs::measure(bench, ("create_sealed", "/s"), baseline, ours).await?);
    }
    if bench.options.wants("get_sealed") {
        // It has the key, and works for both.
        let worker = bench.system.add(Role::Worker, SEALING).await?;
        let read = reads(bench, (clear[0], &wires[0]), (sealed[0], &wires[1])).await;
        bench.system.kill(worker);
        bench.clear().await?;
        rows.push(read?);
    }
    Ok(rows)
}

/// Reads finished tasks of both kinds, which one worker finished.
async fn reads(
    bench: &Bench,
    clear: (SocketAddr, &Wire),
    sealed: (SocketAddr, &Wire),
) -> Result<Row> {
    let count = (bench.options.rows / 100).clamp(TASKS / 50, TASKS);
    let (in_clear, in_seal) = (made(clear, count).await?, made(sealed, count).await?);
    let open = "SELECT count(*) FROM tasks WHERE phase IS NOT NULL AND id > '01900000-0000-7000-8000-000000000000'";
    let look = async || bench.system.number(open).await.unwrap_or(f64::NAN);
    wait::for_state("all are finished", PATIENCE, look, |left| *left == 0.0).await?;
    let with_key = "SELECT count(*) FROM tasks WHERE data_key IS NOT NULL";
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    let expected = count as f64;
    if bench.system.number(with_key).await? != expected {
        return Err(Error::Other(format!(
            "{count} tasks should be sealed, and no others"
        )));
    }
    let get = async |(at, wire): (SocketAddr, &Wire), ids: &[String]| -> Result<Driven> {
        let load = bench.options.load(bench.options.connections);
        let work = async |worker: &mut Worker| one(worker, wire, ids).await;
        drive::closed(&[at], load, work).await.map_err(driving)
    };
    let baseline = async || Ok(get(clear, &in_clear).await?.rate());
    let ours = async || Ok(Ours::rate(&get(sealed, &in_seal).await?));
    pairs::measure(bench, ("get_sealed", "/s"), baseline, ours).await
}

/// So many tasks: their ids.
async fn made((at, wire): (SocketAddr, &Wire), count: u64) -> Result<Vec<String>> {
    let request = wire.call(TASK, &arguments());
    let connection = Connection::open(at).await.map_err(driving)?;
    let mut worker = Worker {
        connection,
        rng: crate::rng::Rng::new(1),
        number: 0,
        turn: 0,
    };
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(
            works::handle(&mut worker, &request)
                .await
                .map_err(driving)?,
        );
    }
    Ok(ids)
}

async fn one(worker: &mut Worker, wire: &Wire, ids: &[String]) -> io::Result<()> {
    let last = u64::try_from(ids.len()).unwrap_or(u64::MAX);
    let n = usize::try_from(worker.rng.between(0, last)).unwrap_or(0);
    let connection = &mut worker.connection;
    let status = connection.ask(&wire.get(&ids[n])).await?;
    if status == 200 && connection.holds("\"status\":\"completed\"") {
        return Ok(());
    }
    Err(unexpected(status, connection.body()))
}
