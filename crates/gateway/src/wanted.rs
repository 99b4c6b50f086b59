//! Which resources somebody listens to here, told to the workers that provide them: at once, and
//! again for as long as it is so.
//!
//! Each costs its provider a place, so a principal may have so many. What it no longer listens to counts
//! until workers have forgotten it: who opens and closes streams has no more places than who keeps them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use store::WantedResource;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Shared;
use crate::config::Limits;
use crate::error::Error;

/// How long it counts that somebody listens.
const KEPT: Duration = Duration::from_secs(90);
/// Resources in one statement.
const TOGETHER: usize = 250;

/// All wishes of this process.
#[derive(Clone)]
pub(crate) struct Wanted {
    /// By principal.
    accounts: Arc<Mutex<HashMap<u64, Account>>>,
    max: usize,
    bytes_max: usize,
    /// The URIs that others took the places of, when that was seen last.
    lost: watch::Sender<Arc<HashSet<String>>>,
}

/// What one principal listens to, or did lately, by URI.
#[derive(Default)]
struct Account {
    resources: HashMap<String, Held>,
    bytes: usize,
    /// By provider.
    places: HashMap<String, Places>,
}

/// Places of one principal with one provider.
#[derive(Default)]
struct Places {
    /// Those that were given back. Whatever comes next takes the first, so that few have high ones.
    free: BTreeSet<u32>,
    next: u32,
}

impl Places {
    fn take(&mut self) -> u32 {
        self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

struct Held {
    provider: String,
    place: u32,
    streams: usize,
    /// Until when it counts although no stream listens to it any more.
    until: Option<Instant>,
}

/// Somebody listens to these, until this is dropped.
pub(crate) struct Wish {
    wanted: Wanted,
    principal: u64,
    uris: Vec<String>,
}

/// URIs and their providers.
pub(crate) type Uris = BTreeMap<String, String>;

impl Account {
    /// Gives back what counts no longer.
    fn forget(&mut self, now: Instant) {
        let (bytes, places) = (&mut self.bytes, &mut self.places);
        self.resources.retain(|uri, held| {
            let counts = held.until.is_none_or(|until| until > now);
            if !counts {
                *bytes -= uri.len();
                if let Some(places) = places.get_mut(&held.provider) {
                    places.free.insert(held.place);
                }
            }
            counts
        });
    }

    /// How long until something that nobody listens to is given back.
    fn wait(&self, now: Instant) -> Duration {
        let until = self.resources.values().filter_map(|held| held.until);
        let until = until.min().map(|until| until.duration_since(now));
        until.unwrap_or_default().max(Duration::from_secs(1))
    }

    fn add(&mut self, uri: &str, provider: &str) {
        if let Some(held) = self.resources.get_mut(uri) {
            held.streams += 1;
            held.until = None;
            if held.provider != provider {
                if let Some(places) = self.places.get_mut(&held.provider) {
                    places.free.insert(held.place);
                }
                provider.clone_into(&mut held.provider);
                held.place = self.places.entry(provider.to_owned()).or_default().take();
            }
            return;
        }
        let held = Held {
            provider: provider.to_owned(),
            place: self.places.entry(provider.to_owned()).or_default().take(),
            streams: 1,
            until: None,
        };
        self.bytes += uri.len();
        self.resources.insert(uri.to_owned(), held);
    }
}

impl Wanted {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            accounts: Arc::default(),
            max: limits.listened_resources_of_principal_max,
            bytes_max: limits.listened_bytes_of_principal_max,
            lost: watch::Sender::default(),
        }
    }

    fn accounts(&self) -> MutexGuard<'_, HashMap<u64, Account>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This principal listens to these.
    ///
    /// # Errors
    /// If it would listen to more than it may.
    pub(crate) fn wish(&self, principal: u64, uris: &Uris) -> Result<Wish, Error> {
        self.wish_at(Instant::now(), principal, uris)
    }

    fn wish_at(&self, now: Instant, principal: u64, uris: &Uris) -> Result<Wish, Error> {
        let mut accounts = self.accounts();
        let account = accounts.entry(principal).or_default();
        account.forget(now);
        let fresh = uris
            .keys()
            .filter(|uri| !account.resources.contains_key(*uri));
        let (count, bytes) =
            fresh.fold((0, 0), |(count, bytes), uri| (count + 1, bytes + uri.len()));
        if account.resources.len() + count > self.max || account.bytes + bytes > self.bytes_max {
            return Err(Error::Limited {
                what: "resources to listen to",
                retry_after: account.wait(now),
            });
        }
        for (uri, provider) in uris {
            account.add(uri, provider);
        }
        drop(accounts);
        Ok(Wish {
            wanted: self.clone(),
            principal,
            uris: uris.keys().cloned().collect(),
        })
    }

