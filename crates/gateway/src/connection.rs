//! One connection: knows whether requests came over it and in which version of HTTP, how long it has had
//! nothing to do, and when an answer's last bytes were given to the system.
//!
//! hyper flushes a connection after it took the last bytes of an answer. So an answer leaves its
//! mark here when its last frame is taken, and the next successful flush means it was written.
//! (Over HTTP/2 a frame may still wait for the peer's window: the mark is then early.)

use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Version;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use crate::deliveries::{Deliveries, Mark};
use crate::overdue::Unwritten;

/// So much is taken in over one connection before others get their turn. Without it a body that arrives
/// faster than it is read would hold its thread for megabytes at a time, and a thousand of them would keep
/// everybody else waiting for seconds.
const TURN_BYTES: usize = 64 * 1024;

/// What the requests of one connection share.
pub(crate) struct Connection {
    peer: IpAddr,
    came: Instant,
    spoke: AtomicBool,
    multiplexed: CancellationToken,
    /// Bytes that came since something could be read of them.
    unreadable: AtomicUsize,
    unflushed: Mutex<Vec<Mark>>,
    deliveries: Deliveries,
    unwritten: Arc<Unwritten>,
    work: Mutex<Work>,
}

/// What a connection has to do.
struct Work {
    /// Requests that are being answered.
    open: usize,
    /// Since when there are so many.
    since: Instant,
}

/// A request of a connection is being answered, as long as this lives.
pub(crate) struct Busy(Arc<Connection>);

impl Connection {
    /// `patience`: how long a peer may take in nothing of what it is sent.
    pub(crate) fn new(peer: IpAddr, deliveries: Deliveries, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            peer,
            came: Instant::now(),
            unwritten: Unwritten::new(patience),
            spoke: AtomicBool::new(false),
            multiplexed: CancellationToken::new(),
            unreadable: AtomicUsize::new(0),
            unflushed: Mutex::default(),
            deliveries,
            work: Mutex::new(Work {
                open: 0,
                since: Instant::now(),
            }),
        })
    }

    /// Who is at the other end, a client or a proxy.
    pub(crate) fn peer(&self) -> IpAddr {
        self.peer
    }

    /// When it was accepted.
    pub(crate) fn came(&self) -> Instant {
        self.came
    }

    /// A request arrived; it is answered, or given up, when what is returned is dropped.
    pub(crate) fn spoke(self: &Arc<Self>, version: Version) -> Busy {
        self.spoke.store(true, Ordering::Relaxed);
        self.turn(|open| open + 1);
        if version >= Version::HTTP_2 {
            self.multiplexed.cancel();
        }
        Busy(Arc::clone(self))
    }

    /// Bytes that came below TLS since something could be read of them.
    pub(crate) fn unreadable(&self) -> usize {
        self.unreadable.load(Ordering::Relaxed)
    }

    pub(crate) fn took_unreadable(&self, bytes: usize) {
        self.unreadable.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What came could be read.
    pub(crate) fn readable(&self) {
        self.unreadable.store(0, Ordering::Relaxed);
    }

    fn turn(&self, change: impl FnOnce(usize) -> usize) {
        let mut work = self.work();
        work.open = change(work.open);
        work.since = Instant::now();
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When nothing was asked over it, and nothing large was left to be read, for so long. While there
    /// is something to do it is looked at no more often than that.
    pub(crate) async fn rested(&self, time: Duration) {
        loop {
            let now = Instant::now();
            let (open, since) = {
                let work = self.work();
                (work.open, work.since)
            };
            let rests = open == 0 && self.unwritten.is_empty();
            let until = if rests { since + time } else { now + time };
            if until <= now {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }

    /// Whether it is HTTP/2, as far as its requests tell: then the protocol itself can say that no
    /// more of them are taken, without one being lost.
    pub(crate) fn is_multiplexed(&self) -> bool {
        self.multiplexed.is_cancelled()
    }

    /// When that is known.
    pub(crate) async fn multiplexed(&self) {
        self.multiplexed.cancelled().await;
    }

    /// Whether a request has arrived yet.
    pub(crate) fn has_spoken(&self) -> bool {
        self.spoke.load(Ordering::Relaxed)
    }

    /// Large answers that are not written yet.
    pub(crate) fn unwritten(&self) -> &Arc<Unwritten> {
        &self.unwritten
    }

    /// The last bytes of an answer are on their way.
    pub(crate) fn sending(&self, mark: Mark) {
        self.unflushed().push(mark);
    }

    fn flushed(&self) {
        let marks = std::mem::take(&mut *self.unflushed());
        self.deliveries.record(marks);
    }

    fn unflushed(&self) -> MutexGuard<'_, Vec<Mark>> {
        self.unflushed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.turn(|open| open.saturating_sub(1));
    }
}

/// The socket of a connection, encrypted or not.
pub(crate) struct Socket<S> {
    stream: S,
    connection: Arc<Connection>,
    patience: Duration,
    /// Until when the peer may take in nothing, while it takes in nothing.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Bytes of this turn.
    taken: usize,
}

impl<S> Socket<S> {
    pub(crate) fn new(stream: S, connection: Arc<Connection>, patience: Duration) -> Self {
        Self {
            stream,
            connection,
            patience,
            stalled: None,
            taken: 0,
        }
    }

    /// What came of writing, unless it has come to nothing for too long.
    fn written<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let patience = self.patience;
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.taken >= TURN_BYTES {
            self.taken = 0;
            // Behind whoever waits already.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let bytes = buffer.filled().len().saturating_sub(before);
        if bytes > 0 {
            self.connection.readable();
        }
        self.taken = match read {
            Poll::Ready(_) => self.taken + bytes,
            Poll::Pending => 0,
        };
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.written(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        ready!(self.written(cx, flushed))?;
        self.connection.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.written(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use telemetry::Registry;

    use super::*;
    use crate::metrics::Metrics;

    /// It never runs dry.
    struct Flood;

    impl AsyncRead for Flood {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            buffer.put_slice(&vec![b'x'; buffer.remaining()]);
            Poll::Ready(Ok(()))
        }
    }

    /// How often a socket is read in pieces of so many bytes until it lets others have their turn.
    fn reads(socket: &mut Socket<Flood>, bytes: usize) -> usize {
        let mut cx = Context::from_waker(Waker::noop());
        let mut piece = vec![0; bytes];
        let mut reads = 0;
        loop {
            let mut buffer = ReadBuf::new(&mut piece);
            match Pin::new(&mut *socket).poll_read(&mut cx, &mut buffer) {
                Poll::Ready(read) => read.unwrap(),
                Poll::Pending => return reads,
            }
            reads += 1;
            assert!(reads < 1_000, "nobody else gets a turn");
        }
    }

    #[test]
    fn who_sends_without_end_lets_others_have_their_turn() {
        let (deliveries, _marks) = Deliveries::new(Metrics::new(&Registry::new()));
        let patience = Duration::from_secs(1);
        let connection = Connection::new([127, 0, 0, 1].into(), deliveries, patience);
        let mut socket = Socket::new(Flood, connection, patience);
        assert_eq!(reads(&mut socket, TURN_BYTES / 4), 4);
        assert_eq!(reads(&mut socket, TURN_BYTES / 4), 4, "and again");
        assert_eq!(reads(&mut socket, TURN_BYTES * 2), 1, "in one piece");
        assert_eq!(reads(&mut socket, TURN_BYTES - 1), 2);
    }
}
