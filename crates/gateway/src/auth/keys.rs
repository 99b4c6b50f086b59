//! The keys of one issuer: read in the background, looked for at once when no known one signed a
//! token, and believed for a while when the issuer does not answer.
//!
//! One loop does all the asking, so there is one request at a time whatever arrives. Callers say that
//! they miss a key and wait for the end of the next look; between two looks for missing keys lies the
//! cooldown, so that tokens with made-up names or signatures cost the issuer nothing.

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
use super::jwk::{Key, KeySet};
use super::jws::Jws;
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

/// Why no key is known to have signed a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unproven {
    /// The issuer has no key of that name, for that algorithm.
    Unknown,
    /// Its keys are known, and none of them made the signature.
    Wrong,
    /// The issuer cannot be asked: whether the token is good is not known.
    Unavailable,
}

/// What the keys of one moment say of a token.
struct Seen {
    candidates: Vec<Arc<Key>>,
    /// What it is told if none of them signed it.
    refusal: Unproven,
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

    /// The key that signed a token.
    pub(super) async fn signer(&self, jws: &Jws<'_>) -> Result<Arc<Key>, Unproven> {
        let mut states = self.state.subscribe();
        let (seen, looks, may_look) = {
            let state = states.borrow();
            (self.seen(&state, jws), state.looks, self.may_look(&state))
        };
        if let Some(key) = signed_by(&seen.candidates, jws) {
            return Ok(key);
        }
        if !may_look {
            return Err(seen.refusal);
        }
        // What is told where the look's end is not seen.
        let unlooked = match seen.refusal {
            Unproven::Wrong => Unproven::Wrong,
            Unproven::Unknown | Unproven::Unavailable => Unproven::Unavailable,
        };
        let Ok(_waiting) = self.waiting.try_acquire() else {
            return Err(unlooked);
        };
        self.missed.notify_one();
        let looked = states.wait_for(|state| state.looks > looks);
        let mut again = match tokio::time::timeout(self.times.wait, looked).await {
            Ok(Ok(state)) => self.seen(&state, jws),
            Ok(Err(_)) | Err(_) => return Err(unlooked),
        };
        let is_new = |key: &Arc<Key>| seen.candidates.iter().all(|old| old.print() != key.print());
        again.candidates.retain(is_new);
        signed_by(&again.candidates, jws).ok_or(again.refusal)
    }

    /// Whether a key is still believed.
    pub(super) fn holds(&self, print: &[u8; 32]) -> bool {
        let state = self.state.borrow();
        self.believes(&state) && state.keys.holds(print)
    }

    fn seen(&self, state: &State, jws: &Jws<'_>) -> Seen {
        if !self.believes(state) {
            return Seen {
                candidates: Vec::new(),
                refusal: Unproven::Unavailable,
            };
        }
        let kid = jws.kid.as_deref();
        let candidates = state.keys.candidates(kid, jws.algorithm);
        let is_known = match kid {
            Some(_) => state.keys.names(kid),
            None => !candidates.is_empty(),
        };
        let refusal = if is_known {
            // Also while the issuer is away: a key that is known says no, and forgers, who may use its
            // name, shall not look like an outage. Who was given a new key meanwhile logs in again.
            Unproven::Wrong
        } else if state.failing {
            Unproven::Unavailable
        } else {
            Unproven::Unknown
        };
        Seen {
            candidates,
            refusal,
        }
    }

    fn believes(&self, state: &State) -> bool {
        let age = state.read_at.map(|at| at.elapsed());
        age.is_some_and(|age| age <= self.times.age_max)
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

fn signed_by(keys: &[Arc<Key>], jws: &Jws<'_>) -> Option<Arc<Key>> {
    let verifies = |key: &&Arc<Key>| {
        let message = jws.signed.as_bytes();
        key.verifies(jws.algorithm, message, &jws.signature)
    };
    keys.iter().find(verifies).cloned()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use harness::tokens::SigningKey;
    use serde_json::json;

    use super::*;

    /// Keys that nobody reads again.
    fn keys(published: &[&SigningKey]) -> Keys {
        let config = Config::default();
        let issuer = Issuer {
            issuer: "https://id.example.com".to_owned(),
            ..Issuer::default()
        };
        let client = Client::new(config.issuer_timeout, None).unwrap();
        let metrics = Metrics::prepared(&telemetry::Registry::new());
        let keys = Keys::new(&config, &issuer, client, metrics);
        keys.look_ended(set(published), false);
        keys
    }

    fn set(published: &[&SigningKey]) -> Result<KeySet, String> {
        let jwks: Vec<_> = published.iter().map(|key| key.jwk()).collect();
        KeySet::read(json!({ "keys": jwks }).to_string().as_bytes())
    }

    /// What is said of a token without waiting.
    fn said(keys: &Keys, token: &str) -> Option<Result<(), Unproven>> {
        let jws = Jws::parse(token).unwrap();
        let said = keys.signer(&jws).now_or_never()?;
        Some(said.map(drop))
    }

    #[tokio::test]
    async fn nobody_waits_while_it_cools_down() {
        let (known, other) = (SigningKey::p256("k"), SigningKey::p256("k"));
        let (good, forged) = (known.sign(&json!({})), other.sign(&json!({})));
        let unknown = SigningKey::p256("x").sign(&json!({}));
        let keys = keys(&[&known]);
        assert_eq!(said(&keys, &good), Some(Ok(())));
        assert_eq!(said(&keys, &forged), None, "a look may help");
        assert_eq!(said(&keys, &unknown), None, "a look may help");
        keys.look_ended(set(&[&known]), true);
        assert_eq!(said(&keys, &good), Some(Ok(())));
        assert_eq!(said(&keys, &forged), Some(Err(Unproven::Wrong)));
        assert_eq!(said(&keys, &unknown), Some(Err(Unproven::Unknown)));
        // The issuer is away: what a known key did not sign is wrong all the same.
        keys.look_ended(Err("away".to_owned()), false);
        assert_eq!(said(&keys, &good), Some(Ok(())));
        assert_eq!(said(&keys, &forged), Some(Err(Unproven::Wrong)));
        assert_eq!(said(&keys, &unknown), Some(Err(Unproven::Unavailable)));
    }

    #[tokio::test]
    async fn of_many_who_miss_a_key_some_wait() {
        let (known, other) = (SigningKey::p256("k"), SigningKey::p256("k"));
        let forged = other.sign(&json!({}));
        let unknown = SigningKey::p256("x").sign(&json!({}));
        let keys = keys(&[&known]);
        let jws = Jws::parse(&forged).unwrap();
        let mut waiting: Vec<_> = (0..WAITING_MAX)
            .map(|_| Box::pin(keys.signer(&jws)))
            .collect();
        assert!(waiting.iter_mut().all(|one| one.now_or_never().is_none()));
        assert_eq!(said(&keys, &forged), Some(Err(Unproven::Wrong)));
        assert_eq!(said(&keys, &unknown), Some(Err(Unproven::Unavailable)));
        drop(waiting);
        assert_eq!(said(&keys, &forged), None);
    }
}
