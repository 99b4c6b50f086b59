//! The checks before a byte of JSON is read, cheapest and safest first: path, HTTP method, size,
//! `Origin`, `Host`, authentication, content type; then the body, within its limits.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};
use http_body::Body as HttpBody;
use http_body_util::BodyExt as _;
use tokio::sync::Semaphore;

use crate::auth::{self, Authenticator, Proven};
use crate::config::Config;
use crate::error::Error;
use crate::memory::{FREE, Load};
use crate::peers::Peers;
use crate::tries::Tries;

/// Of a refused body, so much is read away.
const DRAIN_BYTES_MAX: usize = 16 * 1024 * 1024;
const DRAIN_TIME_MAX: Duration = Duration::from_secs(5);
/// So many bodies are read away at a time.
const DRAINS_MAX: usize = 1024;

/// What is let in.
pub(crate) struct Door {
    pub(crate) auth: Authenticator,
    pub(crate) peers: Peers,
    tries: Tries,
    path: String,
    /// Bound to loopback: the loopback names count as ours, under any port.
    loopback: bool,
    /// Of our own address.
    scheme: &'static str,
    /// Lower case; listed beside our own.
    hosts: Vec<String>,
    /// Lower case.
    origins: Vec<String>,
    body_bytes_max: usize,
    body_read_timeout: Duration,
    drains: Semaphore,
}

impl Door {
    /// The door of a gateway that listens at `address`.
    pub(crate) fn new(config: &Config, auth: Authenticator, address: SocketAddr) -> Self {
        let lower = |texts: &[String]| -> Vec<String> {
            texts.iter().map(|text| text.to_ascii_lowercase()).collect()
        };
        Self {
            auth,
            peers: Peers::new(config),
            tries: Tries::new(config),
            path: config.path.clone(),
            loopback: address.ip().is_loopback(),
            scheme: match config.tls.certificate_file {
                None => "http://",
                Some(_) => "https://",
            },
            hosts: lower(&config.allowed_hosts),
            origins: lower(&config.allowed_origins),
            body_bytes_max: config.limits.body_bytes_max,
            body_read_timeout: config.limits.body_read_timeout,
            drains: Semaphore::new(DRAINS_MAX),
        }
    }

    /// The public document that is asked for, if it is one: served to everybody, before a token can
    /// be had (RFC 9728 §3.1).
    pub(crate) fn document(&self, head: &Parts) -> Option<Bytes> {
        let reads = matches!(head.method, Method::GET | Method::HEAD);
        let document = || self.auth.document(head.uri.path());
        reads.then(document).flatten()
    }

    /// Whether the path is that of a public document.
    pub(crate) fn is_document(&self, head: &Parts) -> bool {
        self.auth.document(head.uri.path()).is_some()
    }

    /// The page that sends a request to the endpoint, if there is one and it may.
    pub(crate) fn page(&self, head: &Parts) -> Option<HeaderValue> {
        let mut origins = head.headers.get_all(ORIGIN).iter();
        let origin = origins.next().filter(|_| head.uri.path() == self.path)?;
        let allowed = self.check_origin(&head.headers, host(head).as_deref());
        (allowed.is_ok() && origins.next().is_none()).then(|| origin.clone())
    }

    /// Judges the head of a request; who sends it is judged next.
    ///
    /// # Errors
    /// With the first thing that is wrong.
    pub(crate) fn enter(&self, head: &Parts) -> Result<(), Error> {
        if head.uri.path() != self.path {
            return Err(Error::NoSuchPath);
        }
        if head.method != Method::POST {
            return Err(Error::MethodNotAllowed);
        }
        check_length(&head.headers, self.body_bytes_max)?;
        let host = host(head);
        self.check_origin(&head.headers, host.as_deref())?;
        self.check_host(host.as_deref())?;
        Ok(())
    }

