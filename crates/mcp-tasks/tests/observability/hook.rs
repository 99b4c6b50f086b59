//! A receiver of webhooks: keeps what it was sent, and takes it, refuses it or says nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// One POST.
#[derive(Clone, Debug)]
pub struct Post {
    pub path: String,
    /// By name in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: String,
    pub taken: bool,
}

/// How the receiver answers.
#[derive(Clone, Debug)]
pub enum Manner {
    Take,
    /// Everything gets this status.
    Status(u16),
    /// What contains this text is refused with 400.
    Refuse(String),
    /// Connections stay open, and nobody answers.
    Hang,
}

impl Post {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// The receiver; ends when dropped.
pub struct Hook {
    pub url: String,
    posts: Arc<Mutex<Vec<Post>>>,
    manner: Arc<Mutex<Manner>>,
    _stop: DropGuard,
}

impl Hook {
    pub async fn start() -> Hook {
        Self::that(Manner::Take).await
    }

    pub async fn that(manner: Manner) -> Hook {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let posts: Arc<Mutex<Vec<Post>>> = Arc::default();
        let manner = Arc::new(Mutex::new(manner));
        let stop = CancellationToken::new();
        let (kept, stopped) = (Arc::clone(&posts), stop.clone());
        let mannered = Arc::clone(&manner);
        let tracker = TaskTracker::new();
        let connections = tracker.clone();
        tracker.spawn(stopped.run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (kept, manner) = (Arc::clone(&kept), Arc::clone(&mannered));
                connections.spawn(async move { serve(stream, &kept, &manner).await });
            }
        }));
        Hook {
            url,
            posts,
            manner,
            _stop: stop.drop_guard(),
        }
    }

    /// From now on it answers like this.
    pub fn set(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    /// What was taken of this path so far.
    pub fn taken(&self, path: &str) -> Vec<Post> {
        let posts = self.posts(path);
        posts.into_iter().filter(|post| post.taken).collect()
    }

    /// What came for this path so far.
    pub fn posts(&self, path: &str) -> Vec<Post> {
        let posts = self.posts.lock().unwrap();
        posts
            .iter()
            .filter(|post| post.path == path)
            .cloned()
            .collect()
    }
}

/// One request a connection; all senders announce the length of what they send.
async fn serve(
    mut stream: TcpStream,
    kept: &Mutex<Vec<Post>>,
    manner: &Mutex<Manner>,
) -> Option<()> {
    let mut post = read(&mut stream).await?;
    let manner = manner.lock().unwrap().clone();
    let status = match &manner {
        Manner::Take => 200,
        Manner::Status(status) => *status,
        Manner::Refuse(text) if post.body.contains(text) => 400,
        Manner::Refuse(_) => 200,
        Manner::Hang => 0,
    };
    post.taken = status == 200;
    kept.lock().unwrap().push(post);
    if status == 0 {
        // Until the sender gives up.
        while stream.read_buf(&mut Vec::new()).await.ok()? > 0 {}
        return None;
    }
    let head = format!("HTTP/1.1 {status} \r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.ok()
}

async fn read(stream: &mut TcpStream) -> Option<Post> {
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
    let mut lines = head.lines();
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers.get("content-length")?.parse().ok()?;
    while bytes.len() < end + 4 + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    Some(Post {
        path,
        headers,
        body: String::from_utf8(bytes[end + 4..].to_vec()).ok()?,
        taken: false,
    })
}
