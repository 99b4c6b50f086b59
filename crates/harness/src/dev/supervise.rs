//! The keeper of one process: starts it again when it dies, stops it at the end.

use std::process::ExitStatus;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::processes::{Board, Slot};
use crate::error::Result;
use crate::node::Node;
use crate::postgres::Postgres;
use crate::redis::Redis;

/// Between a process's death and its next start, and between two tries.
const PAUSE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(50);
/// A worker hands its jobs back within this; what is killed is picked up by the next run.
const GRACE: Duration = Duration::from_secs(15);

/// A process of the stack.
#[expect(
    clippy::large_enum_variant,
    reason = "a handful exist, each moved twice"
)]
pub(super) enum Child {
    Postgres(Postgres),
    Redis(Redis),
    Node(Node),
}

/// What the keeper of a process needs.
pub(super) struct Keeper {
    pub(super) slot: Slot,
    pub(super) board: Board,
    pub(super) no_restart: bool,
    pub(super) stop: CancellationToken,
    pub(super) say: Box<dyn Fn(&str) + Send + Sync>,
}

/// Keeps a process running until the stack stops, then stops it.
pub(super) async fn supervise(mut child: Child, keeper: Keeper) {
    let stop = keeper.stop.clone();
    stop.run_until_cancelled(keep(&mut child, &keeper)).await;
    if let Err(error) = child.stop().await {
        (keeper.say)(&error.to_string());
    }
}

async fn keep(child: &mut Child, keeper: &Keeper) {
    loop {
        let pid = child.pid();
        let status = child.end().await;
        let name = child.name().to_owned();
        (keeper.say)(&format!("{name} (pid {pid}) ended: {status}"));
        if keeper.no_restart {
            return keeper.stop.cancelled().await;
        }
        loop {
            tokio::time::sleep(PAUSE).await;
            match child.start_again().await {
                Ok(()) => break,
                Err(error) => (keeper.say)(&error.to_string()),
            }
        }
        let pid = child.pid();
        (keeper.say)(&format!("{name} runs again (pid {pid})"));
        if let Err(error) = keeper.board.restarted(keeper.slot, pid) {
            (keeper.say)(&error.to_string());
        }
    }
}

impl Child {
    fn name(&self) -> &str {
        match self {
            Child::Postgres(_) => "postgres",
            Child::Redis(_) => "redis",
            Child::Node(node) => node.name(),
        }
    }

    /// Its process id; of a dead one: the one it had.
    fn pid(&self) -> u32 {
        let pid = match self {
            Child::Postgres(server) => server.pid(),
            Child::Redis(server) => server.pid(),
            Child::Node(node) => node.pid(),
        };
        pid.unwrap_or_default()
    }

    /// Waits for its end.
    async fn end(&mut self) -> ExitStatus {
        loop {
            let ended = match self {
                Child::Postgres(server) => server.ended(),
                Child::Redis(server) => server.ended(),
                Child::Node(node) => node.ended(),
            };
            if let Some(status) = ended {
                return status;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Starts it if it does not run, and waits until it is ready.
    async fn start_again(&mut self) -> Result<()> {
        match self {
            Child::Postgres(server) => server.start_again().await,
            Child::Redis(server) => server.start_again().await,
            Child::Node(node) => {
                node.start_again()?;
                node.ready().await
            }
        }
    }

    async fn stop(&mut self) -> Result<()> {
        match self {
            Child::Postgres(server) => server.stop().await,
            Child::Redis(server) => server.stop().await,
            Child::Node(node) => node.stop(GRACE).await.map(drop),
        }
    }
}
