//! Which resources somebody listens to here, told to the workers that provide them: at once, and
//! again for as long as it is so.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::Shared;

/// How long it counts that somebody listens.
const KEPT: Duration = Duration::from_secs(90);
/// Resources in one statement.
const TOGETHER: usize = 1000;

/// A provider's name and a URI.
type Resource = (String, String);

/// All wishes of this process.
#[derive(Clone, Default)]
pub(crate) struct Wanted(Arc<Mutex<HashMap<Resource, usize>>>);

/// Somebody listens to these, until this is dropped.
pub(crate) struct Wish {
    wanted: Wanted,
    resources: Vec<Resource>,
}

/// URIs and their providers.
pub(crate) type Uris = BTreeMap<String, String>;

fn resources(uris: &Uris) -> Vec<Resource> {
    let resources = uris.iter();
    resources
        .map(|(uri, provider)| (provider.clone(), uri.clone()))
        .collect()
}

impl Wanted {
    fn counts(&self) -> MutexGuard<'_, HashMap<Resource, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody listens to these.
    pub(crate) fn wish(&self, uris: &Uris) -> Wish {
        let resources = resources(uris);
        let mut counts = self.counts();
        for resource in &resources {
            *counts.entry(resource.clone()).or_default() += 1;
        }
        drop(counts);
        Wish {
            wanted: self.clone(),
            resources,
        }
    }

    /// Tells the workers.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub(crate) async fn tell(&self, shared: &Shared, uris: &Uris) -> Result<(), store::Error> {
        let fresh = shared.store.want_resources(&resources(uris), KEPT).await?;
        if fresh {
            shared.queue.wanted_changed().await;
        }
        Ok(())
    }

    /// Tells them again, until `ended`.
    pub(crate) async fn keep(&self, shared: &Shared, ended: CancellationToken) {
        while !ended.is_cancelled() {
            tokio::select! {
                () = ended.cancelled() => return,
                () = tokio::time::sleep(KEPT / 3) => {}
            }
            let all: Vec<Resource> = self.counts().keys().cloned().collect();
            for some in all.chunks(TOGETHER) {
                match shared.store.want_resources(some, KEPT).await {
                    Ok(false) => {}
                    Ok(true) => shared.queue.wanted_changed().await,
                    Err(error) => {
                        tracing::debug!(error = ?error, "workers are not told what is listened to");
                    }
                }
            }
        }
    }
}

impl Drop for Wish {
    fn drop(&mut self) {
        let mut counts = self.wanted.counts();
        for resource in &self.resources {
            if let Some(count) = counts.get_mut(resource) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(resource);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_wanted_until_the_last_who_listens_is_gone() {
        let wanted = Wanted::default();
        let uris = Uris::from([("a://b".to_owned(), "p".to_owned())]);
        let (first, second) = (wanted.wish(&uris), wanted.wish(&uris));
        assert_eq!(wanted.counts().len(), 1);
        drop(first);
        assert_eq!(wanted.counts().len(), 1);
        drop(second);
        assert_eq!(wanted.counts().len(), 0);
    }
}
