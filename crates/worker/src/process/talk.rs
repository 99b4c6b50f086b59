//! Talking with a command while it runs.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;

/// The tool's side of a conversation with a command; see [`super::Command::talk`].
#[derive(Debug)]
pub struct Talk {
    /// Its standard input, after what [`super::Command::stdin`] says; ends when this is dropped.
    pub to: mpsc::Sender<Bytes>,
    /// Its standard output, in pieces as they were written; `None` when it has closed it.
    pub from: mpsc::Receiver<Bytes>,
}

/// What it is told, and what it says.
type Both = (mpsc::Receiver<Bytes>, mpsc::Sender<Bytes>);

/// The command's side, taken by the first to run it.
#[derive(Clone, Debug)]
pub(super) struct Ends(Arc<Mutex<Option<Both>>>);

impl Ends {
    pub(super) fn new(input: mpsc::Receiver<Bytes>, output: mpsc::Sender<Bytes>) -> Self {
        Self(Arc::new(Mutex::new(Some((input, output)))))
    }

    pub(super) fn take(&self) -> Option<Both> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Hands on what a command writes. When nobody hears it any more it is read to its end all the
/// same, so that the command never waits for who is gone.
pub(super) async fn hand_on(from: Option<impl AsyncRead + Unpin>, to: mpsc::Sender<Bytes>) {
    let Some(mut from) = from else {
        return;
    };
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read) = from.read(&mut buffer).await
        && read > 0
    {
        // Who does not listen any more has said so by going.
        let _ = to.send(Bytes::copy_from_slice(&buffer[..read])).await;
    }
}
