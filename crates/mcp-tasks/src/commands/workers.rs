//! `mcp-tasks workers`: who runs jobs.

use std::process::ExitCode;

use serde_json::{Value, json};
use store::WorkerState;

use super::Failure;
use super::operator::{self, Options, at_maybe, object};

/// Prints workers that were heard of within a day, and whoever owns a job.
///
/// # Errors
/// When Postgres could not be asked.
pub fn run(options: &Options) -> Result<ExitCode, Failure> {
    operator::run(options, true, async |desk| {
        let workers = desk.store.workers().await?;
        let rows: Vec<Value> = workers.iter().map(row).collect();
        desk.rows(
            &[
                "worker",
                "alive",
                "host",
                "release",
                "running",
                "slots",
                "lost",
                "seen_seconds",
                "started_at",
                "tools",
            ],
            &rows,
        );
        Ok(ExitCode::SUCCESS)
    })
}

fn row(worker: &WorkerState) -> Value {
    object([
        ("worker", json!(worker.name)),
        ("alive", json!(worker.alive)),
        ("host", json!(worker.host)),
        ("release", json!(worker.release)),
        ("running", json!(worker.running)),
        ("slots", json!(worker.slots)),
        ("lost", json!(worker.lost)),
        ("seen_seconds", json!(worker.seen.map(|d| d.as_secs()))),
        (
            "oldest_job_seconds",
            json!(worker.oldest.map(|d| d.as_secs())),
        ),
        ("started_at", at_maybe(worker.started_at)),
        ("tools", json!(worker.tools)),
    ])
}
