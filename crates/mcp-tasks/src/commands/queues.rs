//! `mcp-tasks queues`: what waits, runs and is parked, and what Redis knows of it.

use std::collections::BTreeMap;
use std::process::ExitCode;

use queue::{Lane, Standing};
use serde_json::{Value, json};
use store::QueueState;

use super::Failure;
use super::operator::{self, Options, object};

/// Prints live tasks by tool and version, and the streams of Redis beside them.
///
/// # Errors
/// When Postgres could not be asked; Redis may be away.
pub fn run(options: &Options) -> Result<ExitCode, Failure> {
    operator::run(options, true, async |desk| {
        let mut queues: BTreeMap<Lane, QueueState> = BTreeMap::new();
        for queue in desk.store.queues().await? {
            let lane = Lane {
                tool: queue.tool.clone(),
                version: queue.version,
            };
            queues.insert(lane, queue);
        }
        let mut streams: BTreeMap<Lane, Standing> = BTreeMap::new();
        if let Some(redis) = desk.queue().await {
            streams.extend(redis.streams().await.unwrap_or_default());
        }
        let mut lanes: Vec<&Lane> = queues.keys().chain(streams.keys()).collect();
        lanes.sort_unstable();
        lanes.dedup();
        let rows: Vec<Value> = lanes
            .into_iter()
            .map(|lane| row(lane, queues.get(lane), streams.get(lane)))
            .collect();
        desk.rows(
            &[
                "tool",
                "version",
                "queued",
                "due",
                "backing_off",
                "running",
                "parked",
                "undoing",
                "oldest_due_seconds",
                "oldest_seconds",
                "hints",
                "pending",
                "readers",
            ],
            &rows,
        );
        Ok(ExitCode::SUCCESS)
    })
}

fn row(lane: &Lane, queue: Option<&QueueState>, stream: Option<&Standing>) -> Value {
    let count = |of: fn(&QueueState) -> i64| json!(queue.map_or(0, of));
    object([
        ("tool", json!(lane.tool)),
        ("version", json!(lane.version)),
        ("queued", count(|queue| queue.queued)),
        ("due", count(|queue| queue.due)),
        ("backing_off", count(|queue| queue.backing_off)),
        ("running", count(|queue| queue.running)),
        ("parked", count(|queue| queue.parked)),
        ("undoing", count(|queue| queue.undoing)),
        ("stopping", count(|queue| queue.stopping)),
        (
            "oldest_due_seconds",
            json!(
                queue
                    .and_then(|queue| queue.oldest_due)
                    .map(|d| d.as_secs())
            ),
        ),
        (
            "oldest_seconds",
            json!(queue.map(|queue| queue.oldest.as_secs())),
        ),
        ("hints", json!(stream.map(|stream| stream.entries))),
        ("pending", json!(stream.map(|stream| stream.pending))),
        ("readers", json!(stream.map(|stream| stream.consumers))),
    ])
}
