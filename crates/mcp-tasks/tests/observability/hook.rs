//! A receiver of webhooks: takes every POST and keeps what it was sent.

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
    _stop: DropGuard,
}

impl Hook {
    pub async fn start() -> Hook {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let posts: Arc<Mutex<Vec<Post>>> = Arc::default();
        let stop = CancellationToken::new();
        let (kept, stopped) = (Arc::clone(&posts), stop.clone());
        let tracker = TaskTracker::new();
        let connections = tracker.clone();
        tracker.spawn(stopped.run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let kept = Arc::clone(&kept);
                connections.spawn(async move {
                    if let Some(post) = serve(stream).await {
                        kept.lock().unwrap().push(post);
                    }
                });
            }
        }));
        Hook {
            url,
            posts,
            _stop: stop.drop_guard(),
        }
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

/// One request a connection; both senders announce the length of what they send.
async fn serve(mut stream: TcpStream) -> Option<Post> {
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
    let body = String::from_utf8(bytes[end + 4..].to_vec()).ok()?;
    let ok = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    stream.write_all(ok).await.ok()?;
    Some(Post {
        path,
        headers,
        body,
    })
}
