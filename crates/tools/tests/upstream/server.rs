//! A small MCP server of the tests' own, that does what it is told to, wrong things included.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A request that came.
#[derive(Clone, Debug)]
pub struct Seen {
    /// `POST`, `GET`, `DELETE`; or `CLOSED` when the client closed a stream that it had opened.
    pub verb: String,
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: Value,
}

impl Seen {
    pub fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// The JSON-RPC response to it.
    pub fn result(&self, result: Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": self.body["id"], "result": result })
    }

    pub fn progress(&self, progress: Value) -> Value {
        let mut params = progress;
        params["progressToken"] = self.body["params"]["_meta"]["progressToken"].clone();
        json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
    }
}

/// What to answer.
pub enum Reply {
    /// Status, headers, body.
    Plain(u16, Vec<(&'static str, String)>, String),
    /// A stream: what is said, then whether it is held open until the client goes.
    Stream(Vec<String>, bool),
    /// Bytes as they are, then the connection is closed.
    Raw(Vec<u8>),
    /// Nothing, until the client goes.
    Silence,
}

impl Reply {
    pub fn json(body: Value) -> Self {
        Self::Plain(200, Vec::new(), body.to_string())
    }

    pub fn status(status: u16) -> Self {
        Self::Plain(status, Vec::new(), String::new())
    }

    /// Messages, the last one first of all an answer: then it is closed.
    pub fn events(messages: impl IntoIterator<Item = Value>) -> Self {
        Self::Stream(messages.into_iter().map(|m| event(&m)).collect(), false)
    }

    /// Messages, and no end.
    pub fn held(messages: impl IntoIterator<Item = Value>) -> Self {
        Self::Stream(messages.into_iter().map(|m| event(&m)).collect(), true)
    }
}

pub fn event(message: &Value) -> String {
    format!("event: message\ndata: {message}\n\n")
}

type Script = dyn Fn(&Seen) -> Reply + Send + Sync;

#[derive(Default)]
struct World {
    seen: Mutex<Vec<Seen>>,
}

/// A server that runs until it is dropped.
pub struct Server {
    pub url: String,
    world: Arc<World>,
    changed: watch::Receiver<usize>,
    /// Sent to every stream that is held open; or to those of `GET`, if that is so.
    say: watch::Sender<Vec<(bool, String)>>,
    _running: JoinSet<()>,
}

impl Server {
    pub async fn start(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, script)
    }

    pub fn on(
        listener: TcpListener,
        script: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let world = Arc::new(World::default());
        let script: Arc<Script> = Arc::new(script);
        let (noted, changed) = watch::channel(0);
        let say = watch::Sender::new(Vec::new());
        let mut running = JoinSet::new();
        let (shared, said) = (Arc::clone(&world), say.clone());
        running.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let connection = Connection {
                    world: Arc::clone(&shared),
                    script: Arc::clone(&script),
                    noted: noted.clone(),
                    said: said.subscribe(),
                };
                connections.spawn(connection.serve(stream));
            }
        });
        Self {
            url,
            world,
            changed,
            say,
            _running: running,
        }
    }

    /// Says this on every stream that is open or will be.
    pub fn say(&self, message: &Value) {
        let said = (false, event(message));
        self.say.send_modify(|all| all.push(said));
    }

    /// Says this beside all calls, on the session's stream.
    pub fn say_beside(&self, message: &Value) {
        let said = (true, event(message));
        self.say.send_modify(|all| all.push(said));
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.world.seen.lock().unwrap().clone()
    }

    /// The requests of one method.
    pub fn of(&self, method: &str) -> Vec<Seen> {
        let seen = self.seen().into_iter();
        seen.filter(|seen| seen.method() == method).collect()
    }

    /// Waits until what was seen is so.
    pub async fn until(&self, is_so: impl Fn(&[Seen]) -> bool) {
        let mut changed = self.changed.clone();
        let waiting = async {
            while !is_so(&self.world.seen.lock().unwrap()) {
                changed.changed().await.unwrap();
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
        assert!(waited.is_ok(), "it never came: {:#?}", self.seen());
    }
}

struct Connection {
    world: Arc<World>,
    script: Arc<Script>,
    noted: watch::Sender<usize>,
    said: watch::Receiver<Vec<(bool, String)>>,
}

impl Connection {
    fn note(&self, seen: Seen) {
        self.world.seen.lock().unwrap().push(seen);
        self.noted.send_modify(|count| *count += 1);
    }

    async fn serve(mut self, mut stream: TcpStream) {
        let mut buffer = Vec::new();
        while let Some(seen) = request(&mut stream, &mut buffer).await {
            self.note(seen.clone());
            let reply = (self.script)(&seen);
            let goes_on = match reply {
                Reply::Plain(status, headers, body) => {
                    let mut head =
                        format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
                    if !headers.iter().any(|(name, _)| *name == "content-type") && !body.is_empty()
                    {
                        head.push_str("content-type: application/json\r\n");
                    }
                    for (name, value) in headers {
                        head.push_str(&format!("{name}: {value}\r\n"));
                    }
                    let text = format!("{head}\r\n{body}");
                    stream.write_all(text.as_bytes()).await.is_ok()
                }
                Reply::Stream(events, held) => {
                    let of_session = seen.verb == "GET";
                    self.stream(&mut stream, &events, held, of_session).await;
                    if held {
                        self.note(Seen {
                            verb: "CLOSED".to_owned(),
                            body: json!({ "of": seen.body }),
                            ..seen
                        });
                    }
                    false
                }
                Reply::Raw(bytes) => {
                    let _ = stream.write_all(&bytes).await;
                    false
                }
                Reply::Silence => {
                    let _ = stream.read(&mut [0; 1]).await;
                    false
                }
            };
            if !goes_on {
                break;
            }
        }
    }

    /// Until all is said, or if held until the client goes.
    async fn stream(
        &mut self,
        stream: &mut TcpStream,
        events: &[String],
        held: bool,
        of_session: bool,
    ) {
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        if stream.write_all(head.as_bytes()).await.is_err() {
            return;
        }
        for event in events {
            if stream.write_all(event.as_bytes()).await.is_err() {
                return;
            }
        }
        if !held {
            return;
        }
        let mut told = 0;
        loop {
            let more: Vec<(bool, String)> = self.said.borrow_and_update()[told..].to_vec();
            told += more.len();
            for (_, event) in more.iter().filter(|(beside, _)| of_session || !beside) {
                if stream.write_all(event.as_bytes()).await.is_err() {
                    return;
                }
            }
            let mut byte = [0; 1];
            tokio::select! {
                read = stream.read(&mut byte) => if !matches!(read, Ok(1)) { return },
                _ = self.said.changed() => {}
            }
        }
    }
}

async fn request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Seen> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
    buffer.drain(..head_end + 4);
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (verb, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers
        .get("content-length")
        .map_or(0, |l| l.parse().unwrap());
    while buffer.len() < length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let body: Vec<u8> = buffer.drain(..length).collect();
    Some(Seen {
        verb,
        path,
        headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    })
}

/// A server of 2025-11-25: greeted, in a session, with these tools; what it does when it is called
/// is the test's.
pub async fn legacy(tools: Value, call: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Server {
    Server::start(legacy_script(tools, call)).await
}

pub fn legacy_script(
    tools: Value,
    call: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
) -> impl Fn(&Seen) -> Reply + Send + Sync + 'static {
    move |seen| {
        match (seen.verb.as_str(), seen.method()) {
        ("POST", "server/discover") => Reply::Plain(
            400,
            Vec::new(),
            json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32000, "message": "Server not initialized" } })
                .to_string(),
        ),
        ("POST", "initialize") => Reply::Plain(
            200,
            vec![("mcp-session-id", "s-1".to_owned())],
            seen.result(json!({
                "protocolVersion": "2025-11-25",
                "capabilities": { "tools": { "listChanged": true } },
                "serverInfo": { "name": "old", "version": "1" }
            }))
            .to_string(),
        ),
        ("POST", "tools/list") => Reply::json(seen.result(json!({ "tools": tools }))),
        ("POST", "tools/call") => call(seen),
        ("POST", _) => Reply::status(202),
        _ => Reply::status(405),
    }
    }
}

/// A server of 2026-07-28.
pub async fn modern(tools: Value, call: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Server {
    Server::start(
        move |seen: &Seen| match (seen.verb.as_str(), seen.method()) {
            ("POST", "server/discover") => Reply::json(seen.result(json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {},
                "ttlMs": 0, "cacheScope": "private"
            }))),
            ("POST", "tools/list") => Reply::json(seen.result(json!({
                "resultType": "complete", "tools": tools, "ttlMs": 0, "cacheScope": "private"
            }))),
            ("POST", "subscriptions/listen") => Reply::held([]),
            _ => call(seen),
        },
    )
    .await
}

/// A tool as a server lists it.
pub fn tool(name: &str, annotations: Value) -> Value {
    json!({ "name": name, "inputSchema": { "type": "object" }, "annotations": annotations })
}
