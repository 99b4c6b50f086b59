//! Coalesces concurrent reads: one statement a round trip, no added wait when idle.
//!
//! A lone read is sent at once. While its round trip is in flight the next ones gather, and
//! the first of them to get its turn reads for all. Whoever leads does it inside its own
//! request, so nothing is spawned; a leader that is dropped half way fails nobody, because
//! its followers notice and read again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use protocol::TaskId;
use tokio::sync::{Semaphore, oneshot};

use crate::read::Lookup;
use crate::task::Principal;
use crate::{Error, Store};

/// Reads in one statement, at most.
const BATCH_MAX: usize = 64;
/// Statements in flight, at most: more connections make the sum slower, not faster.
const IN_FLIGHT_MAX: usize = 2;

type Waiting = Vec<((Principal, TaskId), oneshot::Sender<Lookup>)>;

#[derive(Clone)]
pub(crate) struct Reads {
    waiting: Arc<Mutex<Waiting>>,
    turns: Arc<Semaphore>,
}

impl Default for Reads {
    fn default() -> Self {
        Self {
            waiting: Arc::default(),
            turns: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
        }
    }
}

impl Reads {
    pub(crate) async fn get(
        &self,
        store: &Store,
        principal: &Principal,
        id: TaskId,
    ) -> Result<Lookup, Error> {
        let started = Instant::now();
        let (sender, mut answer) = oneshot::channel();
        self.lock().push(((principal.clone(), id), sender));
        let found = loop {
            tokio::select! {
                biased;
                found = &mut answer => break found,
                turn = self.turns.acquire() => {
                    let turn = turn.expect("the semaphore is never closed");
                    let batch = self.take();
                    if batch.is_empty() {
                        // Somebody else reads for us: wait for that, and take no turn meanwhile.
                        drop(turn);
                        break answer.await;
                    }
                    let (wanted, senders): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
                    // On an error the senders are dropped, and everyone asks by themselves.
                    if let Ok(found) = store.get_many(&wanted).await {
                        for (sender, found) in senders.into_iter().zip(found) {
                            let _ = sender.send(found);
                        }
                    }
                }
            }
        };
        match found {
            Ok(found) => Ok(found),
            // The leader failed or was dropped: read alone in the time that is left, and see the
            // error oneself.
            Err(_) => {
                let left = store.wait_max.saturating_sub(started.elapsed());
                single(&store.with_wait(left), principal, id).await
            }
        }
    }

    fn take(&self) -> Waiting {
        let mut waiting = self.lock();
        let rest = waiting.len().min(BATCH_MAX);
        waiting.drain(..rest).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn single(store: &Store, principal: &Principal, id: TaskId) -> Result<Lookup, Error> {
    let found = store.get_many(&[(principal.clone(), id)]).await?;
    Ok(found.into_iter().next().unwrap_or(Lookup::Unknown))
}
