//! `mcp-tasks tasks erase`: everything that is kept of one principal goes, or of all of a tenant, names
//! included.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use protocol::TaskId;
use queue::{Lane, Queue};
use serde_json::json;
use store::{Act, Member, Touched, Traces, pseudonym};
use uuid::Uuid;

use super::Failure;
use super::operator::{self, Desk, Options, object};

/// Tasks of one statement.
const BATCH: i64 = 200;
/// Between two looks at what still runs.
const PAUSE: Duration = Duration::from_millis(250);

/// Whom to erase.
#[derive(Debug, clap::Args)]
pub struct Erase {
    /// Issuer and subject of the principal's tokens, as `tasks list` shows them.
    #[arg(long, num_args = 2, value_names = ["ISSUER", "SUBJECT"], required_unless_present = "tenant",
        value_parser = clap::builder::NonEmptyStringValueParser::new())]
    principal: Vec<String>,
    /// Issuer and tenant: every principal with tasks of this tenant. One that has others as well is named,
    /// and not erased.
    #[arg(long, num_args = 2, value_names = ["ISSUER", "TENANT"], conflicts_with = "principal",
        value_parser = clap::builder::NonEmptyStringValueParser::new())]
    tenant: Vec<String>,
    /// Do it; otherwise it is only shown what there is.
    #[arg(long)]
    yes: bool,
    /// How long running work of a principal may take to stop.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "60s")]
    wait: Duration,
    #[command(flatten)]
    operator: Options,
}

/// What came of it for one or several principals.
#[derive(Default)]
struct Done {
    erased: u64,
    left: Traces,
    live: Vec<TaskId>,
}

/// Runs it.
///
/// # Errors
/// When Postgres cannot be asked.
pub fn run(erase: &Erase) -> Result<ExitCode, Failure> {
    operator::run(&erase.operator, true, async |desk| {
        let store = &desk.store;
        if let [issuer, tenant] = erase.tenant.as_slice() {
            let members = store.members_of(issuer, tenant).await?;
            let (others, members): (Vec<Member>, Vec<Member>) =
                members.into_iter().partition(|member| member.elsewhere);
            let subjects = members.iter().map(|member| member.subject.as_str());
            let (ended, moved) = each(desk, erase, (issuer, Some(tenant)), subjects).await?;
            let others = others.iter().map(|other| other.subject.as_str());
            let others: BTreeSet<&str> = others.chain(moved).collect();
            for subject in &others {
                eprintln!(
                    "mcp-tasks: {issuer} {subject} has tasks that are not of this tenant, or what is left of some: erase it with --principal, or not at all"
                );
            }
            if !erase.yes {
                return Ok(ended);
            }
            // Who called meanwhile for the first time, or goes on calling.
            let members = store.members_of(issuer, tenant).await?;
            let mut members = members.iter().map(|member| member.subject.as_str());
            let is_more = members.any(|subject| !others.contains(subject));
            if is_more {
                eprintln!(
                    "mcp-tasks: there are tasks of this tenant again; run the same command again"
                );
            }
            let all = others.is_empty() && !is_more;
            return Ok(if all { ended } else { ExitCode::FAILURE });
        }
        let [issuer, subject] = erase.principal.as_slice() else {
            return Err(
                "--principal takes an issuer and a subject, --tenant an issuer and a tenant".into(),
            );
        };
        let subjects = [subject.as_str()].into_iter();
        let (ended, _) = each(desk, erase, (issuer, None), subjects).await?;
        Ok(ended)
    })
}