    /// Who sends a request, and whether its body may be read.
    ///
    /// # Errors
    /// With the first thing that is wrong.
    pub(crate) async fn admit(&self, head: &Parts, client: IpAddr) -> Result<Proven, Error> {
        self.enter(head)?;
        auth::none_in_url(head.uri.query())?;
        let proven = match self.auth.remembered(&head.headers)? {
            // Who shares an address with somebody who tries tokens goes on.
            Some(proven) => proven,
            None => self.look_at(&head.headers, client).await?,
        };
        if !is_json(&head.headers) {
            return Err(Error::ContentType);
        }
        Ok(proven)
    }

    /// Who sends these headers, if the address has not shown too much that was worth nothing. What cannot be judged, or whose
    /// caller hangs up, counts, too: else who throws made-up tokens at an issuer until it answers no more could go on.
    async fn look_at(&self, headers: &HeaderMap, client: IpAddr) -> Result<Proven, Error> {
        let turn = self.tries.begin(client).await?;
        match self.auth.authenticate(headers).await {
            Ok(proven) => {
                turn.was_good();
                Ok(proven)
            }
            Err(refused) => {
                tracing::debug!(client.address = %client, "token refused");
                Err(refused.into())
            }
        }
    }

    /// Reads the body of a request that was let in, of which it may say how long it is.
    ///
    /// # Errors
    /// If it is too large, too slow, breaks off, or finds no room.
    pub(crate) async fn read<B>(
        &self,
        body: (B, Option<usize>),
        load: &mut Load,
    ) -> Result<Bytes, Error>
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        self.read_within(self.body_bytes_max, body, load).await
    }

    /// Reads a body of so many bytes at most.
    ///
    /// # Errors
    /// If it is too large, too slow, breaks off, or finds no room.
    pub(crate) async fn read_within<B>(
        &self,
        bytes_max: usize,
        (mut body, length): (B, Option<usize>),
        load: &mut Load,
    ) -> Result<Bytes, Error>
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let mut whole = BytesMut::with_capacity(length.map_or(0, |length| length.min(FREE)));
        let reading = async {
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|_| Error::BodyBroken)?;
                let Ok(data) = frame.into_data() else {
                    continue;
                };
                let bytes = whole.len() + data.len();
                if bytes > bytes_max {
                    return Err(Error::BodyTooLarge { bytes_max });
                }
                load.reach(bytes.max(whole.capacity()))?;
                whole.extend_from_slice(&data);
            }
            Ok(())
        };
        let read = tokio::time::timeout(self.body_read_timeout, reading).await;
        match read.unwrap_or(Err(Error::BodyTimeout)) {
            Ok(()) => Ok(whole.freeze()),
            Err(error) => {
                drop(whole);
                if !matches!(error, Error::BodyBroken | Error::BodyTimeout) {
                    self.drain(body).await;
                }
                Err(error)
            }
        }
    }

    /// Reads away the body of a request that was refused by its head. Many clients read no
    /// answer before they have sent everything; to them a connection that is closed on an unread
    /// body is a broken pipe and not a refusal.
    pub(crate) async fn discard<B>(&self, head: &Parts, body: B)
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        // A client that asks first has sent nothing.
        if !head.headers.contains_key(EXPECT) {
            self.drain(body).await;
        }
    }

    /// Throws away what is left of a body, up to a bound of bytes and of time. When many are being
    /// thrown away, no more are: that is a courtesy, and no flood has a claim to it.
    async fn drain<B>(&self, mut body: B)
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let Ok(_place) = self.drains.try_acquire() else {
            return;
        };
        let draining = async {
            let mut left = DRAIN_BYTES_MAX;
            while let Some(Ok(frame)) = body.frame().await {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                if bytes > left {
                    return;
                }
                left -= bytes;
            }
        };
        drop(tokio::time::timeout(DRAIN_TIME_MAX, draining).await);
    }

    /// Against pages that make a browser call us (MCP 2026-07-28 §Streamable HTTP, Security): on
    /// loopback only a page of the very address it calls, elsewhere only listed ones.
    fn check_origin(&self, headers: &HeaderMap, host: Option<&str>) -> Result<(), Error> {
        for origin in headers.get_all(ORIGIN) {
            let origin = origin
                .to_str()
                .map_err(|_| Error::Origin)?
                .to_ascii_lowercase();
            let same = self.loopback
                && origin
                    .strip_prefix(self.scheme)
                    .and_then(loopback_port)
                    .is_some_and(|port| host.and_then(loopback_port) == Some(port));
            if !same && !self.origins.contains(&origin) {
                return Err(Error::Origin);
            }
        }
        Ok(())
    }

    /// Against names that are made to point at us (DNS rebinding). Such a name is never a
    /// loopback name, whatever its port, and a proxy on this machine has another port than we.
    fn check_host(&self, host: Option<&str>) -> Result<(), Error> {
        if !self.loopback && self.hosts.is_empty() {
            return Ok(());
        }
        match host {
            Some(host) if self.loopback && loopback_port(host).is_some() => Ok(()),
            Some(host) if self.hosts.iter().any(|listed| listed == host) => Ok(()),
            _ => Err(Error::Host),
        }
    }
}

