//! What is under TLS: takes in no more at a time than a record needs, or a handshake.
//!
//! rustls keeps what it has of a message until it is whole, and TLS lets one of a handshake, which may come at any time,
//! have 64 KiB: ten thousand strangers who never end theirs would take more memory than everybody else together.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::Connection;

/// Bytes that may come until something of them can be read: more than the longest record (18,437 in TLS 1.2, RFC 5246
/// §6.2.3) and than all that a client says in a handshake, where it shows no certificate (some 2,000).
const BYTES_MAX: usize = 20 * 1024;

/// The stream of a connection, below TLS.
pub(crate) struct Records<S> {
    stream: S,
    connection: Arc<Connection>,
}

impl<S> Records<S> {
    pub(crate) fn new(stream: S, connection: Arc<Connection>) -> Self {
        Self { stream, connection }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Records<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.connection.unreadable() >= BYTES_MAX {
            let error = format!("{BYTES_MAX} bytes of which none can be read");
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let bytes = buffer.filled().len().saturating_sub(before);
        self.connection.took_unreadable(bytes);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Records<S> {
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

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Duration;

    use telemetry::Registry;

    use super::*;
    use crate::connection::Socket;
    use crate::deliveries::Deliveries;
    use crate::metrics::Metrics;

    fn read(stream: &mut (impl AsyncRead + Unpin), bytes: usize) -> io::Result<()> {
        let mut cx = Context::from_waker(Waker::noop());
        let mut piece = vec![0; bytes];
        let mut buffer = ReadBuf::new(&mut piece);
        let Poll::Ready(read) = Pin::new(stream).poll_read(&mut cx, &mut buffer) else {
            panic!("it never runs dry");
        };
        read
    }

    #[test]
    fn so_much_comes_of_which_nothing_can_be_read() {
        let (deliveries, _marks) = Deliveries::new(Metrics::new(&Registry::new()));
        let patience = Duration::from_secs(1);
        let connection = Connection::new([127, 0, 0, 1].into(), deliveries, patience);
        let mut below = Records::new(tokio::io::repeat(b'x'), Arc::clone(&connection));
        let mut above = Socket::new(tokio::io::repeat(b'x'), connection, patience);
        for _ in 0..3 {
            read(&mut below, BYTES_MAX - 1).unwrap();
            read(&mut below, 1).unwrap();
            assert!(read(&mut below, 1).is_err());
            // What lies above TLS could read something.
            read(&mut above, 1).unwrap();
        }
    }
}