/// One principal of this issuer after the other. For a tenant those are left alone, and returned, that have tasks
/// elsewhere when their turn comes: it may come long after they were found.
async fn each<'a>(
    desk: &Desk,
    erase: &Erase,
    (issuer, tenant): (&str, Option<&str>),
    subjects: impl Iterator<Item = &'a str>,
) -> Result<(ExitCode, Vec<&'a str>), Failure> {
    let mut done = Done::default();
    let mut moved = Vec::new();
    for subject in subjects {
        if !erase.yes {
            done.left += desk.store.traces(issuer, subject).await?;
            continue;
        }
        if let Some(tenant) = tenant
            && desk.store.elsewhere(issuer, tenant, subject).await?
        {
            moved.push(subject);
            continue;
        }
        // Its name would stay in the trail of its own erasure.
        let target = json!({ "principal": pseudonym(issuer, subject) });
        let audit = desk.begin("tasks erase", &target).await?;
        let ended = all(desk, audit, (issuer, subject), erase.wait).await;
        let one = desk.ended(audit, ended).await?;
        let outcome = if one.left == Traces::default() {
            "erased"
        } else {
            "partly_erased"
        };
        desk.end(audit, outcome).await;
        done.erased += one.erased;
        done.left += one.left;
        done.live.extend(one.live);
    }
    tell(desk, &done.left);
    if !erase.yes {
        eprintln!("nothing was erased: say --yes");
        return Ok((ExitCode::SUCCESS, moved));
    }
    eprintln!(
        "erase: {}",
        operator::tasks(usize::try_from(done.erased).unwrap_or(usize::MAX))
    );
    if done.left == Traces::default() {
        return Ok((ExitCode::SUCCESS, moved));
    }
    for id in &done.live {
        eprintln!("mcp-tasks: task {id} has not ended yet: it is told to stop");
    }
    eprintln!("mcp-tasks: not all is erased; run the same command again");
    Ok((ExitCode::FAILURE, moved))
}

/// All of one principal.
async fn all(
    desk: &Desk,
    audit: Uuid,
    (issuer, subject): (&str, &str),
    wait: Duration,
) -> Result<Done, Failure> {
    let store = &desk.store;
    let queue = desk.queue().await;
    let there = store.traces(issuer, subject).await?;
    let there = u64::try_from(there.ended + there.live).unwrap_or(0);
    let began = Instant::now();
    let (mut erased, mut steps) = (0, 0);
    loop {
        let live = store.live_of(issuer, subject, BATCH).await?;
        let mut moved = 0;
        for (id, _) in live.iter().filter(|(_, stopping)| !stopping) {
            stop(desk, queue.as_ref(), (audit, *id)).await?;
            moved += 1;
        }
        let gone = store.erase(audit, (issuer, subject), BATCH).await?;
        erased += gone;
        moved += gone;
        steps += moved;
        // What was there may be much, and goes however long that takes: each is told to stop once, and erased
        // once. What is made meanwhile may not hold up those who come after.
        let is_late = began.elapsed() > wait && (moved == 0 || steps >= there.saturating_mul(2));
        if moved > 0 && !is_late {
            continue;
        }
        if live.is_empty() || is_late {
            store.erase_traces(issuer, subject).await?;
            let left = store.traces(issuer, subject).await?;
            // What somebody else had locked a moment ago, or was just created, goes in the next round.
            if left == Traces::default() || is_late {
                // Some of those above have ended since.
                let live = store.live_of(issuer, subject, BATCH).await?;
                let live = live.into_iter().map(|(id, _)| id).collect();
                return Ok(Done { erased, left, live });
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// By the rule of every cancel; whom it concerns is told at once.
async fn stop(
    desk: &Desk,
    queue: Option<&Queue>,
    (audit, id): (Uuid, TaskId),
) -> Result<(), Failure> {
    let act = Act {
        audit,
        operator: &desk.operator,
        id,
    };
    let touched = desk.store.operator_cancel(act).await?;
    match (touched, queue) {
        (Touched::Stopping, Some(queue)) => queue.stop(id).await,
        (Touched::Ended, Some(queue)) => queue.wake(id).await,
        (Touched::Undoing { tool, version }, Some(_)) => {
            desk.hint(queue, &Lane { tool, version }, id).await;
        }
        _ => {}
    }
    Ok(())
}

fn tell(desk: &Desk, traces: &Traces) {
    let row = object([
        ("ended", json!(traces.ended)),
        ("live", json!(traces.live)),
        ("tombstones", json!(traces.tombstones)),
        ("keys", json!(traces.keys)),
        ("alerts", json!(traces.alerts)),
        ("audits", json!(traces.audits)),
    ]);
    let columns = ["ended", "live", "tombstones", "keys", "alerts", "audits"];
    desk.rows(&columns, &[row]);
}
