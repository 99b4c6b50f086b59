//! Opaque tokens: their issuer is asked what they are worth (RFC 7662), once for all that wait, and
//! its answer is believed for a short while.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use http::{HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::Full;
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::cache::Hash;
use super::fetch::{Client, fetchable};
use super::issuer::Issuer;
use super::{Refused, invalid, unavailable};
use crate::metrics::Metrics;

/// Requests to one issuer at once. Made-up tokens must not become a flood of our own.
const REQUESTS_MAX: usize = 64;
/// Callers that wait for one issuer at once, here or for its keys. Each holds one of the places of all requests, and
/// anybody may come with made-up tokens: beyond that a caller is told at once to come again.
pub(super) const WAITING_MAX: usize = 256;
/// How long a token waits for its turn.
const PLACE_WAIT: Duration = Duration::from_secs(2);
/// A token that is not active does not become so; but an issuer may be late to know it.
pub(super) const REFUSED_FOR: Duration = Duration::from_secs(10);

/// What an issuer said of a token: its claims, or that it is not active.
pub(super) type Answer = Result<Option<Bytes>, Refused>;
type Asking = Shared<BoxFuture<'static, Answer>>;

/// One issuer that introspects.
pub(super) struct Introspection {
    asker: Arc<Asker>,
    /// By token: those that are being asked about. Who waits holds the question; it ends with the
    /// last of them.
    asking: Mutex<HashMap<Hash, WeakShared<BoxFuture<'static, Answer>>>>,
    waiting: Semaphore,
    pub(super) cache: Duration,
}

struct Asker {
    issuer: String,
    url: Uri,
    client_id: String,
    secret_file: std::path::PathBuf,
    client: Client,
    places: Semaphore,
    metrics: Metrics,
}

impl Introspection {
    /// `None` if the issuer does not introspect.
    pub(super) fn new(issuer: &Issuer, client: Client, metrics: Metrics) -> Option<Self> {
        let secret_file = issuer.introspection_secret_file.clone()?;
        let url = fetchable(&issuer.introspection_url).ok()?;
        Some(Self {
            asker: Arc::new(Asker {
                issuer: issuer.issuer.clone(),
                url,
                client_id: issuer.introspection_client_id.clone(),
                secret_file,
                client,
                places: Semaphore::new(REQUESTS_MAX),
                metrics,
            }),
            asking: Mutex::default(),
            waiting: Semaphore::new(WAITING_MAX),
            cache: issuer.introspection_cache,
        })
    }

    /// What the token is worth.
    pub(super) async fn ask(&self, token: &str, hash: Hash) -> Answer {
        let Ok(_waiting) = self.waiting.try_acquire() else {
            self.asker.counted("crowded");
            return Err(crowded());
        };
        let answer = self.asking(token, hash).await;
        self.lock().remove(&hash);
        answer
    }

    fn asking(&self, token: &str, hash: Hash) -> Asking {
        let mut all = self.lock();
        if let Some(asking) = all.get(&hash).and_then(WeakShared::upgrade) {
            return asking;
        }
        // Of those whose callers all went away.
        if all.len() >= 2 * REQUESTS_MAX {
            all.retain(|_, asking| asking.upgrade().is_some());
        }
        let (asker, token) = (Arc::clone(&self.asker), token.to_owned());
        let asking = async move { asker.ask(&token).await }.boxed().shared();
        if let Some(weak) = asking.downgrade() {
            all.insert(hash, weak);
        }
        asking
    }

    fn lock(
        &self,
    ) -> std::sync::MutexGuard<'_, HashMap<Hash, WeakShared<BoxFuture<'static, Answer>>>> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn crowded() -> Refused {
    unavailable("too many tokens are being checked")
}

impl Asker {
    fn counted(&self, outcome: &str) {
        let labels = ["introspection", outcome];
        self.metrics
            .issuer_requests
            .with_label_values(&labels)
            .inc();
    }

    async fn ask(&self, token: &str) -> Answer {
        // In order: whoever came with a good token need not be lucky.
        let place = tokio::time::timeout(PLACE_WAIT, self.places.acquire()).await;
        let Ok(Ok(_place)) = place else {
            self.counted("crowded");
            return Err(crowded());
        };
        match self.exchange(token).await {
            Ok(answer) => {
                self.counted("ok");
                Ok(answer)
            }
            Err(error) => {
                self.counted("failed");
                tracing::warn!(
                    issuer = self.issuer,
                    error,
                    "a token cannot be introspected"
                );
                Err(unavailable("the token's issuer cannot be asked"))
            }
        }
    }

    async fn exchange(&self, token: &str) -> Result<Option<Bytes>, String> {
        #[derive(Deserialize)]
        struct Told {
            active: bool,
            token_type: Option<String>,
        }
        let secret = read_secret(&self.secret_file).await?;
        // RFC 6749 §2.3.1: both are form-encoded first.
        let basic = format!("{}:{}", form(&self.client_id), form(&secret));
        let mut basic = HeaderValue::from_str(&format!("Basic {}", BASE64_STANDARD.encode(basic)))
            .map_err(|error| error.to_string())?;
        basic.set_sensitive(true);
        let body = format!("token={}&token_type_hint=access_token", form(token));
        let request = Request::post(self.url.clone())
            .header(header::AUTHORIZATION, basic)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json")
            .body(Full::from(body))
            .map_err(|error| error.to_string())?;
        let answered = self.client.exchange(request).await?;
        match answered.status {
            StatusCode::OK => {}
            status => return Err(format!("{} answered {status}", self.url)),
        }
        let told: Told = serde_json::from_slice(&answered.body)
            .map_err(|_| format!("{} did not answer as RFC 7662 says", self.url))?;
        // Duende says what it is where RFC 7662 §2.2 asks how it is used.
        let is_bearer = told.token_type.is_none_or(|kind| {
            ["bearer", "access_token"]
                .iter()
                .any(|good| kind.eq_ignore_ascii_case(good))
        });
        Ok((told.active && is_bearer).then_some(answered.body))
    }
}

async fn read_secret(file: &Path) -> Result<String, String> {
    let read = tokio::fs::read_to_string(file).await;
    let secret = read.map_err(|error| format!("{}: {error}", file.display()))?;
    match secret.trim_end_matches(['\r', '\n']) {
        "" => Err(format!("{} is empty", file.display())),
        secret => Ok(secret.to_owned()),
    }
}

/// `application/x-www-form-urlencoded`.
fn form(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'*' => {
                encoded.push(char::from(byte));
            }
            b' ' => encoded.push('+'),
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

/// For who looks whether the settings work.
pub(super) async fn secret_is_there(issuer: &Issuer) -> Result<(), String> {
    match &issuer.introspection_secret_file {
        Some(file) => read_secret(file).await.map(drop),
        None => Ok(()),
    }
}

/// Nothing is said of a token that is not active, or is for something else.
pub(super) fn not_active() -> Refused {
    invalid("the access token is not active")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_encoded() {
        assert_eq!(form("a-b_c.d*"), "a-b_c.d*");
        assert_eq!(form("a b&c=d:e%\u{e9}"), "a+b%26c%3Dd%3Ae%25%C3%A9");
    }
}
