//! From a hint to a job: the hinted one while there are places, the one whose turn it is where more
//! waits than there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use protocol::TaskId;
use queue::{Lane, Queue};
use store::{
    Claim, ClaimRequest, Limits, Served as Offer, Store, ToolSpec, Turn, TurnRequest, Waiting,
};
use uuid::Uuid;

use crate::alone::Alone;
use crate::tool::{Served, ToolSet};

/// Of so many jobs taken by turn, one is of the priority whose jobs have waited longest.
const OLDEST_EVERY: u32 = 8;
/// Looks at the queue for one hint, while others are faster at the slots of limited tools.
const LOOKS: u32 = 4;
/// Before another look at what others are at: as long as a commit takes, and no busy loop.
pub(crate) const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// A hint, and whether more may be waiting than there are places for.
pub(crate) struct Wanted {
    pub(crate) id: TaskId,
    pub(crate) lane: Lane,
    pub(crate) crowded: bool,
}

/// What became of a hint.
pub(crate) enum Picked {
    /// A job.
    Job {
        /// It is this worker's.
        claim: Box<Claim>,
        /// The tool.
        served: Served,
        /// When it was asked for.
        sent: Instant,
        /// It came by the hint of another job, which is still needed for that one.
        others_hint: bool,
    },
    /// The hint has done its duty: its job does not wait.
    Gone,
    /// The same: there is nothing for this worker.
    Nothing,
    /// Others are at what could be taken: the hint is still needed.
    Busy,
}

/// Claims for one worker.
pub(crate) struct Turns {
    store: Store,
    queue: Queue,
    tools: ToolSet,
    name: Arc<str>,
    taken: AtomicU32,
    alone: Alone,
}

impl Turns {
    /// `places`: jobs that the worker runs at once.
    pub(crate) fn new(
        (store, queue): (Store, Queue),
        tools: ToolSet,
        name: Arc<str>,
        places: usize,
    ) -> Self {
        Self {
            store,
            queue,
            tools,
            name,
            taken: AtomicU32::new(0),
            alone: Alone::new(places),
        }
    }

    /// Takes a job for a hint. While there are places for all that waits, it does not matter in which
    /// order it is taken, and the hinted job is the cheapest to take. Otherwise the hint says no more
    /// than that there is work.
    pub(crate) async fn pick(&self, wanted: &Wanted) -> Result<Picked, store::Error> {
        let Some(hinted) = self.tools.find(&wanted.lane.tool) else {
            return Ok(Picked::Nothing);
        };
        let queue = &hinted.spec.policy.queue;
        let by_hint = !wanted.crowded || self.alone.takes(queue, Instant::now());
        if by_hint && let Some(job) = self.hinted(wanted, &hinted).await? {
            return Ok(job);
        }
        let next = self.next(wanted, &hinted).await?;
        match next {
            // Its row may have been locked by somebody who does not want the job.
            Picked::Nothing | Picked::Busy if wanted.crowded => {
                Ok(self.hinted(wanted, &hinted).await?.unwrap_or(next))
            }
            next => Ok(next),
        }
    }

    /// The hinted job itself.
    async fn hinted(
        &self,
        wanted: &Wanted,
        served: &Served,
    ) -> Result<Option<Picked>, store::Error> {
        let spec = &served.spec;
        let resumes = resumes(spec);
        let request = ClaimRequest {
            id: wanted.id,
            tool: spec.name(),
            version: spec.version,
            resumes: &resumes,
            token: Uuid::new_v4(),
            worker: &self.name,
        };
        let sent = Instant::now();
        let limits = Limits::of(&spec.policy);
        let claim = self.store.claim_limited(&request, limits).await?;
        Ok(claim.map(|claim| Picked::Job {
            claim: Box::new(claim),
            served: served.clone(),
            sent,
            others_hint: false,
        }))
    }

