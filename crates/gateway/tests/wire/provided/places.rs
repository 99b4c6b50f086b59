//! How many resources one may listen to, and what becomes of those for which a provider has no room.

use harness::sse::Stream;
use serde_json::{Value, json};
use store::{WANTED_MAX, WantedResource};

use super::{next, provide, send, spec, world};
use crate::support::{SECOND, World, config};

async fn agreed(stream: &mut Stream) -> Value {
    let ack = next(stream).await;
    ack["params"]["notifications"]["resourceSubscriptions"].clone()
}

/// So many others listen to one resource each.
async fn crowd(world: &World, count: i64) {
    let others = (0..count).map(|n| WantedResource {
        place: 0,
        provider: "notes".to_owned(),
        uri: format!("note://by-day/other-{n}"),
    });
    let others: Vec<_> = others.collect();
    let told = world.store.want_resources(&others, 600 * SECOND).await;
    assert_eq!(told.unwrap().counted.len(), others.len());
}

/// Streams that were closed count, too, as long as workers are told of them.
#[tokio::test]
async fn a_principal_listens_to_so_many_resources() {
    let mut config = config();
    config.limits.listened_resources_of_principal_max = 3;
    config.limits.listened_bytes_of_principal_max = 8 * 1024 + 60;
    let world = World::with(config).await;
    provide(&world, spec()).await;
    let (alice, bob) = (world.client("alice"), world.client("bob"));
    let of = |uris: &[&str]| json!({ "resourceSubscriptions": uris });
    let refused = async |uris: &[&str]| {
        let params = json!({ "notifications": of(uris) });
        let answer = send(&alice, "subscriptions/listen", params).await;
        assert_eq!((answer.status, answer.error_code()), (429, Some(429)));
        let seconds: u64 = answer.header("retry-after").parse().unwrap();
        assert!((1..=90).contains(&seconds), "{seconds}");
        assert_eq!(answer.error()["data"]["retryAfterSeconds"], seconds);
    };
    let all = ["note://by-day/1", "note://by-day/2", "note://by-day/3"];
    let mut stream = alice.listen(of(&all[..2])).await.unwrap();
    assert_eq!(agreed(&mut stream).await, json!(all[..2]));
    // The same ones again are no more, and those that nobody provides are none.
    let mut again = alice
        .listen(of(&[all[0], all[1], all[2], "other://x"]))
        .await
        .unwrap();
    assert_eq!(agreed(&mut again).await, json!(all));
    drop((stream, again));
    refused(&["note://by-day/4"]).await;
    refused(&[all[0], "note://by-day/4"]).await;
    let mut stream = alice.listen(of(&all)).await.unwrap();
    assert_eq!(agreed(&mut stream).await, json!(all));
    let mut others = bob.listen(of(&["note://by-day/4"])).await.unwrap();
    assert_eq!(agreed(&mut others).await, json!(["note://by-day/4"]));
    // Bytes: two such do not fit, whoever can have three.
    let carol = world.client("carol");
    let long = |n: u32| format!("note://by-day/{n}{}", "x".repeat(8_000));
    let mut stream = carol.listen(of(&[&long(1)])).await.unwrap();
    assert_eq!(agreed(&mut stream).await, json!([long(1)]));
    let params = json!({ "notifications": of(&[&long(2)]) });
    let answer = send(&carol, "subscriptions/listen", params).await;
    assert_eq!(answer.status, 429);
}

/// A provider that has no room watches for everybody's first before anybody's second, and nobody is
/// promised what it does not watch.
#[tokio::test]
async fn what_a_provider_has_no_room_for_is_not_agreed_to() {
    let world = world().await;
    let alice = world.client("alice");
    let days = ["note://by-day/1", "note://by-day/2"];
    let wanted = json!({ "resourceSubscriptions": days });
    crowd(&world, WANTED_MAX - 1).await;
    let mut stream = alice.listen(wanted.clone()).await.unwrap();
    assert_eq!(agreed(&mut stream).await, json!(days[..1]));
    // It hears of what was agreed to, and of nothing else.
    let changed = days.map(str::to_owned);
    world.store.record_resource_updates(&changed).await.unwrap();
    for uri in &changed {
        world.queue.resource_updated(uri).await;
    }
    let message = next(&mut stream).await;
    assert_eq!(message["params"]["uri"], days[0]);
    // Others are gone: there is room.
    let gone = "UPDATE wanted_resources SET until = now() WHERE uri LIKE '%other%'";
    world.database.rows(gone).await.unwrap();
    let mut stream = alice.listen(wanted).await.unwrap();
    assert_eq!(agreed(&mut stream).await, json!(days));
}

/// A stream ends with its final message, so that its client listens again and is told what it can hear
/// of; those of others go on.
#[tokio::test]
async fn who_loses_a_place_is_told() {
    let mut config = config();
    config.listen_recheck = SECOND / 2;
    let world = World::with(config).await;
    provide(&world, spec()).await;
    let (alice, bob) = (world.client("alice"), world.client("bob"));
    let days = ["note://by-day/1", "note://by-day/2"];
    let wanted = json!({ "resourceSubscriptions": days });
    let mut stream = alice.listen(wanted.clone()).await.unwrap();
    assert_eq!(agreed(&mut stream).await, json!(days));
    let today = "note://today".to_owned();
    let wanted_by_bob = json!({ "resourceSubscriptions": [today] });
    let mut of_bob = bob.listen(wanted_by_bob).await.unwrap();
    assert_eq!(agreed(&mut of_bob).await, json!([today]));
    crowd(&world, WANTED_MAX - 2).await;
    let last = next(&mut stream).await;
    assert_eq!(last["result"]["resultType"], "complete", "{last}");
    let mut stream = alice.listen(wanted).await.unwrap();
    assert_eq!(agreed(&mut stream).await, json!(days[..1]));
    let changed = [today.clone()];
    world.store.record_resource_updates(&changed).await.unwrap();
    world.queue.resource_updated(&today).await;
    let message = next(&mut of_bob).await;
    assert_eq!(message["params"]["uri"], today, "{message}");
}
