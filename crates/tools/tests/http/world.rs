//! A server of the tests' own, and a tools file that leads to it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use worker::testkit::{Kit, Run};
use worker::{CallToolResult, Tool};

/// Used up by failures only.
pub const SOON: Duration = Duration::from_secs(60);

/// A request that came.
#[derive(Clone, Debug)]
pub struct Seen {
    pub verb: String,
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Seen {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// What to answer.
pub enum Reply {
    /// Status, headers beside the length, body.
    Whole(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Bytes as they are, then the connection is closed.
    Raw(Vec<u8>),
    /// Nothing, until the client goes.
    Silence,
}

impl Reply {
    pub fn of(status: u16, kind: &str, body: impl Into<Vec<u8>>) -> Self {
        Self::Whole(status, vec![("content-type", kind.to_owned())], body.into())
    }

    pub fn json(body: &str) -> Self {
        Self::of(200, "application/json", body)
    }
}

type Script = dyn Fn(&Seen, usize) -> Reply + Send + Sync;

/// The server, until dropped.
pub struct Server {
    pub url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    _running: JoinSet<()>,
}

impl Server {
    /// `script`: the answer to a request, and to the how manieth, from 0.
    pub async fn start(script: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (all, script): (_, Arc<Script>) = (Arc::clone(&seen), Arc::new(script));
        let mut running = JoinSet::new();
        running.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    return;
                };
                connections.spawn(serve(stream, Arc::clone(&all), Arc::clone(&script)));
            }
        });
        Self {
            url,
            seen,
            _running: running,
        }
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub async fn wait_for(&self, requests: usize) {
        let waiting = async {
            while self.seen().len() < requests {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(SOON, waiting).await.unwrap();
    }
}

async fn serve(mut stream: TcpStream, all: Arc<Mutex<Vec<Seen>>>, script: Arc<Script>) {
    while let Some(request) = read(&mut stream).await {
        let before = {
            let mut all = all.lock().unwrap();
            all.push(request.clone());
            all.len() - 1
        };
        match script(&request, before) {
            Reply::Whole(status, headers, body) => {
                let mut head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
                for (name, value) in headers {
                    head.push_str(&format!("{name}: {value}\r\n"));
                }
                head.push_str("\r\n");
                if stream.write_all(head.as_bytes()).await.is_err()
                    || stream.write_all(&body).await.is_err()
                {
                    return;
                }
            }
            Reply::Raw(bytes) => {
                let _ = stream.write_all(&bytes).await;
                return;
            }
            Reply::Silence => {
                let mut byte = [0; 1];
                let _ = stream.read(&mut byte).await;
                return;
            }
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        let mut more = [0; 4096];
        match stream.read(&mut more).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => bytes.extend_from_slice(&more[..read]),
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (verb, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.get("content-length");
    let length: usize = length.map_or(0, |text| text.parse().unwrap());
    let mut body = bytes.split_off(end + 4);
    while body.len() < length {
        let mut more = vec![0; 65536];
        match stream.read(&mut more).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => body.extend_from_slice(&more[..read]),
        }
    }
    Some(Seen {
        verb,
        path,
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}

/// A folder with a tools file.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The one tool of a file with these keys, which takes the arguments `x`, `y` and `z`.
    pub fn tool(&self, url: &str, more: &str) -> Arc<dyn Tool> {
        self.load(url, more)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn load(&self, url: &str, more: &str) -> Result<Arc<dyn Tool>, String> {
        let text = format!(
            "[[http]]\nname = \"tool\"\ndescription = \"T.\"\nurl = \"{url}\"\n\
             input_schema = {{ type = \"object\", properties = {{ x = {{}}, y = {{}}, z = {{}} }} }}\n\
             {more}\n"
        );
        let file = self.path().join("tools.toml");
        std::fs::write(&file, text).unwrap();
        let read = tools::file::load(&file).map_err(|error| error.to_string())?;
        Ok(read.tools.into_iter().next().unwrap().tool)
    }
}

pub async fn run(tool: Arc<dyn Tool>, arguments: Value) -> Run {
    let running = Kit::of(tool).arguments(arguments).run();
    tokio::time::timeout(SOON, running).await.unwrap()
}

#[track_caller]
pub fn text(run: &Run) -> String {
    let result: &CallToolResult = run.result().unwrap();
    result.content[0].as_text().unwrap_or_default().to_owned()
}

/// The error's text of a run that failed.
#[track_caller]
pub fn error(run: &Run) -> String {
    run.result().unwrap_err().to_string()
}
