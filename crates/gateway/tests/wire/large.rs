//! Large results: many asked for at once are read one after another, and others notice nothing.

use std::collections::BTreeMap;

use harness::wait;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::support::{SECOND, SOON, World, config, question, text};

const MIB: usize = 1024 * 1024;
const RESULT: usize = 8 * MIB;
const ASKED: usize = 16;
const TAKEN: &str = "mcp_tasks_gateway_message_bytes";

/// Asks for the task over a connection of its own that takes in little before it is read.
async fn ask(world: &World, id: &str) -> TcpStream {
    let alice = world.client("alice");
    let body = alice.request("tasks/get", json!({"taskId": id})).bytes();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer alice\r\n\
         Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
         MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tasks/get\r\nMcp-Name: {id}\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n",
        world.address,
        body.len()
    );
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(256 * 1024).unwrap();
    let mut stream = socket.connect(world.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&body).await.unwrap();
    stream
}

/// What it is answered with, read to the end.
async fn answer(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    let reading = stream.read_to_end(&mut bytes);
    tokio::time::timeout(3 * SOON, reading)
        .await
        .unwrap()
        .unwrap();
    let status = String::from_utf8_lossy(&bytes[..12]).into_owned();
    let is_whole = bytes.len() > RESULT;
    format!("{status}, {}", if is_whole { "whole" } else { "refused" })
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_take_no_more_than_their_share() {
    for kind in ["result", "error", "question"] {
        share_of(kind).await;
    }
}

async fn share_of(kind: &str) {
    let mut config = config();
    config.limits.memory_bytes_of_principal_max = 2 * RESULT;
    let world = World::with(config).await;
    let alice = world.client("alice");
    let task = alice.call("task", json!({})).await.unwrap();
    let claim = world.claim("task").await;
    let long = "x".repeat(RESULT - 100);
    match kind {
        "result" => world.complete(&claim, &text(&long)).await,
        "error" => {
            let error = json!({"code": -32603, "message": long});
            world.fail(&claim, &error).await;
        }
        _ => {
            let request = json!({"method": "elicitation/create", "params": {"mode": "form", "message": long,
                "requestedSchema": {"type": "object", "properties": {}}}});
            let asked = [store::Question {
                request: request.to_string().into(),
                ..question("k")
            }];
            let parked = world
                .store
                .park(&claim, store::ParkedFor::Task, &asked, SECOND);
            assert_eq!(parked.await.unwrap(), store::Parked::Parked);
        }
    }
    let id = task["taskId"].as_str().unwrap();

    let mut asked = Vec::new();
    for _ in 0..ASKED {
        asked.push(ask(&world, id).await);
    }
    let taken = async || world.metric(TAKEN);
    wait::for_state("answers wait to be read", SOON, taken, |n| *n >= 8e6)
        .await
        .unwrap();
    let mut reading: JoinSet<_> = asked.into_iter().map(answer).collect();
    let bob = world.client("bob");
    let mut most = 0.0_f64;
    let mut answers = BTreeMap::<String, usize>::new();
    while !reading.is_empty() {
        assert!(bob.discover().await.is_ok());
        most = most.max(world.metric(TAKEN));
        while let Some(read) = reading.try_join_next() {
            *answers.entry(read.unwrap()).or_default() += 1;
        }
    }
    // Who came when the share was full was refused at the door, as ever; nobody got a part.
    let whole = answers.remove("HTTP/1.1 200, whole").unwrap_or(0);
    let refused = answers.remove("HTTP/1.1 429, refused").unwrap_or(0);
    assert!(answers.is_empty(), "{kind}: {answers:?}");
    assert_eq!(whole + refused, ASKED);
    assert!(whole >= 2, "{kind}: {whole} were answered");
    // The share, and as many that have just been made of their results.
    let share = 4 * (RESULT + 4 * 1024);
    assert!(
        most <= share as f64,
        "{kind}: {most} bytes, {whole} answered"
    );
    wait::for_state("nothing is kept", SOON, taken, |n| *n == 0.0)
        .await
        .unwrap();
    assert!(alice.get(id).await.is_ok());
}
