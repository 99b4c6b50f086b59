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

    /// Whether there can be such a list now.
    fn served(self, snapshot: &Snapshot) -> bool {
        match self {
            Self::Tools => true,
            Self::Prompts => snapshot.provided.serves.prompts,
            Self::Resources => snapshot.provided.serves.resources,
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
    /// Those of the lists that were asked for that are served.
    ///
    /// # Errors
    /// When Postgres could not be asked and nothing was ever read.
    pub(super) async fn open(shared: &Shared, asked: &Filter) -> Result<Self, store::Error> {
        let changes = shared.catalog.changes();
        let now = shared.catalog.current().await?;
        let wanted = List::ALL.into_iter();
        let wanted = wanted.filter(|list| list.asked(asked) && list.served(&now));
        let wanted: Vec<_> = wanted.map(|list| (list, list.generation(&now))).collect();
        Ok(Self {
            changes: (!wanted.is_empty()).then_some(changes),
            wanted,
        })
    }

    /// What is agreed to.
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