    /// The job whose turn it is.
    async fn next(&self, wanted: &Wanted, hinted: &Served) -> Result<Picked, store::Error> {
        let specs = self.tools.jobs();
        let offers: Vec<Offer<'_>> = specs.iter().map(|spec| offer(spec)).collect();
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        let mut request = TurnRequest {
            hint: Some(wanted.id),
            queue: &hinted.spec.policy.queue,
            tools: &offers,
            token: Uuid::new_v4(),
            worker: &self.name,
            oldest_first: taken % OLDEST_EVERY == OLDEST_EVERY - 1,
        };
        for _ in 0..LOOKS {
            let sent = Instant::now();
            match self.store.claim_best(&request).await? {
                Turn::Claimed { claim, alone } => {
                    self.alone.note(&claim.queue, alone, Instant::now());
                    return Ok(self.job(claim, sent, wanted));
                }
                Turn::Limited { tool, queue } => {
                    if let Some(job) = self.slot(&request, (&tool, &queue), wanted).await? {
                        return Ok(job);
                    }
                }
                Turn::Named => {
                    if let Some(job) = self.hinted(wanted, hinted).await? {
                        return Ok(job);
                    }
                    request.hint = None;
                }
                Turn::Busy => return Ok(Picked::Busy),
                Turn::Gone => return Ok(Picked::Gone),
                Turn::Nothing => return Ok(Picked::Nothing),
            }
        }
        Ok(Picked::Busy)
    }

    /// The next job of a limited tool, if there is a slot for it still.
    async fn slot(
        &self,
        request: &TurnRequest<'_>,
        (tool, queue): (&str, &str),
        wanted: &Wanted,
    ) -> Result<Option<Picked>, store::Error> {
        let offer = request.tools.iter().filter(|offer| offer.tool == tool);
        let offer: Vec<Offer<'_>> = offer.cloned().collect();
        let request = TurnRequest {
            hint: None,
            queue,
            tools: &offer,
            token: Uuid::new_v4(),
            ..request.clone()
        };
        let sent = Instant::now();
        match self.store.claim_slot(&request).await? {
            Turn::Claimed { claim, .. } => Ok(Some(self.job(claim, sent, wanted))),
            Turn::Limited { .. } | Turn::Named | Turn::Gone | Turn::Busy | Turn::Nothing => {
                Ok(None)
            }
        }
    }

    fn job(&self, claim: Box<Claim>, sent: Instant, wanted: &Wanted) -> Picked {
        let Some(served) = self.tools.find(&claim.tool) else {
            // Taken out of service in this very moment; the lease runs out.
            return Picked::Nothing;
        };
        let others_hint = claim.id() != wanted.id;
        Picked::Job {
            claim,
            served,
            sent,
            others_hint,
        }
    }

    /// A job of this tool has ended: whoever waits for its slot gets a hint. Should it be lost, the
    /// reconcile sweep gives another one.
    pub(crate) async fn ended(&self, spec: &ToolSpec, queue: &str) {
        if Limits::of(&spec.policy).are_none() {
            return;
        }
        for _ in 0..LOOKS {
            match self.store.next_waiting(queue, &offer(spec)).await {
                Ok(Waiting::Next { id, version }) => {
                    let lane = Lane {
                        tool: spec.name().to_owned(),
                        version,
                    };
                    if self.queue.push(&lane, id).await.is_err() {
                        tracing::debug!("no hint for who waits for a slot: cron gives it one");
                    }
                    return;
                }
                Ok(Waiting::Nobody) => return,
                Ok(Waiting::Busy) => tokio::time::sleep(BUSY_PAUSE).await,
                Err(error) => {
                    tracing::debug!(error = ?error, "who waits for a slot is found by cron");
                    return;
                }
            }
        }
    }
}

fn resumes(spec: &ToolSpec) -> Vec<i32> {
    let mut resumes = spec.resumes.clone();
    resumes.push(spec.version);
    resumes
}

fn offer(spec: &ToolSpec) -> Offer<'_> {
    Offer {
        tool: spec.name(),
        version: spec.version,
        resumes: resumes(spec),
        limits: Limits::of(&spec.policy),
    }
}
