//! From hint to job: a bounded number of places, filled from Redis, and from Postgres while
//! Redis is away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::TaskId;
use queue::{Consumer, Event, Hint, Lane};
use store::{ClaimRequest, UnhintedFilter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::attempt::{self, Parts};
use crate::tool::ToolSet;

/// Between two looks into Postgres while Redis is away.
const FALLBACK_PAUSE: Duration = Duration::from_secs(2);
/// A worker without a free place says so often that it is alive: it has nothing to ask for.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// What came of looking at a job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looked {
    /// It was run, or it is somebody else's.
    Settled,
    /// Postgres could not be asked.
    Unanswered,
}

/// Fills the places until `shutdown`, then gives back the jobs that still run.
pub(crate) struct Puller {
    pub(crate) parts: Parts,
    pub(crate) tools: ToolSet,
    pub(crate) name: Arc<str>,
    pub(crate) alive: telemetry::Beat,
}

impl Puller {
    pub(crate) async fn run(&self, shutdown: CancellationToken) -> JoinSet<()> {
        let slots = Arc::new(Semaphore::new(self.parts.config.slots));
        let mut changes = self.tools.changes();
        self.prepare_metrics();
        let mut consumer = self.parts.queue.consumer(self.lanes());
        let connected = self.parts.queue.connected();
        let mut jobs = JoinSet::new();
        // Hints are acknowledged by whoever ran them, but only the reader can do it.
        let (done, mut finished) = tokio::sync::mpsc::unbounded_channel::<Hint>();
        while !shutdown.is_cancelled() {
            while jobs.try_join_next().is_some() {}
            let free = slots.available_permits();
            let asked = Instant::now();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(hint) = finished.recv() => {
                    consumer.ack(&hint).await;
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
                hints = consumer.next(free), if free > 0 => match hints {
                    Ok(hints) => {
                        self.alive.beat();
                        for hint in hints {
                            let Ok(place) = Arc::clone(&slots).try_acquire_owned() else {
                                consumer.hand_back(hint).await;
                                continue;
                            };
                            let job = self.job(hint.id, hint.lane.clone(), place, "redis");
                            let done = done.clone();
                            jobs.spawn(async move {
                                if job.await == Looked::Unanswered {
                                    // Nobody knows whose it is: the hint stays, and comes back.
                                    return;
                                }
                                // The reader may be gone already; the hint is then reclaimed.
                                let _ = done.send(hint);
                            });
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
        mut finished: tokio::sync::mpsc::UnboundedReceiver<Hint>,
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
                Some(hint) = finished.recv() => consumer.ack(&hint).await,
                _ = jobs.join_next() => {}
                () = &mut soft, if !told => {
                    tracing::info!("drain deadline: running jobs are handed back");
                    self.parts.leases.drain();
                    told = true;
                }
                () = tokio::time::sleep(Duration::from_millis(500)) => {}
            }
        }
        while let Ok(hint) = finished.try_recv() {
            consumer.ack(&hint).await;
        }
        consumer.close().await;
    }

    async fn pull_from_postgres(&self, slots: &Arc<Semaphore>, jobs: &mut JoinSet<()>) {
        let lanes = self.lanes().into_iter();
        let tools: Vec<_> = lanes.map(|lane| (lane.tool, lane.version)).collect();
        let limit = i64::try_from(slots.available_permits()).unwrap_or(i64::MAX);
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
                for job in found {
                    let Ok(place) = Arc::clone(slots).try_acquire_owned() else {
                        return;
                    };
                    let lane = Lane {
                        tool: job.tool,
                        version: job.version,
                    };
                    let job = self.job(job.id, lane, place, "postgres");
                    jobs.spawn(async move {
                        // Asked again at the next look.
                        let _ = job.await;
                    });
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
        id: TaskId,
        lane: Lane,
        place: OwnedSemaphorePermit,
        source: &'static str,
    ) -> impl Future<Output = Looked> + Send + 'static {
        let parts = self.parts.clone();
        let served = self.tools.find(&lane.tool);
        let name = Arc::clone(&self.name);
        async move {
            let _place = place;
            let Some(served) = served else {
                return Looked::Settled;
            };
            let mut resumes = served.spec.resumes.clone();
            resumes.push(served.spec.version);
            let request = ClaimRequest {
                id,
                tool: served.spec.name(),
                version: served.spec.version,
                resumes: &resumes,
                token: Uuid::new_v4(),
                worker: &name,
            };
            let sent = Instant::now();
            let claim = match parts.store.claim(&request).await {
                Ok(claim) => claim,
                Err(error) => {
                    tracing::warn!(error = ?error, task.id = %id, "claim failed");
                    return Looked::Unanswered;
                }
            };
            let result = if claim.is_some() { "won" } else { "refused" };
            parts.metrics.claims.with_label_values(&[result]).inc();
            let Some(claim) = claim else {
                return Looked::Settled;
            };
            parts.metrics.sources.with_label_values(&[source]).inc();
            let waited = parts.metrics.waited.with_label_values(&[&claim.tool]);
            waited.observe(claim.waited.as_secs_f64());
            let stopping = listen(&parts, id);
            let running = Box::pin(attempt::run(&parts, &served, claim, sent));
            tokio::select! {
                _ = running => {}
                () = stopping => unreachable!("listening never ends"),
            }
            Looked::Settled
        }
    }
}

/// A stop is in the row; being told of it only makes it sooner than the next heartbeat.
async fn listen(parts: &Parts, id: TaskId) {
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
