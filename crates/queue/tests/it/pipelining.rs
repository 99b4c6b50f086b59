//! Commands of concurrent callers are on their way together: none waits for another's answer, and to
//! give a hint back is one command.

use std::time::Duration;

use futures::future::join_all;
use queue::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::support::*;

const COUNT: usize = 50;

/// Leads to a server; what it answers passes only while the gate is open.
async fn gated(port: u16, gate: watch::Receiver<bool>) -> (u16, JoinSet<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let own = listener.local_addr().unwrap().port();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut pumps = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            let mut gate = gate.clone();
            pumps.spawn(async move {
                let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
            });
            pumps.spawn(async move {
                let mut chunk = vec![0; 64 * 1024];
                while let Ok(count @ 1..) = from_server.read(&mut chunk).await {
                    if gate.wait_for(|open| *open).await.is_err()
                        || to_client.write_all(&chunk[..count]).await.is_err()
                    {
                        return;
                    }
                }
            });
        }
    });
    (own, tasks)
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_commands_do_not_wait_for_each_other() {
    let redis = harness::redis::Redis::temporary().await.unwrap();
    let (open, gate) = watch::channel(true);
    let (port, _relay) = gated(redis.port(), gate).await;
    // Nothing else is asked, and nothing is given up, while no answer passes.
    let process = connect(Config {
        url: format!("redis://127.0.0.1:{port}"),
        probe_interval: Duration::from_secs(30),
        command_timeout: Duration::from_secs(30),
        ..config(&redis)
    })
    .await;
    let lane = lane("a");
    let mut consumer = process.queue.consumer(vec![lane.clone()]);
    // The scripts are known to Redis from here on.
    process.push(&lane, 1).await;
    let hint = take(&mut consumer, 1).await.remove(0);
    consumer.ack(&hint).await;
    drop(hint);

    let there = async |expected: u64| {
        let there = async || entries(&redis).await;
        harness::wait::for_state("all commands", PATIENCE, there, |now| *now == expected)
            .await
            .unwrap();
    };
    open.send_replace(false);
    let pushing = async {
        let pushes = (0..COUNT).map(|_| process.queue.push(&lane, new_id()));
        join_all(pushes).await
    };
    let opening = async {
        there(COUNT as u64).await;
        open.send_replace(true);
    };
    let (pushed, ()) = tokio::join!(pushing, opening);
    assert!(pushed.iter().all(Result::is_ok), "{pushed:?}");

    let hints = take(&mut consumer, COUNT).await;
    open.send_replace(false);
    let acking = join_all(hints.iter().map(|hint| consumer.ack(hint)));
    let opening = async {
        // Acknowledged and deleted by one command each: no second one could be sent yet.
        there(0).await;
        open.send_replace(true);
    };
    tokio::join!(acking, opening);
    let acked = process.metric("mcp_tasks_queue_returns_total{outcome=\"acked\"}");
    assert_eq!(acked, COUNT as f64 + 1.0);
}