    /// Tells the workers of a wish. Says for which URIs their providers have room.
    ///
    /// # Errors
    /// When Postgres could not be asked.
    pub(crate) async fn tell(
        &self,
        shared: &Shared,
        wish: &Wish,
    ) -> Result<HashSet<String>, store::Error> {
        let wanted = shared
            .store
            .want_resources(&self.places(wish), KEPT)
            .await?;
        if wanted.fresh {
            shared.queue.wanted_changed().await;
        }
        Ok(wanted.counted)
    }

    fn places(&self, wish: &Wish) -> Vec<WantedResource> {
        let accounts = self.accounts();
        let account = accounts.get(&wish.principal);
        let held = wish.uris.iter().filter_map(|uri| {
            let held = account?.resources.get(uri)?;
            Some(held.of(uri))
        });
        let held: Vec<_> = held.collect();
        held
    }

    /// What somebody listens to now; what counts no longer is forgotten.
    fn current(&self, now: Instant) -> Vec<WantedResource> {
        let mut accounts = self.accounts();
        accounts.retain(|_, account| {
            account.forget(now);
            !account.resources.is_empty()
        });
        let resources = accounts.values().flat_map(|account| &account.resources);
        let listened = resources.filter(|(_, held)| held.streams > 0);
        // Many may have one in the same place.
        let listened: BTreeSet<_> = listened.map(|(uri, held)| held.of(uri)).collect();
        listened.into_iter().collect()
    }

    /// Tells of URIs that had places and lost them to others.
    pub(crate) fn lost(&self) -> watch::Receiver<Arc<HashSet<String>>> {
        self.lost.subscribe()
    }

