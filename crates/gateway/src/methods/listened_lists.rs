//! Which lists a `subscriptions/listen` wants to know of, and when one of them has changed.

use std::sync::Arc;

use protocol::subscriptions::Filter;
use tokio::sync::watch;

use crate::Shared;
use crate::catalog::Snapshot;

/// A list that a client can listen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    Tools,
    Prompts,
    Resources,
}

impl List {
    const ALL: [Self; 3] = [Self::Tools, Self::Prompts, Self::Resources];

    fn generation(self, snapshot: &Snapshot) -> u64 {
        match self {
            Self::Tools => snapshot.generation(),
            Self::Prompts => snapshot.provided.prompts_generation,
            Self::Resources => snapshot.provided.resources_generation,
        }
    }

    fn asked(self, filter: &Filter) -> bool {
        match self {
            Self::Tools => filter.tools_list_changed,
            Self::Prompts => filter.prompts_list_changed,
            Self::Resources => filter.resources_list_changed,
        }
    }
}

/// The lists that are listened to, each with the generation that was told last.
pub(super) struct Lists {
    wanted: Vec<(List, u64)>,
    changes: Option<watch::Receiver<Arc<Snapshot>>>,
}

impl Lists {
    pub(super) fn new(shared: &Shared, asked: &Filter) -> Self {
        let changes = shared.catalog.changes();
        let now = shared.catalog.known();
        let wanted = List::ALL.into_iter().filter(|list| list.asked(asked));
        let wanted: Vec<_> = wanted.map(|list| (list, list.generation(&now))).collect();
        Self {
            changes: (!wanted.is_empty()).then_some(changes),
            wanted,
        }
    }

    /// What is agreed to: any list that was asked for, also one that has nothing in it yet.
    pub(super) fn agreed(&self) -> Filter {
        let has = |list| self.wanted.iter().any(|(wanted, _)| *wanted == list);
        Filter {
            tools_list_changed: has(List::Tools),
            prompts_list_changed: has(List::Prompts),
            resources_list_changed: has(List::Resources),
            ..Filter::default()
        }
    }

    /// Until one of them has changed; for ever for who does not want to know.
    pub(super) async fn changed(&mut self) -> List {
        loop {
            let Some(changes) = &mut self.changes else {
                return std::future::pending().await;
            };
            let now = Arc::clone(&changes.borrow_and_update());
            for (list, told) in &mut self.wanted {
                let generation = list.generation(&now);
                if generation != *told {
                    *told = generation;
                    return *list;
                }
            }
            if changes.changed().await.is_err() {
                self.changes = None;
            }
        }
    }
}