/// How long the body is, as its request says.
pub(crate) fn length(headers: &HeaderMap) -> Option<usize> {
    let length = headers.get(CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

/// # Errors
/// If the body is larger than it may be, as its request says.
pub(crate) fn check_length(headers: &HeaderMap, bytes_max: usize) -> Result<(), Error> {
    match length(headers) {
        Some(length) if length > bytes_max => Err(Error::BodyTooLarge { bytes_max }),
        Some(_) | None => Ok(()),
    }
}

/// What the request calls us, in lower case; `None` when it says nothing or two things.
fn host(head: &Parts) -> Option<String> {
    let mut named = head.headers.get_all(HOST).iter();
    let lower = |text: &str| text.to_ascii_lowercase();
    // HTTP/2 names it in the target; HTTP/1.1 may, and says it in `Host` as well (RFC 9112 §3.2).
    let target = head.uri.authority().map(|host| lower(host.as_str()));
    match (named.next(), named.next()) {
        (Some(host), None) => {
            let host = lower(host.to_str().ok()?);
            target.is_none_or(|target| target == host).then_some(host)
        }
        (None, _) => target,
        (Some(_), Some(_)) => None,
    }
}

/// The port of a loopback name, of any of them; `None` for all other names.
fn loopback_port(host: &str) -> Option<u16> {
    let names = ["127.0.0.1", "localhost", "[::1]"];
    let port = names.iter().find_map(|name| host.strip_prefix(name))?;
    match port.strip_prefix(':') {
        None if port.is_empty() => Some(80),
        None => None,
        Some(port) => port.parse().ok(),
    }
}

pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let essence = kind
        .and_then(|kind| kind.split(';').next())
        .unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}

/// Which kinds of answer a client takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepts {
    /// It names `text/event-stream`.
    pub(crate) streams: bool,
    /// It would take one, if there is nothing else: also by a wildcard.
    pub(crate) anything: bool,
}

