//! I9: what nobody looks at is told, once.

use std::time::Duration;

use protocol::TaskId;
use store::{AlertRules, Delivery, DeliveryState, Reminder, SendPause, Store, ToolPolicy};

use crate::support::{HOUR, NO_WORK, SECOND, World, question, store};

fn rules(receivers: &[String]) -> AlertRules<'_> {
    AlertRules {
        receivers,
        question_receivers: &[],
        unfetched_after: HOUR,
        question_after: HOUR,
        limit: 10,
    }
}

/// As an Alertmanager is told.
const HOURLY: Option<Reminder> = Some(Reminder {
    every: HOUR,
    end_for: HOUR,
});
const PAUSE: SendPause = SendPause {
    first: SECOND,
    max: HOUR,
};

fn pager() -> Vec<String> {
    vec!["pager".to_owned()]
}

async fn failed(world: &World) -> TaskId {
    let claim = world.running().await;
    let error = b"{\"code\":1,\"message\":\"no\"}";
    let _ = world
        .store
        .fail(&claim, error, "no", NO_WORK)
        .await
        .unwrap();
    claim.id()
}

async fn completed(world: &World, result: &[u8]) -> TaskId {
    let claim = world.running().await;
    let _ = world.store.complete(&claim, result, NO_WORK).await.unwrap();
    claim.id()
}

