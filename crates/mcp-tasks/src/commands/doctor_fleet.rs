//! The doctor's look at our own processes: workers, sweeps, tools, and the sum of their pools.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Failure;
use super::doctor::{Findings, PATIENCE};
use super::operator::{Desk, age};

/// A sweep may fail for so long before that is a matter, however short its interval is. As in the
/// readiness of cron.
const OVERDUE_MIN: Duration = Duration::from_secs(15);

/// Looks at what is written in the tables; the schema fits.
///
/// # Errors
/// When Postgres could not be asked any more.
pub async fn look(
    desk: &Desk,
    processes: Option<u32>,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let store = desk.store.with_wait(PATIENCE);
    let workers = store.workers().await?;
    let alive = workers.iter().filter(|worker| worker.alive).count();
    if alive == 0 {
        findings.fail(
            "workers",
            "none is alive",
            "nothing runs jobs: start `mcp-tasks worker`",
        );
    } else {
        let running: i64 = workers.iter().map(|worker| worker.running).sum();
        findings.ok("workers", format!("{alive} alive, {running} jobs running"));
    }
    let lost: i64 = workers.iter().map(|worker| worker.lost).sum();
    if lost > 0 {
        findings.warn(
            "leases",
            format!("{lost} jobs whose worker is not heard of"),
            "they are taken over within seconds; if not, look at cron and the workers",
        );
    }
    tools(desk, findings).await?;
    sweeps(desk, findings).await?;
    pools(desk, processes, alive, findings).await?;
    Ok(())
}

async fn tools(desk: &Desk, findings: &mut Findings) -> Result<(), Failure> {
    let tools = desk.store.with_wait(PATIENCE).tool_states().await?;
    let served = tools.iter().filter(|tool| tool.current && tool.listed);
    let (mut count, mut forsaken, mut paused) = (0, Vec::new(), Vec::new());
    for tool in served {
        count += 1;
        let name = format!("{} version {}", tool.name, tool.version);
        if tool.paused.calls || tool.paused.jobs {
            paused.push(name.clone());
        }
        if !tool.alive {
            forsaken.push(name);
        }
    }
    if count == 0 {
        findings.fail(
            "tools",
            "no tool is listed",
            "start a worker that serves some: tools.demo, or tools of your own",
        );
    } else if forsaken.is_empty() {
        findings.ok("tools", format!("{count} listed, all served"));
    } else {
        findings.fail(
            "tools",
            format!("no live worker serves {}", forsaken.join(", ")),
            "their calls wait until they expire: start workers that serve them",
        );
    }
    if !paused.is_empty() {
        findings.warn(
            "pauses",
            format!("paused: {}", paused.join(", ")),
            "`mcp-tasks tools resume NAME`, when it is time",
        );
    }
    Ok(())
}

async fn sweeps(desk: &Desk, findings: &mut Findings) -> Result<(), Failure> {
    let facts = desk.store.with_wait(PATIENCE).sweep_facts().await?;
    let facts: BTreeMap<&str, Option<Duration>> = facts
        .iter()
        .map(|sweep| (sweep.name.as_str(), sweep.success))
        .collect();
    let intervals = cron::intervals(&desk.config.cron);
    let mut overdue = Vec::new();
    for (name, interval) in &intervals {
        match facts.get(name).copied().flatten() {
            None => overdue.push(format!("{name} (never)")),
            Some(since) if since > *interval * 3 + OVERDUE_MIN => {
                overdue.push(format!("{name} ({} ago)", age(since.as_secs())));
            }
            Some(_) => {}
        }
    }
    if overdue.is_empty() {
        findings.ok("sweeps", format!("{} on time", intervals.len()));
    } else {
        findings.fail(
            "sweeps",
            format!("overdue: {}", overdue.join(", ")),
            "lost jobs and deadlines wait for them: start `mcp-tasks cron`, or read its log",
        );
    }
    Ok(())
}

/// Whether the pools of all processes fit into `max_connections`.
async fn pools(
    desk: &Desk,
    processes: Option<u32>,
    alive: usize,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let facts = desk.store.with_wait(PATIENCE).server_facts().await?;
    let (max, reserved) = facts.connections_max;
    let there = i64::from(max) - i64::from(reserved);
    let counted = match processes {
        Some(count) => i64::from(count),
        // A gateway and a cron say nothing of themselves.
        None => i64::try_from(alive).unwrap_or(i64::MAX).saturating_add(2),
    };
    let each = i64::try_from(desk.config.postgres.pool_size).unwrap_or(i64::MAX);
    let others = (facts.sessions - facts.ours - 1).max(0);
    let wanted = counted.saturating_mul(each).saturating_add(others);
    let guessed = match processes {
        Some(_) => "",
        None => " (at least; say --processes)",
    };
    findings.measure(
        "connections",
        // A process that starts looks through two sessions more.
        (&(wanted + 2), &(there * 9 / 10), &(there + 1)),
        format!(
            "{counted} processes{guessed} x {each} and {others} others, of {there}; {} in use now",
            facts.sessions
        ),
        "raise max_connections, or lower postgres.pool_size",
    );
    Ok(())
}
