//! Sessions with Postgres end, hang, are taken by others, or lead through a pooler: clients see
//! slower answers, or are told clearly; nobody waits for ever.

use std::time::{Duration, Instant};

use futures::future::join_all;
use harness::config::Role;
use harness::pgbouncer::{PgBouncer, PoolMode};
use harness::postgres::{Options, Postgres, Session, rows};
use harness::process::{Process, Spec};
use harness::proxy::{Mode, Proxy};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::postgres_load::{Load, World, accept};
use crate::support::{SOON, migrate};

/// A third of the default times, so that a test takes a third of the time.
const QUICK: &str = "[postgres]\nconnect_timeout = \"1s\"\nstatement_timeout = \"2s\"";
/// Other sessions than the one that asks.
const OURS: &str = "FROM pg_stat_activity WHERE application_name = 'mcp-tasks'";

async fn postgres_with(options: Options) -> (Postgres, String) {
    let postgres = Postgres::temporary_with(options).await.unwrap();
    let url = postgres.create_database("system").await.unwrap();
    migrate(url.clone()).await.unwrap();
    (postgres, url)
}

async fn postgres() -> (Postgres, String) {
    postgres_with(Options::test()).await
}

/// The processes behind our sessions that wait for a statement.
async fn idle_servers(url: &str) -> Vec<Pid> {
    let sql = format!("SELECT pid {OURS} AND state = 'idle'");
    let found = rows(url, &sql).await.unwrap();
    let pids = found.into_iter().flatten().flatten();
    pids.map(|pid| Pid::from_raw(pid.parse().unwrap()))
        .collect()
}

/// Every session is ended under load, again and again.
#[tokio::test(flavor = "multi_thread")]
async fn all_terminated_under_load() {
    let (_postgres, url) = postgres().await;
    let mut world = World::start(&url, (2, 1), "").await;
    let load = Load::start(&world.cluster, 2);
    load.once_more().await;
    let processes = world.processes();
    let kill = format!("SELECT count(pg_terminate_backend(pid)) {OURS}");
    let mut ended = 0;
    for _ in 0..12 {
        let count = rows(&url, &kill)
            .await
            .unwrap()
            .swap_remove(0)
            .swap_remove(0);
        ended += count.unwrap().parse::<u32>().unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    load.once_more().await;
    load.finish().await.assert_nothing_seen();
    assert!(ended > 40, "{ended} sessions were ended");
    assert_eq!(world.processes(), processes, "no process was restarted");
}

/// All connections die without a word, under load; new ones are as good as ever.
#[tokio::test(flavor = "multi_thread")]
async fn all_half_open_under_load() {
    let (postgres, url) = postgres().await;
    let road = Proxy::to_port(postgres.port()).await.unwrap();
    let world = World::start(&road.through(&url), (2, 1), QUICK).await;
    let load = Load::start(&world.cluster, 2);
    load.once_more().await;
    road.set(Mode::HalfOpen);
    road.set(Mode::Pass);
    let dead = Instant::now();
    load.once_more().await;
    let report = load.finish().await;
    report.assert_nothing_seen();
    let mut waited = report.waited_after(dead);
    println!("all connections dead: {waited:?}");
    // These also wait for a worker.
    waited.remove("tools/call inline");
    for (kind, waited) in waited {
        assert!(waited < Duration::from_secs(8), "{kind}: {waited:?}");
    }
}

/// A pool full of connections that died while nobody used them: the first request finds out, and
/// does not try them all.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_of_half_open_ones() {
    let (postgres, url) = postgres().await;
    let road = Proxy::to_port(postgres.port()).await.unwrap();
    let world = World::start(&road.through(&url), (1, 1), QUICK).await;
    let alice = world.cluster.client(0, "alice");
    let ids = join_all((0..24).map(|_| asks(&alice))).await;
    // All at once and slowly: every connection of the pool is needed.
    road.set(Mode::Delay(Duration::from_millis(50)));
    let unknown = || json!({"unknown": accept("x")});
    for done in join_all(ids.iter().map(|id| alice.update(id, unknown()))).await {
        done.unwrap();
    }
    let before = connections(road.address().port()).0.len();
    road.set(Mode::HalfOpen);
    road.set(Mode::Pass);
    let asked = Instant::now();
    alice.get(&ids[0]).await.unwrap();
    let took = asked.elapsed();
    println!("the first request after {before} idle connections died took {took:?}");
    assert!(before >= 16, "{before}");
    assert!(took < Duration::from_secs(6), "{took:?}");
    let asked = Instant::now();
    alice.update(&ids[1], unknown()).await.unwrap();
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(2), "nor does the next: {took:?}");
}

