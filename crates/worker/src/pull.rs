//! From hint to job: a bounded number of places, filled from Redis, and from Postgres while
//! Redis is away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use protocol::TaskId;
use queue::{Consumer, Event, Hint, Lane};
use store::UnhintedFilter;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::attempt::{self, Parts};
use crate::tool::ToolSet;
use crate::turn::{BUSY_PAUSE, Picked, Turns, Wanted};

/// Between two looks into Postgres while Redis is away.
const FALLBACK_PAUSE: Duration = Duration::from_secs(2);
/// A worker without a free place says so often that it is alive: it has nothing to ask for.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// Hints that are given back in one go, at most.
const ENDED_MAX: usize = 64;
/// Whoever asks to stop a job so young is heard so much later; most that are short have ended by then,
/// and need nobody to listen for them.
const LISTEN_AFTER: Duration = Duration::from_millis(20);

/// What becomes of a hint. Only the reader can give it back.
enum Returned {
    /// It has done its duty.
    Done(Hint),
    /// Somebody has to look again.
    Needed(Hint),
}

/// Fills the places until `shutdown`, then gives back the jobs that still run.
pub(crate) struct Puller {
    pub(crate) parts: Parts,
    pub(crate) tools: ToolSet,
    pub(crate) turns: Arc<Turns>,
    pub(crate) alive: telemetry::Beat,
}

