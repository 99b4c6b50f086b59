//! Workers that are slow, frozen, lost or replaced: work is done once, and is never waited for
//! without end.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::future::join_all;
use harness::postgres::Postgres;
use harness::redis::Redis;
use serde_json::json;

use crate::reports_tools::{self, Ledger, Settings, TOOLS, Tools};
use crate::support::{self, SOON, System};

/// Cron looks for lost work so often.
const RECONCILE: Duration = Duration::from_secs(2);

/// A job of three leases, and of six times the age at which a hint is looked at by others, runs
/// once.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_longer_than_its_lease_runs_once() {
    let (system, ledger, first) = reports_tools::system(1, "").await;
    let settings = Settings {
        lease_ms: 2_000,
        heartbeat_ms: 500,
        reclaim_idle_ms: 1_000,
        ..Settings::of(&system, &ledger)
    };
    drop(first);
    let _two = [0, 1].map(|_| Tools::start(&settings, &ledger));
    let alice = system.cluster.client(0, "alice");
    let work = json!({"label": "long", "steps": 2, "pause_ms": 3_000});
    let id = alice.start("toil", work).await.unwrap();
    alice.wait_status(&id, "completed", SOON).await.unwrap();
    let acts = ledger.acts("long");
    let what: Vec<&str> = acts.iter().map(|act| act.what.as_str()).collect();
    assert_eq!(what, ["act 0", "act 1"]);
    assert_eq!(attempts(&system, &id).await, 1);
}

/// A tool that hangs while its process is alive is ended by its work limit, and says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_tool_is_ended_by_its_limit() {
    let (system, ledger, mut tools) = reports_tools::system(1, "").await;
    let alice = system.cluster.client(0, "alice");
    let id = alice.start("hang", json!({"label": "hung"})).await.unwrap();
    ledger.acted("hung", 1).await;
    let begun = Instant::now();
    let failed = alice.wait_status(&id, "failed", SOON).await.unwrap();
    // The limit of 2 s, a heartbeat to hear of it, and half a second of grace.
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(6), "{took:?}");
    assert_eq!(failed["error"]["data"]["reason"], "work_limit", "{failed}");
    assert!(!failed["error"]["message"].as_str().unwrap().is_empty());
    // The process is as good as before.
    let next = alice
        .start("toil", json!({"label": "next", "steps": 1}))
        .await
        .unwrap();
    alice.wait_status(&next, "completed", SOON).await.unwrap();
    assert!(!tools.ended());
}

/// A worker that is killed and started again at once, under the same name on the same host, does
/// not take its former work for running: it is claimed anew within a lease and a reconcile
/// interval.
#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_worker_recovers_its_own_orphans() {
    let (system, ledger, mut tools) = reports_tools::system(1, "").await;
    let alice = system.cluster.client(0, "alice");
    let work = json!({"label": "orphan", "steps": 2, "pause_ms": 2_000});
    let id = alice.start("toil", work).await.unwrap();
    let before = ledger.acted("orphan", 1).await[0].pid;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let killed = Ledger::now_ms();
    tools.restart();
    harness::wait::until("a second attempt", SOON, async || {
        (attempts(&system, &id).await == 2).then_some(())
    })
    .await
    .unwrap();
    let took = Duration::from_millis(Ledger::now_ms() - killed);
    let bound = Duration::from_secs(3) + RECONCILE + Duration::from_secs(1);
    assert!(took < bound, "claimed after {took:?}");
    alice.wait_status(&id, "completed", SOON).await.unwrap();
    let acts = ledger.acts("orphan");
    assert_eq!(acts.len(), 2, "{acts:?}");
    assert_ne!(acts[1].pid, before);
}

/// A worker frozen beyond its lease is replaced; thawed, it neither acts nor changes anything.
#[tokio::test(flavor = "multi_thread")]
async fn a_thawed_worker_does_nothing_more() {
    let (system, ledger, mut first) = reports_tools::system(1, "").await;
    let alice = system.cluster.client(0, "alice");
    let work = json!({"label": "frozen", "steps": 8, "pause_ms": 400});
    let id = alice.start("toil", work).await.unwrap();
    ledger.acted("frozen", 3).await;
    // In the pause between two acts.
    tokio::time::sleep(Duration::from_millis(100)).await;
    first.freeze();
    let _second = Tools::start(&Settings::of(&system, &ledger), &ledger);
    harness::wait::until("the second works", SOON, async || {
        (attempts(&system, &id).await == 2).then_some(())
    })
    .await
    .unwrap();
    first.thaw();
    let done = alice.wait_status(&id, "completed", SOON).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let acts = ledger.acts("frozen");
    let what: Vec<&str> = acts.iter().map(|act| act.what.as_str()).collect();
    let expected: Vec<String> = (0..8).map(|n| format!("act {n}")).collect();
    assert_eq!(what, expected, "each once, in order");
    let by_first = acts.iter().filter(|act| act.pid == first.pid()).count();
    assert_eq!(by_first, 3);
    assert_eq!(alice.get(&id).await.unwrap()["result"], done["result"]);
    assert_eq!(attempts(&system, &id).await, 2);
}