/// Some server processes of idle sessions are frozen: what is sent to them waits for one try.
#[tokio::test(flavor = "multi_thread")]
async fn some_frozen_under_load() {
    let (_postgres, url) = postgres().await;
    let world = World::start(&url, (2, 1), QUICK).await;
    let load = Load::start(&world.cluster, 2);
    load.once_more().await;
    let mut frozen = idle_servers(&url).await;
    frozen.truncate(6);
    for pid in &frozen {
        kill(*pid, Signal::SIGSTOP).unwrap();
    }
    // One that was given work in between may hold a lock, and then nobody can have its row.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let idle = idle_servers(&url).await;
    frozen.retain(|pid| {
        let still = idle.contains(pid);
        if !still {
            kill(*pid, Signal::SIGCONT).unwrap();
        }
        still
    });
    load.once_more().await;
    for pid in &frozen {
        kill(*pid, Signal::SIGCONT).unwrap();
    }
    load.once_more().await;
    load.finish().await.assert_nothing_seen();
    assert!(!frozen.is_empty());
}

/// Other programs take every connection there is: ours go on with those that they have.
#[tokio::test(flavor = "multi_thread")]
async fn no_more_to_be_had() {
    let (postgres, url) = postgres_with(Options::test().set("max_connections", "60")).await;
    let world = World::start(&url, (2, 1), "").await;
    let load = Load::start(&world.cluster, 2);
    load.once_more().await;
    let others = postgres.url("postgres");
    let mut taken = Vec::new();
    while let Ok(session) = Session::open(&others).await {
        taken.push(session);
    }
    // More than they had connections for until now.
    let more = Load::start(&world.cluster, 6);
    more.once_more().await;
    assert!(rows(&others, "SELECT 1").await.is_err(), "{}", taken.len());
    drop(taken);
    more.finish().await.assert_nothing_seen();
    load.finish().await.assert_nothing_seen();
}

/// One connection, and it waits for a lock: who else asks is refused in time, not kept for ever.
#[tokio::test(flavor = "multi_thread")]
async fn the_only_one_is_busy() {
    let (_postgres, url) = postgres().await;
    let settings = "[postgres]\npool_size = 1\nwait_max = \"2s\"\nstatement_timeout = \"4s\"";
    let world = World::start(&url, (1, 1), settings).await;
    let alice = world.cluster.client(0, "alice");
    let id = asks(&alice).await;
    let lock = Lock::take(&url, &id).await;
    let cancelling = alice.cancel(&id);
    let (cancelled, ()) = tokio::join!(cancelling, async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let asked = Instant::now();
        let reads = (0..8).map(|_| alice.request("tasks/get", json!({"taskId": id})).send());
        for read in join_all(reads).await {
            let read = read.unwrap();
            // Either it got its turn, or it was told when to come back.
            if read.status != 200 {
                assert_eq!(read.status, 503, "{}", read.message);
                assert!(!read.header("retry-after").is_empty());
            }
        }
        assert!(
            asked.elapsed() < Duration::from_secs(6),
            "{:?}",
            asked.elapsed()
        );
    });
    assert!(
        matches!(cancelled, Err(harness::Error::Rpc { status: 503, .. })),
        "{cancelled:?}"
    );
    drop(lock);
    let free = async || alice.cancel(&id).await.ok();
    harness::wait::until("the row is free", SOON, free)
        .await
        .unwrap();
    let task = alice.wait_end(&id, SOON).await.unwrap();
    assert_eq!(task["status"], "cancelled");
}

