//! The same load for a long time: whatever grows, grows for ever.

use std::time::Duration;

use harness::config::Role;
use harness::{Error, Result};
use tokio::time::Instant;

use super::drive::{self, Load, Worker};
use super::measure::Spread;
use super::pairs::driving;
use super::processors::{Cores, Look, resident, told};
use super::report::Row;
use super::run::{Bench, INLINE, TASK, arguments, say};
use super::works;

/// Tasks live so long after they were made, as an operator's policy would have it.
const TTL: &str = "30 s";
/// What sweeps do less often by default: short runs shall see the table come to rest.
const SETTINGS: &str = r#"
[cron]
purge_interval = "2s"
tombstone_keep = "1m"
[postgres]
expired_grace = "5s"
"#;
const SAMPLES_MIN: usize = 6;
/// A soak as long as this is compared with its first minutes.
const LONG: Duration = Duration::from_secs(40 * 60);
const FIRST: Duration = Duration::from_secs(5 * 60);

/// One look.
#[derive(Debug, Clone)]
struct Sample {
    p99_ms: f64,
    rate: f64,
    errors: u64,
    /// Resident bytes of gateway, worker, cron.
    memory: [f64; 3],
    table: f64,
    rows: f64,
    entries: f64,
}

const NAMES: [&str; 3] = ["gateway", "worker", "cron"];

/// Latency and sizes of the first and the last part.
///
/// # Errors
/// If something can't be started, or fails meanwhile.
pub async fn measure(bench: &mut Bench) -> Result<Vec<Row>> {
    bench.with_worker().await?;
    // Without this tasks would stay for ever, and the table would grow as it must.
    let trigger = format!(
        "CREATE OR REPLACE FUNCTION soak_ttl() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         NEW.expires_at := NEW.created_at + interval '{TTL}'; RETURN NEW; END $$; \
         CREATE OR REPLACE TRIGGER soak_ttl BEFORE INSERT ON tasks FOR EACH ROW \
         EXECUTE FUNCTION soak_ttl()"
    );
    bench.system.sql(&trigger).await?;
    let cron = bench.system.add(Role::Cron, SETTINGS).await?;
    let rows = soak(bench, cron).await;
    bench.system.kill(cron);
    bench.system.sql("DROP TRIGGER soak_ttl ON tasks").await?;
    bench.clear().await?;
    rows
}

async fn soak(bench: &Bench, cron: usize) -> Result<Vec<Row>> {
    let time = bench.options.soak.unwrap_or(Duration::from_secs(60));
    let (wire, at) = (bench.wire(), [bench.system.address(bench.gateway)?]);
    let (inline, handle) = (
        wire.call(INLINE, &arguments()),
        wire.call(TASK, &arguments()),
    );
    let rows = bench.options.rows;
    // Of four operations, two are reads, one is answered with its result, one lives as a task.
    let work = async |worker: &mut Worker| match worker.turn % 4 {
        0 => works::call(worker, &inline).await,
        1 => works::live(worker, &wire, &handle).await,
        _ => works::read(worker, &wire, (1, rows)).await,
    };
    let load = bench.options.load(bench.options.connections);
    let full = drive::closed(&at, load, work).await.map_err(driving)?;
    let half = full.rate() / 2.0;
    say(&format!(
        "  soak: {half:.0} operations/s, half of {:.0}",
        full.rate()
    ));
    let pids = [Some(bench.gateway), bench.worker, Some(cron)];
    let pids = pids.map(|at| {
        at.and_then(|at| bench.system.nodes[at].pid())
            .unwrap_or_default()
    });
    let slice = (time / 60).clamp(Duration::from_secs(1), Duration::from_secs(60));
    let mut samples: Vec<Sample> = Vec::new();
    let (began, before) = (Instant::now(), Look::now(&bench.system.groups()));
    // A busy machine may need longer for its looks.
    while began.elapsed() < time || samples.len() < SAMPLES_MIN {
        let load = Load {
            connections: 128,
            warmup: Duration::ZERO,
            time: slice,
        };
        let driven = drive::open(&at, load, half, work).await.map_err(driving)?;
        let memory = pids.map(|pid| float(resident(pid).unwrap_or_default()));
        let size = "SELECT pg_total_relation_size('tasks') + pg_total_relation_size('attempts') \
                    + pg_total_relation_size('tombstones') + pg_total_relation_size('steps')";
        let sample = Sample {
            p99_ms: driven.ms(99.0),
            rate: driven.rate(),
            errors: driven.errors,
            memory,
            table: bench.system.number(size).await?,
            rows: bench.system.number("SELECT count(*) FROM tasks").await?,
            entries: bench.system.stream_entries().await?,
        };
        say(&sample.told(began.elapsed()));
        samples.push(sample);
    }
    let cores = before.until(&Look::now(&bench.system.groups()));
    judge(&samples, time, half, cores)
}

