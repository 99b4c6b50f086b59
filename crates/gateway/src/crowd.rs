//! Connections for which there is no place: told so at once, as far as that is cheap, and closed.
//! Who waits in the dark instead waits for a time that nobody knows, and fills the system's queue.

use std::sync::Arc;
use std::time::Duration;

use protocol::jsonrpc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::error::Error;

/// So many are told at a time; more are just closed.
const TOLD_MAX: usize = 64;
/// For how long one may take to hear it.
const HEARING: Duration = Duration::from_secs(1);

/// Sends away.
pub(crate) struct Crowd {
    told: Arc<Semaphore>,
    answer: Arc<[u8]>,
    encrypted: bool,
}

impl Crowd {
    /// `encrypted`: before TLS is agreed upon nothing can be told.
    pub(crate) fn new(encrypted: bool) -> Self {
        let row = Error::Overloaded {
            what: "connections",
        }
        .row();
        let body = jsonrpc::error_response(None, &row.error);
        let head = format!(
            "HTTP/1.1 {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             retry-after: {}\r\nconnection: close\r\n\r\n",
            row.status,
            body.len(),
            row.retry_after.unwrap_or(1),
        );
        Self {
            told: Arc::new(Semaphore::new(TOLD_MAX)),
            answer: [head.as_bytes(), &body].concat().into(),
            encrypted,
        }
    }

    /// Closes a connection for which there is no place.
    pub(crate) fn send_away(&self, stream: TcpStream) -> impl Future<Output = ()> + Send + 'static {
        let answer = Arc::clone(&self.answer);
        let place = (!self.encrypted).then(|| Arc::clone(&self.told).try_acquire_owned());
        async move {
            if let Some(Ok(_place)) = place {
                // Whoever tells and closes with something unread takes the answer back.
                drop(tokio::time::timeout(HEARING, tell(stream, &answer)).await);
            }
        }
    }
}

async fn tell(mut stream: TcpStream, answer: &[u8]) -> std::io::Result<()> {
    stream.write_all(answer).await?;
    stream.shutdown().await?;
    let mut unread = [0; 1024];
    while stream.read(&mut unread).await? > 0 {}
    Ok(())
}