async fn due(store: &Store) -> Vec<Delivery> {
    store.due_deliveries("pager", 10, HOUR).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_that_nobody_read_is_told_once() {
    let world = World::new().await;
    let store = &world.store;
    let receivers = pager();
    let unread = failed(&world).await;
    let read = failed(&world).await;
    let tool_error = completed(&world, b"{\"content\":[],\"isError\":true}").await;
    completed(&world, b"{\"content\":[],\"isError\":false}").await;
    completed(
        &world,
        b"{\"content\":[],\"structuredContent\":{\"isError\":true}}",
    )
    .await;
    store.mark_fetched(&[read]).await.unwrap();
    let judged = store.raise_unfetched(&rules(&receivers)).await.unwrap();
    assert_eq!(
        judged,
        (1, 0),
        "the window is open; what was read is done with"
    );
    world
        .run("UPDATE tasks SET finished_at = finished_at - interval '2 hours'")
        .await;
    // Two crons at once.
    let (all, one) = (rules(&receivers), rules(&receivers));
    let (a, b) = tokio::join!(store.raise_unfetched(&all), store.raise_unfetched(&one));
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!((a.0 + b.0, a.1 + b.1), (2, 2), "{a:?} {b:?}");
    assert_eq!(store.raise_unfetched(&all).await.unwrap(), (0, 0));
    let told = due(store).await;
    // Ids of one millisecond have no order.
    for (id, reason) in [(unread, "failed"), (tool_error, "is_error")] {
        let told = told.iter().find(|delivery| delivery.alert.task == id);
        let told = told.expect("each is told of");
        assert_eq!(told.alert.fingerprint, format!("unfetched_failure:{id}"));
        assert_eq!(told.alert.reason, reason);
        assert_eq!(told.state, DeliveryState::Firing);
    }
    assert_eq!(told.len(), 2);
    let unfetched = store.unfetched().await.unwrap();
    assert_eq!(
        (unfetched[0].tool.as_str(), unfetched[0].failures),
        ("report", 2)
    );
    assert!(unfetched[0].oldest > HOUR);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_is_resolved_for_those_who_were_told() {
    let world = World::new().await;
    let store = &world.store;
    let receivers = vec!["pager".to_owned(), "mail".to_owned()];
    let id = failed(&world).await;
    world
        .set(id, "finished_at = finished_at - interval '2 hours'")
        .await;
    assert_eq!(
        store.raise_unfetched(&rules(&receivers)).await.unwrap().1,
        1
    );
    let told = due(store).await.pop().unwrap();
    assert!(due(store).await.is_empty(), "claimed");
    store.sent_deliveries(&[told], HOURLY).await.unwrap();
    assert_eq!(store.resolve_alerts(10, 24 * HOUR).await.unwrap(), 0);
    store.mark_fetched(&[id]).await.unwrap();
    assert_eq!(store.resolve_alerts(10, 24 * HOUR).await.unwrap(), 1);
    let over = due(store).await.pop().unwrap();
    assert_eq!(over.state, DeliveryState::Resolving);
    assert!(over.alert.resolved_at.is_some());
    store.sent_deliveries(&[over], None).await.unwrap();
    assert!(due(store).await.is_empty());
    let mail = store.due_deliveries("mail", 10, HOUR).await.unwrap();
    assert!(
        mail.is_empty(),
        "never told, so nothing to take back: {mail:?}"
    );
    assert_eq!(store.unfetched().await.unwrap(), []);
    assert_eq!(store.purge_alerts(10, Duration::ZERO).await.unwrap(), 1);
    let left = world.value("SELECT count(*) FROM alert_deliveries").await;
    assert_eq!(left.as_deref(), Some("0"));
}

/// A message that was on its way when the alert ended is taken back.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_under_way_is_resolved_after_it() {
    let world = World::new().await;
    let store = &world.store;
    let receivers = pager();
    let id = failed(&world).await;
    world
        .set(id, "finished_at = finished_at - interval '2 hours'")
        .await;
    store.raise_unfetched(&rules(&receivers)).await.unwrap();
    let told = due(store).await.pop().unwrap();
    store.mark_fetched(&[id]).await.unwrap();
    store.resolve_alerts(10, 24 * HOUR).await.unwrap();
    store.sent_deliveries(&[told], HOURLY).await.unwrap();
    let over = due(store).await.pop().unwrap();
    assert_eq!(over.state, DeliveryState::Resolving);
    store.unsent_delivery(&over, PAUSE, "down\0").await.unwrap();
    assert!(due(store).await.is_empty(), "after its pause");
    world
        .run("UPDATE alert_deliveries SET next_at = now()")
        .await;
    assert_eq!(due(store).await.pop().unwrap().tries, 2);
}

/// A receiver that forgets (an Alertmanager that restarts) is told of the end for a while, and of
/// what fires until then; each message at its time only.
#[tokio::test(flavor = "multi_thread")]
async fn who_forgets_is_told_again_until_it_is_over_for_a_while() {
    let world = World::new().await;
    let store = &world.store;
    let receivers = pager();
    let id = failed(&world).await;
    world
        .set(id, "finished_at = finished_at - interval '2 hours'")
        .await;
    store.raise_unfetched(&rules(&receivers)).await.unwrap();
    let soon = "UPDATE alert_deliveries SET next_at = now() WHERE next_at IS NOT NULL";
    for _ in 0..3 {
        let told = due(store).await;
        assert_eq!(told[0].state, DeliveryState::Firing);
        store.sent_deliveries(&told, HOURLY).await.unwrap();
        assert!(due(store).await.is_empty(), "not before its time");
        world.run(soon).await;
    }
    store.mark_fetched(&[id]).await.unwrap();
    store.resolve_alerts(10, 24 * HOUR).await.unwrap();
    for ago in ["1 minute", "50 minutes", "2 hours"] {
        let over = due(store).await;
        assert_eq!(over[0].state, DeliveryState::Resolving);
        let resolved = format!("UPDATE alerts SET resolved_at = now() - interval '{ago}'");
        world.run(&resolved).await;
        store.sent_deliveries(&over, HOURLY).await.unwrap();
        world.run(soon).await;
    }
    assert!(due(store).await.is_empty());
    let state = world.value("SELECT state FROM alert_deliveries").await;
    assert_eq!(state.as_deref(), Some("done"));
}

/// A pause doubles, to its longest, however often it was tried.
#[tokio::test(flavor = "multi_thread")]
async fn pauses_double_to_the_longest() {
    let world = World::new().await;
    let store = &world.store;
    let receivers = pager();
    let id = failed(&world).await;
    world
        .set(id, "finished_at = finished_at - interval '2 hours'")
        .await;
    store.raise_unfetched(&rules(&receivers)).await.unwrap();
    for seconds in ["1", "2", "4", "8"] {
        let told = due(store).await.pop().unwrap();
        store.unsent_delivery(&told, PAUSE, "away").await.unwrap();
        let pause = "SELECT ceil(extract(epoch FROM next_at - now()))::int FROM alert_deliveries";
        assert_eq!(world.value(pause).await.as_deref(), Some(seconds));
        world
            .run("UPDATE alert_deliveries SET next_at = now()")
            .await;
    }
    world
        .run("UPDATE alert_deliveries SET tries = 100000")
        .await;
    let told = due(store).await.pop().unwrap();
    store.unsent_delivery(&told, PAUSE, "away").await.unwrap();
    let long = "SELECT next_at > now() + interval '59 minutes' FROM alert_deliveries";
    assert!(matches!(
        world.value(long).await.as_deref(),
        Some("t" | "true")
    ));
}

/// What a tool said may quote its arguments: no receiver is told of it.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_tool_said_is_no_reason() {
    let world = World::new().await;
    let store = &world.store;
    let receivers = pager();
    let policy = ToolPolicy {
        tries_max: 2,
        ..ToolPolicy::default()
    };
    let claim = world.running_with(&policy).await;
    let _ = store
        .retry(&claim, "no such card: 4111-planted", NO_WORK, NO_WORK)
        .await
        .unwrap();
    assert_eq!(store.raise_live(&rules(&receivers)).await.unwrap(), 1);
    let told = due(store).await.pop().unwrap();
    assert_eq!(told.alert.reason, "tool_error");
    assert!(!format!("{told:?}").contains("planted"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_judged_before_it_is_purged() {
    let world = World::new().await;
    let store = &world.store;
    let receivers = pager();
    let id = failed(&world).await;
    world.set(id, "expires_at = now()").await;
    assert_eq!(store.purge(10, HOUR).await.unwrap(), 0);
    assert_eq!(
        store.raise_unfetched(&rules(&receivers)).await.unwrap(),
        (1, 1)
    );
    assert_eq!(
        store.purge(10, HOUR).await.unwrap(),
        1,
        "the payload goes in time"
    );
    let told = due(store).await;
    assert_eq!(told[0].alert.task, id, "what is to be told stays");
    assert_eq!(store.resolve_alerts(10, HOUR).await.unwrap(), 0);
    assert_eq!(store.resolve_alerts(10, Duration::ZERO).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_in_doubt_is_told_at_once_though_it_was_read() {
    let world = World::new().await;
    let store = &world.store;
    let receivers = pager();
    let claim = world.running().await;
    let _open = world.begin(&claim, "pay").await;
    let error = b"{\"code\":1,\"message\":\"in doubt\"}";
    let _ = store
        .fail(&claim, error, "in doubt", NO_WORK)
        .await
        .unwrap();
    store.mark_fetched(&[claim.id()]).await.unwrap();
    assert_eq!(
        store.raise_unfetched(&rules(&receivers)).await.unwrap(),
        (1, 1)
    );
    assert_eq!(due(store).await[0].alert.kind, "step_in_doubt");
    assert_eq!(
        store.resolve_alerts(10, 24 * HOUR).await.unwrap(),
        0,
        "for an hour"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn live_tasks_are_told_of_and_resolved() {
    let world = World::new().await;
    let store = &world.store;
    let receivers = pager();
    let mut all = rules(&receivers);
    all.question_receivers = &receivers;
    let (asked, _claim) = world.parked(&[question("q")]).await;
    let policy = ToolPolicy {
        tries_max: 2,
        work_limit: SECOND,
        ..ToolPolicy::default()
    };
    let claim = world.running_with(&policy).await;
    let _ = store.retry(&claim, "busy", NO_WORK, NO_WORK).await.unwrap();
    let worker = world.claim(claim.id()).await.unwrap();
    world
        .set(claim.id(), "claimed_at = now() - interval '5 minutes'")
        .await;
    assert_eq!(store.raise_live(&all).await.unwrap(), 3);
    assert_eq!(store.raise_live(&all).await.unwrap(), 0, "each once");
    let kinds = async || {
        let mut kinds: Vec<_> = due(store).await.into_iter().map(|d| d.alert.kind).collect();
        kinds.sort();
        kinds
    };
    let expected = ["attempts_near_max", "over_work_limit", "question_asked"];
    assert_eq!(kinds().await, expected);
    world
        .set(asked, "last_updated_at = now() - interval '2 hours'")
        .await;
    assert_eq!(store.raise_live(&all).await.unwrap(), 1);
    assert_eq!(kinds().await, ["question_waiting"]);
    let _ = store.complete(&worker, b"{}", NO_WORK).await.unwrap();
    let _ = store.cancel(&world.alice, asked).await.unwrap();
    assert_eq!(store.resolve_alerts(10, 24 * HOUR).await.unwrap(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_senders_never_have_the_same_message() {
    let world = World::new().await;
    let receivers = pager();
    for _ in 0..8 {
        failed(&world).await;
    }
    world
        .run("UPDATE tasks SET finished_at = finished_at - interval '2 hours'")
        .await;
    let other = store(crate::support::config(world.database.url()));
    world
        .store
        .raise_unfetched(&rules(&receivers))
        .await
        .unwrap();
    let (a, b) = tokio::join!(
        world.store.due_deliveries("pager", 10, HOUR),
        other.due_deliveries("pager", 10, HOUR)
    );
    assert_eq!(a.unwrap().len() + b.unwrap().len(), 8);
    // One that is killed leaves them to the next.
    world
        .run("UPDATE alert_deliveries SET next_at = now() - interval '1 second'")
        .await;
    assert_eq!(due(&world.store).await.len(), 8);
}
