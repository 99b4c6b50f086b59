//! Measured in pairs, one right after the other, so that both meet the same machine.

use std::net::SocketAddr;

use harness::config::Role;
use harness::{Error, Result};

use super::drive::{self, Driven};
use super::measure::Spread;
use super::processors::{Cores, Look};
use super::report::Row;
use super::run::{Bench, PRINCIPAL, TASK, arguments, say};
use super::{wire::Wire, works};

/// One measurement of ours.
#[derive(Debug)]
pub struct Ours {
    /// The figure.
    pub figure: f64,
    /// Requests that failed.
    pub errors: u64,
    /// The first of them.
    pub error: Option<String>,
}

impl Ours {
    /// The rate of what was driven.
    #[must_use]
    pub fn rate(driven: &Driven) -> Ours {
        Ours::figure(driven, driven.rate())
    }

    /// Another figure of it.
    #[must_use]
    pub fn figure(driven: &Driven, figure: f64) -> Ours {
        Ours {
            figure,
            errors: driven.errors,
            error: driven.error.clone(),
        }
    }
}

/// Measures a work and its baseline in turn, the one that begins changing.
///
/// # Errors
/// As the two.
pub async fn measure(
    bench: &Bench,
    (key, unit): (&'static str, &'static str),
    baseline: impl AsyncFn() -> Result<f64>,
    ours: impl AsyncFn() -> Result<Ours>,
) -> Result<Row> {
    let (mut theirs, mut all, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut errors, mut notes, mut cores) = (0, Vec::new(), Cores::new());
    for pair in 0..bench.options.repeats.max(1) {
        let early = if pair % 2 == 0 {
            Some(baseline().await?)
        } else {
            None
        };
        bench.system.settle().await?;
        let before = Look::now(&bench.system.groups());
        let measured = ours().await?;
        cores = before.until(&Look::now(&bench.system.groups()));
        bench.system.settle().await?;
        let base = match early {
            Some(base) => base,
            None => baseline().await?,
        };
        say(&format!(
            "  {key}: {:.2} {unit}, baseline {base:.2}: {:.2}",
            measured.figure,
            measured.figure / base
        ));
        errors += measured.errors;
        if notes.is_empty() {
            notes.extend(measured.error);
        }
        theirs.push(base);
        ratios.push(measured.figure / base);
        all.push(measured.figure);
    }
    let spread = |figures: &[f64]| {
        let spread = Spread::of(figures).filter(|spread| spread.median.is_finite());
        spread.ok_or_else(|| Error::Other(format!("{key}: nothing was measured")))
    };
    Ok(Row {
        key,
        unit,
        baseline: Some(spread(&theirs)?),
        ours: spread(&all)?,
        ratio: spread(&ratios)?,
        errors,
        notes,
        cores,
    })
}

/// The same load on one gateway and on three.
///
/// # Errors
/// If a gateway does not start.
pub async fn gateways(bench: &mut Bench) -> Result<Vec<Row>> {
    let second = bench.system.add(Role::Gateway, "").await?;
    let third = bench.system.add(Role::Gateway, "").await?;
    for gateway in [second, third] {
        bench
            .system
            .wait_for_tools(gateway, PRINCIPAL, &[TASK])
            .await?;
    }
    bench.without_worker();
    let at = [bench.gateway, second, third];
    let addresses = at.map(|at| bench.system.address(at));
    let addresses: Vec<_> = addresses.into_iter().collect::<Result<_>>()?;
    let rows = one_and_three(bench, &addresses).await;
    for at in [second, third] {
        bench.system.kill(at);
    }
    rows
}

async fn one_and_three(bench: &Bench, addresses: &[SocketAddr]) -> Result<Vec<Row>> {
    let (wire, options) = (bench.wire(), &bench.options);
    let load = options.load(options.connections);
    let get = async |at: &[SocketAddr]| {
        let work =
            async |worker: &mut drive::Worker| works::read(worker, &wire, (1, options.rows)).await;
        drive::closed(at, load, work).await.map_err(driving)
    };
    let mut rows = Vec::new();
    if options.wants("gateways_get") {
        let one = async || Ok(get(&addresses[..1]).await?.rate());
        let three = async || Ok(Ours::rate(&get(addresses).await?));
        rows.push(measure(bench, ("gateways_get", "/s"), one, three).await?);
    }
    if options.wants("gateways_create") {
        let one = async || Ok(create(bench, &wire, &addresses[..1]).await?.rate());
        let three = async || Ok(Ours::rate(&create(bench, &wire, addresses).await?));
        rows.push(measure(bench, ("gateways_create", "/s"), one, three).await?);
    }
    Ok(rows)
}

/// Handles, one after the other on each connection; what they made is forgotten.
///
/// # Errors
/// If nobody answers.
pub async fn create(bench: &Bench, wire: &Wire, at: &[SocketAddr]) -> Result<Driven> {
    let request = wire.call(TASK, &arguments());
    let load = bench.options.load(bench.options.connections);
    let work = async |worker: &mut drive::Worker| works::handle(worker, &request).await.map(drop);
    let driven = drive::closed(at, load, work).await.map_err(driving)?;
    bench.clear().await?;
    Ok(driven)
}

/// As an error of the bench.
#[must_use]
pub fn driving(error: std::io::Error) -> Error {
    Error::Other(format!("clients: {error}"))
}
