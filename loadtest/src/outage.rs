//! How soon the service is back after an outage of Postgres: requests that were sent into it.

use std::time::{Duration, Instant};

use harness::client::Client;
use harness::config::Role;
use harness::node::Node;
use tokio::sync::MutexGuard;
use tokio::task::JoinSet;

use crate::figures::Figures;
use crate::stack::Stack;

/// No task has this id: the answer is as quick as one read.
const NOBODY: &str = "00000000-0000-7000-8000-000000000000";
/// Longer than a request may wait for Postgres.
const PATIENCE: Duration = Duration::from_secs(20);

/// One waiting request at every gateway that no other fault has in hand.
pub struct Probe<'a> {
    waiting: JoinSet<(Instant, harness::Result<u16>)>,
    /// Keeps other faults off these gateways until they have answered.
    _gateways: Vec<MutexGuard<'a, Node>>,
}

impl<'a> Probe<'a> {
    /// Sends the requests. Call it when Postgres has gone.
    pub async fn start(stack: &'a Stack) -> Probe<'a> {
        let mut waiting = JoinSet::new();
        let mut gateways = Vec::new();
        for unit in stack.of(Role::Gateway) {
            let Ok(node) = unit.node.try_lock() else {
                continue;
            };
            gateways.push(node);
            let client = Client::new(&unit.url).bearer("probe").timeout(PATIENCE);
            waiting.spawn(async move {
                let params = serde_json::json!({"taskId": NOBODY});
                let sent = client.request("tasks/get", params).send().await;
                (Instant::now(), sent.map(|answer| answer.status))
            });
        }
        Probe {
            waiting,
            _gateways: gateways,
        }
    }

    /// Waits for the answers. Call it as soon as Postgres accepts connections.
    pub async fn back(mut self, figures: &Figures) {
        let accepted = Instant::now();
        while let Some(ended) = self.waiting.join_next().await {
            match ended.expect("a request does not panic") {
                (at, Ok(status)) if status < 500 => {
                    figures.recovered(at.saturating_duration_since(accepted));
                }
                (_, Ok(status)) => figures.trouble(format!(
                    "a request that waited for Postgres was answered HTTP {status}"
                )),
                (_, Err(error)) => figures.trouble(format!(
                    "a request that waited for Postgres got no answer: {error}"
                )),
            }
        }
    }
}
