//! `mcp-tasks queues`: what waits, runs and is parked, for which slots, and what Redis knows of it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use queue::{Lane, Standing};
use serde_json::{Value, json};
use store::{QueueState, Slots};

use super::Failure;
use super::operator::{self, Options, object};

/// Prints live tasks by queue, priority, tool and version, and the streams of Redis beside them.
///
/// # Errors
/// When Postgres could not be asked; Redis may be away.
pub fn run(options: &Options) -> Result<ExitCode, Failure> {
    operator::run(options, true, async |desk| {
        let queues = desk.store.queues().await?;
        let slots = desk.store.slots().await?;
        let mut streams: BTreeMap<Lane, Standing> = BTreeMap::new();
        if let Some(redis) = desk.queue().await {
            streams.extend(redis.streams().await.unwrap_or_default());
        }
        let mut rows = Vec::new();
        let mut told: BTreeSet<Lane> = BTreeSet::new();
        let mut limited: BTreeSet<&str> = BTreeSet::new();
        for queue in &queues {
            let lane = Lane {
                tool: queue.tool.clone(),
                version: queue.version,
            };
            // Hints are of a tool and a version, slots of a tool, wherever its jobs wait: they are told once.
            let stream = streams.get(&lane).filter(|_| told.insert(lane.clone()));
            let slots = slots.iter().find(|slots| slots.tool == queue.tool);
            let slots = slots.filter(|slots| limited.insert(&slots.tool));
            rows.push(row(&lane, Some(queue), (stream, slots)));
        }
        for (lane, stream) in streams.iter().filter(|(lane, _)| !told.contains(lane)) {
            let slots = slots.iter().find(|slots| slots.tool == lane.tool);
            let slots = slots.filter(|slots| limited.insert(&slots.tool));
            rows.push(row(lane, None, (Some(stream), slots)));
        }
        desk.rows(
            &[
                "queue",
                "priority",
                "tool",
                "version",
                "queued",
                "due",
                "waiting_for_slot",
                "slots",
                "slots_each",
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

fn row(
    lane: &Lane,
    queue: Option<&QueueState>,
    (stream, slots): (Option<&Standing>, Option<&Slots>),
) -> Value {
    let count = |of: fn(&QueueState) -> i64| json!(queue.map_or(0, of));
    object([
        ("queue", json!(queue.map(|queue| &queue.queue))),
        ("priority", json!(queue.map(|queue| queue.priority))),
        ("tool", json!(lane.tool)),
        ("version", json!(lane.version)),
        ("queued", count(|queue| queue.queued)),
        ("due", count(|queue| queue.due)),
        (
            "waiting_for_slot",
            json!(slots.map(|slots| slots.due - slots.able)),
        ),
        ("slots", json!(slots.and_then(|slots| slots.all))),
        ("slots_each", json!(slots.and_then(|slots| slots.each))),
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
