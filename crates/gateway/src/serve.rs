//! The accept loop and its end: connections over HTTP/1 and HTTP/2, each in a task of its own,
//! and a drain that neither cuts off an answer nor waits for one for ever.
//!
//! A connection over HTTP/1 that is closed while it is idle may be closed in the moment in which
//! its peer sends the next request (RFC 9112 §9.5), which then fails for nothing. So idle ones are
//! left open until the drain is nearly over: whoever uses one again is answered, and told in the
//! answer that the connection ends with it. Over HTTP/2 the protocol says so, and so one that is idle
//! for as long as one over HTTP/1 may be is told to end, whatever pings it answers.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use telemetry::Beat;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Shared;
use crate::connection::{Connection, Socket};
use crate::crowd::Crowd;
use crate::layers::Layers;
use crate::metrics::Level;
use crate::peers::Seat;
use crate::records::Records;
use crate::tls::Tls;
use crate::versions::{SPOKEN, Tracked, Versions};

/// A peer over HTTP/2 that does not answer a ping in this time is gone.
pub(crate) const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Before everything is cut, what waits gets this long to be answered; a quarter of the time there
/// is, if that is shorter.
const FAREWELL: Duration = Duration::from_secs(1);
/// After the listener refused (out of file descriptors, most likely): spinning frees none.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Between two signs of life of the loop that accepts.
const TURN: Duration = Duration::from_secs(1);

/// Accepts until `shared.closing`, and returns when all connections have ended. `alive`: as long as
/// it accepts.
pub(crate) async fn serve(shared: Arc<Shared>, listener: TcpListener, alive: Beat) {
    let limits = &shared.config.limits;
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    let server = Arc::new(Server {
        versions: Versions::new(&shared, &connections),
        layers: Layers::new(Arc::clone(&shared)),
        silence_max: limits.header_read_timeout,
        cut: cut.clone(),
    });
    let places = Arc::new(Semaphore::new(limits.connections_max));
    let crowd = Crowd::new(shared.tls.is_some());
    while let Some((stream, peer)) = accept(&shared, (&listener, &alive)).await {
        let refused = |of: &'static str| {
            shared
                .metrics
                .connections_refused
                .with_label_values(&[of])
                .inc();
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            refused("all");
            connections.spawn(crowd.send_away(stream));
            continue;
        };
        let Some(seat) = shared.door.peers.connect(peer) else {
            refused("address");
            connections.spawn(crowd.send_away(stream));
            continue;
        };
        let server = Arc::clone(&server);
        connections.spawn(server.connection(Arc::clone(&shared), stream, peer, (place, seat)));
    }
    drop(listener);
    alive.stop();
    connections.close();
    let deadline = shared.config.drain_deadline;
    let farewell = FAREWELL.min(deadline / 4);
    let ended = async |within| {
        tokio::time::timeout(within, connections.wait())
            .await
            .is_ok()
    };
    if ended(deadline - farewell).await {
        return;
    }
    // A call without tasks, or one that waits for Postgres: better an answer than a broken
    // connection. What is idle is closed.
    tracing::info!(
        connections = connections.len(),
        "telling what did not end to come again"
    );
    shared.ending.cancel();
    if !ended(farewell).await {
        tracing::warn!(
            connections = connections.len(),
            "cutting off what did not end in time"
        );
        cut.cancel();
        connections.wait().await;
    }
}

