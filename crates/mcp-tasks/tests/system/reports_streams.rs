//! Streams on which nothing happens: proxies between client and server must see that they live.

use std::time::{Duration, Instant};

use harness::sse::Stream;
use serde_json::json;

use crate::support::System;

/// What the strictest of the usual proxies allow, with a margin.
const GAP_MAX: Duration = Duration::from_secs(15);

/// A held call and a subscription, both without anything to say, with the settings as they come.
#[tokio::test(flavor = "multi_thread")]
async fn bytes_flow_on_idle_streams() {
    let system = System::of(1, 1).await;
    let alice = system.cluster.client(0, "alice");
    let call = json!({"name": "slow_compute", "arguments": {"seconds": 13}});
    let undeclared = alice.clone().undeclared();
    let mut held = undeclared
        .request("tools/call", call)
        .stream()
        .await
        .unwrap();
    let mut listen = alice
        .listen(json!({"toolsListChanged": true}))
        .await
        .unwrap();
    let (call_gap, listen_gap) = tokio::join!(gap(&mut held), gap(&mut listen));
    assert!(call_gap < GAP_MAX, "the call was silent for {call_gap:?}");
    assert!(
        listen_gap < GAP_MAX,
        "the subscription was silent for {listen_gap:?}"
    );
}

/// The longest silence of a stream within 14 seconds, or until it ends.
async fn gap(stream: &mut Stream) -> Duration {
    let begun = Instant::now();
    let (mut last, mut longest) = (begun, Duration::ZERO);
    loop {
        let left = Duration::from_secs(14).saturating_sub(begun.elapsed());
        let event = tokio::time::timeout(left, stream.event()).await;
        longest = longest.max(last.elapsed());
        last = Instant::now();
        match event {
            Ok(Ok(Some(_))) => {}
            Ok(Ok(None)) | Err(_) => return longest,
            Ok(Err(error)) => panic!("the stream broke: {error}"),
        }
    }
}
