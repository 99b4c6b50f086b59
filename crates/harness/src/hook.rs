//! A receiver of webhooks: keeps what it was sent, and takes it, refuses it or says nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::error::{Error, Result};

/// One POST.
#[derive(Clone, Debug)]
pub struct Post {
    /// As in the request's line.
    pub path: String,
    /// By name in lower case.
    pub headers: BTreeMap<String, String>,
    /// As text.
    pub body: String,
    /// It was answered with 200.
    pub taken: bool,
}

/// How the receiver answers.
#[derive(Clone, Debug)]
pub enum Manner {
    /// Everything gets 200.
    Take,
    /// Everything gets this status.
    Status(u16),
    /// The same, and is told the path that was asked for, as frameworks do.
    Echo(u16),
    /// What contains this text is refused with 400.
    Refuse(String),
    /// Everything is led to this address, as it is (307).
    Redirect(String),
    /// Connections stay open, and nobody answers.
    Hang,
}

impl Post {
    /// The body as JSON; `null` if it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

/// The receiver; ends when dropped.
#[derive(Debug)]
pub struct Hook {
    /// Its address, without a path.
    pub url: String,
    posts: Arc<Mutex<Vec<Post>>>,
    manner: Arc<Mutex<Manner>>,
    _stop: DropGuard,
}

impl Hook {
    /// Listens on loopback.
    ///
    /// # Errors
    /// If it can't.
    pub async fn start(manner: Manner) -> Result<Hook> {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.map_err(Error::io("listen for webhooks"))?;
        let address = listener.local_addr();
        let address = address.map_err(Error::io("listen for webhooks"))?;
        let url = format!("http://{address}");
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
        Ok(Hook {
            url,
            posts,
            manner,
            _stop: stop.drop_guard(),
        })
    }

    /// From now on it answers like this.
    pub fn set(&self, manner: Manner) {
        *lock(&self.manner) = manner;
    }

    /// What was taken of this path so far.
    #[must_use]
    pub fn taken(&self, path: &str) -> Vec<Post> {
        let posts = self.posts(path);
        posts.into_iter().filter(|post| post.taken).collect()
    }

    /// What came for this path so far.
    #[must_use]
    pub fn posts(&self, path: &str) -> Vec<Post> {
        let posts = lock(&self.posts);
        let mine = posts.iter().filter(|post| post.path == path);
        mine.cloned().collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One request a connection; all senders announce the length of what they send.
async fn serve(
    mut stream: TcpStream,
    kept: &Mutex<Vec<Post>>,
    manner: &Mutex<Manner>,
) -> Option<()> {
    let mut post = read(&mut stream).await?;
    let (mut location, mut said) = (String::new(), String::new());
    let status = match &*lock(manner) {
        Manner::Take => Some(200),
        Manner::Status(status) => Some(*status),
        Manner::Echo(status) => {
            said = format!("Cannot POST {}", post.path);
            Some(*status)
        }
        Manner::Refuse(text) if post.body.contains(text) => Some(400),
        Manner::Refuse(_) => Some(200),
        Manner::Redirect(to) => {
            location = format!("location: {to}\r\n");
            Some(307)
        }
        Manner::Hang => None,
    };
    post.taken = status == Some(200);
    lock(kept).push(post);
    let Some(status) = status else {
        // Until the sender gives up.
        while stream.read_buf(&mut Vec::new()).await.ok()? > 0 {}
        return None;
    };
    let length = said.len();
    let answer = format!(
        "HTTP/1.1 {status} \r\n{location}content-length: {length}\r\nconnection: close\r\n\r\n{said}"
    );
    stream.write_all(answer.as_bytes()).await.ok()
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
