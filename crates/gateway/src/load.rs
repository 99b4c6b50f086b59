//! How long the queues are, looked at every other second.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use store::{Principal, QueueWait, Store};
use tokio_util::sync::CancellationToken;

const INTERVAL: Duration = Duration::from_secs(2);

/// The last look at the queues. An old one is used no longer than it takes to look again: when
/// Postgres is away, calls fail before their budget matters.
#[derive(Default)]
pub(crate) struct Queues {
    tools: RwLock<HashMap<String, Waits>>,
}

/// How long first due jobs of one tool have waited for a worker.
#[derive(Default)]
struct Waits {
    /// Of anybody: the longest.
    any: Duration,
    /// Of somebody none of whose jobs runs: what it takes to be served at all. Principals take
    /// turns, so that the length of another one's queue is no reason to wait.
    first: Duration,
    /// By issuer and subject.
    own: HashMap<(String, String), Duration>,
}

impl Queues {
    /// For how long the oldest due job of a tool has waited for a worker.
    pub(crate) fn waited(&self, tool: &str) -> Duration {
        self.read(tool, |waits| waits.any)
    }

    /// For how long a new job of this principal must be expected to wait, at least: as long as its
    /// own oldest one, or somebody's whose turn has not come yet either.
    pub(crate) fn ahead_of(&self, tool: &str, principal: &Principal) -> Duration {
        let owner = (principal.issuer.clone(), principal.subject.clone());
        self.read(tool, |waits| {
            let own = waits.own.get(&owner).copied().unwrap_or_default();
            own.max(waits.first)
        })
    }

    fn read(&self, tool: &str, of: impl FnOnce(&Waits) -> Duration) -> Duration {
        let tools = self.tools.read().unwrap_or_else(PoisonError::into_inner);
        tools.get(tool).map(of).unwrap_or_default()
    }

    fn note(&self, waits: Vec<QueueWait>) {
        let mut tools: HashMap<String, Waits> = HashMap::new();
        for wait in waits {
            let of_tool = tools.entry(wait.tool).or_default();
            of_tool.any = of_tool.any.max(wait.waited);
            if !wait.runs {
                of_tool.first = of_tool.first.max(wait.waited);
            }
            let own = of_tool.own.entry((wait.issuer, wait.subject)).or_default();
            *own = wait.waited.max(*own);
        }
        *self.tools.write().unwrap_or_else(PoisonError::into_inner) = tools;
    }

    /// Looks until `ended`.
    pub(crate) async fn keep(&self, store: &Store, ended: CancellationToken) {
        let store = store.with_wait(Duration::ZERO);
        while !ended.is_cancelled() {
            if let Ok(waits) = store.queue_waits().await {
                self.note(waits);
            }
            tokio::select! {
                () = ended.cancelled() => {}
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(subject: &str, seconds: u64, runs: bool) -> QueueWait {
        QueueWait {
            tool: "report".to_owned(),
            issuer: "i".to_owned(),
            subject: subject.to_owned(),
            waited: Duration::from_secs(seconds),
            runs,
        }
    }

    fn who(subject: &str) -> Principal {
        Principal::verified("i".to_owned(), subject.to_owned(), None)
    }

    #[test]
    fn a_flood_of_another_principal_is_no_reason_to_expect_a_wait() {
        let queues = Queues::default();
        queues.note(vec![wait("alice", 60, true)]);
        let ahead = |subject| queues.ahead_of("report", &who(subject)).as_secs();
        assert_eq!((ahead("alice"), ahead("bob")), (60, 0));
        assert_eq!(queues.waited("report").as_secs(), 60);
        // Somebody waits to be served at all: so will everybody.
        queues.note(vec![wait("alice", 60, true), wait("carol", 7, false)]);
        assert_eq!((ahead("alice"), ahead("bob"), ahead("carol")), (60, 7, 7));
        assert_eq!(queues.ahead_of("other", &who("alice")), Duration::ZERO);
    }
}
