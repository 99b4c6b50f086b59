//! Reads with many rows in the table, beside the same with few.

use harness::{Error, Result};

use super::drive::{self, Driven, Worker};
use super::machine;
use super::measure::Spread;
use super::pairs::{self, Ours, driving};
use super::report::Row;
use super::run::{Bench, say};
use super::works;

/// Rows, if nothing else is said.
const MANY: u64 = 10_000_000;
/// Beside the table: journal, and what the system and everybody else need.
const SPARE: f64 = 4e9;
/// Of the journal while the table is filled; what is measured has more.
const JOURNAL: &str = "2GB";

/// Reads of as many random ids, among few rows, then spread over many.
///
/// # Errors
/// If the disk has no room: told before anything is filled.
pub async fn measure(bench: &mut Bench) -> Result<Row> {
    let (few, many) = (bench.options.rows, bench.options.many.unwrap_or(MANY));
    let many = many.max(few * 2);
    let bytes = room(bench, many).await?;
    say(&format!(
        "  {many} rows of {bytes:.0} bytes with their indexes: {:.1} GB",
        bytes * float(many) / 1e9
    ));
    let wire = bench.wire();
    let at = [bench.system.address(bench.gateway)?];
    let load = bench.options.load(bench.options.connections);
    // `few` ids, each so many rows from the next.
    let reads = async |(first, step): (u64, u64)| -> Result<Driven> {
        let work = async |worker: &mut Worker| {
            let n = first + worker.rng.between(0, few) * step;
            works::read(worker, &wire, (n, n)).await
        };
        drive::closed(&at, load, work).await.map_err(driving)
    };
    let mut before = Vec::new();
    for _ in 0..bench.options.repeats.max(1) {
        before.push(reads((1, 1)).await?.rate());
    }
    let first = bench.filled + 1;
    let last = first + many - 1;
    fill(bench, (first, last)).await?;
    let step = many / few;
    // Once through all of them: what is measured is the table, and not the disk behind it.
    say("  reading each row that is asked for once");
    let warm = format!(
        "SELECT count(result) FROM generate_series({first}::bigint, {last}, {step}) n \
         JOIN tasks ON id = {}",
        super::fill::id_of("n")
    );
    bench.system.sql(&warm).await?;
    let before = Spread::of(&before).ok_or_else(|| Error::Other("no repeats".to_owned()))?;
    let measured = bench.filled;
    let spread = async || Ok(Ours::rate(&reads((first, step)).await?));
    let base = async || Ok(before.median);
    let mut row = pairs::measure(bench, ("rows_10m", "/s"), base, spread).await?;
    row.baseline = Some(before);
    let any = async |worker: &mut Worker| works::read(worker, &wire, (first, measured)).await;
    let any = drive::closed(&at, load, any).await.map_err(driving)?;
    let size = "SELECT pg_total_relation_size('tasks')";
    let size = bench.system.number(size).await?;
    row.errors += any.errors;
    row.notes.push(format!(
        "{last} rows, {:.1} GB with indexes; {few} ids spread over all of them, as many as before",
        size / 1e9
    ));
    row.notes.push(format!(
        "any of the rows, most of them not in Postgres' memory: {:.0}/s, p99 {:.1} ms",
        any.rate(),
        any.ms(99.0)
    ));
    let minutes = "measured before the table was filled and after: minutes lie between the two";
    row.notes.push(minutes.to_owned());
    Ok(row)
}

/// Bytes of a row with its part of the indexes, if there is room for so many.
async fn room(bench: &Bench, many: u64) -> Result<f64> {
    let size = "SELECT pg_total_relation_size('tasks')::float8 / count(*) FROM tasks";
    let bytes = bench.system.number(size).await?;
    let (needed, free) = (
        bytes * float(many) + SPARE,
        float(machine::free(&bench.system.data())?),
    );
    if needed > free {
        return Err(Error::Other(format!(
            "{many} rows of {bytes:.0} bytes and the journal need {:.0} GB, and {:.0} GB are free at {}: \
             fewer with --rows, or another disk with TMPDIR",
            needed / 1e9,
            free / 1e9,
            bench.system.data().display()
        )));
    }
    Ok(bytes)
}

async fn fill(bench: &mut Bench, (first, last): (u64, u64)) -> Result<()> {
    say(&format!("filling the table with rows up to {last}"));
    let journal = |size: String| [size, "SELECT pg_reload_conf()".to_owned()];
    for sql in journal(format!("ALTER SYSTEM SET max_wal_size = '{JOURNAL}'")) {
        bench.system.sql(&sql).await?;
    }
    let told = |rows: u64| {
        if rows % 1_000_000 < 50_000 {
            say(&format!("  {rows} rows"));
        }
    };
    let filled = bench.finished.fill(&bench.system, first, last, told).await;
    for sql in journal("ALTER SYSTEM RESET max_wal_size".to_owned()) {
        bench.system.sql(&sql).await?;
    }
    filled?;
    bench.filled = last;
    Ok(())
}

#[expect(
    clippy::cast_precision_loss,
    reason = "bytes and counts of one machine"
)]
fn float(number: u64) -> f64 {
    number as f64
}