/// Reads `Accept`.
pub(crate) fn accepts(headers: &HeaderMap) -> Accepts {
    let mut accepts = Accepts {
        streams: false,
        anything: false,
    };
    for value in headers.get_all(ACCEPT) {
        for item in value.to_str().unwrap_or_default().split(',') {
            let essence = item.split(';').next().unwrap_or_default().trim();
            accepts.streams |= essence.eq_ignore_ascii_case("text/event-stream");
            accepts.anything |= essence == "*/*" || essence.eq_ignore_ascii_case("text/*");
        }
    }
    accepts.anything |= accepts.streams;
    accepts
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::metrics::Metrics;

    fn enter(address: &str, change: impl FnOnce(&mut HeaderMap)) -> Result<Proven, Error> {
        let config = Config {
            allowed_origins: vec!["https://App.example.com".to_owned()],
            ..Config::default()
        };
        let metrics = Metrics::prepared(&telemetry::Registry::new());
        let bytes_max = config.limits.token_bytes_max;
        let auth = Authenticator::new(&crate::auth::Config::default(), "/mcp", bytes_max, metrics);
        let door = Door::new(&config, auth.unwrap(), address.parse().unwrap());
        let mut request = Request::post("/mcp").body(()).unwrap();
        let headers = request.headers_mut();
        headers.insert(HOST, "127.0.0.1:3000".parse().unwrap());
        headers.insert(
            CONTENT_TYPE,
            "application/json; charset=utf-8".parse().unwrap(),
        );
        change(headers);
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime
            .unwrap()
            .block_on(door.admit(&request.into_parts().0, IpAddr::from([127, 0, 0, 1])))
    }

    #[test]
    fn only_our_own_names_on_loopback() {
        let host = |host: &'static str| {
            enter("127.0.0.1:3000", |h| {
                drop(h.insert(HOST, host.parse().unwrap()))
            })
            .is_ok()
        };
        for good in [
            "127.0.0.1:3000",
            "localhost:3000",
            "LOCALHOST:3000",
            "[::1]:3000",
            "127.0.0.1:3001",
            "127.0.0.1",
        ] {
            assert!(host(good), "{good}");
        }
        for bad in [
            "evil.example.com",
            "evil.example.com:3000",
            "localhost.evil:3000",
            "localhost:3000.evil",
            "localhost:",
        ] {
            assert!(!host(bad), "{bad}");
        }
        let any = enter("10.0.0.1:3000", |h| {
            drop(h.insert(HOST, "x.example".parse().unwrap()))
        });
        assert!(any.is_ok(), "behind a proxy the name is the proxy's affair");
    }

    #[test]
    fn origins_are_ours_or_listed() {
        let origin = |origin: &'static str| {
            enter("127.0.0.1:3000", |h| {
                drop(h.insert(ORIGIN, origin.parse().unwrap()))
            })
        };
        for good in [
            "http://127.0.0.1:3000",
            "http://localhost:3000",
            "https://app.example.com",
        ] {
            assert!(origin(good).is_ok(), "{good}");
        }
        for bad in [
            "http://evil.example.com",
            "null",
            "https://127.0.0.1:3000",
            "http://localhost:8080",
            "http://localhost",
            "",
        ] {
            assert!(matches!(origin(bad), Err(Error::Origin)), "{bad}");
        }
    }

    #[test]
    fn the_type_is_json() {
        let kind = |kind: &'static str| {
            enter("127.0.0.1:3000", |h| {
                drop(h.insert(CONTENT_TYPE, kind.parse().unwrap()))
            })
        };
        assert!(kind("Application/JSON").is_ok());
        for bad in [
            "text/plain",
            "application/jsonp",
            "",
            "application/json-rpc",
        ] {
            assert!(matches!(kind(bad), Err(Error::ContentType)), "{bad}");
        }
    }

    #[test]
    fn declared_sizes_are_judged_before_all_else() {
        let result = enter("127.0.0.1:3000", |h| {
            h.insert(CONTENT_LENGTH, "99999999".parse().unwrap());
            h.insert(ORIGIN, "http://evil.example.com".parse().unwrap());
        });
        assert!(matches!(result, Err(Error::BodyTooLarge { .. })));
    }

    #[test]
    fn accept_is_read() {
        let read = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, value.parse().unwrap());
            let accepts = accepts(&headers);
            (accepts.streams, accepts.anything)
        };
        assert_eq!(read("application/json, text/event-stream"), (true, true));
        assert_eq!(read("Text/Event-Stream;q=0.5"), (true, true));
        assert_eq!(read("*/*"), (false, true));
        assert_eq!(read("application/json"), (false, false));
    }
}
