//! Postgres goes away and comes back: callers wait, and are told when there is no use in waiting.

use std::time::Instant;

use harness::postgres::Postgres;
use store::{Created, Error, Lookup, Store, ToolPolicy};
use tokio::task::JoinSet;

use crate::support::{
    NO_WORK, SECOND, World, claim_as, config, create, migrate, principal, step, store, token,
};

async fn private() -> (Postgres, Store) {
    let server = Postgres::temporary().await.unwrap();
    let url = server.create_database("private").await.unwrap();
    migrate(url.clone()).await.unwrap();
    (server, store(config(&url)))
}

/// A whole life of a task, again and again; any error is a failure.
async fn lives(store: Store, until: Instant) -> u32 {
    let alice = principal("alice");
    let mut lives = 0;
    while Instant::now() < until {
        let created = create(&store, &alice, &ToolPolicy::default(), |_| ()).await;
        let Created::New(task) = created else {
            panic!("{created:?}")
        };
        let claim = claim_as(&store, task.id, token()).await.unwrap();
        let begun = store.begin_step(&claim, step("s")).await.unwrap();
        let store::Begin::Act(permit) = begun else {
            panic!("{begun:?}")
        };
        assert_eq!(
            store.finish_step(&claim, permit, b"1").await.unwrap(),
            store::Write::Done
        );
        let _ = store.cancel(&alice, task.id).await.unwrap();
        assert_eq!(
            store.confirm_stopped(&claim).await.unwrap(),
            store::Ended::Done
        );
        let found = store.get(&alice, task.id).await.unwrap();
        assert!(matches!(found, Lookup::Found(_)), "{found:?}");
        lives += 1;
    }
    lives
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_are_terminated_under_load_cost_no_error() {
    let world = World::new().await;
    let until = Instant::now() + 4 * SECOND;
    let mut callers = JoinSet::new();
    for _ in 0..6 {
        callers.spawn(lives(world.store.clone(), until));
    }
    while Instant::now() + SECOND < until {
        tokio::time::sleep(SECOND / 5).await;
        let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                    WHERE datname = current_database() AND pid <> pg_backend_pid()";
        world.run(kill).await;
    }
    let lives: u32 = callers.join_all().await.into_iter().sum();
    assert!(lives > 20, "{lives}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_and_comes_back_in_time_costs_no_error() {
    let (mut server, store) = private().await;
    let until = Instant::now() + 6 * SECOND;
    let mut callers = JoinSet::new();
    for _ in 0..4 {
        callers.spawn(lives(store.clone(), until));
    }
    tokio::time::sleep(SECOND / 2).await;
    server.kill9().await;
    tokio::time::sleep(SECOND).await;
    server.start_again().await.unwrap();
    let lives: Vec<u32> = callers.join_all().await;
    assert!(lives.iter().all(|n| *n > 0), "{lives:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stays_away_is_an_error_in_time() {
    let (mut server, store) = private().await;
    store.ping().await.unwrap();
    server.kill9().await;
    let brief = store.with_wait(SECOND);
    let started = Instant::now();
    let alice = principal("alice");
    let id = crate::support::task_id();
    // Reads share a round trip, and its failure; nobody waits twice for it.
    let (a, b, c) = tokio::join!(
        brief.get(&alice, id),
        brief.get(&alice, id),
        brief.get(&alice, id)
    );
    for read in [a, b, c] {
        assert!(matches!(read, Err(Error::Unavailable(_))), "{read:?}");
    }
    assert!(started.elapsed() < 3 * SECOND, "{:?}", started.elapsed());
    let started = Instant::now();
    assert!(matches!(store.ping().await, Err(Error::Unavailable(_))));
    assert!(started.elapsed() < 2 * SECOND, "{:?}", started.elapsed());
    server.start_again().await.unwrap();
    store.ping().await.unwrap();
}

/// Its kernel still acknowledges every packet, so no keep-alive helps.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_server_is_an_error_in_time() {
    let (server, _) = private().await;
    let config = store::Config {
        connect_timeout: SECOND,
        statement_timeout: SECOND / 2,
        ..config(&server.url("private"))
    };
    let store = store(config);
    store.ping().await.unwrap();
    let alice = principal("alice");
    let created = create(&store, &alice, &ToolPolicy::default(), |_| ()).await;
    let Created::New(task) = created else {
        panic!()
    };
    let claim = claim_as(&store, task.id, token()).await.unwrap();
    server.freeze();
    let started = Instant::now();
    let brief = store.with_wait(SECOND);
    assert!(matches!(
        brief.begin_step(&claim, step("s")).await,
        Err(Error::Unavailable(_))
    ));
    assert!(matches!(store.ping().await, Err(Error::Unavailable(_))));
    assert!(started.elapsed() < 8 * SECOND, "{:?}", started.elapsed());
    server.thaw();
    assert_eq!(
        store.progress(&claim, "back").await.unwrap(),
        store::Write::Done
    );
    assert!(matches!(
        store.begin_step(&claim, step("s")).await.unwrap(),
        store::Begin::Act(_)
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_takes_too_long_is_a_timeout() {
    let world = World::new().await;
    let id = world.queued().await;
    let impatient = store(store::Config {
        statement_timeout: SECOND / 5,
        ..config(world.database.url())
    });
    let holder = world.raw().await;
    holder.batch_execute("BEGIN").await.unwrap();
    holder
        .execute(
            "SELECT FROM tasks WHERE id = $1 FOR UPDATE",
            &[id.as_uuid()],
        )
        .await
        .unwrap();
    assert!(matches!(
        impatient.cancel(&world.alice, id).await,
        Err(Error::Timeout(_))
    ));
    holder.batch_execute("COMMIT").await.unwrap();
    assert_eq!(
        impatient.cancel(&world.alice, id).await.unwrap(),
        store::Cancel::Cancelled
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_not_there_is_not_waited_for() {
    let server = harness::postgres::shared().await.unwrap();
    let nowhere = store(config(&server.url("no_such_database")));
    let started = Instant::now();
    assert!(matches!(nowhere.ping().await, Err(Error::Unavailable(_))));
    assert!(matches!(nowhere.tools().await, Err(Error::Unavailable(_))));
    assert!(started.elapsed() < 5 * SECOND);
    assert_eq!(NO_WORK.as_millis(), 0);
}

/// Once this process was cut off from Postgres, no connection of it judges leases for a while,
/// not even one that slept through the break.
#[tokio::test(flavor = "multi_thread")]
async fn a_looker_that_was_cut_off_judges_no_lease() {
    let world = World::new().await;
    let claim = world.running().await;
    let _owner = world.steal(claim.id()).await;
    // One connection breaks, another one is as old as before.
    let other = world.store.clone();
    let holder = world.raw().await;
    holder.batch_execute("BEGIN").await.unwrap();
    holder
        .execute(
            "SELECT FROM tasks WHERE id = $1 FOR UPDATE",
            &[claim.id().as_uuid()],
        )
        .await
        .unwrap();
    let mut blocked = JoinSet::new();
    let id = claim.id();
    blocked.spawn(async move { other.hand_out(id).await.unwrap() });
    world.waiting(1).await;
    world.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").await;
    holder.batch_execute("COMMIT").await.unwrap();
    blocked.join_all().await;
    world.lose_lease(id).await;
    assert!(world.claim(id).await.is_none());
    let _later = world.steal(id).await;
}

/// A pool that grows has new connections; they judge leases as the old ones do.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_connection_of_an_old_process_judges_leases() {
    let world = World::new().await;
    let claim = world.running().await;
    let id = claim.id();
    // Past the grace that every process has at its start.
    let _owner = world.steal(id).await;
    let busy = world.queued().await;
    let holder = world.raw().await;
    holder.batch_execute("BEGIN").await.unwrap();
    holder
        .execute(
            "SELECT FROM tasks WHERE id = $1 FOR UPDATE",
            &[busy.as_uuid()],
        )
        .await
        .unwrap();
    let mut blocked = JoinSet::new();
    for _ in 0..3 {
        let store = world.store.clone();
        blocked.spawn(async move { store.hand_out(busy).await.unwrap() });
    }
    world.waiting(3).await;
    world.lose_lease(id).await;
    assert!(world.claim(id).await.is_some(), "by a new connection");
    holder.batch_execute("COMMIT").await.unwrap();
    blocked.join_all().await;
}

/// Connections that ended while nobody used them are a break too.
#[tokio::test(flavor = "multi_thread")]
async fn a_break_that_no_statement_met_is_noticed() {
    let world = World::new().await;
    let claim = world.running().await;
    let id = claim.id();
    let _owner = world.steal(id).await;
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE datname = current_database() AND pid <> pg_backend_pid()";
    world.run(end).await;
    tokio::time::sleep(SECOND / 5).await;
    world.lose_lease(id).await;
    assert!(world.claim(id).await.is_none());
    let _later = world.steal(id).await;
}

/// Reads share round trips; in an outage a later one does not wait for the end of an earlier one's
/// patience and then begin its own.
#[tokio::test(flavor = "multi_thread")]
async fn reads_that_come_later_wait_no_longer() {
    let (mut server, store) = private().await;
    store.ping().await.unwrap();
    server.kill9().await;
    let patience = 3 * SECOND;
    let mut reads = JoinSet::new();
    for _ in 0..6 {
        let brief = store.with_wait(patience);
        reads.spawn(async move {
            let begun = Instant::now();
            let read = brief
                .get(&principal("alice"), crate::support::task_id())
                .await;
            assert!(matches!(read, Err(Error::Unavailable(_))), "{read:?}");
            begun.elapsed()
        });
        tokio::time::sleep(SECOND / 5).await;
    }
    let longest = reads.join_all().await.into_iter().max();
    assert!(longest < Some(patience + 2 * SECOND), "{longest:?}");
}
