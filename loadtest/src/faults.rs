//! Breaks things as planned, and makes them whole again.

use std::sync::Arc;
use std::time::Duration;

use harness::config::Role;
use harness::postgres::rows;
use harness::proxy::{Mode, Proxy};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, sleep_until};

use crate::fault::{Fault, Link, Target, What};
use crate::figures::Figures;
use crate::outage;
use crate::schedule::Planned;
use crate::stack::{Stack, Unit};
use crate::supervisor;

/// What `Delayed` means. Both ways, so that a round trip takes twice as long.
const DELAY: Duration = Duration::from_millis(40);
/// Between two lost replies.
const LOSE_EVERY: Duration = Duration::from_millis(150);
const DRAIN: Duration = Duration::from_secs(20);

/// Carries out a plan.
#[derive(Debug)]
pub struct Breaker {
    stack: Arc<Stack>,
    figures: Arc<Figures>,
    /// Held by whatever makes requests wait: one such fault at a time.
    waiting: Mutex<()>,
}

impl Breaker {
    /// Breaks nothing yet.
    #[must_use]
    pub fn new(stack: Arc<Stack>, figures: Arc<Figures>) -> Breaker {
        Breaker {
            stack,
            figures,
            waiting: Mutex::new(()),
        }
    }

    /// Carries out the plan, from now on, and returns when the last fault is over. `note` learns
    /// of every fault when it is over, with the microseconds at which it began and ended.
    pub async fn run(
        self: Arc<Self>,
        plan: Vec<Planned>,
        note: impl Fn((u64, u64), Fault) + Clone + Send + 'static,
    ) {
        let start = Instant::now();
        let mut going = tokio::task::JoinSet::new();
        for Planned { at, fault } in plan {
            sleep_until(start + at).await;
            let (this, note) = (Arc::clone(&self), note.clone());
            going.spawn(async move {
                let span = this.inject(fault).await;
                note(span, fault);
            });
        }
        while let Some(ended) = going.join_next().await {
            ended.expect("breaking things does not panic");
        }
    }

    /// Breaks, waits, mends. The microseconds at which it began and was over.
    async fn inject(&self, fault: Fault) -> (u64, u64) {
        let quiet = if fault.makes_requests_wait() {
            Some(self.waiting.lock().await)
        } else {
            None
        };
        let began = crate::clock::now_us();
        let outcome = match fault.target {
            Target::Node(role, index) => {
                let unit = self.stack.of(role).nth(index);
                let unit = unit.expect("the plan knows how many there are");
                self.node(unit, fault).await
            }
            Target::All(role) => self.all(role, fault).await,
            Target::Postgres => self.postgres(fault).await,
            Target::Redis => self.redis(fault).await,
        };
        match outcome {
            Ok(()) => self.figures.fault(&fault),
            Err(error) => self.figures.trouble(format!("{fault}: {error}")),
        }
        let ended = crate::clock::now_us();
        if quiet.is_some() {
            sleep(fault.aftermath()).await;
        }
        (began, ended)
    }

    async fn node(&self, unit: &Unit, fault: Fault) -> harness::Result<()> {
        let proxy = |link| match link {
            Link::Postgres => &unit.postgres,
            Link::Redis => &unit.redis,
        };
        match fault.what {
            What::Killed => {
                let mut node = unit.node.lock().await;
                node.kill9();
                sleep(fault.lasts).await;
                supervisor::revive(&mut node, &self.figures).await
            }
            What::Frozen => {
                let mut node = unit.node.lock().await;
                node.freeze();
                sleep(fault.lasts).await;
                node.thaw();
                Ok(())
            }
            What::Drained => {
                let mut node = unit.node.lock().await;
                let stopped = node.stop(DRAIN).await;
                supervisor::revive(&mut node, &self.figures).await?;
                stopped.map(drop)
            }
            What::Cut(link) => held(proxy(link), Mode::Cut, fault.lasts).await,
            What::Stalled(link) => held(proxy(link), Mode::Stall, fault.lasts).await,
            What::HalfOpen(link) => held(proxy(link), Mode::HalfOpen, fault.lasts).await,
            What::Delayed(link) => held(proxy(link), Mode::Delay(DELAY), fault.lasts).await,
            What::ReplyLost(link) => {
                let until = Instant::now() + fault.lasts;
                while Instant::now() < until {
                    proxy(link).swallow_reply_to("");
                    sleep(LOSE_EVERY).await;
                }
                Ok(())
            }
            What::Flushed | What::GroupsDeleted | What::SessionsEnded => Ok(()),
        }
    }

    /// All of a role at once. A process that another fault has in hand is waited for first.
    async fn all(&self, role: Role, fault: Fault) -> harness::Result<()> {
        let mut nodes = Vec::new();
        for unit in self.stack.of(role) {
            nodes.push(unit.node.lock().await);
        }
        nodes.iter_mut().for_each(|node| node.kill9());
        sleep(fault.lasts).await;
        for node in &mut nodes {
            // All at once; whoever does not come up is looked after below.
            let _ = node.start_again();
        }
        for node in &mut nodes {
            supervisor::revive(node, &self.figures).await?;
        }
        Ok(())
    }

    async fn postgres(&self, fault: Fault) -> harness::Result<()> {
        let mut postgres = self.stack.postgres.lock().await;
        match fault.what {
            What::Killed => {
                postgres.kill9().await;
                let waiting = outage::Probe::start(&self.stack).await;
                sleep(fault.lasts).await;
                postgres.start_again().await?;
                waiting.back(&self.figures).await;
            }
            What::Frozen => {
                postgres.freeze();
                sleep(fault.lasts).await;
                postgres.thaw();
            }
            _ => {
                let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                           WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
                rows(&self.stack.database_url, end).await?;
            }
        }
        Ok(())
    }

    async fn redis(&self, fault: Fault) -> harness::Result<()> {
        let mut redis = self.stack.redis.lock().await;
        match fault.what {
            What::Killed => {
                redis.kill9();
                sleep(fault.lasts).await;
                redis.start_again().await
            }
            What::Frozen => {
                redis.freeze();
                sleep(fault.lasts).await;
                redis.thaw();
                Ok(())
            }
            What::GroupsDeleted => {
                // The stream stays, and with it what nobody was given yet.
                let script = "for _, key in ipairs(redis.call('KEYS', '*')) do \
                    if redis.call('TYPE', key).ok == 'stream' then \
                    for _, group in ipairs(redis.call('XINFO', 'GROUPS', key)) do \
                    redis.call('XGROUP', 'DESTROY', key, group[2]) end end end";
                redis.command(&["EVAL", script, "0"]).await.map(drop)
            }
            _ => redis.flush().await,
        }
    }
}

/// Holds the proxy in a mode, then lets everything pass again. Connections that became half-open
/// stay dead for ever all the same: whoever holds one must find out.
async fn held(proxy: &Proxy, mode: Mode, lasts: Duration) -> harness::Result<()> {
    proxy.set(mode);
    sleep(lasts).await;
    proxy.set(Mode::Pass);
    Ok(())
}