/// The first part is the first five minutes; of a short soak one eighth to a quarter of the time, where the
/// table has come to rest already.
fn judge(samples: &[Sample], time: Duration, half: f64, cores: Cores) -> Result<Vec<Row>> {
    if samples.len() < SAMPLES_MIN {
        return Err(Error::Other(format!(
            "a soak of {} s is too short: {} looks, at least {SAMPLES_MIN} are needed",
            time.as_secs(),
            samples.len()
        )));
    }
    let eighth = samples.len().div_ceil(8);
    let slice = time.as_secs_f64() / float(samples.len() as u64);
    let early = if time >= LONG {
        let first = samples.iter().enumerate();
        let begun = |at: usize| float(at as u64) * slice < FIRST.as_secs_f64() - 0.5 * slice;
        &samples[..first.take_while(|(at, _)| begun(*at)).count().max(1)]
    } else {
        &samples[eighth..eighth * 2]
    };
    let late = &samples[samples.len() - eighth..];
    let errors: u64 = samples.iter().map(|sample| sample.errors).sum();
    let compare = |of: &dyn Fn(&Sample) -> f64| (middle(early, of), middle(late, of));
    let latency = compare(&|sample| sample.p99_ms);
    let mut sizes: Vec<(String, (f64, f64))> = NAMES
        .iter()
        .enumerate()
        .map(|(at, name)| {
            (
                (*name).to_owned(),
                compare(&|sample: &Sample| sample.memory[at] / 1e6),
            )
        })
        .collect();
    sizes.push(("tables".to_owned(), compare(&|sample| sample.table / 1e6)));
    // Entries come and go by the hundred; only a stream that keeps them matters.
    sizes.push((
        "streams".to_owned(),
        compare(&|sample| sample.entries + 1_000.0),
    ));
    let grown = |(early, late): (f64, f64)| if early > 0.0 { late / early } else { 1.0 };
    let most = sizes
        .iter()
        .max_by(|one, other| grown(one.1).total_cmp(&grown(other.1)))
        .ok_or_else(|| Error::Other("nothing has a size".to_owned()))?;
    let told_sizes = sizes
        .iter()
        .map(|(name, (early, late))| format!("{name} {early:.0} → {late:.0}"));
    let told_sizes = told_sizes.collect::<Vec<_>>().join(", ");
    let rows = samples.last().map_or(0.0, |sample| sample.rows);
    let row = |key, unit, (early, late): (f64, f64), notes: Vec<String>| Row {
        key,
        unit,
        baseline: Some(Spread::one(early)),
        ours: Spread::one(late),
        ratio: Spread::one(grown((early, late))),
        errors,
        notes,
        cores: cores.clone(),
    };
    let about = format!(
        "{} s at {half:.0} operations/s (half reads, a quarter inline, a quarter tasks that live {TTL}); {}",
        time.as_secs(),
        told(&cores)
    );
    Ok(vec![
        row("soak_latency", "ms", latency, vec![about]),
        row(
            "soak_sizes",
            most_unit(&most.0),
            most.1,
            vec![format!(
                "most grown: {}; MB: {told_sizes}; {rows:.0} rows at the end",
                most.0
            )],
        ),
    ])
}

fn most_unit(name: &str) -> &'static str {
    if name == "streams" { "" } else { "MB" }
}

impl Sample {
    fn told(&self, at: Duration) -> String {
        let [gateway, worker, cron] = self.memory.map(|bytes| bytes / 1e6);
        format!(
            "  {:>5} s: {:.0}/s, p99 {:.1} ms, {} errors; MB: gateway {gateway:.0}, worker {worker:.0}, \
             cron {cron:.0}, tables {:.0}; {:.0} rows, {:.0} stream entries",
            at.as_secs(),
            self.rate,
            self.p99_ms,
            self.errors,
            self.table / 1e6,
            self.rows,
            self.entries
        )
    }
}

fn middle(samples: &[Sample], of: &dyn Fn(&Sample) -> f64) -> f64 {
    let figures: Vec<f64> = samples.iter().map(of).collect();
    Spread::of(&figures).map_or(0.0, |spread| spread.median)
}

#[expect(clippy::cast_precision_loss, reason = "bytes of one machine")]
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(grows: f64) -> Vec<Sample> {
        let sample = |at: i32| Sample {
            p99_ms: 5.0,
            rate: 100.0,
            errors: 0,
            memory: [1e7 * grows.powi(at), 1e7, 1e7],
            table: 1e8,
            rows: 10.0,
            entries: 3.0,
        };
        (0..16).map(sample).collect()
    }

    #[test]
    fn what_grows_is_found() {
        let time = Duration::from_secs(16);
        let flat = judge(&samples(1.0), time, 1.0, Cores::new()).unwrap();
        assert!(flat.iter().all(|row| row.met() == Some(true)));
        let grown = judge(&samples(1.05), time, 1.0, Cores::new()).unwrap();
        assert_eq!(grown[1].met(), Some(false));
        assert!(grown[1].notes[0].starts_with("most grown: gateway"));
        assert!(judge(&samples(1.0)[..3], time, 1.0, Cores::new()).is_err());
        // An hour, looked at sixty times: what grew after its first five minutes.
        let hour: Vec<Sample> = (0..60)
            .map(|at| samples(if at < 5 { 1.0 } else { 2.0 })[1].clone())
            .collect();
        let grown = judge(&hour, Duration::from_secs(3_600), 1.0, Cores::new()).unwrap();
        assert_eq!(grown[1].ratio.median, 2.0);
    }
}
