//! `mcp-tasks cron run`: sweeps once, for a scheduler that starts processes.

use std::process::ExitCode;

use cron::{Cron, Once};
use serde_json::{Value, json};
use telemetry::Health;

use super::operator::{self, Desk, Options, object};
use super::{Failure, chain};

/// Runs each of these sweeps once, one after the other.
///
/// # Errors
/// When none could be begun. A sweep that fails is told, and the exit code is 1.
pub fn run(sweeps: &[String], options: &Options) -> Result<ExitCode, Failure> {
    operator::run(options, true, async |desk| all(desk, sweeps).await)
}

async fn all(desk: &Desk, sweeps: &[String]) -> Result<ExitCode, Failure> {
    let queue = queue::Queue::new(desk.config.redis.clone(), &desk.registry)?;
    // Without Redis there are no hints to give; everything else is done.
    let mut up = queue.connected();
    let connecting = desk.config.redis.connect_timeout;
    let _ = tokio::time::timeout(connecting, up.wait_for(|up| *up)).await;
    let cron = Cron::new(
        (desk.config.cron.clone(), desk.config.alerts.clone()),
        desk.store.clone(),
        queue,
        &desk.registry,
        Health::new(&desk.registry),
    );
    let (mut rows, mut failed) = (Vec::new(), false);
    let audit = desk.begin("cron run", &json!({ "sweeps": sweeps })).await?;
    for name in sweeps {
        let (outcome, moved, error) = match cron.run_once(name).await {
            Ok(Once::Swept(rows)) => ("swept", Some(rows), None),
            Ok(Once::LedElsewhere) => ("led_elsewhere", None, None),
            Ok(Once::Unwatched(rows)) => ("workers_are_too_young", Some(rows), None),
            Err(error) => ("failed", None, Some(chain(&error))),
        };
        failed |= error.is_some();
        rows.push(object([
            ("sweep", json!(name)),
            ("outcome", json!(outcome)),
            ("rows", json!(moved)),
            ("error", json!(error)),
        ]));
    }
    desk.rows(&["sweep", "outcome", "rows", "error"], &rows);
    let outcomes = rows.iter().filter_map(|row| row["outcome"].as_str());
    desk.end(audit, &operator::counted(outcomes)).await;
    for row in rows.iter().filter(|row| !row["error"].is_null()) {
        let told = row["error"].as_str().unwrap_or_default();
        eprintln!("mcp-tasks: {}: {told}", Value::to_string(&row["sweep"]));
    }
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
