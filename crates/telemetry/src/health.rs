//! Named readiness and liveness checks of one process.
//!
//! Readiness says "send me work": every check ready or degraded, and not draining. Degraded is
//! for a neighbour we can do without (Redis): it shows in the metrics and in the body, and does
//! not take the process out of service. Liveness says "restart me": a loop has not come round for
//! too long (a worker that lost its connection and looks alive to every other check).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::Registry;
use crate::metrics::{Gauge, GaugeVec, IntGauge, IntGaugeVec};

crate::metrics! {
    /// What the probes would say, so that a scrape shows it too.
    struct Metrics {
        /// 1 for the state a readiness check is in, 0 for the others (`ready`, `degraded`, `not_ready`).
        check: IntGaugeVec = "mcp_tasks_health_check" ["check", "state"],
        /// Seconds since a liveness loop last came round.
        liveness_age: GaugeVec = "mcp_tasks_health_liveness_age_seconds" ["loop"],
        /// 1 while the process is draining after a termination signal.
        draining: IntGauge = "mcp_tasks_health_draining",
        /// Seconds since the process's health was set up, near enough to its start.
        uptime: Gauge = "mcp_tasks_uptime_seconds",
    }
}

/// The state of one readiness check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Works.
    Ready,
    /// Works worse, for this reason; still ready.
    Degraded(String),
    /// Does not work, for this reason.
    NotReady(String),
}

impl State {
    const LABELS: [&'static str; 3] = ["ready", "degraded", "not_ready"];

    fn label(&self) -> &'static str {
        match self {
            State::Ready => "ready",
            State::Degraded(_) => "degraded",
            State::NotReady(_) => "not_ready",
        }
    }
}

/// All checks of one process. Cheap to clone.
#[derive(Clone)]
pub struct Health {
    inner: Arc<Inner>,
}

struct Inner {
    metrics: Metrics,
    started: Instant,
    board: Mutex<Board>,
}

#[derive(Default)]
struct Board {
    checks: BTreeMap<&'static str, State>,
    loops: BTreeMap<&'static str, Loop>,
    started_up: bool,
    draining: bool,
}

struct Loop {
    last: Instant,
    age_max: Duration,
}

/// What a probe answers: the status and the JSON body.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Whether the probe succeeds (200) or not (503).
    #[serde(skip)]
    pub ok: bool,
    /// `ok` or `failing`, for eyes.
    pub status: &'static str,
    /// Checks that make the probe fail, with the reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failing: BTreeMap<&'static str, String>,
    /// Checks that work worse, with the reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub degraded: BTreeMap<&'static str, String>,
}

impl Report {
    fn new(
        failing: BTreeMap<&'static str, String>,
        degraded: BTreeMap<&'static str, String>,
    ) -> Self {
        let ok = failing.is_empty();
        Report {
            ok,
            status: if ok { "ok" } else { "failing" },
            failing,
            degraded,
        }
    }
}

impl Health {
    /// No checks yet; their states are published in `registry`.
    pub fn new(registry: &Registry) -> Health {
        let inner = Arc::new(Inner {
            metrics: Metrics::new(registry),
            started: Instant::now(),
            board: Mutex::default(),
        });
        let scraped = Arc::downgrade(&inner);
        registry.before_scrape(move || {
            if let Some(inner) = scraped.upgrade() {
                inner.publish_ages();
            }
        });
        Health { inner }
    }

    /// Adds a readiness check; not ready ("starting") until told otherwise. The same name gives
    /// the same check.
    pub fn check(&self, name: &'static str) -> Check {
        let check = Check {
            inner: Arc::clone(&self.inner),
            name,
        };
        if !self.inner.board().checks.contains_key(name) {
            check.set(State::NotReady("starting".to_owned()));
        }
        check
    }

    /// Adds a liveness loop: the process counts as dead when [`Beat::beat`] was not called for
    /// longer than `age_max`. The first period starts now.
    pub fn liveness(&self, name: &'static str, age_max: Duration) -> Beat {
        let entry = Loop {
            last: Instant::now(),
            age_max,
        };
        self.inner.board().loops.insert(name, entry);
        Beat {
            inner: Arc::clone(&self.inner),
            name,
        }
    }

    /// Makes the process not ready for good, for shutting down while requests still arrive.
    pub fn drain(&self) {
        self.inner.board().draining = true;
        self.inner.metrics.draining.set(1);
    }

    /// What `/readyz` answers.
    pub fn readiness(&self) -> Report {
        let board = self.inner.board();
        let mut failing = BTreeMap::new();
        let mut degraded = BTreeMap::new();
        for (&name, state) in &board.checks {
            match state {
                State::Ready => {}
                State::Degraded(reason) => drop(degraded.insert(name, reason.clone())),
                State::NotReady(reason) => drop(failing.insert(name, reason.clone())),
            }
        }
        if board.draining {
            failing.insert("shutdown", "draining".to_owned());
        }
        Report::new(failing, degraded)
    }

    /// What `/startupz` answers: succeeds once all checks have been ready together, or the process
    /// waits for something outside of it ([`Check::waits`]), and for ever after. A restart brings
    /// nothing outside back.
    pub fn startup(&self) -> Report {
        if self.inner.board().started_up {
            return Report::new(BTreeMap::new(), BTreeMap::new());
        }
        self.readiness()
    }

