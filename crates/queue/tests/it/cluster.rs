//! The queue on a real Redis Cluster of three servers: the same promises, though a server dies, is
//! replaced by its replica, hands its slots over, or all of them forget.

use std::collections::BTreeSet;
use std::time::Duration;

use harness::redis_cluster::{Plan, RedisCluster};
use queue::{Config, Event};

use crate::support::*;

/// Shards enough for each server to keep some.
const SHARDS: u16 = 8;

fn config_of(cluster: &RedisCluster) -> Config {
    Config {
        url: cluster.url(),
        cluster: true,
        shards: SHARDS,
        block: Duration::from_millis(500),
        command_timeout: Duration::from_secs(1),
        connect_timeout: Duration::from_secs(1),
        probe_interval: Duration::from_millis(100),
        reclaim_idle: Duration::from_secs(60),
        reclaim_interval: Duration::from_millis(100),
        ..Config::default()
    }
}

async fn start_cluster(primaries: usize, replicas: usize) -> (RedisCluster, Process) {
    let cluster = Plan::of(primaries, replicas).start().await.unwrap();
    let process = connect(config_of(&cluster)).await;
    (cluster, process)
}

/// Which server keeps each shard.
async fn keepers(cluster: &RedisCluster) -> Vec<usize> {
    let mut keepers = Vec::new();
    for shard in 0..SHARDS {
        keepers.push(cluster.keeper(&epoch_key(shard)).await.unwrap());
    }
    keepers
}

fn epoch_key(shard: u16) -> String {
    format!("{{mcp-tasks:s{shard}}}:epoch")
}

#[tokio::test(flavor = "multi_thread")]
async fn hints_and_messages_flow_over_all_servers() {
    let (cluster, process) = start_cluster(3, 0).await;
    let used: BTreeSet<usize> = keepers(&cluster).await.into_iter().collect();
    assert_eq!(used.len(), 3, "each server keeps some shards");
    let (a, b) = (lane("a"), lane("b"));
    let mut consumer = process.queue.consumer(vec![a.clone(), b.clone()]);
    nothing(&mut consumer, Duration::from_millis(100)).await;
    let mut expected = process.push(&a, 40).await;
    expected.extend(process.push(&b, 40).await);
    let hints = take(&mut consumer, 80).await;
    assert_eq!(ids(&hints), sorted(expected));
    for hint in &hints {
        consumer.ack(hint).await;
    }
    nothing(&mut consumer, Duration::from_millis(200)).await;
    assert_eq!(process.queue.depth(&a).await.unwrap(), 0);
    assert_eq!(
        process.queue.epochs().await.unwrap().len(),
        usize::from(SHARDS)
    );
    let lanes = process.queue.streams().await.unwrap();
    assert_eq!(lanes.len(), 2);
    assert!(lanes.iter().all(|(_, standing)| standing.entries == 0));
    // Another process hears what this one says, whichever server carries it.
    let other = connect(config_of(&cluster)).await;
    for _ in 0..20 {
        let id = new_id();
        let mut changes = other.queue.watch(id).await;
        let mut stops = other.queue.watch_stop(id).await;
        process.queue.progress(id, b"{}").await;
        assert_eq!(event(&mut changes).await, Event::Progress("{}".into()));
        process.queue.wake(id).await;
        assert_eq!(event(&mut changes).await, Event::Changed);
        process.queue.stop(id).await;
        assert_eq!(event(&mut stops).await, Event::Changed);
    }
    let mut resource = other.queue.watch_resource("file:///a").await;
    process.queue.resource_updated("file:///a").await;
    assert_eq!(event(&mut resource).await, Event::Changed);
    let mut wanted = other.queue.watch_wanted().await;
    process.queue.wanted_changed().await;
    assert_eq!(event(&mut wanted).await, Event::Changed);
    let mut catalogue = other.queue.catalogue_watch();
    catalogue.borrow_and_update();
    process.queue.catalogue_changed().await;
    tokio::time::timeout(PATIENCE, catalogue.changed())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(other.metric("mcp_tasks_queue_watches_degraded_total"), 0.0);
    assert_eq!(process.metric("mcp_tasks_queue_shards_connected"), 8.0);
    consumer.close().await;
}

