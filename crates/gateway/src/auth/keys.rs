//! The keys of one issuer: read in the background, looked for at once when a token names one that is
//! not known, and believed for a while when the issuer does not answer.
//!
//! One loop does all the asking, so there is one request at a time whatever arrives. Callers say that
//! they miss a key and wait for the end of the next look; between two looks for missing keys lies the
//! cooldown, so that tokens with made-up names cost the issuer nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::config::Config;
use super::discovery::{self, metadata_urls};
use super::fetch::{Client, fetchable};
use super::introspection::WAITING_MAX;
use super::issuer::Issuer;
use super::jwk::{Algorithm, Key, KeySet};
use crate::metrics::Metrics;

/// A file is looked at so often.
const FILE_REFRESH: Duration = Duration::from_secs(5);
/// Between two attempts while the issuer does not answer.
const RETRY: Duration = Duration::from_secs(5);

/// Where the keys of one issuer come from, and the last that came.
pub(super) struct Keys {
    issuer: String,
    source: Source,
    client: Client,
    times: Times,
    state: watch::Sender<State>,
    missed: Notify,
    /// Callers who wait for a look.
    waiting: Semaphore,
    metrics: Metrics,
}

enum Source {
    File(PathBuf),
    Url(Uri),
    /// As the issuer's metadata says.
    Metadata(Vec<Uri>),
}

#[derive(Clone, Copy)]
struct Times {
    refresh: Duration,
    age_max: Duration,
    cooldown: Duration,
    /// How long a caller waits for a look.
    wait: Duration,
}

#[derive(Clone, Default)]
struct State {
    keys: KeySet,
    /// When they came.
    read_at: Option<Instant>,
    /// The last look failed.
    failing: bool,
    looks: u64,
    /// When a look ended that failed, or that a missing key led to.
    cooling_since: Option<Instant>,
}

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// The issuer has none of that name, for that algorithm.
    Unknown,
    /// The issuer cannot be asked: whether the token is good is not known.
    Unavailable,
}

impl Keys {
    /// None were read yet: see [`Self::keep`].
    pub(super) fn new(config: &Config, issuer: &Issuer, client: Client, metrics: Metrics) -> Self {
        let source = match (&issuer.jwks_file, issuer.jwks_url.as_str()) {
            (Some(file), _) => Source::File(file.clone()),
            (None, "") => Source::Metadata(metadata_urls(&issuer.issuer)),
            (None, url) => Source::Url(fetchable(url).expect("the settings were validated")),
        };
        let refresh = match source {
            Source::File(_) => FILE_REFRESH.min(config.keys_refresh),
            Source::Url(_) | Source::Metadata(_) => config.keys_refresh,
        };
        Self {
            issuer: issuer.issuer.clone(),
            source,
            client,
            times: Times {
                refresh,
                age_max: config.keys_age_max,
                cooldown: config.keys_cooldown,
                // Metadata first, then the keys: two answers, and a little for ourselves.
                wait: config.issuer_timeout * 2 + Duration::from_millis(500),
            },
            state: watch::Sender::new(State::default()),
            missed: Notify::new(),
            waiting: Semaphore::new(WAITING_MAX),
            metrics,
        }
    }

