//! Starts processes again, as an operator's supervisor would, and notices those that ended though
//! nobody killed them.

use std::time::Duration;

use harness::node::Node;
use harness::{Error, Result};
use tokio::time::sleep;

use crate::figures::Figures;
use crate::stack::Stack;

const LOOK: Duration = Duration::from_millis(500);
const AGAIN: Duration = Duration::from_millis(200);
/// A process may find Postgres away when it starts, and end; more often than this it is broken.
const STARTS_MAX: usize = 50;

/// Starts a process and waits until it is ready, again and again while it ends before that.
///
/// # Errors
/// [`Error::Timeout`] if it runs without becoming ready; its last end after many.
pub async fn revive(node: &mut Node, figures: &Figures) -> Result<()> {
    let mut starts = 0;
    loop {
        let started = match node.start_again() {
            Ok(()) => node.ready().await,
            Err(error) => Err(error),
        };
        match started {
            Ok(()) => return Ok(()),
            Err(Error::Failed { .. } | Error::Io { .. }) if starts < STARTS_MAX => {
                starts += 1;
                figures.ended_at_start(node.name());
                sleep(AGAIN).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Looks after processes that no fault has in hand, until dropped.
pub async fn watch(stack: &Stack, figures: &Figures) {
    loop {
        sleep(LOOK).await;
        for unit in &stack.units {
            let Ok(mut node) = unit.node.try_lock() else {
                continue;
            };
            let Some(status) = node.ended() else {
                continue;
            };
            figures.trouble(format!("{} ended by itself: {status}", node.name()));
            if let Err(error) = revive(&mut node, figures).await {
                figures.trouble(format!("{} did not come back: {error}", node.name()));
            }
        }
    }
}
