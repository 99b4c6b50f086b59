//! The primary dies for good and its synchronous standby takes its place.

use std::time::Duration;

use harness::postgres::Postgres;
use harness::proxy::{Mode, Proxy};

use crate::postgres_load::{Load, World};
use crate::support::migrate;

/// A primary whose commits wait for its standby.
async fn pair() -> (Postgres, Postgres) {
    let primary = Postgres::temporary().await.unwrap();
    let url = primary.create_database("system").await.unwrap();
    migrate(url).await.unwrap();
    let standby = primary.standby().await.unwrap();
    primary.commit_with_standby().await.unwrap();
    (primary, standby)
}

/// One URL for two hosts.
fn url(first: u16, second: u16) -> String {
    format!(
        "postgres://postgres@127.0.0.1:{first},127.0.0.1:{second}/system\
         ?target_session_attrs=read-write"
    )
}

/// Killed under load: the URL's other host is the primary a moment later, and clients saw nothing
/// but slower answers.
#[tokio::test(flavor = "multi_thread")]
async fn the_primary_is_killed() {
    let (mut primary, standby) = pair().await;
    let mut world = World::start(&url(primary.port(), standby.port()), (2, 2), "").await;
    let load = Load::start(&world.cluster, 2);
    load.once_more().await;
    let processes = world.processes();
    primary.kill9().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    standby.promote().await.unwrap();
    load.once_more().await;
    load.finish().await.assert_nothing_seen();
    assert_eq!(world.processes(), processes, "no process was restarted");
}

/// Its machine vanishes: nothing is refused, nothing is answered, and connections to it stay open
/// for ever. The other host is found all the same, by what is asked now and by what waited.
#[tokio::test(flavor = "multi_thread")]
async fn the_primarys_machine_vanishes() {
    let (mut primary, standby) = pair().await;
    let road = Proxy::to_port(primary.port()).await.unwrap();
    let url = url(road.address().port(), standby.port());
    // A third of the default times, so that the test takes a third of the time.
    let settings = "[postgres]\nconnect_timeout = \"1s\"\nstatement_timeout = \"2s\"";
    let mut world = World::start(&url, (2, 2), settings).await;
    let load = Load::start(&world.cluster, 2);
    load.once_more().await;
    let processes = world.processes();
    road.set(Mode::HalfOpen);
    primary.kill9().await;
    standby.promote().await.unwrap();
    load.once_more().await;
    load.finish().await.assert_nothing_seen();
    assert_eq!(world.processes(), processes, "no process was restarted");
}

/// Where the standby does not have it, nothing is acknowledged: a call waits, and is refused.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_standby_lacks_is_not_acknowledged() {
    let (mut primary, standby) = pair().await;
    let settings = "[postgres]\nwait_max = \"2s\"\nstatement_timeout = \"1s\"";
    let world = World::start(&url(primary.port(), standby.port()), (1, 1), settings).await;
    let alice = world.cluster.client(0, "alice");
    let plan = |call: &str| serde_json::json!({"call": call});
    let before = alice.start("chaos_steps", plan("before")).await.unwrap();
    standby.freeze();
    let refused = alice.start("chaos_steps", plan("frozen")).await;
    assert!(
        matches!(refused, Err(harness::Error::Rpc { status: 503, .. })),
        "{refused:?}"
    );
    standby.thaw();
    let after = harness::wait::until("calls are taken again", crate::support::SOON, async || {
        alice.start("chaos_steps", plan("after")).await.ok()
    });
    let after = after.await.unwrap();
    primary.kill9().await;
    standby.promote().await.unwrap();
    for id in [before, after] {
        let task = alice.wait_end(&id, crate::support::SOON).await.unwrap();
        assert_eq!(task["status"], "completed", "{task}");
    }
}
