//! From a hint to a job: the hinted one while there are places, the one whose turn it is where more
//! waits than there are; none where the hinted one does not wait and has left no slot to somebody.

use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::TaskId;
use queue::{Lane, Queue};
use store::{
    Claim, ClaimRequest, Hinted, Limits, Served as Offer, Store, ToolSpec, Turn, TurnRequest,
    Waiting,
};
use uuid::Uuid;

use crate::seen::{Queues, Seen};
use crate::tool::{Served, ToolSet};

/// Looks at the queue for one hint, while others are faster at the slots of limited tools.
const LOOKS: u32 = 4;
/// Slots of a tool where they are counted for each principal, for the number of hints.
const SLOTS_ASSUMED: u64 = 128;
/// Fewer are never enough.
const HINTS_MIN: u64 = 16;
/// Before another look at what others are at: as long as a commit takes, and no busy loop.
pub(crate) const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// A hint, and whether more may be waiting than there are places for.
pub(crate) struct Wanted {
    pub(crate) id: TaskId,
    pub(crate) lane: Lane,
    pub(crate) crowded: bool,
    /// It came from Redis; otherwise Postgres named somebody who waits, and there is no hint.
    pub(crate) is_hint: bool,
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
    /// The hint's job does not wait.
    Gone,
    /// There is nothing for this worker. The hint's job may wait still, for a slot: it is given another hint.
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
    seen: Queues,
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
            seen: Queues::new(places),
        }
    }

    /// Takes a job for a hint. While there are places for all that waits, it does not matter in which
    /// order it is taken, and the hinted job is the cheapest to take. Otherwise the hint says no more
    /// than that there is work, as long as its job waits.
    pub(crate) async fn pick(&self, wanted: &Wanted) -> Result<Picked, store::Error> {
        let Some(hinted) = self.tools.find(&wanted.lane.tool) else {
            // Not served any more. Others may serve it.
            return Ok(Picked::Busy);
        };
        if !wanted.crowded
            && let Some(job) = self.hinted(wanted, &hinted).await?
        {
            return Ok(job);
        }
        let queue = match self.store.hinted(wanted.id).await? {
            Hinted::Turn(queue) => queue,
            Hinted::Named => match self.hinted(wanted, &hinted).await? {
                Some(job) => return Ok(job),
                None => hinted.spec.policy.queue.clone(),
            },
            Hinted::Gone(queue) => {
                let queue = queue.unwrap_or_else(|| hinted.spec.policy.queue.clone());
                if wanted.is_hint {
                    return self.gone(wanted, &hinted, &queue).await;
                }
                queue
            }
        };
        if wanted.crowded
            && self.seen.follows_a_hint(&queue, Instant::now())
            && let Some(job) = self.hinted(wanted, &hinted).await?
        {
            return Ok(job);
        }
        let next = self.next(wanted, &queue).await?;
        match next {
            // Its row may have been locked by somebody who does not want the job. Where there are limits, others may
            // be at the slots, and it is not this one's turn.
            Picked::Nothing | Picked::Busy
                if wanted.crowded && Limits::of(&hinted.spec.policy).are_none() =>
            {
                Ok(self.hinted(wanted, &hinted).await?.unwrap_or(next))
            }
            next => Ok(next),
        }
    }

    /// A hint whose job does not wait. Of a tool with limits it may have been pushed because a slot came free, and
    /// whoever waits for that has given up its own: so it leads to whose turn it is, unless there are enough others.
    async fn gone(
        &self,
        wanted: &Wanted,
        hinted: &Served,
        queue: &str,
    ) -> Result<Picked, store::Error> {
        if self.has_hints_enough(&hinted.spec, &wanted.lane).await {
            return Ok(Picked::Gone);
        }
        Ok(match self.next(wanted, queue).await? {
            // It has led to what it was for.
            Picked::Job {
                claim,
                served,
                sent,
                others_hint,
            } => Picked::Job {
                others_hint: others_hint && claim.tool != wanted.lane.tool,
                claim,
                served,
                sent,
            },
            Picked::Nothing => Picked::Gone,
            other => other,
        })
    }

    /// Whether a tool has no limits, so that each of its jobs that wait has a hint; or else has hints that nobody has
    /// read for all of its slots, and some to spare, because not each of them needs one.
    async fn has_hints_enough(&self, spec: &ToolSpec, lane: &Lane) -> bool {
        let limits = Limits::of(&spec.policy);
        if limits.are_none() {
            return true;
        }
        let slots = limits.all.map_or(SLOTS_ASSUMED, u64::from);
        let hints = self.queue.depth(lane).await;
        hints.is_ok_and(|hints| hints >= HINTS_MIN.max(2 * slots))
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
    async fn next(&self, wanted: &Wanted, queue: &str) -> Result<Picked, store::Error> {
        let specs = self.tools.jobs();
        let offers: Vec<Offer<'_>> = specs.iter().map(|spec| offer(spec)).collect();
        let oldest_first = self.seen.is_turn_of_the_oldest(queue);
        let request = self.request(queue, &offers, oldest_first);
        for _ in 0..LOOKS {
            let sent = Instant::now();
            match self.store.claim_best(&request).await? {
                Turn::Claimed {
                    claim,
                    alone,
                    priorities,
                } => {
                    let seen = Seen { alone, priorities };
                    self.seen.note(&claim.queue, seen, Instant::now());
                    let others_hint = claim.id() != wanted.id;
                    return Ok(self.job((claim, others_hint), sent));
                }
                Turn::Limited {
                    tool,
                    queue,
                    alone,
                    priorities,
                } => {
                    let seen = Seen { alone, priorities };
                    self.seen.note(&queue, seen, Instant::now());
                    if let Some(job) = self.slot(&request, (&tool, &queue), wanted).await? {
                        return Ok(job);
                    }
                }
                Turn::Busy => return Ok(Picked::Busy),
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
        let request = self.request(queue, &offer, request.oldest_first);
        let sent = Instant::now();
        match self.store.claim_slot(&request).await? {
            Turn::Claimed { claim, .. } => {
                let others_hint = claim.id() != wanted.id;
                Ok(Some(self.job((claim, others_hint), sent)))
            }
            Turn::Limited { .. } | Turn::Busy | Turn::Nothing => Ok(None),
        }
    }

    fn request<'a>(
        &'a self,
        queue: &'a str,
        tools: &'a [Offer<'a>],
        oldest_first: bool,
    ) -> TurnRequest<'a> {
        TurnRequest {
            queue,
            tools,
            token: Uuid::new_v4(),
            worker: &self.name,
            oldest_first,
        }
    }

    fn job(&self, (claim, others_hint): (Box<Claim>, bool), sent: Instant) -> Picked {
        let Some(served) = self.tools.find(&claim.tool) else {
            // Taken out of service in this very moment; the lease runs out.
            return Picked::Busy;
        };
        Picked::Job {
            claim,
            served,
            sent,
            others_hint,
        }
    }

    /// A job of this tool has ended: whoever waits for its slot gets a hint, unless there are enough. Should it be
    /// lost, the reconcile sweep gives another one.
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
                    // A slot of one principal is no other's: there, hints of others do not help.
                    let any = Limits::of(&spec.policy).all.is_some();
                    if any && self.has_hints_enough(spec, &lane).await {
                        return;
                    }
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
