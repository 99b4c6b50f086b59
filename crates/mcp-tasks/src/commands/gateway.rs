//! `mcp-tasks gateway`.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;

use super::{Failure, neighbours};
use crate::config::Config;
use crate::{lifecycle, monitor};

/// Connections that may wait to be accepted. With the usual 128, of a crowd that comes in one moment most, and
/// whoever comes beside it, would try again a second later. The system has a bound of its own
/// (`net.core.somaxconn`).
const BACKLOG: u32 = 4096;

fn listen(bind: SocketAddr) -> io::Result<TcpListener> {
    let socket = if bind.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // What one before us left behind keeps nobody from listening here.
    socket.set_reuseaddr(true)?;
    socket.bind(bind)?;
    socket.listen(BACKLOG)
}

/// Serves MCP until a signal, then drains.
///
/// # Errors
/// When it cannot start.
pub fn run(config: Config) -> Result<ExitCode, Failure> {
    lifecycle::run(config, "mcp-tasks-gateway", |process| async move {
        let (store, queue) = neighbours(&process, &["catalogue"]).await?;
        let bind = process.config.gateway.bind;
        let listener =
            listen(bind).map_err(|e| lifecycle::cannot_listen("gateway.bind", bind, &e))?;
        let gateway = gateway::Gateway::new(
            process.config.gateway.clone(),
            process.config.auth.clone(),
            store.clone(),
            queue.clone(),
            &process.registry,
            process.health.clone(),
        )?
        .called_back(
            process.config.callbacks.signing_keys(),
            process.config.callbacks.body_bytes_max,
        );
        // Readiness stays true to Postgres while the gateway drains.
        let drained = CancellationToken::new();
        let watching = monitor::run(store, queue, process.health, drained.clone());
        let serving = async {
            let served = gateway.run(listener, process.shutdown.clone()).await;
            drained.cancel();
            served
        };
        let (served, ()) = tokio::join!(serving, watching);
        Ok(served?)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn a_crowd_may_wait_to_be_accepted() {
        let listener = listen(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        for n in 0..400 {
            // Beyond the bound the system answers nothing.
            let connecting =
                tokio::time::timeout(Duration::from_secs(20), TcpStream::connect(address));
            let connected = connecting.await;
            waiting.push(connected.unwrap_or_else(|_| panic!("the {n}th waits for a place")));
        }
        assert!(waiting.iter().all(Result::is_ok));
    }
}
