//! After the run: everything is whole again, and every acknowledged task is read until it is over,
//! and once more a moment later.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::board::Entry;
use crate::caller::{Caller, Shared};
use crate::history::View;
use crate::rng::Rng;

/// A task that is not over by then is lost.
const DEADLINE: Duration = Duration::from_secs(120);
/// Tasks read at the same time.
const WIDTH: usize = 24;
const LOOK: Duration = Duration::from_millis(300);
/// Between the first look at the end of all, and the last.
const LATER: Duration = Duration::from_secs(3);

/// Reads every task until it is over, then all once more.
pub async fn settle(shared: &Arc<Shared>, seed: u64) {
    within(shared, seed, DEADLINE).await;
}

/// The same with another deadline.
pub async fn within(shared: &Arc<Shared>, seed: u64, patience: Duration) {
    let deadline = Instant::now() + patience;
    let entries = shared.board.all();
    let mut rng = Rng::part(seed, u64::MAX - 1);
    round(shared, &entries, &mut rng, deadline).await;
    sleep(LATER).await;
    // Another gateway, a moment later: an end does not change.
    for status in round(shared, &entries, &mut rng, Instant::now()).await {
        shared.figures.end(&status);
    }
}

/// Reads each at least once, and on until it is over or the deadline. What each was then.
async fn round(
    shared: &Arc<Shared>,
    entries: &[Entry],
    rng: &mut Rng,
    deadline: Instant,
) -> Vec<String> {
    let width = Arc::new(Semaphore::new(WIDTH));
    let mut reading = JoinSet::new();
    for entry in entries {
        let permit = Arc::clone(&width).acquire_owned();
        let permit = permit.await.expect("nobody closes it");
        let caller = Caller::new("settler", &entry.principal, Arc::clone(shared));
        let (entry, rng) = (entry.clone(), Rng::new(rng.bits()));
        reading.spawn(async move {
            let over = end(&caller, &entry, rng, deadline).await;
            drop(permit);
            over
        });
    }
    let mut all = Vec::new();
    while let Some(ended) = reading.join_next().await {
        let view = ended.expect("reading does not panic");
        all.push(view.map_or_else(|| "unreadable".to_owned(), |view| view.status));
    }
    all
}

/// Nobody is left to answer its questions or to end what waits for ever: such a task is cancelled.
async fn end(caller: &Caller, entry: &Entry, mut rng: Rng, deadline: Instant) -> Option<View> {
    loop {
        let at = rng.below(caller.gateways());
        let seen = caller.read(at, &entry.task).await;
        let late = Instant::now() >= deadline;
        match seen {
            Ok(seen) if late || seen.view.is_terminal() => return Some(seen.view),
            Ok(seen) if entry.waits || seen.view.status == "input_required" => {
                let _ = caller.cancel(at, &entry.task).await;
            }
            Ok(_) => {}
            Err(trouble) if late || trouble.is_final() => return None,
            Err(_) => {}
        }
        sleep(LOOK).await;
    }
}
