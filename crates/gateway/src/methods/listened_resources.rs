//! Which resources a `subscriptions/listen` wants to know of, and when one of them has changed.
//!
//! A change is a mark in Postgres; a wake-up only says when to look. Where wake-ups may be missing
//! (Redis is away or was), the marks are read every two seconds, else now and then all the same.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt as _};
use protocol::jsonrpc::InvalidParams;
use protocol::resources::URI_BYTES_MAX;
use queue::{Event, Watch};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::Shared;
use crate::endpoint::Call;
use crate::error::Error;
use crate::wanted::Wish;

/// Changes that come together are told together: each worker of a provider may tell of the same.
const GATHER: Duration = Duration::from_millis(50);
/// Between two looks while wake-ups may be missing.
const URGENT: Duration = Duration::from_secs(2);

/// The resources of one stream.
pub(super) struct Resources {
    shared: Arc<Shared>,
    /// The mark that was told last of each.
    marks: BTreeMap<String, Option<i64>>,
    woken: FuturesUnordered<Woken>,
    connected: watch::Receiver<bool>,
    /// Others took the places of these.
    lost: watch::Receiver<Arc<HashSet<String>>>,
    /// To be looked at, when it is due.
    stale: BTreeSet<String>,
    due: Instant,
    read_at: Instant,
    _wish: Wish,
}

/// A provider no longer watches all that was agreed to.
pub(super) struct Displaced;

/// The next event of a resource's watch, and the watch back.
type Woken = futures::future::BoxFuture<'static, (String, Event, Watch)>;

fn wait(uri: String, mut watch: Watch) -> Woken {
    Box::pin(async move {
        let event = watch.next().await;
        (uri, event, watch)
    })
}

impl Resources {
    /// Those of `uris` that tell of changes and that the caller may read, as far as their provider has
    /// room; the others are silently left out, like tasks that do not exist.
    pub(super) async fn open(
        shared: &Arc<Shared>,
        call: &Call,
        uris: Option<Vec<String>>,
    ) -> Result<Option<Self>, Error> {
        let Some(uris) = uris else { return Ok(None) };
        let max = shared.config.limits.listen_ids_max;
        if uris.len() > max {
            return Err(Error::Params(InvalidParams::new(format!(
                "`notifications.resourceSubscriptions` has {} URIs; one stream takes at most {max}",
                uris.len()
            ))));
        }
        let provided = Arc::clone(&shared.catalog.current().await?.provided);
        let may_read = call.caller.has_scopes(&shared.door.auth.scopes().resources);
        let mut wanted = BTreeMap::new();
        for uri in uris {
            // Nothing is at a URI with a zero byte (RFC 3986 §2), and Postgres could not keep it.
            if uri.len() > URI_BYTES_MAX || uri.contains('\0') || !may_read {
                continue;
            }
            let provider = provided.resource(&uri).filter(|provider| {
                provider.tells() && call.caller.has_scopes(&provider.spec.policy.scopes)
            });
            if let Some(provider) = provider {
                wanted.insert(uri, provider.spec.name.clone());
            }
        }
        let wish = {
            let principal = shared.admission.key(&call.caller.principal);
            shared.wanted.wish(principal, &wanted)?
        };
        // Nobody is promised to hear of what its provider has no room to watch.
        let counted = match wanted.is_empty() {
            true => HashSet::new(),
            false => shared.wanted.tell(shared, &wish).await?,
        };
        wanted.retain(|uri, _| counted.contains(uri));
        let mut resources = Self {
            shared: Arc::clone(shared),
            marks: BTreeMap::new(),
            woken: FuturesUnordered::new(),
            connected: shared.queue.connected(),
            lost: shared.wanted.lost(),
            stale: BTreeSet::new(),
            due: Instant::now(),
            read_at: Instant::now(),
            _wish: wish,
        };
        if wanted.is_empty() {
            return Ok(Some(resources));
        }
        // Interest before the first look, so that no change after it is missed.
        for uri in wanted.keys() {
            let watch = shared.queue.watch_resource(uri).await;
            resources.woken.push(wait(uri.clone(), watch));
        }
        let uris: Vec<String> = wanted.into_keys().collect();
        let marks = shared.store.resource_updates(&uris).await?;
        resources.marks = uris.into_iter().zip(marks).collect();
        Ok(Some(resources))
    }

    /// What is agreed to.
    pub(super) fn agreed(&self) -> Vec<String> {
        self.marks.keys().cloned().collect()
    }

    /// Waits until some have changed. Loses nothing when it is dropped.
    ///
    /// # Errors
    /// When others took the place of one of them: what was agreed to holds no longer.
    pub(super) async fn changed(&mut self) -> Result<Vec<String>, Displaced> {
        if self.marks.is_empty() {
            return std::future::pending().await;
        }
        loop {
            let pause = if *self.connected.borrow_and_update() {
                self.shared.config.listen_recheck
            } else {
                URGENT
            };
            let look = self.read_at + pause;
            tokio::select! {
                Some((uri, event, watch)) = self.woken.next() => {
                    self.woken.push(wait(uri.clone(), watch));
                    if !matches!(event, Event::Progress(_)) {
                        self.gather([uri]);
                    }
                    continue;
                }
                Ok(()) = self.connected.changed() => continue,
                Ok(()) = self.lost.changed() => {
                    let lost = Arc::clone(&self.lost.borrow_and_update());
                    if self.marks.keys().any(|uri| lost.contains(uri)) {
                        return Err(Displaced);
                    }
                    continue;
                }
                () = tokio::time::sleep_until(look) => {
                    self.gather(self.marks.keys().cloned().collect::<Vec<_>>());
                    self.read_at = Instant::now();
                }
                () = tokio::time::sleep_until(self.due), if !self.stale.is_empty() => {}
            }
            if self.due > Instant::now() {
                continue;
            }
            // Boxed: a stream waits nearly all of the time, and shall not keep room for it meanwhile.
            let changed = Box::pin(self.read()).await;
            if !changed.is_empty() {
                return Ok(changed);
            }
        }
    }

    fn gather(&mut self, uris: impl IntoIterator<Item = String>) {
        if self.stale.is_empty() {
            self.due = Instant::now() + GATHER;
        }
        self.stale.extend(uris);
    }

    /// Those of the stale ones that have changed.
    async fn read(&mut self) -> Vec<String> {
        let uris: Vec<String> = self.stale.iter().cloned().collect();
        let Ok(marks) = self.shared.store.resource_updates(&uris).await else {
            // Postgres is away: what changes meanwhile is found when it is back.
            self.due = Instant::now() + URGENT;
            return Vec::new();
        };
        self.stale.clear();
        let mut changed = Vec::new();
        for (uri, mark) in uris.into_iter().zip(marks) {
            // One that is gone was forgotten, not changed.
            let Some(told) = self.marks.get_mut(&uri).filter(|_| mark.is_some()) else {
                continue;
            };
            if *told != mark {
                *told = mark;
                changed.push(uri);
            }
        }
        changed
    }
}
