//! What one client does: scenarios drawn by weight, one after the other, until the run ends.

mod ask;
mod cancel;
mod correct;
mod disconnect;
mod foreign;
mod inline;
mod keys;
mod listen;
mod poll;
mod undo;

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::caller::{Called, Caller};
use crate::calls::Call;
use crate::history::View;
use crate::rng::Rng;

/// Before a request is sent again to another gateway.
const AGAIN: Duration = Duration::from_millis(200);
/// A poll interval, at most: these clients are impatient.
const POLL_MAX_MS: u64 = 1_000;
const POLL_MIN_MS: u64 = 150;

/// A client's place in a run.
#[derive(Debug)]
pub struct Scene {
    /// The client.
    pub caller: Caller,
    /// Its choices.
    pub rng: Rng,
    /// When it begins nothing new, and follows nothing any further.
    pub until: Instant,
    mix: &'static [(u64, Kind)],
    calls: u64,
}

/// What a client may do next: each is a scenario with a file of its own.
#[expect(missing_docs, reason = "named like the scenarios' files")]
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Inline,
    Poll,
    Ask,
    Cancel,
    Keys,
    Listen,
    Foreign,
    Disconnect,
    Undo,
    Correct,
}

/// What clients do, and how often.
pub const MIX: [(u64, Kind); 10] = [
    (14, Kind::Inline),
    (24, Kind::Poll),
    (16, Kind::Ask),
    (12, Kind::Cancel),
    (10, Kind::Keys),
    (6, Kind::Listen),
    (6, Kind::Foreign),
    (4, Kind::Disconnect),
    (8, Kind::Undo),
    (4, Kind::Correct),
];

impl Scene {
    /// A client at work until then.
    #[must_use]
    pub fn new(caller: Caller, rng: Rng, until: Instant) -> Scene {
        Scene {
            caller,
            rng,
            until,
            mix: &MIX,
            calls: 0,
        }
    }

    /// The same, but of these scenarios only.
    #[must_use]
    pub fn only(self, mix: &'static [(u64, Kind)]) -> Scene {
        Scene { mix, ..self }
    }

    /// Plays scenarios until the end.
    pub async fn play(mut self) {
        while !self.is_over() {
            match self.rng.weighted(self.mix) {
                Kind::Inline => inline::play(&mut self).await,
                Kind::Poll => poll::play(&mut self).await,
                Kind::Ask => ask::play(&mut self).await,
                Kind::Cancel => cancel::play(&mut self).await,
                Kind::Keys => keys::play(&mut self).await,
                Kind::Listen => listen::play(&mut self).await,
                Kind::Foreign => foreign::play(&mut self).await,
                Kind::Disconnect => disconnect::play(&mut self).await,
                Kind::Undo => undo::play(&mut self).await,
                Kind::Correct => correct::play(&mut self).await,
            }
        }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// A name that no other plan of the run has.
    fn name(&mut self) -> String {
        self.calls += 1;
        format!("{}-{}", self.caller.name, self.calls)
    }

    /// Counts that it begins something.
    fn begin(&self, name: &'static str) {
        self.caller.shared.figures.scenario(name);
    }

    /// A gateway, any.
    fn gateway(&mut self) -> usize {
        self.rng.below(self.caller.gateways())
    }

    /// So many calls at once, without keys, each at any gateway: the handles.
    async fn start(&mut self, calls: &[Call]) -> Vec<String> {
        let places: Vec<usize> = calls.iter().map(|_| self.gateway()).collect();
        let caller = &self.caller;
        let asked = calls.iter().zip(places);
        let asked = asked.map(|(call, at)| async move { caller.call(at, call, None).await });
        let answers = futures::future::join_all(asked).await;
        let handles = answers.into_iter().filter_map(|answer| match answer {
            Ok(Called::Handle(task)) => Some(task),
            Ok(Called::Inline) | Err(_) => None,
        });
        handles.collect()
    }

    /// Reads the task, each time from any gateway, until `good` or the end of the run.
    async fn follow(&mut self, task: &str, good: impl Fn(&View) -> bool) -> Option<View> {
        while !self.is_over() {
            let at = self.gateway();
            let pause = match self.caller.read(at, task).await {
                Ok(seen) if good(&seen.view) => return Some(seen.view),
                Ok(seen) => {
                    let poll = seen.poll_ms.clamp(POLL_MIN_MS, POLL_MAX_MS);
                    Duration::from_millis(poll + self.rng.between(0, 20))
                }
                Err(trouble) if trouble.is_final() => return None,
                Err(_) => AGAIN,
            };
            sleep(pause).await;
        }
        None
    }

    /// Until it is over.
    async fn end(&mut self, task: &str) -> Option<View> {
        self.follow(task, View::is_terminal).await
    }

    /// Until it is over or asks something.
    async fn question(&mut self, task: &str) -> Option<View> {
        let asks = |seen: &View| seen.is_terminal() || seen.status == "input_required";
        self.follow(task, asks).await
    }

    /// Follows several at once, with choices of their own, until they are over.
    async fn ends(&mut self, tasks: &[String]) {
        let mut followers: Vec<Scene> = tasks.iter().map(|_| self.twin()).collect();
        let each = followers.iter_mut().zip(tasks);
        let each = each.map(|(scene, task)| async { drop(scene.end(task).await) });
        futures::future::join_all(each).await;
    }

    /// The same client with choices of its own, for something done meanwhile. It begins no calls.
    fn twin(&mut self) -> Scene {
        let rng = Rng::new(self.rng.bits());
        Scene::new(self.caller.clone(), rng, self.until)
    }

    /// Another device of the same principal.
    fn other_device(&mut self) -> Scene {
        let mut twin = self.twin();
        twin.caller = self.caller.other_device();
        twin
    }

    async fn pause(&mut self, up_to_ms: u64) {
        let pause = Duration::from_millis(self.rng.between(0, up_to_ms));
        sleep(pause).await;
    }
}
