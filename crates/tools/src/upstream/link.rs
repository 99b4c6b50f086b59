//! A connection to one upstream server: in which revision it is spoken to, and how.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use protocol::code;
use protocol::headers::{METHOD, NAME, PROTOCOL_VERSION};
use protocol::meta::{CLIENT_CAPABILITIES_KEY, CLIENT_INFO_KEY, PROTOCOL_VERSION_KEY};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::config::Protocol;
use super::exchange::{Event, Exchange, mirror};
use super::fault::Fault;
use super::floor::Floor;
use super::http::{Http, SESSION};
use super::message;

/// The revision that older servers are greeted with; they may answer with an older one.
const LEGACY: &str = "2025-11-25";
/// What older servers are told that we can do: what they ask beyond what the caller can answer
/// is refused for each call. Newer ones are told with each request.
const ABILITIES: &str = r#"{"elicitation":{"form":{},"url":{}},"sampling":{}}"#;
/// A process that says nothing to a greeting it does not know is an older one.
const SILENCE: Duration = Duration::from_secs(5);

/// How the server is reached.
#[derive(Clone)]
pub(super) enum Transport {
    Http(Arc<Http>),
    /// The standard input of its process.
    Pipe(mpsc::Sender<Bytes>),
}

/// A server that was greeted.
pub(super) struct Link {
    pub(super) transport: Transport,
    pub(super) floor: Floor,
    /// It is of no use any more: another one is made.
    pub(super) broken: CancellationToken,
    modern: bool,
    /// What the server answered to `initialize`.
    version: OnceLock<String>,
    session: OnceLock<String>,
    /// Its capabilities, as it has said.
    capabilities: OnceLock<Value>,
    next_id: AtomicI64,
}