/// Whoever reclaims what another left may be killed while doing so, again and again: no lock
/// stays behind, and in the end nothing is left over.
#[tokio::test(flavor = "multi_thread")]
async fn killing_the_reclaimer_again_and_again_loses_nothing() {
    let (system, ledger, mut tools) = reports_tools::system(1, "").await;
    let settings = Settings {
        reclaim_idle_ms: 500,
        lease_ms: 2_000,
        heartbeat_ms: 500,
        ..Settings::of(&system, &ledger)
    };
    let alice = system.cluster.client(0, "alice");
    let work = |n| json!({"label": format!("much-{n}"), "steps": 1, "pause_ms": 800});
    let ids = join_all((0..20).map(|n| alice.start("toil", work(n)))).await;
    let ids: Vec<String> = ids.into_iter().map(Result::unwrap).collect();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        tools.kill9();
        tools = Tools::start(&settings, &ledger);
    }
    for (n, id) in ids.iter().enumerate() {
        let end = alice.wait_end(id, SOON).await.unwrap();
        let acts = ledger.acts(&format!("much-{n}")).len();
        // Killed between an act and its journal entry, nobody knows, and it says so.
        let in_doubt = end["error"]["data"]["reason"] == "step_in_doubt";
        assert!(
            acts == 1 && (end["status"] == "completed" || in_doubt),
            "{acts} acts: {end}"
        );
    }
    harness::wait::until("nothing left in Redis", SOON, async || {
        (support::entries(&system.redis).await == 0).then_some(())
    })
    .await
    .unwrap();
}

/// Postgres is away for less than the lease: failed heartbeats end nothing, the work goes on.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_away_for_less_than_the_lease_costs_no_work() {
    let mut postgres = Postgres::temporary().await.unwrap();
    let url = postgres.create_database("leases").await.unwrap();
    support::migrate(url.clone()).await.unwrap();
    let redis = Redis::temporary().await.unwrap();
    let cluster = support::plan(&url, &redis.url())
        .of(1, 0, 1)
        .settings("[postgres]\nlease = \"8s\"\nheartbeat = \"1s\"")
        .start()
        .await
        .unwrap();
    let ledger = Ledger::new();
    let settings = Settings {
        lease_ms: 8_000,
        ..Settings::over(&url, &redis.url(), &ledger)
    };
    let _tools = [0, 1].map(|_| Tools::start(&settings, &ledger));
    cluster.wait_for_tools(0, &TOOLS).await.unwrap();
    let alice = cluster.client(0, "alice");
    let work = json!({"label": "patient", "steps": 2, "pause_ms": 5_000});
    let id = alice.start("toil", work).await.unwrap();
    ledger.acted("patient", 1).await;
    // Once without a word, once with broken connections.
    postgres.freeze();
    tokio::time::sleep(Duration::from_secs(2)).await;
    postgres.thaw();
    postgres.kill9().await;
    postgres.start_again().await.unwrap();
    alice.wait_status(&id, "completed", SOON).await.unwrap();
    let acts = ledger.acts("patient");
    assert_eq!(acts.len(), 2, "{acts:?}");
    assert!(acts.iter().all(|act| act.attempt == 1), "{acts:?}");
}

/// A worker asked to end hands its work back, and another goes on at once; killed before it could,
/// another goes on after the lease.
#[tokio::test(flavor = "multi_thread")]
async fn work_goes_on_elsewhere_after_sigterm_and_after_sigkill() {
    let (system, ledger, mut first) = reports_tools::system(1, "").await;
    let alice = system.cluster.client(0, "alice");
    let mut second = Tools::start(&Settings::of(&system, &ledger), &ledger);
    let bounds = [
        // A second until the drain deadline, and half a second of grace.
        (true, Duration::from_secs(5)),
        (
            false,
            Duration::from_secs(3) + RECONCILE + Duration::from_secs(2),
        ),
    ];
    let mut ended = BTreeSet::new();
    for (asked, bound) in bounds {
        let label = format!("moved-{asked}");
        let work = json!({"label": label, "steps": 100, "pause_ms": 200});
        let id = alice.start("toil", work).await.unwrap();
        let owner = ledger.acted(&label, 2).await[0].pid;
        let leaving = if first.pid() == owner {
            &mut first
        } else {
            &mut second
        };
        tokio::time::sleep(Duration::from_millis(60)).await;
        let begun = Ledger::now_ms();
        leaving.term();
        if !asked {
            leaving.kill9();
        }
        ended.insert(owner);
        let look = async || ledger.acts(&label).into_iter().find(|act| act.pid != owner);
        let next = harness::wait::until("another goes on", SOON, look)
            .await
            .unwrap();
        let took = Duration::from_millis(next.at_ms - begun);
        assert!(took < bound, "{took:?} after it was asked ({asked})");
        let tries = format!("SELECT tries FROM tasks WHERE id = '{id}'");
        let spent = system.count(&tries).await;
        assert_eq!(
            spent,
            i64::from(!asked),
            "a drain costs no try, a loss does"
        );
        alice.cancel(&id).await.unwrap();
        alice.wait_end(&id, SOON).await.unwrap();
        let acts = ledger.acts(&label);
        let distinct: BTreeSet<&str> = acts.iter().map(|act| act.what.as_str()).collect();
        assert_eq!(distinct.len(), acts.len(), "no act twice: {acts:?}");
        // There must be two again for the next round.
        *leaving = Tools::start(&Settings::of(&system, &ledger), &ledger);
    }
    assert_eq!(ended.len(), 2);
}

async fn attempts(system: &System, id: &str) -> i64 {
    let row = format!("SELECT attempt FROM tasks WHERE id = '{id}'");
    system.count(&row).await
}