/// Callers hang up while their statements wait for a lock: nobody inherits their connections, nor
/// their waiting.
#[tokio::test(flavor = "multi_thread")]
async fn callers_hang_up_while_they_wait() {
    let (_postgres, url) = postgres().await;
    let settings = "[postgres]\npool_size = 2\nstatement_timeout = \"20s\"";
    let world = World::start(&url, (1, 1), settings).await;
    let alice = world.cluster.client(0, "alice");
    let id = asks(&alice).await;
    let other = asks(&alice).await;
    let lock = Lock::take(&url, &id).await;
    let hasty = alice.clone().timeout(Duration::from_millis(400));
    let waits = format!("SELECT count(*) {OURS} AND wait_event_type = 'Lock'");
    for _ in 0..2 {
        for given_up in join_all((0..2).map(|_| hasty.cancel(&id))).await {
            assert!(given_up.is_err(), "{given_up:?}");
        }
        let asked = Instant::now();
        alice.get(&other).await.unwrap();
        let took = asked.elapsed();
        // They are carried on with for a moment, not for as long as the lock or a statement may take.
        assert!(took < Duration::from_secs(8), "{took:?}");
    }
    // Postgres ends what nobody waits for any more.
    let look = async || {
        rows(&url, &waits)
            .await
            .unwrap()
            .swap_remove(0)
            .swap_remove(0)
    };
    let none = |count: &Option<String>| count.as_deref() == Some("0");
    harness::wait::for_state("nothing waits", Duration::from_secs(10), look, none)
        .await
        .unwrap();
    drop(lock);
    alice.cancel(&id).await.unwrap();
}

/// A gateway falls silent inside a transaction that holds a task's row: others get it before they
/// give up, and the transaction is taken up again.
#[tokio::test(flavor = "multi_thread")]
async fn silent_inside_a_transaction() {
    let (postgres, url) = postgres().await;
    let road = Proxy::to_port(postgres.port()).await.unwrap();
    let settings = "[postgres]\nstatement_timeout = \"3s\"";
    let mut world = World::start(&url, (1, 1), settings).await;
    let through = road.through(&url);
    let change = |plan: &mut harness::node::Plan| plan.common.postgres_url = through;
    world.cluster.add_with(Role::Gateway, change).unwrap();
    world.cluster.ready().await.unwrap();
    let alice = world.cluster.client(0, "alice");
    let id = asks(&alice).await;
    let silent = world.cluster.client(1, "alice");
    road.silence_after(["answer-given", "COMMIT"]);
    let (answered, ()) = tokio::join!(
        silent.update(&id, json!({"q": accept("answer-given")})),
        async {
            let silence = async || (!road.is_armed()).then_some(());
            harness::wait::until("silence", SOON, silence)
                .await
                .unwrap();
            let asked = Instant::now();
            alice.cancel(&id).await.unwrap();
            println!("a row was held by silence for {:?}", asked.elapsed());
        }
    );
    answered.unwrap();
    let task = alice.wait_end(&id, SOON).await.unwrap();
    assert_eq!(task["status"], "cancelled", "the cancel came first: {task}");
}

/// A pooler that hands transactions on is refused at the start, with what to do; one that hands
/// sessions on is as good as none.
#[tokio::test(flavor = "multi_thread")]
async fn through_a_pooler() {
    let (postgres, url) = postgres().await;
    let pooler = PgBouncer::start(postgres.port(), PoolMode::Transaction)
        .await
        .unwrap();
    let dir = harness::temp::Temp::new().unwrap();
    for role in ["gateway", "worker", "cron", "migrate"] {
        let (status, said) = run(&dir, role, &pooler.url("system")).await;
        assert!(!status.success(), "{role}: {said}");
        assert!(said.contains("pool_mode = session"), "{role}: {said}");
    }
    drop(pooler);
    let pooler = PgBouncer::start(postgres.port(), PoolMode::Session)
        .await
        .unwrap();
    let (status, said) = run(&dir, "migrate", &pooler.url("system")).await;
    assert!(status.success(), "{said}");
    let world = World::start(&pooler.url("system"), (2, 1), "").await;
    let load = Load::start(&world.cluster, 1);
    load.once_more().await;
    load.once_more().await;
    load.finish().await.assert_nothing_seen();
    let direct = format!("SELECT count(*) {OURS}");
    assert_ne!(
        rows(&url, &direct).await.unwrap()[0][0].as_deref(),
        Some("0")
    );
}