/// What a request is about, for what is said beside it.
#[derive(Default)]
pub(super) struct About<'a> {
    /// Members of `_meta`, as JSON.
    pub(super) meta: Vec<(&'a str, String)>,
    /// What the caller can do, where that is said with each request.
    pub(super) abilities: Option<String>,
    /// What `Mcp-Name` mirrors.
    pub(super) name: Option<&'a str>,
    /// More headers that mirror the body.
    pub(super) mirrored: Vec<(String, String)>,
    /// Whether progress is wanted.
    pub(super) progress: bool,
    /// Whether a tool is called, which a question of an older server's may be about.
    pub(super) is_call: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Discovered {
    #[serde(default)]
    supported_versions: Vec<String>,
    #[serde(default)]
    capabilities: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Initialized {
    protocol_version: String,
    #[serde(default)]
    capabilities: Value,
}

impl Link {
    fn new(transport: Transport, floor: Floor, modern: bool) -> Arc<Self> {
        Arc::new(Self {
            transport,
            floor,
            broken: CancellationToken::new(),
            modern,
            version: OnceLock::new(),
            session: OnceLock::new(),
            capabilities: OnceLock::new(),
            next_id: AtomicI64::new(1),
        })
    }

    /// Greets a server, and finds out what it speaks if that is not said.
    pub(super) async fn greet(
        transport: Transport,
        floor: Floor,
        protocol: Protocol,
        timeout: Duration,
    ) -> Result<Arc<Self>, Fault> {
        if protocol != Protocol::Legacy {
            let link = Self::new(transport.clone(), floor.clone(), true);
            let within = match transport {
                Transport::Pipe(_) if protocol == Protocol::Auto => SILENCE.min(timeout),
                Transport::Http(_) | Transport::Pipe(_) => timeout,
            };
            match link.discover(within).await {
                Ok(()) => return Ok(link),
                Err(fault) if protocol == Protocol::Modern => return Err(fault),
                Err(fault @ (Fault::NotSent(_) | Fault::Refused(_))) => return Err(fault),
                Err(Fault::Unknown(text)) if matches!(transport, Transport::Http(_)) => {
                    return Err(Fault::Unknown(text));
                }
                Err(fault) => {
                    tracing::debug!(answer = fault.text(), "an upstream is of an older revision");
                }
            }
        }
        let link = Self::new(transport, floor, false);
        link.initialize(timeout).await?;
        Ok(link)
    }

    async fn discover(self: &Arc<Self>, timeout: Duration) -> Result<(), Fault> {
        let found = self.ask("server/discover", &[], None, timeout).await?;
        let found: Discovered = serde_json::from_str(found.get())
            .map_err(|error| Fault::Garbage(format!("server/discover: {error}")))?;
        if found
            .supported_versions
            .iter()
            .any(|v| v == protocol::VERSION)
        {
            let _ = self.capabilities.set(found.capabilities);
            return Ok(());
        }
        Err(Fault::Misfit(format!(
            "speaks {:?}, not {}",
            found.supported_versions,
            protocol::VERSION
        )))
    }

    async fn initialize(self: &Arc<Self>, timeout: Duration) -> Result<(), Fault> {
        let version = message::string(LEGACY);
        let about_us = about_us();
        let params = [
            ("protocolVersion", version.as_str()),
            ("capabilities", ABILITIES),
            ("clientInfo", &about_us),
        ];
        let answer = self.ask("initialize", &params, None, timeout).await?;
        let answer: Initialized = serde_json::from_str(answer.get())
            .map_err(|error| Fault::Garbage(format!("initialize: {error}")))?;
        // Said once: this link is ours alone yet.
        let _ = self.version.set(answer.protocol_version);
        let _ = self.capabilities.set(answer.capabilities);
        let greeted = message::outgoing(None, "notifications/initialized", "{}");
        within(timeout, self.tell(greeted.into())).await
    }

    /// Whether the server has said that it serves this, by its place among its capabilities
    /// (`/resources/subscribe`).
    pub(super) fn serves(&self, capability: &str) -> bool {
        let said = self
            .capabilities
            .get()
            .and_then(|all| all.pointer(capability));
        said.is_some_and(|said| !matches!(said, Value::Null | Value::Bool(false)))
    }

    /// Whether calls can be made tasks, as of 2025-11-25.
    pub(super) fn makes_tasks(&self) -> bool {
        !self.modern && self.serves("/tasks/requests/tools/call")
    }

    /// Whether requests stand alone, as since 2026-07-28.
    pub(super) fn is_modern(&self) -> bool {
        self.modern
    }

    /// The revision that is spoken.
    pub(super) fn version(&self) -> &str {
        if self.modern {
            return protocol::VERSION;
        }
        self.version.get().map_or(LEGACY, String::as_str)
    }

    /// The server has opened a session, at its greeting; later ones change nothing.
    pub(super) fn in_session(&self, session: String) {
        if !self.modern {
            let _ = self.session.set(session);
        }
    }

    /// The headers of each request.
    pub(super) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let version = if self.modern {
            Some(protocol::VERSION)
        } else {
            self.version.get().map(String::as_str)
        };
        for (name, value) in [
            (PROTOCOL_VERSION, version),
            (SESSION, self.session.get().map(String::as_str)),
        ] {
            if let Some(value) = value
                && let Ok(name) = name.parse::<HeaderName>()
                && let Ok(value) = HeaderValue::from_str(value)
            {
                headers.insert(name, value);
            }
        }
        headers
    }

    /// Sends a request, members of its params as JSON.
    pub(super) async fn begin(
        self: &Arc<Self>,
        method: &str,
        members: &[(&str, &str)],
        about: About<'_>,
    ) -> Result<Exchange, Fault> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let inbox = self.floor.enter(id, about.is_call);
        let meta = self.meta(id, &about);
        let mut members = members.to_vec();
        if meta != "{}" {
            members.push(("_meta", &meta));
        }
        let text = message::outgoing(Some(id), method, &message::object(members));
        match &self.transport {
            Transport::Pipe(_) => {
                self.tell(text.into()).await?;
                Ok(Exchange::over_pipe(Arc::clone(self), id, inbox))
            }
            Transport::Http(http) => {
                let mut headers = self.headers();
                if self.modern {
                    mirror(&mut headers, METHOD, method);
                    if let Some(name) = about.name {
                        mirror(&mut headers, NAME, name);
                    }
                    for (name, value) in &about.mirrored {
                        mirror(&mut headers, name, value);
                    }
                }
                let http = Arc::clone(http);
                let sending = Box::pin(async move { http.post(text.into(), headers).await });
                Ok(Exchange::over_http(Arc::clone(self), id, inbox, sending))
            }
        }
    }

    fn meta(&self, id: i64, about: &About<'_>) -> String {
        let id = id.to_string();
        let version = message::string(protocol::VERSION);
        let about_us = about_us();
        let mut meta: Vec<(&str, &str)> = Vec::new();
        if self.modern {
            meta.push((PROTOCOL_VERSION_KEY, &version));
            meta.push((CLIENT_INFO_KEY, &about_us));
            let abilities = about.abilities.as_deref().unwrap_or(ABILITIES);
            meta.push((CLIENT_CAPABILITIES_KEY, abilities));
        }
        if about.progress {
            meta.push(("progressToken", &id));
        }
        for (name, value) in &about.meta {
            meta.push((name, value));
        }
        message::object(meta)
    }

    /// Asks something that is answered soon, and waits for the answer.
    pub(super) async fn ask(
        self: &Arc<Self>,
        method: &str,
        members: &[(&str, &str)],
        name: Option<&str>,
        timeout: Duration,
    ) -> Result<Box<RawValue>, Fault> {
        let about = About {
            name,
            abilities: (self.modern && name.is_some()).then(|| TASKS.to_owned()),
            ..About::default()
        };
        let asking = async {
            let mut exchange = self.begin(method, members, about).await?;
            loop {
                match exchange.next().await? {
                    Event::Progress(_) => {}
                    Event::Ask(request) => {
                        exchange.answer(&request.id, &Err(nobody_answers())).await?;
                    }
                    Event::Done(result) => return Ok(result),
                }
            }
        };
        within(timeout, asking).await
    }

    /// Sends what is not answered.
    pub(super) async fn tell(&self, text: Bytes) -> Result<(), Fault> {
        match &self.transport {
            Transport::Pipe(to) => {
                let mut line = Vec::with_capacity(text.len() + 1);
                line.extend_from_slice(&text);
                line.push(b'\n');
                let sent = to.send(line.into()).await;
                sent.map_err(|_| Fault::NotSent("has ended".to_owned()))
            }
            Transport::Http(http) => http.post(text, self.headers()).await.map(|_| ()),
        }
    }

    /// Closes the session, if there is one. Best effort.
    pub(super) async fn leave(&self) {
        if let (Transport::Http(http), Some(_)) = (&self.transport, self.session.get()) {
            let closing = http.delete(self.headers());
            let _ = tokio::time::timeout(Duration::from_secs(2), closing).await;
        }
    }
}

/// What we can do where a task of the server's is asked for: follow it.
const TASKS: &str = r#"{"elicitation":{"form":{},"url":{}},"sampling":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;

fn about_us() -> String {
    json!({ "name": "mcp-tasks", "version": env!("CARGO_PKG_VERSION") }).to_string()
}

/// The answer to a question that is about no call.
pub(super) fn nobody_answers() -> protocol::ErrorObject {
    protocol::ErrorObject::new(
        code::METHOD_NOT_FOUND,
        "nobody can be asked: it cannot be told which call this is about",
    )
}

pub(super) async fn within<T>(
    timeout: Duration,
    asking: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    tokio::time::timeout(timeout, asking)
        .await
        .unwrap_or_else(|_| Err(Fault::Unknown(format!("did not answer within {timeout:?}"))))
}