/// The epochs of all shards, in the order of the shards.
async fn epochs(process: &Process) -> Vec<String> {
    process.queue.epochs().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_primary_is_replaced_and_only_its_hints_may_be_lost() {
    let (mut cluster, process) = start_cluster(3, 1).await;
    let lane = lane("a");
    let keepers = keepers(&cluster).await;
    let victim = keepers[0];
    // One whose channel is on the server that dies, and one who is elsewhere.
    let id = id_of_shard(0);
    let mut watch = process.queue.watch(id).await;
    let before = epochs(&process).await;
    process.push(&lane, 60).await;
    cluster.nodes[victim].kill9();
    process.connected(false).await;
    process.connected(true).await;
    cluster.agreed().await.unwrap();
    assert_ne!(cluster.keeper(&epoch_key(0)).await.unwrap(), victim);
    assert_eq!(event(&mut watch).await, Event::Reconnected);
    process.queue.wake(id).await;
    assert_eq!(event(&mut watch).await, Event::Changed);
    let after = epochs(&process).await;
    for shard in 0..SHARDS {
        let index = usize::from(shard);
        // Whether its replica had got everything is a matter of luck.
        if keepers[index] != victim {
            assert_eq!(before[index], after[index], "shard {shard} lost nothing");
        }
    }
    let mut consumer = process.queue.consumer(vec![lane.clone()]);
    let expected = process.push(&lane, 60).await;
    let mut found = BTreeSet::new();
    while !expected.iter().all(|id| found.contains(id)) {
        found.extend(take(&mut consumer, 1).await.iter().map(|hint| hint.id));
    }
    assert_eq!(process.metric("mcp_tasks_queue_shards_connected"), 8.0);
    // It comes back as a replica, and takes part again.
    cluster.nodes[victim].start_again().await.unwrap();
    cluster.agreed().await.unwrap();
    cluster.change_roles(&epoch_key(0)).await.unwrap();
    process.connected(true).await;
    let mut all = Vec::new();
    // One that is sent in the moment of the change may fail, as any.
    while all.len() < 10 {
        let id = new_id();
        if process.queue.push(&lane, id).await.is_ok() {
            all.push(id);
        }
    }
    while !all.iter().all(|id| found.contains(id)) {
        found.extend(take(&mut consumer, 1).await.iter().map(|hint| hint.id));
    }
}

fn shard_keys(keepers: &[usize], node: usize) -> Vec<u16> {
    (0..SHARDS)
        .filter(|shard| keepers[usize::from(*shard)] == node)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_server_is_down_the_others_go_on() {
    let plan = Plan::of(3, 0).set("cluster-require-full-coverage", "no");
    let mut cluster = plan.start().await.unwrap();
    let process = connect(config_of(&cluster)).await;
    let lane = lane("a");
    let keepers = keepers(&cluster).await;
    let (victim, living) = (keepers[0], keepers.iter().find(|one| **one != keepers[0]));
    let living = keepers.iter().position(|one| Some(one) == living).unwrap();
    let id_in = |shard: usize| id_of_shard(u16::try_from(shard).unwrap());
    let mut dead_watch = process.queue.watch(id_in(0)).await;
    let id = id_in(living);
    let mut watch = process.queue.watch(id).await;
    let before = epochs(&process).await;
    cluster.nodes[victim].kill9();
    process.connected(false).await;
    let down = f64::from(u16::try_from(shard_keys(&keepers, victim).len()).unwrap());
    let up = async || process.metric("mcp_tasks_queue_shards_connected");
    harness::wait::for_state("the loss", PATIENCE, up, |up| *up == 8.0 - down)
        .await
        .unwrap();
    // Its own fail at once; none is stamped.
    assert_eq!(process.queue.epoch(id_in(0)), None);
    let begun = std::time::Instant::now();
    assert!(process.queue.push(&lane, id_in(0)).await.is_err());
    assert!(begun.elapsed() < Duration::from_millis(500), "fails fast");
    // Those of others flow, both ways.
    let mut consumer = process.queue.consumer(vec![lane.clone()]);
    process.queue.push(&lane, id).await.unwrap();
    assert_eq!(take(&mut consumer, 1).await[0].id, id);
    process.queue.wake(id).await;
    assert_eq!(event(&mut watch).await, Event::Changed);
    assert_eq!(
        epochs(&process).await,
        before,
        "of the dead, what they had last"
    );
    cluster.nodes[victim].start_again().await.unwrap();
    process.connected(true).await;
    assert_eq!(event(&mut dead_watch).await, Event::Reconnected);
    let after = epochs(&process).await;
    for (shard, keeper) in keepers.iter().enumerate() {
        let lost = before[shard] != after[shard];
        assert_eq!(lost, *keeper == victim, "shard {shard}");
    }
    let id = id_in(0);
    process.queue.push(&lane, id).await.unwrap();
    assert_eq!(take(&mut consumer, 1).await[0].id, id);
}

/// A new id that this shard keeps.
fn id_of_shard(shard: u16) -> protocol::TaskId {
    std::iter::repeat_with(new_id)
        .find(|id| shard_of(*id) == shard)
        .unwrap()
}

/// FNV-1a, folded: what the queue does, which an upgrade must not change.
fn shard_of(id: protocol::TaskId) -> u16 {
    let hash = id
        .as_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    u16::try_from((hash ^ (hash >> 32)) % u64::from(SHARDS)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_moves_takes_its_hints_along() {
    let (cluster, process) = start_cluster(3, 0).await;
    let lane = lane("a");
    let mut consumer = process.queue.consumer(vec![lane.clone()]);
    // It waits there, blocked, when the shard goes away.
    nothing(&mut consumer, Duration::from_millis(100)).await;
    let before = epochs(&process).await;
    let id = id_of_shard(0);
    let mut watch = process.queue.watch(id).await;
    let mut expected = Vec::new();
    for turn in 0..3 {
        let keeper = cluster.keeper(&epoch_key(0)).await.unwrap();
        let pushing = async {
            let mut pushed = Vec::new();
            for _ in 0..30 {
                let id = id_of_shard(0);
                process.queue.push(&lane, id).await.unwrap();
                pushed.push(id);
            }
            pushed
        };
        let key = epoch_key(0);
        let moving = cluster.move_slot(&key, (keeper + 1) % 3);
        let (pushed, moved) = tokio::join!(pushing, moving);
        moved.unwrap();
        expected.extend(pushed);
        assert_ne!(
            cluster.keeper(&epoch_key(0)).await.unwrap(),
            keeper,
            "turn {turn}"
        );
        // Told that messages may have been lost, then hears from the new place.
        assert_eq!(event(&mut watch).await, Event::Reconnected);
        process.connected(true).await;
    }
    assert_eq!(ids(&take(&mut consumer, 90).await), sorted(expected));
    assert_eq!(epochs(&process).await, before, "nothing was lost");
    let moved = process.metric("mcp_tasks_queue_redirects_total{kind=\"moved\"}");
    assert!(moved >= 1.0, "{moved}");
    process.queue.wake(id).await;
    assert_eq!(event(&mut watch).await, Event::Changed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_change_of_roles_loses_nothing() {
    let (cluster, process) = start_cluster(3, 1).await;
    let lane = lane("a");
    let mut consumer = process.queue.consumer(vec![lane.clone()]);
    nothing(&mut consumer, Duration::from_millis(100)).await;
    let before = epochs(&process).await;
    let expected = process.push(&lane, 40).await;
    cluster.change_roles(&epoch_key(0)).await.unwrap();
    let mut all = expected;
    // One that is sent in the moment of the change may fail, as any.
    while all.len() < 80 {
        let id = new_id();
        if process.queue.push(&lane, id).await.is_ok() {
            all.push(id);
        }
    }
    process.connected(true).await;
    let mut found = BTreeSet::new();
    while !all.iter().all(|id| found.contains(id)) {
        found.extend(take(&mut consumer, 1).await.iter().map(|hint| hint.id));
    }
    assert_eq!(epochs(&process).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_forgets_everything_is_noticed() {
    let (cluster, process) = start_cluster(3, 0).await;
    let lane = lane("a");
    let mut consumer = process.queue.consumer(vec![lane.clone()]);
    nothing(&mut consumer, Duration::from_millis(100)).await;
    let before = epochs(&process).await;
    process.push(&lane, 20).await;
    cluster.flush().await.unwrap();
    let after = epochs(&process).await;
    assert!(after.iter().all(|one| !before.contains(one)));
    let expected = process.push(&lane, 20).await;
    let mut found = BTreeSet::new();
    while !expected.iter().all(|id| found.contains(id)) {
        found.extend(take(&mut consumer, 1).await.iter().map(|hint| hint.id));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_the_server_is_said() {
    let cluster = Plan::of(3, 0).start().await.unwrap();
    let told = async |config: Config| {
        let process = Process::new(config);
        let told = async || process.queue.refused();
        let told = harness::wait::for_state("a refusal", PATIENCE, told, Option::is_some);
        told.await.unwrap().unwrap()
    };
    // Nobody said that it is one.
    let single = Config {
        url: cluster.nodes[0].url(),
        cluster: false,
        ..config_of(&cluster)
    };
    assert!(told(single).await.contains("redis.cluster = true"));
    let alone = harness::redis::Redis::temporary().await.unwrap();
    let none = Config {
        url: alone.url(),
        ..config_of(&cluster)
    };
    assert!(told(none).await.contains("no Redis Cluster"));
    // One server that can be reached is enough to find the others.
    let few = Config {
        url: format!("redis://127.0.0.1:1,127.0.0.1:{}", cluster.nodes[1].port()),
        ..config_of(&cluster)
    };
    let process = connect(few).await;
    assert_eq!(process.queue.refused(), None);
    let servers = process.queue.servers().await.unwrap();
    assert_eq!((servers.servers.len(), servers.homeless), (3, 0));
    for server in servers.servers {
        let info = server.info.unwrap();
        assert!(info.contains("cluster_state:ok"), "{info}");
        assert!(server.part.unwrap().shards > 0);
    }
}
