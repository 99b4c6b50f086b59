//! Requests to a server of Streamable HTTP: ours are the headers and the credentials, bounded are
//! the answers, and nobody else's host is ever asked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};

use super::config::UpstreamConfig;
use super::fault::Fault;
use super::message::Message;
use super::oauth::Tokens;
use super::sse::{Body, Events};
use crate::web::{self, Hidden, Pool, REDIRECTS_MAX, bearer, chain, redirected, unanswered};

/// Of a refusal, for the message.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;
/// Where the session's id travels (MCP 2025-11-25 §Session Management).
pub(super) const SESSION: &str = "mcp-session-id";

/// A server behind a URL.
pub(super) struct Http {
    pool: Pool,
    url: Uri,
    headers: HeaderMap,
    secret_headers: Vec<(HeaderName, PathBuf)>,
    bearer: Bearer,
    bytes_max: usize,
}

/// What we show to the server in one request, and nobody shall see in what it says.
struct Shown {
    headers: HeaderMap,
    bearer: Option<HeaderValue>,
    hidden: Hidden,
}

/// Where our credentials come from.
enum Bearer {
    None,
    Known(HeaderValue),
    File(PathBuf),
    OAuth(Box<Tokens>),
}

/// What a server answered.
pub(super) struct Answered {
    /// The session that it opened with that.
    pub(super) session: Option<String>,
    pub(super) answer: Answer,
}

pub(super) enum Answer {
    /// One message.
    Message(Message),
    /// A stream of them.
    Events(Box<Events>),
    /// 202: it has it.
    Accepted,
}