    /// What `/livez` answers.
    pub fn liveness_report(&self) -> Report {
        let board = self.inner.board();
        let failing = board
            .loops
            .iter()
            .filter_map(|(&name, entry)| {
                let age = entry.last.elapsed();
                let late = age > entry.age_max;
                late.then(|| {
                    (
                        name,
                        format!("last came round {age:.1?} ago, limit {:?}", entry.age_max),
                    )
                })
            })
            .collect();
        Report::new(failing, BTreeMap::new())
    }
}

impl Inner {
    fn board(&self) -> std::sync::MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish_ages(&self) {
        self.metrics
            .uptime
            .set(self.started.elapsed().as_secs_f64());
        for (name, entry) in &self.board().loops {
            let age = entry.last.elapsed().as_secs_f64();
            self.metrics
                .liveness_age
                .with_label_values(&[*name])
                .set(age);
        }
    }
}

/// One readiness check; whoever watches the neighbour holds it.
#[derive(Clone)]
pub struct Check {
    inner: Arc<Inner>,
    name: &'static str,
}

impl Check {
    /// It works.
    pub fn ready(&self) {
        self.set(State::Ready);
    }

    /// It works worse; the process stays ready.
    pub fn degraded(&self, reason: impl Into<String>) {
        self.set(State::Degraded(reason.into()));
    }

    /// It does not work; the process is not ready.
    pub fn not_ready(&self, reason: impl Into<String>) {
        self.set(State::NotReady(reason.into()));
    }

    /// It waits for something outside of the process: not ready, but started as far as it can.
    pub fn waits(&self, reason: impl Into<String>) {
        self.not_ready(reason);
        self.inner.board().started_up = true;
    }

    /// The current state.
    pub fn state(&self) -> State {
        let board = self.inner.board();
        board.checks.get(self.name).cloned().unwrap_or(State::Ready)
    }

    /// Sets the state, and logs when it changes.
    pub fn set(&self, state: State) {
        for label in State::LABELS {
            let value = i64::from(label == state.label());
            self.inner
                .metrics
                .check
                .with_label_values(&[self.name, label])
                .set(value);
        }
        let mut board = self.inner.board();
        let before = board.checks.insert(self.name, state.clone());
        let all_ready = !board
            .checks
            .values()
            .any(|state| matches!(state, State::NotReady(_)));
        // A process whose first check is ready before its second exists is not started up yet;
        // so checks are added before any is set ready, and "starting" keeps this false.
        board.started_up |= all_ready;
        drop(board);
        self.log(before, state);
    }

    fn log(&self, before: Option<State>, now: State) {
        // The first state of every check is "starting": nothing worth a line.
        if before.is_none_or(|before| before == now) {
            return;
        }
        match now {
            State::Ready => tracing::info!(check = self.name, "check is ready"),
            State::Degraded(reason) => {
                tracing::warn!(check = self.name, reason, "check is degraded")
            }
            State::NotReady(reason) => {
                tracing::warn!(check = self.name, reason, "check is not ready")
            }
        }
    }
}

/// One liveness loop; call [`Beat::beat`] each time it comes round.
#[derive(Clone)]
pub struct Beat {
    inner: Arc<Inner>,
    name: &'static str,
}

impl Beat {
    /// The loop came round just now.
    pub fn beat(&self) {
        if let Some(entry) = self.inner.board().loops.get_mut(self.name) {
            entry.last = Instant::now();
        }
    }

    /// The loop has ended on purpose and is no longer watched.
    pub fn stop(self) {
        self.inner.board().loops.remove(self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_ready_names_the_check_and_degraded_does_not_fail() {
        let registry = Registry::new();
        let health = Health::new(&registry);
        let (postgres, redis) = (health.check("postgres"), health.check("redis"));
        assert!(!health.readiness().ok);
        assert!(!health.startup().ok);
        redis.degraded("connection refused");
        assert_eq!(health.readiness().failing["postgres"], "starting");
        postgres.ready();
        let report = health.readiness();
        assert!(report.ok);
        assert_eq!(report.degraded["redis"], "connection refused");
        postgres.not_ready("timeout");
        assert!(!health.readiness().ok);
        assert!(health.startup().ok, "start-up is over for good");
        let text = registry.render();
        assert!(text.contains("mcp_tasks_health_check{check=\"redis\",state=\"degraded\"} 1"));
        assert!(text.contains("mcp_tasks_health_check{check=\"postgres\",state=\"ready\"} 0"));
    }

    #[test]
    fn what_waits_for_others_has_started() {
        let health = Health::new(&Registry::new());
        let check = health.check("schema");
        assert!(!health.startup().ok);
        check.waits("postgres is away");
        assert!(health.startup().ok && !health.readiness().ok);
        assert_eq!(health.readiness().failing["schema"], "postgres is away");
    }

    #[test]
    fn draining_is_not_ready() {
        let health = Health::new(&Registry::new());
        health.check("postgres").ready();
        health.drain();
        assert_eq!(health.readiness().failing["shutdown"], "draining");
        assert!(health.liveness_report().ok);
    }

    #[test]
    fn a_late_loop_fails_liveness_until_it_comes_round() {
        let registry = Registry::new();
        let health = Health::new(&registry);
        let beat = health.liveness("poll", Duration::ZERO);
        std::thread::sleep(Duration::from_millis(2));
        assert!(health.liveness_report().failing.contains_key("poll"));
        assert!(
            registry
                .render()
                .contains("mcp_tasks_health_liveness_age_seconds{loop=\"poll\"}")
        );
        let patient = health.liveness("poll", Duration::from_secs(60));
        patient.beat();
        assert!(health.liveness_report().ok);
        beat.stop();
        assert!(health.liveness_report().ok);
    }
}
