//! Leases: one heartbeat for all jobs, and the worker's own clock that lets go of a job before
//! its lease ends.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use protocol::TaskId;
use store::{Claim, StopReason, Store};
use tokio::sync::{Notify, watch};

use crate::metrics::Metrics;

/// How often the worker's own clock is looked at.
const CLOCK: Duration = Duration::from_millis(200);
/// Between two heartbeats that were asked for: each writes the rows of all running jobs.
const BEATS_APART: Duration = Duration::from_millis(50);
/// A dropped tool is gone within this, unless it neither awaits nor returns.
const DROPPED_WITHIN: Duration = Duration::from_secs(5);

/// What a job is told; later ones override earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Order {
    /// Go on.
    Work,
    /// The worker ends: stop soon, another one goes on.
    Drain,
    /// Stop, and say so in the row.
    Stop,
    /// The task is somebody else's: drop everything, write nothing.
    Lost,
}

/// One running job.
pub(crate) struct Job {
    pub(crate) claim: Arc<Claim>,
    order: watch::Sender<Order>,
    renewed: Mutex<Instant>,
    told: Mutex<Option<Instant>>,
    /// By then even work that must be dropped has ended.
    overdue: Mutex<Instant>,
    stop_grace: Duration,
    /// The tool runs. Before and after there is only its row to read and write.
    at_work: AtomicBool,
    /// Its questions are being asked: the row may be parked already.
    parking: AtomicBool,
    /// What the tool reached asked not to be asked again for so long (ms).
    asked_to_wait_ms: AtomicU64,
}

impl Job {
    /// Another try, if there is one, shall wait at least so long.
    pub(crate) fn retry_after(&self, pause: Duration) {
        let ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        self.asked_to_wait_ms.store(ms, Ordering::Relaxed);
    }

    pub(crate) fn asked_to_wait(&self) -> Duration {
        Duration::from_millis(self.asked_to_wait_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn orders(&self) -> watch::Receiver<Order> {
        self.order.subscribe()
    }

    pub(crate) fn order(&self) -> Order {
        *self.order.borrow()
    }

    /// Since when it has been told anything but to go on.
    pub(crate) fn told(&self) -> Option<Instant> {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tell(&self, order: Order) -> bool {
        let raised = self.order.send_if_modified(|current| {
            let higher = order > *current;
            if higher {
                *current = order;
            }
            higher
        });
        if raised {
            self.told
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert_with(Instant::now);
        }
        raised
    }

    /// The tool's code begins to run, and may take this long.
    pub(crate) fn work_begins(&self, limit: Duration) {
        let overdue = Instant::now() + limit + self.stop_grace;
        *self.overdue.lock().unwrap_or_else(PoisonError::into_inner) = overdue;
        self.at_work.store(true, Ordering::Relaxed);
    }

    pub(crate) fn work_ended(&self) {
        self.at_work.store(false, Ordering::Relaxed);
    }

    /// What it asks is being written, or is not any more.
    pub(crate) fn parks(&self, parking: bool) {
        self.parking.store(parking, Ordering::Relaxed);
    }

    /// Whether the attempt's end may be in the row already, so that a heartbeat that misses it
    /// says nothing. If it is lost in truth, the write that is under way says so.
    fn may_be_over(&self) -> bool {
        self.parking.load(Ordering::Relaxed) || !self.at_work.load(Ordering::Relaxed)
    }

    /// Whether its work should have ended long ago.
    fn is_stuck(&self, patience: Duration) -> bool {
        let overdue = *self.overdue.lock().unwrap_or_else(PoisonError::into_inner);
        self.at_work.load(Ordering::Relaxed)
            && (self.told().is_some_and(|told| told.elapsed() > patience)
                || Instant::now() > overdue + patience)
    }

    fn renew(&self, sent: Instant) {
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = sent;
    }

    /// Until when the work may go on if the lease, which lasts this long, is not renewed: somewhat
    /// less than the lease, so that all of it has ended when another may claim the task.
    pub(crate) fn may_work_until(&self, lease: Duration) -> Instant {
        let margin = (lease / 4).min(Duration::from_secs(2));
        let renewed = *self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        renewed + (lease - margin)
    }
}

/// All running jobs of a worker.
#[derive(Clone)]
pub(crate) struct Leases {
    store: Store,
    metrics: Metrics,
    jobs: Arc<Mutex<HashMap<TaskId, Arc<Job>>>>,
    beat_now: Arc<Notify>,
    draining: Arc<AtomicBool>,
    stop_grace: Duration,
}

/// Keeps a job among the running ones.
pub(crate) struct Kept {
    leases: Leases,
    pub(crate) job: Arc<Job>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut jobs = self.leases.lock();
        let id = self.job.claim.id();
        // A later claim of the same task may stand there already.
        if jobs.get(&id).is_some_and(|job| Arc::ptr_eq(job, &self.job)) {
            jobs.remove(&id);
        }
        self.leases
            .metrics
            .running
            .set(i64::try_from(jobs.len()).unwrap_or(i64::MAX));
    }
}

impl Leases {
    pub(crate) fn new(store: Store, metrics: Metrics, stop_grace: Duration) -> Self {
        Self {
            store,
            metrics,
            jobs: Arc::default(),
            beat_now: Arc::default(),
            draining: Arc::default(),
            stop_grace,
        }
    }

    /// Keeps the lease of a claim that was asked for at `sent`.
    pub(crate) fn keep(&self, claim: Arc<Claim>, sent: Instant) -> Kept {
        let job = Arc::new(Job {
            order: watch::Sender::new(Order::Work),
            renewed: Mutex::new(sent),
            told: Mutex::default(),
            overdue: Mutex::new(sent),
            stop_grace: self.stop_grace,
            at_work: AtomicBool::new(false),
            parking: AtomicBool::new(false),
            asked_to_wait_ms: AtomicU64::new(0),
            claim,
        });
        let mut jobs = self.lock();
        if let Some(earlier) = jobs.insert(job.claim.id(), Arc::clone(&job)) {
            earlier.tell(Order::Lost);
        }
        self.metrics
            .running
            .set(i64::try_from(jobs.len()).unwrap_or(i64::MAX));
        drop(jobs);
        // A claim that was under way when all were told.
        if self.is_draining() {
            job.tell(Order::Drain);
        }
        Kept {
            leases: self.clone(),
            job,
        }
    }

    /// Asks for a heartbeat at once: something may have changed for a job.
    pub(crate) fn beat_now(&self) {
        self.beat_now.notify_one();
    }

    /// Tells every job that the worker ends.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        for job in self.all() {
            job.tell(Order::Drain);
        }
    }

