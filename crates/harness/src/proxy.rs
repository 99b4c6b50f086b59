//! A TCP proxy that misbehaves on command: between our processes and Postgres or Redis, or between
//! a client and a gateway.

mod pump;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::{Error, Result};

/// How the proxy treats its connections, old and new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Everything passes.
    Pass,
    /// Connections are reset, new ones right after they were accepted: the server is gone.
    Cut,
    /// Connections stay open and nothing moves; what is sent arrives when the mode changes.
    Stall,
    /// The other side vanished without a word: what is sent is lost, nothing comes back, and such
    /// connections stay dead (but open) for ever.
    HalfOpen,
    /// Every chunk is late by this much, in both directions.
    Delay(Duration),
}

/// The running proxy. Ends, with all connections, when dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    end: CancellationToken,
}

/// The mode, and how often connections were ended: a mode that was set and changed back before a
/// connection looked must still end it.
#[derive(Debug, Clone, Copy)]
struct State {
    mode: Mode,
    cuts: u64,
    vanishings: u64,
}

/// Texts that the requests of one connection must contain, one after the other, and what is lost
/// then.
#[derive(Debug)]
struct Armed {
    needles: Vec<Vec<u8>>,
    lost: Lost,
    /// Tells one arming from the next.
    number: u64,
}

/// What does not arrive of the request that contains the last text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// Its reply; the connection is reset.
    Reply,
    /// Itself, and all that follows; the connection stays open.
    Request,
}

/// What the connections look at.
#[derive(Debug)]
struct Shared {
    state: watch::Sender<State>,
    /// What requests must contain for the last of them to lose its reply; `None` when nothing is
    /// armed.
    swallow: Mutex<Option<Armed>>,
    swallowed: watch::Sender<u64>,
    armings: AtomicU64,
}

impl Proxy {
    /// Listens on a free loopback port and passes everything on to `upstream`.
    ///
    /// # Errors
    /// [`Error::Io`] if no port can be opened.
    pub async fn start(upstream: SocketAddr) -> Result<Proxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, crate::ports::free()?)).await;
        let listener = listener.map_err(Error::io("open the proxy's port"))?;
        let address = listener
            .local_addr()
            .map_err(Error::io("read the proxy's port"))?;
        let shared = Arc::new(Shared {
            state: watch::Sender::new(State {
                mode: Mode::Pass,
                cuts: 0,
                vanishings: 0,
            }),
            swallow: Mutex::new(None),
            swallowed: watch::Sender::new(0),
            armings: AtomicU64::new(0),
        });
        let end = CancellationToken::new();
        let tasks = TaskTracker::new();
        let accept = accept(listener, upstream, Arc::clone(&shared), tasks.clone());
        let ended = end.clone();
        tasks.spawn(async move { ended.run_until_cancelled(accept).await });
        Ok(Proxy {
            address,
            shared,
            end,
        })
    }

    /// A proxy to a port of 127.0.0.1.
    ///
    /// # Errors
    /// As [`Proxy::start`].
    pub async fn to_port(port: u16) -> Result<Proxy> {
        Proxy::start((Ipv4Addr::LOCALHOST, port).into()).await
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL with its port replaced by the proxy's, for any `…://…127.0.0.1:PORT…`.
    #[must_use]
    pub fn through(&self, url: &str) -> String {
        const HOST: &str = "127.0.0.1:";
        let Some(at) = url.find(HOST).map(|at| at + HOST.len()) else {
            return url.to_owned();
        };
        let rest = url[at..].trim_start_matches(|c: char| c.is_ascii_digit());
        format!("{}{}{rest}", &url[..at], self.address.port())
    }

    /// Changes how all connections are treated, from now on.
    pub fn set(&self, mode: Mode) {
        self.shared.state.send_modify(|state| {
            state.mode = mode;
            state.cuts += u64::from(mode == Mode::Cut);
            state.vanishings += u64::from(mode == Mode::HalfOpen);
        });
    }

    /// Cuts all connections once; new ones pass.
    pub fn cut_once(&self) {
        self.set(Mode::Cut);
        self.set(Mode::Pass);
    }

    /// Arms the loss of one reply: the next request that contains `needle` reaches the server, its
    /// reply does not come back, and the connection is reset. An empty needle is any request.
    pub fn swallow_reply_to(&self, needle: impl Into<Vec<u8>>) {
        self.swallow_reply_after([needle.into()]);
    }

    /// The same for the request that contains the last of these texts, on a connection whose
    /// earlier requests contained the others, in this order: the `COMMIT` of one transaction among
    /// many, for one.
    pub fn swallow_reply_after<N: Into<Vec<u8>>>(&self, needles: impl IntoIterator<Item = N>) {
        self.arm(Lost::Reply, needles);
    }

    /// Arms the silence of one client: from the request that contains the last of these texts on,
    /// nothing that it sends arrives any more, as if it had been frozen just before. What the
    /// server says still does.
    pub fn silence_after<N: Into<Vec<u8>>>(&self, needles: impl IntoIterator<Item = N>) {
        self.arm(Lost::Request, needles);
    }

    fn arm<N: Into<Vec<u8>>>(&self, lost: Lost, needles: impl IntoIterator<Item = N>) {
        let armed = Armed {
            needles: needles.into_iter().map(Into::into).collect(),
            lost,
            number: self.shared.armings.fetch_add(1, Ordering::Relaxed) + 1,
        };
        let swallow = self.shared.swallow.lock();
        *swallow.unwrap_or_else(PoisonError::into_inner) = Some(armed);
    }

    /// Whether what was armed last has not happened yet.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        let swallow = self.shared.swallow.lock();
        swallow.unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Counts the replies lost by [`Proxy::swallow_reply_to`].
    #[must_use]
    pub fn swallowed(&self) -> watch::Receiver<u64> {
        self.shared.swallowed.subscribe()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.end.cancel();
        self.set(Mode::Cut);
    }
}

async fn accept(
    listener: TcpListener,
    upstream: SocketAddr,
    shared: Arc<Shared>,
    tasks: TaskTracker,
) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            continue;
        };
        let shared = Arc::clone(&shared);
        tasks.spawn(async move {
            // Subscribed before the connection is made: a mode set meanwhile is seen.
            let state = shared.state.subscribe();
            if state.borrow().mode == Mode::Cut {
                reset(&client);
                return;
            }
            if let Ok(server) = TcpStream::connect(upstream).await {
                pump::both_ways(client, server, state, &shared).await;
            } else {
                reset(&client);
            }
        });
    }
}

/// Makes the close that follows a reset instead of an orderly end.
fn reset(stream: &TcpStream) {
    // On failure the close is an orderly one: still an end.
    let _ = stream.set_zero_linger();
}
