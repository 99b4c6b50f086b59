//! Our own access tokens, by client credentials (RFC 6749 §4.4): asked for when they are needed,
//! and again before they expire or when a server does not take them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Method, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::config::OAuth;
use super::fault::Fault;
use crate::web::{Hidden, Pool, bearer, unanswered};

/// Of what the endpoint answers.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// If it does not say for how long.
const LASTS_UNSAID: Duration = Duration::from_secs(60);
/// A token is not used in the last part of its time.
const MARGIN: Duration = Duration::from_secs(30);

/// The token of one upstream.
pub(super) struct Tokens {
    settings: OAuth,
    url: Uri,
    resource: String,
    timeout: Duration,
    current: Mutex<Option<Token>>,
}

#[derive(Clone)]
struct Token {
    value: HeaderValue,
    until: Instant,
}

/// Why there is no token.
enum No {
    /// It may come.
    Now(String),
    Never(String),
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    token_type: String,
    expires_in: Option<u64>,
}

#[derive(Deserialize)]
struct Refused {
    error: String,
    error_description: Option<String>,
}

impl Tokens {
    /// Tokens for the server at `url`.
    ///
    /// # Errors
    /// In words, naming the key, when the settings cannot be used.
    pub(super) fn new(settings: &OAuth, url: &Uri, timeout: Duration) -> Result<Self, String> {
        let endpoint = settings.token_url.parse();
        Ok(Self {
            url: endpoint.map_err(|error| format!("oauth.token_url: {error}"))?,
            // RFC 8707: whom the token is for.
            resource: settings.resource.clone().unwrap_or_else(|| url.to_string()),
            settings: settings.clone(),
            timeout,
            current: Mutex::new(None),
        })
    }

    /// The token to show now.
    ///
    /// # Errors
    /// Why there is none, and whether that may pass.
    pub(super) async fn value(&self, client: &Pool) -> Result<HeaderValue, Fault> {
        // Whoever comes meanwhile waits for the same answer.
        let mut current = self.current.lock().await;
        if let Some(token) = current.as_ref().filter(|t| t.until > Instant::now()) {
            return Ok(token.value.clone());
        }
        let host = self.url.authority().map_or("", |host| host.as_str());
        let said = |why: String| format!("cannot be asked: oauth.token_url ({host}) {why}");
        let asking = tokio::time::timeout(self.timeout, self.ask(client));
        match asking.await {
            Ok(Ok(token)) => Ok(current.insert(token).value.clone()),
            Ok(Err(No::Now(why))) => Err(Fault::NotSent(said(why))),
            Ok(Err(No::Never(why))) => Err(Fault::Refused(said(why))),
            Err(_) => {
                let why = format!("did not answer within {:?}", self.timeout);
                Err(Fault::NotSent(said(why)))
            }
        }
    }

    /// The server does not take this one.
    pub(super) async fn refused(&self, value: &HeaderValue) {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|token| token.value == value) {
            *current = None;
        }
    }

    async fn ask(&self, client: &Pool) -> Result<Token, No> {
        let file = &self.settings.client_secret_file;
        let secret = read(file).await.map_err(No::Never)?;
        // RFC 6749 §2.3.1: both are encoded as in a form, then as for Basic.
        let encoded = encode(&secret);
        let pair = format!("{}:{encoded}", encode(&self.settings.client_id));
        let basic = BASE64_STANDARD.encode(pair);
        // Whatever the endpoint says is told; our secret is not, though it may repeat it.
        let hidden = Hidden::new([secret, encoded, basic.clone()]);
        let granted = self.granted(client, &format!("Basic {basic}")).await;
        granted.map_err(|no| match no {
            No::Now(why) => No::Now(hidden.text(&why)),
            No::Never(why) => No::Never(hidden.text(&why)),
        })
    }

    /// A token that the endpoint gives to who shows this.
    async fn granted(&self, client: &Pool, basic: &str) -> Result<Token, No> {
        let mut form = vec![
            ("grant_type", "client_credentials"),
            ("resource", &self.resource),
        ];
        if let Some(scope) = &self.settings.scope {
            form.push(("scope", scope));
        }
        let form: Vec<String> = form
            .iter()
            .map(|(name, value)| format!("{name}={}", encode(value)))
            .collect();
        let mut basic =
            HeaderValue::from_str(basic).map_err(|error| No::Never(error.to_string()))?;
        basic.set_sensitive(true);
        let request = http::Request::builder()
            .method(Method::POST)
            .uri(self.url.clone())
            .header(header::AUTHORIZATION, basic)
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Full::new(Bytes::from(form.join("&"))))
            .map_err(|error| No::Never(error.to_string()))?;
        let asked = Instant::now();
        let response = client.request(request).await;
        let response =
            response.map_err(|e| No::Now(format!("cannot be reached: {}", unanswered(&e))))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect();
        let body = body.await.map_err(|error| No::Now(error.to_string()))?;
        let body = body.to_bytes();
        if !status.is_success() {
            let said = serde_json::from_slice::<Refused>(&body)
                .ok()
                .map(|refused| {
                    let more = refused.error_description.map(|text| format!(", {text}"));
                    format!(": {}{}", refused.error, more.unwrap_or_default())
                });
            let why = format!("answered {status}{}", said.unwrap_or_default());
            let passes = status.is_server_error() || matches!(status.as_u16(), 408 | 429);
            return Err(if passes { No::Now(why) } else { No::Never(why) });
        }
        let granted: Granted = serde_json::from_slice(&body)
            .map_err(|error| No::Never(format!("answered with no token ({error})")))?;
        if !granted.token_type.eq_ignore_ascii_case("bearer") {
            let why = format!("gives tokens of type {:?}", granted.token_type);
            return Err(No::Never(why));
        }
        let lasts = granted.expires_in.map_or(LASTS_UNSAID, Duration::from_secs);
        // Of a short time half, so that it is of use at all.
        let lasts = lasts.saturating_sub(MARGIN).max(lasts / 2);
        Ok(Token {
            value: bearer(&granted.access_token)
                .ok_or_else(|| No::Never("answered with no token".to_owned()))?,
            until: asked + lasts.min(Duration::from_secs(24 * 3600)),
        })
    }
}

async fn read(file: &PathBuf) -> Result<String, String> {
    let shown = file.display();
    let text = tokio::fs::read_to_string(file).await;
    let text = text.map_err(|e| format!("is not asked: client_secret_file {shown}: {e}"))?;
    let secret = text.trim_end_matches(['\r', '\n']);
    if secret.is_empty() {
        return Err(format!("is not asked: client_secret_file {shown} is empty"));
    }
    Ok(secret.to_owned())
}

/// `application/x-www-form-urlencoded`.
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_encoded() {
        assert_eq!(encode("a b/c:ü~"), "a%20b%2Fc%3A%C3%BC~");
    }
}
