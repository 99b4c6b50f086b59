//! An authorization server for tests: signs tokens of every kind, publishes its keys and its
//! metadata, introspects opaque tokens, rotates, and fails in every way.
//!
//! It deliberately shares no code with our own checks: a mistake there must not cancel itself out
//! here.

mod signing;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::error::{Error, Result};

pub use signing::SigningKey;

/// Who may introspect, and with which secret. Both need encoding in a form.
pub const CLIENT: (&str, &str) = ("mcp tasks", "s3cret&+%");

/// How the server behaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// As it should.
    #[default]
    Up,
    /// Connections are closed without a word.
    Down,
    /// Every answer takes so long.
    Slow(Duration),
    /// Every answer is this text.
    Garbage(String),
    /// Every answer has this status.
    Status(u16),
    /// Every answer leads to this address.
    Redirect(String),
}

#[derive(Default)]
struct State {
    manner: Manner,
    /// JWKs.
    keys: Vec<Value>,
    /// What introspection says, by token.
    opaque: BTreeMap<String, Value>,
    /// `issuer` of the metadata, if it shall lie.
    issuer: Option<String>,
    /// What is said at a path, in place of all else.
    pages: BTreeMap<String, String>,
    /// How often each path was asked for.
    requests: BTreeMap<String, usize>,
}

/// The server; ends when dropped.
pub struct Issuer {
    /// Its issuer identifier and address.
    pub url: String,
    state: Arc<Mutex<State>>,
    _stop: DropGuard,
}

/// Seconds since 1970.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "an authorization server looks at the clock"
)]
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_secs()).unwrap_or(i64::MAX)
}

impl Issuer {
    /// Listens on loopback and publishes these keys.
    ///
    /// # Errors
    /// If it can't listen.
    pub async fn start(keys: &[&SigningKey]) -> Result<Issuer> {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.map_err(Error::io("listen as an issuer"))?;
        let address = listener.local_addr();
        let address = address.map_err(Error::io("listen as an issuer"))?;
        let url = format!("http://{address}");
        let state: Arc<Mutex<State>> = Arc::default();
        let stop = CancellationToken::new();
        let (stopped, shared, own) = (stop.clone(), Arc::clone(&state), url.clone());
        let tracker = TaskTracker::new();
        let connections = tracker.clone();
        tracker.spawn(stopped.run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (state, url) = (Arc::clone(&shared), own.clone());
                connections.spawn(async move { serve(stream, &url, &state).await });
            }
        }));
        let issuer = Issuer {
            url,
            state,
            _stop: stop.drop_guard(),
        };
        issuer.publish(keys);
        Ok(issuer)
    }

    /// From now on these are its keys.
    pub fn publish(&self, keys: &[&SigningKey]) {
        self.publish_jwks(keys.iter().map(|key| key.jwk()).collect());
    }

    /// From now on these are its keys, whatever they are.
    pub fn publish_jwks(&self, keys: Vec<Value>) {
        lock(&self.state).keys = keys;
    }

    /// From now on it behaves like this.
    pub fn behave(&self, manner: Manner) {
        lock(&self.state).manner = manner;
    }

    /// Its metadata says that it is another.
    pub fn pretend(&self, issuer: &str) {
        lock(&self.state).issuer = Some(issuer.to_owned());
    }

    /// From now on it answers this text at a path, with 200.
    pub fn say(&self, path: &str, text: &str) {
        let pages = &mut lock(&self.state).pages;
        pages.insert(path.to_owned(), text.to_owned());
    }

    /// What introspection says of a token from now on.
    pub fn know(&self, token: &str, said: Value) {
        lock(&self.state).opaque.insert(token.to_owned(), said);
    }

    /// How often a path was asked for.
    #[must_use]
    pub fn requests(&self, path: &str) -> usize {
        let state = lock(&self.state);
        state.requests.get(path).copied().unwrap_or_default()
    }

    /// The claims of a good token for `resource`, an hour long.
    #[must_use]
    pub fn claims(&self, subject: &str, resource: &str) -> Value {
        json!({"iss": self.url, "sub": subject, "aud": resource, "exp": now() + 3600,
               "iat": now(), "jti": format!("{subject}-{}", now())})
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One request a connection.
async fn serve(mut stream: TcpStream, url: &str, state: &Mutex<State>) -> Option<()> {
    let request = read(&mut stream).await?;
    let manner = {
        let mut state = lock(state);
        *state.requests.entry(request.path.clone()).or_default() += 1;
        state.manner.clone()
    };
    let mut location = String::new();
    let (status, body) = match manner {
        Manner::Down => return None,
        Manner::Garbage(text) => (200, text),
        Manner::Status(status) => (status, String::new()),
        Manner::Redirect(to) => {
            location = format!("location: {to}\r\n");
            // Whoever follows it repeats its request, credentials and all.
            (307, String::new())
        }
        Manner::Up => answer(&request, url, state),
        Manner::Slow(time) => {
            tokio::time::sleep(time).await;
            answer(&request, url, state)
        }
    };
    let answer = format!(
        "HTTP/1.1 {status} \r\ncontent-type: application/json\r\n{location}content-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await.ok()
}

fn answer(request: &Asked, url: &str, state: &Mutex<State>) -> (u16, String) {
    let state = lock(state);
    if let Some(page) = state.pages.get(&request.path) {
        return (200, page.clone());
    }
    let body = match request.path.as_str() {
        "/.well-known/openid-configuration" => {
            let issuer = state.issuer.clone().unwrap_or_else(|| url.to_owned());
            json!({"issuer": issuer, "jwks_uri": format!("{url}/jwks")})
        }
        "/jwks" => json!({"keys": state.keys}),
        "/introspect" => {
            let form = |text: &str| {
                text.bytes()
                    .map(|byte| match byte {
                        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
                        b' ' => "+".to_owned(),
                        other => format!("%{other:02X}"),
                    })
                    .collect::<String>()
            };
            let expected = STANDARD.encode(format!("{}:{}", form(CLIENT.0), form(CLIENT.1)));
            if request.authorization != format!("Basic {expected}") {
                return (401, String::new());
            }
            let fields = request.body.split('&');
            let token = fields
                .filter_map(|field| field.strip_prefix("token="))
                .next();
            let known = token.and_then(|token| state.opaque.get(token));
            known.cloned().unwrap_or_else(|| json!({"active": false}))
        }
        _ => return (404, String::new()),
    };
    (200, body.to_string())
}

struct Asked {
    path: String,
    authorization: String,
    body: String,
}

async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let field = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        let value = lines.find(|(field, _)| field.eq_ignore_ascii_case(name));
        value.map(|(_, value)| value.to_owned()).unwrap_or_default()
    };
    let length: usize = field("content-length").parse().unwrap_or_default();
    while bytes.len() < end + 4 + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    Some(Asked {
        path: head.split(' ').nth(1)?.to_owned(),
        authorization: field("authorization"),
        body: String::from_utf8_lossy(&bytes[end + 4..]).into_owned(),
    })
}
