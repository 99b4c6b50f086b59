//! One broken row never stops the rest of a batch: it is left out and named, without its content.

use protocol::TaskId;
use store::{AlertRules, Broken, NewTask, Store, ToolPolicy};

use crate::support::{HOUR, NO_WORK, SECOND, World, question};

/// What broken rows hold, and nobody may be told.
const SECRET: &str = "zwieback";

/// Postgres refuses every change of a task that says so.
async fn poison(world: &World) {
    world
        .run(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 RAISE EXCEPTION 'refused by a test' USING DETAIL = 'holds zwieback', ERRCODE = 'check_violation'; END $$; \
             CREATE TRIGGER refuse BEFORE UPDATE OR DELETE ON tasks FOR EACH ROW \
                 WHEN (OLD.status_message = 'poison') EXECUTE FUNCTION refuse()",
        )
        .await;
}

async fn heal(world: &World) {
    world.run("DROP TRIGGER refuse ON tasks").await;
}

/// Five tasks, of which the second and the fourth are broken.
async fn five(world: &World, assignments: &str) -> Vec<TaskId> {
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(world.queued().await);
    }
    // In the order in which they are found, by id or by time.
    ids.sort_unstable();
    for (n, id) in ids.iter().enumerate() {
        let message = if n % 2 == 1 { "poison" } else { "fine" };
        let all = format!("{assignments}, status_message = '{message}'");
        world.set(*id, &all).await;
    }
    poison(world).await;
    ids
}

