//! `mcp-tasks tasks erase`: everything that is kept of one principal goes, its name included.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use protocol::TaskId;
use queue::{Lane, Queue};
use serde_json::json;
use store::{Act, Touched, Traces, pseudonym};
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
    #[arg(long, num_args = 2, value_names = ["ISSUER", "SUBJECT"], required = true,
        value_parser = clap::builder::NonEmptyStringValueParser::new())]
    principal: Vec<String>,
    /// Do it; otherwise it is only shown what there is.
    #[arg(long)]
    yes: bool,
    /// How long running work may take to stop.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "60s")]
    wait: Duration,
    #[command(flatten)]
    operator: Options,
}

/// Runs it.
///
/// # Errors
/// When Postgres cannot be asked.
pub fn run(erase: &Erase) -> Result<ExitCode, Failure> {
    let [issuer, subject] = erase.principal.as_slice() else {
        return Err("--principal takes an issuer and a subject".into());
    };
    let principal = (issuer.as_str(), subject.as_str());
    operator::run(&erase.operator, true, async |desk| {
        let before = desk.store.traces(issuer, subject).await?;
        if !erase.yes {
            tell(desk, &before);
            eprintln!("nothing was erased: say --yes");
            return Ok(ExitCode::SUCCESS);
        }
        all(desk, principal, erase.wait).await
    })
}

async fn all(
    desk: &Desk,
    (issuer, subject): (&str, &str),
    wait: Duration,
) -> Result<ExitCode, Failure> {
    let store = &desk.store;
    let audit = Uuid::new_v4();
    // Its name would stay in the trail of its own erasure.
    let target = json!({ "principal": pseudonym(issuer, subject) });
    let by = (desk.operator.as_str(), "tasks erase");
    store.audit(audit, by, &target).await?;
    let queue = desk.queue().await;
    let began = Instant::now();
    let mut erased = 0;
    let (live, left) = loop {
        let live = store.live_of(issuer, subject, BATCH).await?;
        for (id, _) in live.iter().filter(|(_, stopping)| !stopping) {
            stop(desk, queue.as_ref(), (audit, *id)).await?;
        }
        let gone = store.erase(audit, (issuer, subject), BATCH).await?;
        erased += gone;
        if gone > 0 || live.iter().any(|(_, stopping)| !stopping) {
            continue;
        }
        let is_late = began.elapsed() > wait;
        if live.is_empty() || is_late {
            store.erase_traces(issuer, subject).await?;
            let left = store.traces(issuer, subject).await?;
            // What somebody else had locked a moment ago, or was just created, goes in the next round.
            if left == Traces::default() || is_late {
                break (live, left);
            }
        }
        tokio::time::sleep(PAUSE).await;
    };
    tell(desk, &left);
    eprintln!(
        "erase: {}",
        operator::tasks(usize::try_from(erased).unwrap_or(usize::MAX))
    );
    if left == Traces::default() {
        return Ok(ExitCode::SUCCESS);
    }
    for (id, _) in &live {
        eprintln!("mcp-tasks: task {id} has not ended yet: it is told to stop");
    }
    eprintln!("mcp-tasks: not all is erased; run the same command again");
    Ok(ExitCode::FAILURE)
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