impl Puller {
    pub(crate) async fn run(&self, shutdown: CancellationToken) -> JoinSet<()> {
        let slots = Arc::new(Semaphore::new(self.parts.config.slots));
        let mut changes = self.tools.changes();
        self.prepare_metrics();
        let mut consumer = self.parts.queue.consumer(self.lanes());
        let connected = self.parts.queue.connected();
        let mut looked = Instant::now();
        let mut jobs = JoinSet::new();
        let (done, mut finished) = tokio::sync::mpsc::unbounded_channel::<Returned>();
        let mut ended = Vec::new();
        while !shutdown.is_cancelled() {
            while jobs.try_join_next().is_some() {}
            let free = slots.available_permits();
            let asked = Instant::now();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                _ = finished.recv_many(&mut ended, ENDED_MAX) => {
                    // Together: they share a round trip.
                    let giving = ended.drain(..).map(|returned| give_back(&consumer, returned));
                    futures::future::join_all(giving).await;
                    // Many that end one by one keep the read below from coming to its end.
                    if *connected.borrow() {
                        self.alive.beat();
                    }
                }
                _ = changes.changed() => {
                    self.prepare_metrics();
                    consumer.set_lanes(self.lanes()).await;
                }
                // Full: wait for a place; what stays in Redis is there for others.
                _ = slots.acquire(), if free == 0 => {}
                () = tokio::time::sleep(FULL_PAUSE), if free == 0 => self.alive.beat(),
                taken = consumer.next(free), if free > 0 => match taken {
                    Ok(taken) => {
                        self.alive.beat();
                        // Where nothing is left behind, all that waits has a place.
                        let crowded = taken.more;
                        for hint in taken.hints {
                            let Ok(place) = Arc::clone(&slots).try_acquire_owned() else {
                                consumer.hand_back(hint).await;
                                continue;
                            };
                            let wanted = Wanted {
                                id: hint.id,
                                lane: hint.lane.clone(),
                                crowded,
                                is_hint: true,
                            };
                            jobs.spawn(self.job(wanted, Some((hint, done.clone())), place));
                        }
                        // Some of a cluster's servers are away: what they would hint waits there.
                        if !*connected.borrow() && looked.elapsed() >= FALLBACK_PAUSE {
                            looked = Instant::now();
                            self.pull_from_postgres(&slots, &mut jobs).await;
                        }
                    },
                    Err(_) => {
                        let next_look = tokio::time::sleep(
                            FALLBACK_PAUSE.saturating_sub(asked.elapsed()),
                        );
                        self.pull_from_postgres(&slots, &mut jobs).await;
                        tokio::select! {
                            () = shutdown.cancelled() => break,
                            () = next_look => {}
                        }
                    }
                },
            }
        }
        drop(done);
        self.hand_over(consumer, finished, &mut jobs).await;
        jobs
    }

    /// The end: jobs finish or are told to, their hints are acknowledged as they do.
    async fn hand_over(
        &self,
        mut consumer: Consumer,
        mut finished: tokio::sync::mpsc::UnboundedReceiver<Returned>,
        jobs: &mut JoinSet<()>,
    ) {
        consumer.stop().await;
        let soft = tokio::time::sleep(self.parts.config.drain_deadline);
        tokio::pin!(soft);
        let mut told = false;
        while !jobs.is_empty() {
            self.alive.beat();
            // One that cannot be stopped ends the process: the others are handed back before.
            if !told && self.parts.leases.stuck().is_some() {
                self.parts.leases.drain();
                told = true;
            }
            if self.parts.leases.only_stuck() {
                break;
            }
            tokio::select! {
                Some(returned) = finished.recv() => give_back(&consumer, returned).await,
                _ = jobs.join_next() => {}
                () = &mut soft, if !told => {
                    tracing::info!("drain deadline: running jobs are handed back");
                    self.parts.leases.drain();
                    told = true;
                }
                () = tokio::time::sleep(Duration::from_millis(500)) => {}
            }
        }
        while let Ok(returned) = finished.try_recv() {
            give_back(&consumer, returned).await;
        }
        consumer.close().await;
    }

    async fn pull_from_postgres(&self, slots: &Arc<Semaphore>, jobs: &mut JoinSet<()>) {
        let lanes = self.lanes().into_iter();
        let tools: Vec<_> = lanes.map(|lane| (lane.tool, lane.version)).collect();
        // More may come free while Postgres looks.
        let free = slots.available_permits();
        let limit = i64::try_from(free).unwrap_or(i64::MAX);
        let filter = UnhintedFilter {
            // No epoch is current: whatever was hinted, Redis cannot tell us.
            epochs: &[],
            age: Duration::ZERO,
            tools: Some(&tools),
            limit,
        };
        // Asked again soon: waiting for long would only keep the loop.
        let store = self.parts.store.with_wait(FALLBACK_PAUSE);
        match store.unhinted(&filter).await {
            Ok(found) => {
                self.alive.beat();
                let crowded = found.len() >= free;
                for job in found {
                    let Ok(place) = Arc::clone(slots).try_acquire_owned() else {
                        return;
                    };
                    let wanted = Wanted {
                        id: job.id,
                        lane: Lane {
                            tool: job.tool,
                            version: job.version,
                        },
                        crowded,
                        is_hint: false,
                    };
                    // One that comes to nothing is found again at the next look.
                    jobs.spawn(self.job(wanted, None, place));
                }
            }
            Err(error) => {
                // The loop came round: what it asks being away is no reason to restart it.
                self.alive.beat();
                tracing::warn!(error = ?error, "neither redis nor postgres has work");
            }
        }
    }

    /// What is counted by tool counts from zero, so that what happens first shows as an increase.
    fn prepare_metrics(&self) {
        for spec in self.tools.jobs() {
            self.parts.metrics.serving(spec.name());
            self.parts.store.prepare_metrics(spec.name());
        }
    }

    fn lanes(&self) -> Vec<Lane> {
        self.tools
            .jobs()
            .iter()
            .flat_map(|spec| {
                let versions = std::iter::once(spec.version).chain(spec.resumes.iter().copied());
                versions.map(|version| Lane {
                    tool: spec.name().to_owned(),
                    version,
                })
            })
            .collect()
    }

    fn job(
        &self,
        wanted: Wanted,
        hint: Option<(Hint, UnboundedSender<Returned>)>,
        place: OwnedSemaphorePermit,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (parts, turns) = (self.parts.clone(), Arc::clone(&self.turns));
        let source = if hint.is_some() { "redis" } else { "postgres" };
        async move {
            let _place = place;
            // The reader may be gone already; the hint is then reclaimed.
            let give_back = |returned: fn(Hint) -> Returned, hint: Option<(Hint, _)>| {
                if let Some((hint, to)) = hint {
                    let to: UnboundedSender<Returned> = to;
                    let _ = to.send(returned(hint));
                }
            };
            let picked = match turns.pick(&wanted).await {
                Ok(picked) => picked,
                Err(error) => {
                    // Nobody knows whose it is: the hint stays, and comes back.
                    tracing::warn!(error = ?error, task.id = %wanted.id, "claim failed");
                    return;
                }
            };
            let result = match picked {
                Picked::Job { .. } => "won",
                Picked::Gone => "gone",
                Picked::Nothing | Picked::Busy => "refused",
            };
            parts.metrics.claims.with_label_values(&[result]).inc();
            let (claim, served, sent, others_hint) = match picked {
                Picked::Job {
                    claim,
                    served,
                    sent,
                    others_hint,
                } => (claim, served, sent, others_hint),
                Picked::Gone | Picked::Nothing => return give_back(Returned::Done, hint),
                Picked::Busy => {
                    tokio::time::sleep(BUSY_PAUSE).await;
                    return give_back(Returned::Needed, hint);
                }
            };
            parts.metrics.sources.with_label_values(&[source]).inc();
            let waited = parts.metrics.waited.with_label_values(&[&claim.tool]);
            waited.observe(claim.waited.as_secs_f64());
            // Each job has its own hint: one that got another job is still its own job's, and the other job's
            // hint leads nowhere from now on.
            let hint = if others_hint {
                give_back(Returned::Needed, hint);
                None
            } else {
                hint
            };
            let (spec, queue) = (Arc::clone(&served.spec), claim.queue.clone());
            let stopping = listen(&parts, claim.id());
            let running = Box::pin(attempt::run(&parts, &served, *claim, sent));
            tokio::select! {
                _ = running => {}
                () = stopping => unreachable!("listening never ends"),
            }
            turns.ended(&spec, &queue).await;
            give_back(Returned::Done, hint);
        }
    }
}

fn give_back(consumer: &Consumer, returned: Returned) -> BoxFuture<'static, ()> {
    match returned {
        Returned::Done(hint) => Box::pin(consumer.ack_owned(hint)),
        Returned::Needed(hint) => Box::pin(consumer.hand_back(hint)),
    }
}

/// A stop is in the row; being told of it only makes it sooner than the next heartbeat.
async fn listen(parts: &Parts, id: TaskId) {
    tokio::time::sleep(LISTEN_AFTER).await;
    let mut watch = parts.queue.watch_stop(id).await;
    // One that came before we listened.
    parts.leases.beat_now();
    loop {
        match watch.next().await {
            Event::Changed | Event::Reconnected => parts.leases.beat_now(),
            Event::Progress(_) => {}
        }
    }
}
