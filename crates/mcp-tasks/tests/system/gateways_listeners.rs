//! A gateway with a thousand open subscriptions ends: by a kill, or because it is asked to.

use std::time::{Duration, Instant};

use futures::future::join_all;
use futures::stream::{self, StreamExt as _};
use harness::client::Client;
use harness::sse::Stream;
use serde_json::{Value, json};

use crate::support::{SOON, System};

const LISTENERS: usize = 1_000;
const TASKS: usize = 20;
/// They are one caller's.
const MANY: &str = "[gateway.limits]\nlistens_of_principal_max = 1000\n";
/// Connections that are opened at once: more would only measure this machine.
const AT_ONCE: usize = 64;

/// Killed: whoever listens again elsewhere is told where every task stands now, first of all, and
/// not what it may have missed.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_listeners_move_to_another_gateway() {
    let mut system = System::with(2, 1, MANY).await;
    let [alice, other] = [0, 1].map(|n| system.cluster.client(n, "alice"));
    let ids = parked(&alice).await;
    let mut streams = listen(&alice, &ids).await;
    for (n, stream) in streams.iter_mut().enumerate() {
        let first = first_state(stream, &ids[n % TASKS]).await;
        assert_eq!(first["status"], "input_required");
    }
    system.cluster.gateways[0].kill9();
    // What happens while nobody listens.
    for id in ids.iter().step_by(2) {
        answer(&other, id).await;
    }
    for id in ids.iter().step_by(2) {
        other.wait_status(id, "completed", SOON).await.unwrap();
    }
    for stream in &mut streams {
        assert!(
            !matches!(stream.next(SOON).await, Ok(Some(_))),
            "a dead gateway said something"
        );
    }
    let begun = Instant::now();
    let mut streams = listen(&other, &ids).await;
    let mut states = Vec::new();
    for (n, stream) in streams.iter_mut().enumerate() {
        states.push(first_state(stream, &ids[n % TASKS]).await);
    }
    println!("{LISTENERS} listened again within {:?}", begun.elapsed());
    for (n, id) in ids.iter().enumerate() {
        let now = other.get(id).await.unwrap();
        assert_eq!(
            now["status"],
            if n % 2 == 0 {
                "completed"
            } else {
                "input_required"
            }
        );
        for state in states.iter().skip(n).step_by(TASKS) {
            for field in [
                "taskId",
                "status",
                "result",
                "inputRequests",
                "lastUpdatedAt",
                "ttlMs",
            ] {
                assert_eq!(state[field], now[field], "{field}");
            }
        }
    }
    // And they hear what happens next.
    answer(&other, &ids[1]).await;
    let last = streams.iter_mut().skip(1).step_by(TASKS);
    for told in join_all(
        last.map(|stream| stream.find(SOON, |message| message["params"]["status"] == "completed")),
    )
    .await
    {
        assert_eq!(told.unwrap()["params"]["taskId"], json!(ids[1]));
    }
}

/// Asked to end: every subscription gets its final message, and the process is gone by its deadline
/// although one caller still waits for a result.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_listeners_do_not_hold_up_the_end() {
    let (delay, deadline) = (Duration::from_millis(500), Duration::from_secs(6));
    let settings = format!("[gateway]\ndrain_delay = \"500ms\"\ndrain_deadline = \"6s\"\n{MANY}");
    let mut system = System::with(1, 1, &settings).await;
    let alice = system.cluster.client(0, "alice");
    let ids = parked(&alice).await;
    let mut streams = listen(&alice, &ids).await;
    for (n, stream) in streams.iter_mut().enumerate() {
        first_state(stream, &ids[n % TASKS]).await;
    }
    let call = json!({"name": "slow_compute", "arguments": {"seconds": 60}});
    let undeclared = alice.clone().undeclared();
    let held = undeclared
        .request("tools/call", call)
        .stream()
        .await
        .unwrap();
    let begun = Instant::now();
    system.cluster.gateways[0].term();
    let ends = async {
        let ends = join_all(streams.iter_mut().map(final_message)).await;
        println!(
            "{LISTENERS} listeners were told after {:?}",
            begun.elapsed()
        );
        ends
    };
    let (ends, status) = tokio::join!(ends, system.cluster.gateways[0].wait(SOON));
    let took = begun.elapsed();
    for end in ends {
        assert_eq!(end["result"]["resultType"], "complete", "{end}");
        assert!(
            !end["id"].is_null(),
            "the response to the subscription's request: {end}"
        );
    }
    assert!(status.unwrap().success());
    // Three seconds are kept for what is left to be recorded.
    assert!(took < delay + deadline + Duration::from_secs(4), "{took:?}");
    println!("with a held call, the process was gone after {took:?}");
    drop(held);
}

/// Tasks that wait for an answer.
async fn parked(client: &Client) -> Vec<String> {
    let start = (0..TASKS).map(|_| client.start("confirm_delete", json!({"filename": "a.txt"})));
    let ids: Vec<String> = join_all(start)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    for id in &ids {
        client
            .wait_status(id, "input_required", SOON)
            .await
            .unwrap();
    }
    ids
}

/// All listeners, each for one of the tasks, in turn.
async fn listen(client: &Client, ids: &[String]) -> Vec<Stream> {
    let open = (0..LISTENERS).map(|n| client.listen(json!({"taskIds": [ids[n % TASKS]]})));
    let opened: Vec<_> = stream::iter(open).buffered(AT_ONCE).collect().await;
    opened.into_iter().map(Result::unwrap).collect()
}

/// The acknowledgement, then at once the task as it is.
async fn first_state(stream: &mut Stream, id: &str) -> Value {
    let acknowledged = stream.next(SOON).await.unwrap().expect("an open stream");
    assert_eq!(
        acknowledged["params"]["notifications"]["taskIds"],
        json!([id])
    );
    let first = stream.next(SOON).await.unwrap().expect("an open stream");
    assert_eq!(first["method"], "notifications/tasks");
    first["params"].clone()
}

/// The last message of a stream that ends in good order.
async fn final_message(stream: &mut Stream) -> Value {
    let mut last = Value::Null;
    while let Some(message) = stream.next(SOON).await.expect("a stream in good order") {
        last = message;
    }
    last
}

async fn answer(client: &Client, id: &str) {
    let asked = client.get(id).await.unwrap();
    let key = asked["inputRequests"]
        .as_object()
        .unwrap()
        .keys()
        .next()
        .unwrap();
    let yes = json!({key: {"action": "accept", "content": {"confirm": true}}});
    client.update(id, yes).await.unwrap();
}