/// The next connection and who opened it; `None` when no more are taken.
async fn accept(
    shared: &Shared,
    (listener, alive): (&TcpListener, &Beat),
) -> Option<(TcpStream, IpAddr)> {
    let accepting = async {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => return (stream, peer.ip()),
                Err(error) if is_passing(&error) => {}
                Err(error) => {
                    tracing::warn!(error = %error, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = shared.closing.cancelled() => None,
        accepted = accepting => {
            alive.beat();
            Some(accepted)
        }
        // Nobody comes: it still comes round.
        () = turn(alive) => unreachable!("it turns for ever"),
    }
}

async fn turn(alive: &Beat) {
    loop {
        alive.beat();
        tokio::time::sleep(TURN).await;
    }
}

/// The peer gave up before it was accepted.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}

struct Server {
    versions: Versions,
    layers: Layers,
    /// How long a connection may say nothing before its first request, and over HTTP/2 between two.
    silence_max: Duration,
    /// Ends every connection, whatever it does.
    cut: CancellationToken,
}

impl Server {
    /// One connection, which keeps its places until it is over. What only one with TLS needs is boxed: the others
    /// shall not keep room for it.
    async fn connection(
        self: Arc<Self>,
        shared: Arc<Shared>,
        stream: TcpStream,
        peer: IpAddr,
        _places: (OwnedSemaphorePermit, Seat),
    ) {
        let _level = Level::raise(&shared.metrics.connections, 1);
        let patience = shared.config.limits.write_timeout;
        let connection = Connection::new(peer, shared.deliveries.clone(), patience);
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(error = %error, "TCP_NODELAY could not be set");
        }
        if let Some(tls) = &shared.tls {
            return Box::pin(self.encrypted(&shared, tls, stream, connection)).await;
        }
        let mut begin = [0; SPOKEN];
        if let Some(Ok(n)) = self
            .at_first(&shared, &connection, stream.peek(&mut begin))
            .await
        {
            let version = self.versions.spoken(&begin[..n]);
            self.talk(&shared, version, stream, connection).await;
        }
    }

    async fn encrypted(
        &self,
        shared: &Shared,
        tls: &Tls,
        stream: TcpStream,
        connection: Arc<Connection>,
    ) {
        let below = Records::new(stream, Arc::clone(&connection));
        let shaking = tls.acceptor().accept(below);
        match self.at_first(shared, &connection, shaking).await {
            Some(Ok(stream)) => {
                connection.readable();
                let version = self.versions.agreed(stream.get_ref().1.alpn_protocol());
                self.talk(shared, version, stream, connection).await;
            }
            Some(Err(error)) => tracing::debug!(error = %error, "TLS could not be agreed upon"),
            None => tracing::debug!("nothing was said in time"),
        }
    }

    /// What a connection begins with, if it does so in time.
    async fn at_first<T>(
        &self,
        shared: &Shared,
        connection: &Connection,
        begin: impl Future<Output = io::Result<T>>,
    ) -> Option<io::Result<T>> {
        let until = connection.came() + self.silence_max;
        tokio::select! {
            // What has come is looked at, even in the last moment.
            biased;
            begun = tokio::time::timeout_at(until, begin) => begun.ok(),
            () = self.cut.cancelled() => None,
            // No request can have come.
            () = shared.ending.cancelled() => None,
        }
    }

    /// Serves one connection to its end.
    async fn talk<S>(
        &self,
        shared: &Shared,
        version: &auto::Builder<Tracked>,
        stream: S,
        connection: Arc<Connection>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let patience = shared.config.limits.write_timeout;
        let service = TowerToHyperService::new(self.layers.service(Arc::clone(&connection)));
        let socket = TokioIo::new(Socket::new(stream, Arc::clone(&connection), patience));
        let mut serving = std::pin::pin!(version.serve_connection(socket, service));
        // What happens once at most is looked at when it happens, and not at each turn of a request.
        let mut happening: FuturesUnordered<BoxFuture<'_, Happened>> = FuturesUnordered::new();
        happening.push(Box::pin(farewell(shared, &connection)));
        happening.push(Box::pin(self.end(&connection)));
        happening.push(Box::pin(self.idle(&connection)));
        loop {
            tokio::select! {
                biased;
                ended = serving.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(error, "connection ended with an error");
                    }
                    return;
                }
                // However much a connection has to do in each turn, this is looked at.
                Some(happened) = tokio::task::unconstrained(happening.next()) => match happened {
                    Happened::Farewell => serving.as_mut().graceful_shutdown(),
                    Happened::Idle => {
                        serving.as_mut().graceful_shutdown();
                        happening.push(Box::pin(self.deaf(&connection)));
                    }
                    Happened::End => return,
                },
            }
        }
    }

    /// When nothing was asked over HTTP/2 for too long. (hyper knows when over HTTP/1.)
    async fn idle(&self, connection: &Connection) -> Happened {
        connection.multiplexed().await;
        connection.rested(self.silence_max).await;
        tracing::debug!("connection told to end, since nothing is asked over it");
        Happened::Idle
    }

    /// When a connection that was told to end has done nothing about it.
    async fn deaf(&self, connection: &Connection) -> Happened {
        let patience = self.silence_max.min(PING_TIMEOUT);
        tokio::time::sleep(patience).await;
        connection.rested(patience).await;
        Happened::End
    }

    /// When a connection has to be closed, whatever is asked over it.
    async fn end(&self, connection: &Connection) -> Happened {
        // Until it knows the version of HTTP, hyper waits without a limit.
        let silent = async {
            tokio::time::sleep_until(connection.came() + self.silence_max).await;
            if connection.has_spoken() {
                std::future::pending::<()>().await;
            }
        };
        let unwritten = Arc::clone(connection.unwritten());
        tokio::select! {
            () = silent => {}
            () = unwritten.overdue() => {
                tracing::debug!("connection closed on an answer that was not read in time");
            }
            () = self.cut.cancelled() => {}
        }
        Happened::End
    }
}

/// What concerns a connection but its requests.
enum Happened {
    /// It is told to end.
    Farewell,
    /// The same, since nobody asks for anything.
    Idle,
    /// It is closed.
    End,
}

/// When a connection has to be told to end: one of HTTP/2 as soon as no more are taken; any other
/// when there is no more time to be asked something over it.
async fn farewell(shared: &Shared, connection: &Connection) -> Happened {
    let no_more = async {
        shared.closing.cancelled().await;
        connection.multiplexed().await;
    };
    tokio::select! {
        () = no_more => {}
        () = shared.ending.cancelled() => {}
    }
    Happened::Farewell
}
