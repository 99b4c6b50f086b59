//! A stream that takes in no more than a handshake of TLS needs, until it is over.
//!
//! rustls keeps what it has of a message until it is whole, and TLS lets one have 64 KiB: ten thousand strangers who
//! never end theirs would take more memory than everybody else together.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of a client's whole part in a handshake. It shows no certificate here, so that this is a ClientHello and a
/// few words: some 2,000 bytes with keys that withstand quantum computers.
const BYTES_MAX: usize = 16 * 1024;

/// A stream over which TLS is being agreed upon.
pub(crate) struct Handshake<S> {
    stream: S,
    /// Bytes that may still come; `None`: it is over.
    left: Option<usize>,
}

impl<S> Handshake<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            left: Some(BYTES_MAX),
        }
    }

    /// From now on anything may come.
    pub(crate) fn is_over(&mut self) {
        self.left = None;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Handshake<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left == Some(0) {
            let error = format!("a handshake of more than {BYTES_MAX} bytes");
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let bytes = buffer.filled().len().saturating_sub(before);
        self.left = self.left.map(|left| left.saturating_sub(bytes));
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Handshake<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
