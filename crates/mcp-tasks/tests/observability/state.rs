//! What is true of all processes together is told by one of them.

use harness::config::Role;
use harness::node::Node;
use harness::wait;

use crate::load::{self, SOON, TOOL};
use crate::stack::Stack;

/// Live tasks, as this replica of cron tells it; 0 if it tells nothing, no
/// number if it does not answer: a frozen one closes its connections when it is thawed.
async fn told(cron: &Node) -> f64 {
    let live = cron.metric("mcp_tasks_tasks_live", TOOL).await;
    live.unwrap_or(f64::NAN)
}

/// A leader that was frozen for so long that another took over must not go on telling what it knew:
/// every task would count twice.
#[tokio::test(flavor = "multi_thread")]
async fn live_tasks_are_told_by_one_replica_only() {
    let mut stack = Stack::of((1, 1), "").await;
    stack.cluster.add(Role::Cron).unwrap();
    stack.cluster.ready().await.unwrap();
    let alice = stack.cluster.client(0, "alice");
    let wait = load::plan("waits", serde_json::json!([]), "wait");
    alice.start(TOOL, wait).await.unwrap();
    let crons = &mut stack.cluster.crons;
    let look = async || (told(&crons[0]).await, told(&crons[1]).await);
    let both = wait::for_state("told by one", SOON, look, |told| told.0 + told.1 == 1.0);
    let (first, _) = both.await.unwrap();
    let (leader, other) = if first == 1.0 { (0, 1) } else { (1, 0) };

    crons[leader].freeze();
    let look = async || told(&crons[other]).await;
    wait::for_state("another tells", SOON, look, |told| *told == 1.0)
        .await
        .unwrap();
    crons[leader].thaw();
    // It may close the connections of its long sleep first; but what it answers is silence at once.
    let look = async || told(&crons[leader]).await;
    let first = wait::for_state("it answers", SOON, look, |told| !told.is_nan());
    assert_eq!(first.await.unwrap(), 0.0);
    let look = async || told(&crons[other]).await;
    wait::for_state("the other still tells", SOON, look, |told| *told == 1.0)
        .await
        .unwrap();
}