impl Http {
    /// # Errors
    /// In words, naming the key, when the settings cannot be used.
    pub(super) fn new(config: &UpstreamConfig, connect: Duration) -> Result<Self, String> {
        let url = config.url.as_deref().unwrap_or_default();
        let url: Uri = url.parse().map_err(|error| format!("url: {error}"))?;
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers {
            let name: HeaderName = name.parse().map_err(|_| format!("headers.{name}"))?;
            let mut value: HeaderValue = value.parse().map_err(|_| format!("headers.{name}"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let mut secret_headers = Vec::new();
        for (name, file) in &config.secret_headers {
            let name = name.parse().map_err(|_| format!("secret_headers.{name}"))?;
            secret_headers.push((name, file.clone()));
        }
        let pool = web::pool(config.ca_file.as_deref(), connect)?;
        let bearer = Bearer::new(config, &url)?;
        Ok(Self {
            pool,
            url,
            headers,
            secret_headers,
            bearer,
            bytes_max: config.message_bytes_max,
        })
    }

    /// Posts one message.
    pub(super) async fn post(&self, body: Bytes, headers: HeaderMap) -> Result<Answered, Fault> {
        self.exchange(Method::POST, body, headers).await
    }

    /// Listens to what the server says of its own accord, or takes up a cut stream.
    pub(super) async fn get(&self, headers: HeaderMap) -> Result<Answered, Fault> {
        self.exchange(Method::GET, Bytes::new(), headers).await
    }

    /// Closes the session. Best effort.
    pub(super) async fn delete(&self, headers: HeaderMap) {
        let closing = self.exchange(Method::DELETE, Bytes::new(), headers);
        if let Err(fault) = closing.await {
            tracing::debug!(error = fault.text(), "session not closed");
        }
    }

    async fn exchange(
        &self,
        method: Method,
        body: Bytes,
        headers: HeaderMap,
    ) -> Result<Answered, Fault> {
        let mut url = self.url.clone();
        let mut renewed = false;
        let mut redirects = 0;
        while redirects <= REDIRECTS_MAX {
            let shown = self.shown(&headers).await?;
            let request = shown.request(&method, &url, &body);
            let response = self.pool.request(request).await.map_err(|error| {
                let why = shown.hidden.text(&unanswered(&error));
                if error.is_connect() {
                    Fault::NotSent(format!("cannot be reached: {why}"))
                } else {
                    Fault::Unknown(format!("did not answer: {why}"))
                }
            })?;
            let status = response.status();
            if let (Bearer::OAuth(tokens), Some(bearer)) = (&self.bearer, &shown.bearer)
                && status == StatusCode::UNAUTHORIZED
                && !renewed
            {
                // Nothing was done. It may have been revoked: once more with another.
                tokens.refused(bearer).await;
                renewed = true;
                continue;
            }
            if !status.is_redirection() {
                let response = response.map(|body| {
                    body.map_err(|error| format!("broke off: {}", chain(&error)))
                        .boxed_unsync()
                });
                return self.read(response, &shown).await;
            }
            let to = response.headers().get(header::LOCATION);
            url = redirected(&url, status, to)
                .map_err(|why| Fault::Refused(shown.hidden.text(&why)))?;
            redirects += 1;
        }
        Err(Fault::Refused(format!(
            "redirects more than {REDIRECTS_MAX} times"
        )))
    }

    /// The headers of one request, these among them, and what of them is secret.
    async fn shown(&self, more: &HeaderMap) -> Result<Shown, Fault> {
        let bearer = self.bearer.value(&self.pool).await?;
        let mut headers = self.headers.clone();
        let mut secrets = Vec::new();
        let open = self.headers.get(header::AUTHORIZATION);
        for value in open.into_iter().chain(&bearer) {
            secrets.extend(value.to_str().ok().map(str::to_owned));
        }
        for (name, file) in &self.secret_headers {
            let (text, value) = secret(file).await.map_err(|why| {
                let file = file.display();
                Fault::Refused(format!("cannot be asked: secret_headers: {file}{why}"))
            })?;
            headers.insert(name, value);
            secrets.push(text);
        }
        for (name, value) in more {
            headers.insert(name, value.clone());
        }
        if let Some(bearer) = &bearer {
            headers.insert(header::AUTHORIZATION, bearer.clone());
        }
        Ok(Shown {
            headers,
            bearer,
            hidden: Hidden::new(secrets),
        })
    }

    async fn read(&self, response: http::Response<Body>, shown: &Shown) -> Result<Answered, Fault> {
        let status = response.status();
        let kind = text_of(response.headers(), "content-type").unwrap_or_default();
        let session = text_of(response.headers(), SESSION);
        let body = response.into_body();
        if !status.is_success() {
            return Err(refusal(status, body, shown).await);
        }
        let answer = if kind.starts_with("text/event-stream") {
            Answer::Events(Box::new(
                Events::new(body, self.bytes_max).without(&shown.hidden),
            ))
        } else if status == StatusCode::ACCEPTED || status == StatusCode::NO_CONTENT {
            Answer::Accepted
        } else {
            let bytes = shown.hidden.bytes(whole(body, self.bytes_max).await?);
            if bytes.is_empty() {
                Answer::Accepted
            } else {
                Answer::Message(Message::read(&bytes).map_err(Fault::Garbage)?)
            }
        };
        Ok(Answered { session, answer })
    }
}

impl Shown {
    fn request(&self, method: &Method, url: &Uri, body: &Bytes) -> http::Request<Full<Bytes>> {
        let mut request = http::Request::new(Full::new(body.clone()));
        *request.method_mut() = method.clone();
        *request.uri_mut() = url.clone();
        let all = request.headers_mut();
        all.clone_from(&self.headers);
        let accept = if *method == Method::GET {
            "text/event-stream"
        } else {
            all.insert(
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/json"),
            );
            "application/json, text/event-stream"
        };
        all.insert(header::ACCEPT, HeaderValue::from_static(accept));
        request
    }
}

/// The value of a secret header, as text and as it is sent.
async fn secret(file: &Path) -> Result<(String, HeaderValue), String> {
    let read = tokio::fs::read_to_string(file).await;
    let text = read.map_err(|error| format!(": {error}"))?;
    // As it arrives: blanks around a value are none of it (RFC 9110 §5.5).
    let text = text.trim_matches(web::BLANK);
    let value = HeaderValue::from_str(text)
        .ok()
        .filter(|_| !text.is_empty());
    let mut value = value.ok_or_else(|| " holds no value of a header".to_owned())?;
    value.set_sensitive(true);
    Ok((text.to_owned(), value))
}

fn text_of(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    Some(value.to_owned())
}

/// Reads a body that is not too long.
async fn whole(body: Body, bytes_max: usize) -> Result<Bytes, Fault> {
    match Limited::new(body, bytes_max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Fault::Garbage(format!(
            "sent more than the {bytes_max} bytes allowed for one message"
        ))),
        Err(error) => Err(Fault::Unknown(error.to_string())),
    }
}

async fn refusal(status: StatusCode, body: Body, shown: &Shown) -> Fault {
    let in_session = shown.headers.contains_key(SESSION);
    let body = whole(body, REFUSAL_BYTES_MAX).await.unwrap_or_default();
    let body = shown.hidden.bytes(body);
    let rpc = match Message::read(&body) {
        Ok(Message::Response {
            result: Err(error), ..
        }) => Some(error),
        _ => None,
    };
    let said = match &rpc {
        Some(error) => error.message.clone(),
        None => String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned(),
    };
    let text = format!("answered {status}: {said}");
    match (status.as_u16(), rpc) {
        (401 | 403, _) => Fault::Refused(text),
        // Published servers answer 400 to sessions that they do not know, with an error of
        // their own range; the specification says 404.
        (404, None) if in_session => Fault::Expired,
        (400 | 404, Some(error)) if in_session && (-32001..=-32000).contains(&error.code) => {
            Fault::Expired
        }
        (408 | 425 | 429 | 503, _) => Fault::NotSent(text),
        (400..=499, Some(error)) if error.code != -32000 => Fault::Rpc(error),
        (400..=499, _) => Fault::Misfit(text),
        _ => Fault::Unknown(text),
    }
}

impl Bearer {
    fn new(config: &UpstreamConfig, url: &Uri) -> Result<Self, String> {
        if let Some(oauth) = &config.oauth {
            let tokens = Tokens::new(oauth, url, config.timeout)?;
            return Ok(Self::OAuth(Box::new(tokens)));
        }
        if let Some(file) = &config.bearer_file {
            return Ok(Self::File(file.clone()));
        }
        let Some(name) = &config.bearer_env else {
            return Ok(Self::None);
        };
        let token = std::env::var_os(name)
            .ok_or_else(|| format!("bearer_env: there is no variable {name}"))?;
        let token = token.to_string_lossy().into_owned();
        bearer(&token)
            .map(Self::Known)
            .ok_or_else(|| format!("bearer_env: what {name} holds is no token"))
    }

    async fn value(&self, client: &Pool) -> Result<Option<HeaderValue>, Fault> {
        match self {
            Self::None => Ok(None),
            Self::OAuth(tokens) => tokens.value(client).await.map(Some),
            Self::Known(value) => Ok(Some(value.clone())),
            Self::File(file) => {
                let why = |why: &str| {
                    let file = file.display();
                    Fault::Refused(format!("cannot be asked: bearer_file {file}{why}"))
                };
                let read = tokio::fs::read_to_string(file).await;
                let token = read.map_err(|error| why(&format!(": {error}")))?;
                bearer(&token)
                    .map(Some)
                    .ok_or_else(|| why(" holds no token"))
            }
        }
    }
}