/// A sweep's batch of two at a time, by a store that leaves out what is broken, moved the three that
/// are fine; by one that does not, it fails.
async fn others_are_moved(
    world: &World,
    ids: &[TaskId],
    batch: impl AsyncFn(&Store) -> Result<u64, store::Error>,
) {
    batch(&world.store).await.unwrap_err();
    let broken = Broken::default();
    let store = world.store.leaving_out(&broken);
    let mut moved = 0;
    // As the sweeps do it: until a batch comes back short.
    loop {
        let now = batch(&store).await.unwrap();
        moved += now;
        if now < 2 {
            break;
        }
    }
    assert_eq!(moved, 3);
    let left = broken.rows();
    let named: Vec<TaskId> = left.iter().map(|(id, _)| *id).collect();
    assert_eq!(named, [ids[1], ids[3]]);
    for (_, why) in left {
        assert!(why.contains("refused by a test"), "{why}");
        assert!(!why.contains(SECRET), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_expire_around_a_broken_one() {
    let world = World::new().await;
    let ids = five(&world, "expires_at = now()").await;
    let batch = async |store: &Store| Ok(store.expire(2).await?.len() as u64);
    others_are_moved(&world, &ids, batch).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn holds_end_around_a_broken_one() {
    let world = World::new().await;
    let ids = five(&world, "handed_out_at = NULL, held_until = now()").await;
    let batch = async |store: &Store| Ok(store.end_holds(2).await?.len() as u64);
    others_are_moved(&world, &ids, batch).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_tasks_end_around_a_broken_one() {
    let world = World::new().await;
    let stop = "stop_requested_at = now(), stop_reason = 'cancelled'";
    let ids = five(&world, stop).await;
    let batch = async |store: &Store| {
        let stoppable = store.stoppable(2).await?;
        Ok::<_, store::Error>(store.settle_stopped(&stoppable).await?.len())
    };
    batch(&world.store).await.unwrap_err();
    let broken = Broken::default();
    let store = world.store.leaving_out(&broken);
    // Those that are broken would fill the batch for ever.
    let mut moved = 0;
    for _ in 0..4 {
        moved += batch(&store).await.unwrap();
    }
    assert_eq!((moved, broken.rows().len()), (3, 2));
    heal(&world).await;
    assert_eq!(batch(&world.store).await.unwrap(), 2);
    for id in ids {
        assert_eq!(world.get(id).await.status.as_str(), "cancelled");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_tasks_are_purged_around_a_broken_one() {
    let world = World::new().await;
    let over = "status = 'completed', result = '{}', phase = NULL, finished_at = now(), expires_at = now()";
    let ids = five(&world, over).await;
    let batch = async |store: &Store| store.purge(2, HOUR).await;
    others_are_moved(&world, &ids, batch).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_gone_around_a_broken_one() {
    let world = World::new().await;
    let pinned = "journaled = true, run_at = now() - interval '2 hours'";
    let ids = five(&world, pinned).await;
    let batch = async |store: &Store| {
        let gone = store.version_gone(HOUR, 2).await?;
        Ok(gone.stopped.len() as u64)
    };
    others_are_moved(&world, &ids, batch).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn undoing_is_given_up_around_a_broken_one() {
    let world = World::new().await;
    let undoing = "phase = 'undoing', pending_status = 'cancelled', has_undo = true, \
                   run_at = now() - interval '2 hours'";
    let ids = five(&world, undoing).await;
    world.store.version_gone(HOUR, 10).await.unwrap_err();
    let broken = Broken::default();
    let store = world.store.leaving_out(&broken);
    let gone = store.version_gone(HOUR, 10).await.unwrap();
    // The first ended before the failure above.
    assert_eq!((gone.ended.len(), broken.rows().len()), (2, 2));
    assert_eq!(world.get(ids[0]).await.status.as_str(), "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_run_out_around_a_broken_one() {
    let world = World::new().await;
    let mut ids = Vec::new();
    for n in 0..3 {
        let (id, _) = world.parked(&[question("q")]).await;
        let overdue = "input_deadline_at = now() - interval '1 s'";
        let message = if n == 1 { "poison" } else { "fine" };
        world
            .set(id, &format!("{overdue}, status_message = '{message}'"))
            .await;
        ids.push(id);
    }
    world
        .run("UPDATE inputs SET deadline_at = now() - interval '1 s'")
        .await;
    ids.sort_unstable();
    poison(&world).await;
    let broken = Broken::default();
    let store = world.store.leaving_out(&broken);
    let (mut last, mut seen) = (None, Vec::new());
    while let Some(id) = store.fail_unanswered(last).await.unwrap() {
        last = Some(id);
        seen.push(id);
    }
    assert_eq!(seen.len(), 2);
    let left = broken.rows();
    assert_eq!(left.len(), 1);
    assert!(!seen.contains(&left[0].0) && ids.contains(&left[0].0));
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_judged_around_a_broken_one() {
    let world = World::new().await;
    let failed =
        "status = 'failed', error = '{}', phase = NULL, finished_at = now() - interval '1 day'";
    let ids = five(&world, failed).await;
    let receivers = ["log".to_owned()];
    let rules = AlertRules {
        receivers: &receivers,
        question_receivers: &[],
        unfetched_after: HOUR,
        question_after: HOUR,
        limit: 2,
    };
    let batch = async |store: &Store| {
        let (judged, raised) = store.raise_unfetched(&rules).await?;
        assert_eq!(judged, raised);
        Ok(u64::try_from(judged).unwrap())
    };
    others_are_moved(&world, &ids, batch).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hints_are_noted_around_a_broken_one() {
    let world = World::new().await;
    let ids = five(&world, "hinted_at = NULL").await;
    let hinted: Vec<_> = ids.iter().map(|id| (*id, Some("e".to_owned()))).collect();
    world.store.mark_hinted(&hinted).await.unwrap_err();
    let broken = Broken::default();
    let store = world.store.leaving_out(&broken);
    store.mark_hinted(&hinted).await.unwrap();
    assert_eq!(broken.rows().len(), 2);
    let noted = world.value("SELECT count(*) FROM tasks WHERE hinted_at IS NOT NULL");
    assert_eq!(noted.await.as_deref(), Some("3"));
}

/// A row that takes too long is left out as well; and an outage is no broken row.
#[tokio::test(flavor = "multi_thread")]
async fn what_takes_too_long_is_left_out_and_an_outage_is_told() {
    let mut server = harness::postgres::Postgres::temporary().await.unwrap();
    let url = server.create_database("broken").await.unwrap();
    crate::support::migrate(url.clone()).await.unwrap();
    let config = store::Config {
        statement_timeout: SECOND,
        ..crate::support::config(&url)
    };
    let plain = crate::support::store(config);
    let alice = crate::support::principal("alice");
    let mut ids = Vec::new();
    for _ in 0..3 {
        let any = |_: &mut NewTask<'_>| ();
        let created = crate::support::create(&plain, &alice, &ToolPolicy::default(), any).await;
        let store::Created::New(task) = created else {
            panic!()
        };
        ids.push(task.id);
    }
    let slow = format!(
        "UPDATE tasks SET expires_at = now(); \
         UPDATE tasks SET status_message = 'poison' WHERE id = '{}'; \
         CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             PERFORM pg_sleep(60); RETURN NEW; END $$; \
         CREATE TRIGGER wait BEFORE UPDATE ON tasks FOR EACH ROW \
             WHEN (OLD.status_message = 'poison') EXECUTE FUNCTION wait()",
        ids[1]
    );
    harness::postgres::rows(&url, &slow).await.unwrap();
    let broken = Broken::default();
    let store = plain.leaving_out(&broken);
    assert_eq!(store.expire(10).await.unwrap().len(), 2);
    assert_eq!(broken.rows().len(), 1);
    server.kill9().await;
    let away = store.with_wait(NO_WORK).expire(10).await;
    assert!(
        matches!(away, Err(store::Error::Unavailable(_))),
        "{away:?}"
    );
    assert_eq!(broken.rows().len(), 1);
}
