//! Which version of HTTP a connection speaks, and with which limits.
//!
//! hyper can find out by itself, but what it read for that it then hands on by itself, before anything else: each
//! connection's first request takes two reads, and a buffer of twice the size for as long as it is open. So the
//! system is asked what has come, and TLS what was agreed upon; hyper finds out where neither tells.

use hyper_util::rt::TokioTimer;
use hyper_util::server::conn::auto;
use tokio_util::task::TaskTracker;

use crate::Shared;
use crate::serve::PING_TIMEOUT;

/// Streams of one HTTP/2 connection at once.
const STREAMS_MAX: u32 = 256;
/// Bytes of a body that a client may send before they are read (RFC 9113 §6.9.2, its default): they are in no account
/// of memory while it is found out who sends them. That of the whole connection stays hyper's, which is 16 times this,
/// so that no stream of a proxy stops all others.
const STREAM_WINDOW: u32 = 65_535;
/// What HTTP/2 begins with (RFC 9113 §3.4), and no request of HTTP/1 does.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// So many bytes tell the versions apart.
pub(crate) const SPOKEN: usize = PREFACE.len();

/// Runs what HTTP/2 connections spawn as tasks that the drain waits for.
#[derive(Clone)]
pub(crate) struct Tracked(TaskTracker);

impl<F> hyper::rt::Executor<F> for Tracked
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

/// How connections are served, by version.
pub(crate) struct Versions {
    one: auto::Builder<Tracked>,
    two: auto::Builder<Tracked>,
    either: auto::Builder<Tracked>,
}

impl Versions {
    pub(crate) fn new(shared: &Shared, connections: &TaskTracker) -> Self {
        let either = builder(shared, connections);
        Self {
            one: either.clone().http1_only(),
            two: either.clone().http2_only(),
            either,
        }
    }

    /// By the first bytes that have come.
    pub(crate) fn spoken(&self, begin: &[u8]) -> &auto::Builder<Tracked> {
        match begin {
            begin if begin == PREFACE => &self.two,
            begin if !PREFACE.starts_with(begin) => &self.one,
            _ => &self.either,
        }
    }

    /// By what was agreed upon with TLS (ALPN, RFC 7301).
    pub(crate) fn agreed(&self, protocol: Option<&[u8]>) -> &auto::Builder<Tracked> {
        match protocol {
            Some(b"h2") => &self.two,
            Some(b"http/1.1") => &self.one,
            _ => &self.either,
        }
    }
}

fn builder(shared: &Shared, connections: &TaskTracker) -> auto::Builder<Tracked> {
    let limits = &shared.config.limits;
    let mut builder = auto::Builder::new(Tracked(connections.clone()));
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read_timeout)
        .max_buf_size(limits.header_bytes_max);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .max_header_list_size(u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX))
        .keep_alive_interval(PING_TIMEOUT)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}