/// Runs our binary until it ends by itself, with what it said.
async fn run(
    dir: &harness::temp::Temp,
    role: &str,
    url: &str,
) -> (std::process::ExitStatus, String) {
    let number = harness::ports::free().unwrap();
    let (file, log) = (
        dir.path().join(format!("{number}.toml")),
        dir.path().join(format!("{number}.log")),
    );
    let common = harness::config::Common {
        postgres_url: url.to_owned(),
        redis_url: "redis://127.0.0.1:1".to_owned(),
        ..Default::default()
    };
    let table = harness::config::table(&common, Some(harness::ports::free().unwrap()), number);
    harness::config::write(&file, &table).unwrap();
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_mcp-tasks"));
    let args = [
        role.to_owned(),
        "--config".to_owned(),
        file.display().to_string(),
    ];
    let mut process = Process::spawn(&Spec::new(role, binary, &log).args(args)).unwrap();
    let status = process.wait(SOON).await;
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    if status.is_err() {
        process.kill9();
    }
    (status.unwrap(), said)
}

/// Five processes bring an empty database up to date at once: all succeed, one does it.
#[tokio::test(flavor = "multi_thread")]
async fn five_migrate_at_once() {
    let postgres = Postgres::temporary().await.unwrap();
    let url = postgres.create_database("system").await.unwrap();
    let dir = harness::temp::Temp::new().unwrap();
    let all = join_all((0..5).map(|_| run(&dir, "migrate", &url))).await;
    let applied = |said: &str| said.contains("applied 0001");
    assert!(all.iter().all(|(status, _)| status.success()), "{all:?}");
    let who: Vec<bool> = all.iter().map(|(_, said)| applied(said)).collect();
    assert_eq!(who.iter().filter(|did| **did).count(), 1, "{all:?}");
}

/// Idle connections are probed by the system, on both sides: one whose other side vanished is
/// noticed in seconds.
#[tokio::test(flavor = "multi_thread")]
async fn idle_ones_are_probed() {
    let (postgres, url) = postgres().await;
    let world = World::start(&url, (1, 1), "").await;
    world.cluster.client(0, "alice").discover().await.unwrap();
    let look = async || {
        let (ours, theirs) = connections(postgres.port());
        let known = !ours.is_empty() && !theirs.is_empty();
        let probed = |timers: &[u8]| timers.iter().filter(|timer| **timer == KEEPALIVE).count();
        (known && probed(&ours) == ours.len() && probed(&theirs) >= ours.len()).then_some(())
    };
    let waited = harness::wait::until("keep-alive timers", SOON, look).await;
    assert!(waited.is_ok(), "{:?}", connections(postgres.port()));
    drop(world);
}

/// What `/proc/net/tcp` shows of a connection whose next timer is that of a keep-alive probe.
const KEEPALIVE: u8 = 2;

/// The timers of the established connections to this port and from it.
fn connections(port: u16) -> (Vec<u8>, Vec<u8>) {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let number = |address: &str| u16::from_str_radix(&address[9..], 16).unwrap();
        if fields[3] != "01" {
            continue;
        }
        let timer = u8::from_str_radix(&fields[5][..2], 16).unwrap();
        if number(fields[2]) == port {
            ours.push(timer);
        } else if number(fields[1]) == port {
            theirs.push(timer);
        }
    }
    (ours, theirs)
}

/// A parked task.
async fn asks(client: &harness::client::Client) -> String {
    let plan = json!({"call": "asks", "items": [{"ask": [{"key": "q"}]}]});
    let id = client.start("chaos_ask", plan).await.unwrap();
    client
        .wait_status(&id, "input_required", SOON)
        .await
        .unwrap();
    id
}

/// The lock of a task's row, held by a stranger until dropped.
struct Lock(#[expect(dead_code, reason = "it holds")] Session);

impl Lock {
    async fn take(url: &str, id: &str) -> Lock {
        let session = Session::open(url).await.unwrap();
        let lock = format!("BEGIN; SELECT FROM tasks WHERE id = '{id}' FOR UPDATE");
        session.run(&lock).await.unwrap();
        Lock(session)
    }
}