    /// The key that a token names.
    pub(super) async fn find(
        &self,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Arc<Key>, Missing> {
        let mut states = self.state.subscribe();
        let looks = {
            let state = states.borrow();
            if let Some(found) = self.among(&state, kid, algorithm) {
                return found;
            }
            if !self.may_look(&state) {
                return Err(self.missing(&state));
            }
            state.looks
        };
        let Ok(_waiting) = self.waiting.try_acquire() else {
            return Err(Missing::Unavailable);
        };
        self.missed.notify_one();
        let looked = states.wait_for(|state| state.looks > looks);
        match tokio::time::timeout(self.times.wait, looked).await {
            Ok(Ok(state)) => self
                .among(&state, kid, algorithm)
                .unwrap_or_else(|| Err(self.missing(&state))),
            Ok(Err(_)) | Err(_) => Err(Missing::Unavailable),
        }
    }

    /// Whether a key is still believed.
    pub(super) fn holds(&self, print: &[u8; 32]) -> bool {
        let state = self.state.borrow();
        self.believes(&state) && state.keys.holds(print)
    }

    /// What is known already; `None` if a look could help.
    fn among(
        &self,
        state: &State,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> Option<Result<Arc<Key>, Missing>> {
        if !self.believes(state) {
            return None;
        }
        match state.keys.find(kid, algorithm) {
            Some(key) => Some(Ok(key)),
            // It is there, and for something else.
            None if state.keys.names(kid) => Some(Err(Missing::Unknown)),
            None => None,
        }
    }

    fn believes(&self, state: &State) -> bool {
        let age = state.read_at.map(|at| at.elapsed());
        age.is_some_and(|age| age <= self.times.age_max)
    }

    fn missing(&self, state: &State) -> Missing {
        if state.failing || !self.believes(state) {
            Missing::Unavailable
        } else {
            Missing::Unknown
        }
    }

    fn may_look(&self, state: &State) -> bool {
        let cooled = state.cooling_since.map(|at| at.elapsed());
        cooled.is_none_or(|cooled| cooled >= self.times.cooldown)
    }

    /// Reads the keys, again and again, until `end`.
    pub(super) async fn keep(&self, end: &CancellationToken) {
        let mut for_missing = false;
        loop {
            let read = tokio::select! {
                read = self.read() => read,
                () = end.cancelled() => return,
            };
            let failed = read.is_err();
            self.look_ended(read, for_missing);
            let pause = if failed {
                RETRY.min(self.times.refresh)
            } else {
                self.times.refresh
            };
            let due = tokio::time::sleep(pause);
            tokio::pin!(due);
            for_missing = loop {
                tokio::select! {
                    () = &mut due => break false,
                    () = self.missed.notified() => {
                        // Who missed a key while it was being looked for has its answer.
                        if self.may_look(&self.state.borrow()) {
                            break true;
                        }
                    }
                    () = end.cancelled() => return,
                }
            };
        }
    }

    fn look_ended(&self, read: Result<KeySet, String>, for_missing: bool) {
        let outcome = if read.is_ok() { "ok" } else { "failed" };
        let kind = match self.source {
            Source::File(_) => "file",
            Source::Url(_) | Source::Metadata(_) => "keys",
        };
        let labels = [kind, outcome];
        self.metrics
            .issuer_requests
            .with_label_values(&labels)
            .inc();
        self.state.send_modify(|state| {
            state.looks += 1;
            if for_missing || read.is_err() {
                state.cooling_since = Some(Instant::now());
            }
            match read {
                Ok(keys) => {
                    if state.failing || state.read_at.is_none() {
                        tracing::info!(issuer = self.issuer, keys = keys.len(), "keys read");
                    }
                    state.keys = keys;
                    state.read_at = Some(Instant::now());
                    state.failing = false;
                }
                Err(error) => {
                    if !state.failing {
                        tracing::warn!(
                            issuer = self.issuer,
                            error,
                            "the issuer's keys cannot be read; known ones are believed on"
                        );
                    }
                    state.failing = true;
                }
            }
        });
    }

    /// Asks once.
    pub(super) async fn read(&self) -> Result<KeySet, String> {
        let (place, json) = match &self.source {
            Source::File(file) => {
                let place = file.display().to_string();
                let read = tokio::fs::read(file).await;
                let json = read.map_err(|error| format!("{place}: {error}"))?;
                (place, json.into())
            }
            Source::Url(url) => (url.to_string(), self.client.get(url).await?),
            Source::Metadata(places) => {
                let url = discovery::keys_of(&self.issuer, places, &self.client).await?;
                (url.to_string(), self.client.get(&url).await?)
            }
        };
        KeySet::read(&json).map_err(|problem| format!("{place} {problem}"))
    }
}