    /// Whether the worker ends. A job that was told more than that before does not show it.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Renews the leases for as long as the worker lives.
    pub(crate) async fn run(&self, alive: &telemetry::Beat) {
        tokio::join!(self.beat(alive), self.watch_clock());
    }

    /// The tool of a job whose work should have ended long ago: it neither awaits nor returns,
    /// so nothing inside this process can stop it.
    pub(crate) fn stuck(&self) -> Option<String> {
        let jobs = self.all();
        let stuck = jobs.iter().find(|job| job.is_stuck(self.patience()));
        stuck.map(|job| job.claim.tool.clone())
    }

    /// Whether nothing is left but jobs that cannot be stopped.
    pub(crate) fn only_stuck(&self) -> bool {
        let jobs = self.all();
        !jobs.is_empty() && jobs.iter().all(|job| job.is_stuck(self.patience()))
    }

    /// After it was told to end, a job has the grace, and this for being dropped.
    fn patience(&self) -> Duration {
        self.stop_grace + DROPPED_WITHIN
    }

    async fn beat(&self, alive: &telemetry::Beat) {
        let interval = self.store.config().heartbeat;
        // A heartbeat that waits for longer than the next one is of no use.
        let store = self.store.with_wait(interval);
        let mut last: Option<Instant> = None;
        loop {
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                () = self.beat_now.notified() => {
                    let since = last.map_or(BEATS_APART, |last| last.elapsed());
                    tokio::time::sleep(BEATS_APART.saturating_sub(since)).await;
                }
            }
            alive.beat();
            let jobs = self.all();
            if jobs.is_empty() {
                continue;
            }
            let sent = Instant::now();
            last = Some(sent);
            match store.heartbeat(jobs.iter().map(|job| &*job.claim)).await {
                Ok(beats) => {
                    self.metrics.heartbeats.with_label_values(&["ok"]).inc();
                    for job in jobs {
                        let beat = beats.iter().find(|beat| beat.id == job.claim.id());
                        self.apply(&job, beat.map(|beat| beat.stop), sent);
                    }
                }
                Err(error) => {
                    self.metrics.heartbeats.with_label_values(&["failed"]).inc();
                    tracing::warn!(error = ?error, "heartbeat failed");
                }
            }
        }
    }

    fn apply(&self, job: &Job, beat: Option<Option<StopReason>>, sent: Instant) {
        match beat {
            // It may have ended between the question and the answer.
            None if job.may_be_over() || !self.lock().contains_key(&job.claim.id()) => {}
            None => {
                if job.tell(Order::Lost) {
                    self.metrics
                        .leases_lost
                        .with_label_values(&["refused"])
                        .inc();
                    tracing::warn!(task.id = %job.claim.id(), attempt = job.claim.attempt(), "fenced: the task is somebody else's");
                }
            }
            Some(stop) => {
                job.renew(sent);
                // A stop does not end undoing: it may be what it began with.
                if let Some(reason) = stop
                    && !job.claim.undoing
                    && job.tell(Order::Stop)
                {
                    tracing::info!(task.id = %job.claim.id(), reason = reason.as_str(), "told to stop");
                }
            }
        }
    }

    /// Postgres decides who owns a task; this only makes sure that the worker has let go of it
    /// before Postgres may give it to another, whatever it can or cannot reach.
    async fn watch_clock(&self) {
        let lease = self.store.config().lease;
        loop {
            tokio::time::sleep(CLOCK).await;
            for job in self.all() {
                if Instant::now() > job.may_work_until(lease) && job.tell(Order::Lost) {
                    self.metrics.leases_lost.with_label_values(&["clock"]).inc();
                    tracing::warn!(task.id = %job.claim.id(), "lease not renewed in time: the work is dropped");
                }
            }
        }
    }

    fn all(&self) -> Vec<Arc<Job>> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<TaskId, Arc<Job>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