    /// Tells them again, until `ended`.
    pub(crate) async fn keep(&self, shared: &Shared, ended: CancellationToken) {
        let pause = shared.config.listen_recheck.min(KEPT / 3);
        while !ended.is_cancelled() {
            tokio::select! {
                () = ended.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            let mut lost = HashSet::new();
            for some in self.current(Instant::now()).chunks(TOGETHER) {
                match shared.store.want_resources(some, KEPT).await {
                    Ok(wanted) => {
                        if wanted.fresh {
                            shared.queue.wanted_changed().await;
                        }
                        let uris = some.iter().map(|one| &one.uri);
                        lost.extend(uris.filter(|uri| !wanted.counted.contains(*uri)).cloned());
                    }
                    Err(error) => {
                        tracing::debug!(error = ?error, "workers are not told what is listened to");
                    }
                }
            }
            if !lost.is_empty() {
                tracing::debug!(count = lost.len(), "resources lost their places to others");
                self.lost.send_replace(Arc::new(lost));
            }
        }
    }
}

impl Held {
    fn of(&self, uri: &str) -> WantedResource {
        WantedResource {
            place: self.place,
            provider: self.provider.clone(),
            uri: uri.to_owned(),
        }
    }
}

impl Drop for Wish {
    fn drop(&mut self) {
        let mut accounts = self.wanted.accounts();
        let Some(account) = accounts.get_mut(&self.principal) else {
            return;
        };
        for uri in &self.uris {
            if let Some(held) = account.resources.get_mut(uri) {
                held.streams -= 1;
                if held.streams == 0 {
                    held.until = Some(Instant::now() + KEPT);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Wanted {
        Wanted::new(&Limits {
            listened_resources_of_principal_max: 3,
            listened_bytes_of_principal_max: 20,
            ..Limits::default()
        })
    }

    fn uris(uris: &[&str]) -> Uris {
        of("p", uris)
    }

    fn of(provider: &str, uris: &[&str]) -> Uris {
        let uris = uris.iter();
        uris.map(|uri| ((*uri).to_owned(), provider.to_owned()))
            .collect()
    }

    fn places(wanted: &Wanted, now: Instant) -> Vec<(u32, String)> {
        let current = wanted.current(now).into_iter();
        current.map(|one| (one.place, one.uri)).collect()
    }

    fn after(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    #[test]
    fn a_resource_is_wanted_until_the_last_who_listens_is_gone() {
        let wanted = wanted();
        let uris = uris(&["a://b"]);
        let wish = || wanted.wish(1, &uris).ok().unwrap();
        let (first, second) = (wish(), wish());
        let there = vec![(0, "a://b".to_owned())];
        assert_eq!(places(&wanted, after(0)), there);
        drop(first);
        assert_eq!(places(&wanted, after(1000)), there);
        drop(second);
        assert_eq!(places(&wanted, after(0)), []);
    }

    #[test]
    fn what_was_listened_to_lately_counts() {
        let wanted = wanted();
        let all = wanted.wish(1, &uris(&["a", "b"])).ok().unwrap();
        drop(wanted.wish(1, &uris(&["b", "c"])).ok().unwrap());
        // At the limit, and above it; another one has its own.
        assert!(wanted.wish(1, &uris(&["a", "b", "c"])).is_ok());
        assert!(wanted.wish(2, &uris(&["d"])).is_ok());
        let at = |seconds: u64| wanted.wish_at(after(seconds), 1, &uris(&["d"]));
        for seconds in [0, 89] {
            let Err(Error::Limited { what, retry_after }) = at(seconds) else {
                panic!("it is let in after {seconds} s");
            };
            assert_eq!(what, "resources to listen to");
            let left = Duration::from_secs(91 - seconds);
            assert!(retry_after <= left, "{retry_after:?}");
            assert!(retry_after >= Duration::from_secs(1));
        }
        // Those that a stream listens to stay, however long.
        let _fourth = at(91).ok().unwrap();
        assert!(wanted.wish_at(after(91), 1, &uris(&["e"])).is_err());
        drop(all);
    }

    #[test]
    fn bytes_count_as_well() {
        let wanted = wanted();
        let of = |bytes: usize| "x".repeat(bytes);
        assert!(wanted.wish(1, &uris(&[&of(21)])).is_err());
        let whole = wanted.wish(1, &uris(&[&of(19)])).ok().unwrap();
        assert!(wanted.wish(1, &uris(&["yy"])).is_err());
        assert!(wanted.wish(1, &uris(&["y"])).is_ok());
        drop(whole);
        assert!(wanted.wish(1, &uris(&["zz"])).is_err());
        assert!(wanted.wish_at(after(91), 1, &uris(&[&of(20)])).is_ok());
    }

    #[test]
    fn places_are_counted_for_each_and_given_back() {
        let wanted = wanted();
        let named = |places: &[(u32, &str)]| -> Vec<(u32, String)> {
            let places = places.iter();
            places
                .map(|(place, uri)| (*place, (*uri).to_owned()))
                .collect()
        };
        let first = wanted.wish(1, &uris(&["a", "b"])).ok().unwrap();
        let second = wanted.wish(1, &uris(&["c"])).ok().unwrap();
        let _other = wanted.wish(2, &uris(&["c", "d"])).ok().unwrap();
        let all = [(0, "a"), (0, "c"), (1, "b"), (1, "d"), (2, "c")];
        assert_eq!(places(&wanted, after(0)), named(&all));
        drop(first);
        let third = wanted.wish_at(after(91), 1, &uris(&["e"])).ok().unwrap();
        let all = [(0, "c"), (0, "e"), (1, "d"), (2, "c")];
        assert_eq!(places(&wanted, after(91)), named(&all));
        drop((second, third));
        assert_eq!(wanted.accounts().len(), 2);
        assert_eq!(places(&wanted, after(200)), named(&[(0, "c"), (1, "d")]));
        assert_eq!(wanted.accounts().len(), 1);
    }

    #[test]
    fn each_provider_has_places_of_its_own() {
        let wanted = wanted();
        let named = |all: &[(u32, &str, &str)]| -> Vec<WantedResource> {
            let all = all.iter().map(|(place, provider, uri)| WantedResource {
                place: *place,
                provider: (*provider).to_owned(),
                uri: (*uri).to_owned(),
            });
            all.collect()
        };
        let _first = wanted.wish(1, &uris(&["a", "b"])).ok().unwrap();
        let other = wanted.wish(1, &of("q", &["c"])).ok().unwrap();
        let all = [(0, "p", "a"), (0, "q", "c"), (1, "p", "b")];
        assert_eq!(wanted.current(after(0)), named(&all));
        // Another one provides it by now.
        let _moved = wanted.wish(1, &of("q", &["a"])).ok().unwrap();
        drop(other);
        let all = [(1, "p", "b"), (1, "q", "a")];
        assert_eq!(wanted.current(after(91)), named(&all));
    }
}
