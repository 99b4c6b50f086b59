//! I10: parked is not leaking, and the last answer is enough to go on.

use std::time::Duration;

use bytes::Bytes;
use protocol::TaskStatus;
use store::{Answer, Cancel, Lookup, Parked, ParkedFor, StopReason, ToolPolicy, Write};

use crate::support::{HOUR, NO_WORK, SECOND, World, YES, answers, question, task_id};

fn resumed() -> Answer {
    Answer::Resumed {
        tool: "report".to_owned(),
        version: 1,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_parks_shows_its_questions_and_resumes_with_the_answer() {
    let world = World::new().await;
    let (id, claim) = world.parked(&[question("charts")]).await;
    let task = world.get(id).await;
    assert_eq!(task.status, TaskStatus::InputRequired);
    assert_eq!((task.parked_for, task.rounds), (Some(ParkedFor::Task), 1));
    let shown = format!(
        "{{\"charts\":{}}}",
        std::str::from_utf8(&question("charts").request).unwrap()
    );
    assert_eq!(task.input_requests.as_deref(), Some(shown.as_bytes()));
    assert_eq!(
        world.store.heartbeat([&claim]).await.unwrap(),
        [],
        "nobody holds it"
    );
    assert!(world.claim(id).await.is_none());

    let answered = world
        .store
        .answer(&world.alice, id, &answers(&[("charts", YES)]), Some("e2"))
        .await;
    assert_eq!(answered.unwrap(), resumed());
    let task = world.get(id).await;
    assert_eq!(
        (task.status, task.input_requests, task.parked_for),
        (TaskStatus::Working, None, None)
    );
    assert_eq!(world.column(id, "hint_epoch").await.as_deref(), Some("e2"));
    let again = world
        .store
        .answer(&world.alice, id, &answers(&[("charts", YES)]), None)
        .await;
    assert_eq!(again.unwrap(), Answer::Ignored);

    let next = world.claim(id).await.unwrap();
    assert_eq!((next.attempt(), next.tries, next.journaled), (2, 0, true));
    let journal = world.store.journal(&next).await.unwrap();
    assert_eq!(
        journal[0].value.as_deref(),
        Some(YES.as_bytes()),
        "byte for byte"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_to_park_is_no_refusal() {
    let world = World::new().await;
    let (id, claim) = world.parked(&[question("q")]).await;
    let park = async || {
        world
            .store
            .park(&claim, ParkedFor::Task, &[question("q")], NO_WORK)
            .await
            .unwrap()
    };
    assert_eq!(park().await, Parked::Parked);
    let _ = world
        .store
        .answer(&world.alice, id, &answers(&[("q", YES)]), None)
        .await
        .unwrap();
    assert_eq!(
        park().await,
        Parked::Parked,
        "answered before the repeat came"
    );
    let _next = world.claim(id).await.unwrap();
    assert_eq!(park().await, Parked::Stop, "somebody else's now");
    assert_eq!(world.get(id).await.rounds, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_cannot_wait_for_nothing() {
    let world = World::new().await;
    let claim = world.running().await;
    let refused = world
        .store
        .park(&claim, ParkedFor::Task, &[], NO_WORK)
        .await;
    assert!(matches!(refused, Err(store::Error::Bug(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_answer_wins_and_unknown_keys_are_ignored() {
    let world = World::new().await;
    let (id, _) = world.parked(&[question("a"), question("b")]).await;
    let answer = async |entries: &[(&str, &str)]| {
        world
            .store
            .answer(&world.alice, id, &answers(entries), None)
            .await
            .unwrap()
    };
    assert_eq!(answer(&[("c", "17")]).await, Answer::Ignored);
    let before = world.get(id).await.last_updated_at;
    assert_eq!(answer(&[("a", YES), ("c", "17")]).await, Answer::Waiting);
    let task = world.get(id).await;
    assert!(task.last_updated_at > before);
    let left: serde_json::Value = serde_json::from_slice(&task.input_requests.unwrap()).unwrap();
    assert_eq!(left.as_object().unwrap().keys().collect::<Vec<_>>(), ["b"]);
    let no = r#"{"action":"accept","content":{"charts":false}}"#;
    assert_eq!(answer(&[("a", no)]).await, Answer::Ignored);
    assert_eq!(answer(&[("a", no), ("b", YES)]).await, resumed());
    let first = world
        .value("SELECT convert_from(response, 'UTF8') FROM inputs WHERE key = 'a'")
        .await;
    assert_eq!(first.as_deref(), Some(YES));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_answer_is_named_and_nothing_is_stored() {
    let world = World::new().await;
    let (id, _) = world.parked(&[question("a"), question("b")]).await;
    let row = format!("SELECT t::text FROM tasks t WHERE id = '{id}'");
    let before = world.value(&row).await;
    for bad in [
        "17",
        r#"{"action":"maybe"}"#,
        r#"{"action":"accept"}"#,
        r#"{"action":"accept","content":{"charts":"yes"}}"#,
    ] {
        let answered = world
            .store
            .answer(&world.alice, id, &answers(&[("a", YES), ("b", bad)]), None)
            .await;
        match answered.unwrap() {
            Answer::Malformed { key, problem } => {
                assert_eq!(key, "b");
                assert!(!problem.is_empty());
            }
            other => panic!("{bad}: {other:?}"),
        }
    }
    assert_eq!(world.value(&row).await, before);
    assert_eq!(
        world
            .value("SELECT count(*) FROM inputs WHERE response IS NOT NULL")
            .await
            .as_deref(),
        Some("0")
    );
}

/// Under READ COMMITTED each of two statements sees the other's answer missing; the row lock
/// makes the second one look again.
#[tokio::test(flavor = "multi_thread")]
async fn two_partial_answers_at_once_leave_nothing_waiting() {
    let world = World::new().await;
    for _ in 0..10 {
        let (id, _) = world.parked(&[question("a"), question("b")]).await;
        let holder = world.raw().await;
        holder.batch_execute("BEGIN").await.unwrap();
        holder
            .execute(
                "SELECT FROM tasks WHERE id = $1 FOR UPDATE",
                &[id.as_uuid()],
            )
            .await
            .unwrap();
        let mut both = tokio::task::JoinSet::new();
        for key in ["a", "b"] {
            let (store, alice) = (world.store.clone(), world.alice.clone());
            both.spawn(async move {
                store
                    .answer(&alice, id, &answers(&[(key, YES)]), None)
                    .await
                    .unwrap()
            });
        }
        world.waiting(2).await;
        holder.batch_execute("COMMIT").await.unwrap();
        let mut came = both.join_all().await;
        came.sort_by_key(|answer| *answer == Answer::Waiting);
        assert_eq!(came, [resumed(), Answer::Waiting]);
        assert_eq!(world.column(id, "phase").await.as_deref(), Some("queued"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_parked_task_of_ones_own_takes_answers() {
    let world = World::new().await;
    let (id, _) = world.parked(&[question("a")]).await;
    let given = answers(&[("a", YES)]);
    let foreign = world
        .store
        .answer(&world.mallory, id, &given, None)
        .await
        .unwrap();
    let unknown = world
        .store
        .answer(&world.mallory, task_id(), &given, None)
        .await
        .unwrap();
    assert_eq!(foreign, Answer::Gone(None));
    assert_eq!(foreign, unknown);
    // Past its TTL no step would run any more; told to stop, neither.
    world.set(id, "expires_at = now()").await;
    assert_eq!(
        world
            .store
            .answer(&world.alice, id, &given, None)
            .await
            .unwrap(),
        Answer::Ignored
    );
    assert_eq!(world.store.expire(10).await.unwrap()[0].id, id);
    assert_eq!(
        world
            .store
            .answer(&world.alice, id, &given, None)
            .await
            .unwrap(),
        Answer::Ignored
    );
    let running = world.running().await;
    let answered = world
        .store
        .answer(&world.alice, running.id(), &given, None)
        .await;
    assert_eq!(answered.unwrap(), Answer::Ignored);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ttl_grows_while_people_are_asked_up_to_its_cap() {
    let world = World::new().await;
    let policy = ToolPolicy {
        ttl: Some(2 * HOUR),
        ttl_max: Some(4 * HOUR),
        ..ToolPolicy::default()
    };
    let id = world.queued_with(&policy).await;
    let mut ttl = Vec::new();
    for (round, wait) in [(1, HOUR), (2, SECOND), (3, 3 * HOUR), (4, HOUR)] {
        let claim = world.claim(id).await.unwrap();
        let mut ask = question(&format!("q{round}"));
        ask.wait = wait;
        let parked = world
            .store
            .park(&claim, ParkedFor::Task, &[ask], NO_WORK)
            .await
            .unwrap();
        assert_eq!(parked, Parked::Parked);
        ttl.push(world.get(id).await.ttl_ms.unwrap() / 1000);
        let key = format!("q{round}");
        let _ = world
            .store
            .answer(&world.alice, id, &answers(&[(&key, YES)]), None)
            .await
            .unwrap();
    }
    assert_eq!(ttl, [3 * 3600, 3 * 3600 + 1, 4 * 3600, 4 * 3600]);
    // A cap below what it has already takes nothing away.
    world.set(id, "ttl_ms_max = 1000").await;
    let claim = world.claim(id).await.unwrap();
    let _ = world
        .store
        .park(&claim, ParkedFor::Task, &[question("q5")], NO_WORK)
        .await
        .unwrap();
    assert_eq!(world.get(id).await.ttl_ms, Some(4 * 3_600_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_goes_unanswered_fails_the_task_by_name() {
    let world = World::new().await;
    let mut slow = question("deploy anyway?");
    slow.wait = Duration::from_millis(1);
    let (id, _) = world.parked(&[question("other"), slow]).await;
    let (fresh, _) = world.parked(&[question("q")]).await;
    let found = harness::wait::until("deadline", 5 * SECOND, async || {
        world.store.fail_unanswered(None).await.unwrap()
    })
    .await
    .unwrap();
    assert_eq!(found, id);
    assert_eq!(world.store.fail_unanswered(Some(id)).await.unwrap(), None);
    assert_eq!(world.get(id).await.stop, Some(StopReason::InputDeadline));
    assert_eq!(world.store.stoppable(10).await.unwrap(), [id]);
    let settled = world.store.settle_stopped(&[id, fresh]).await.unwrap();
    assert_eq!(settled.len(), 1);
    assert_eq!(world.error_reason(id).await, "input_deadline");
    let message = world.get(id).await.status_message.unwrap();
    assert_eq!(message, "question \"deploy anyway?\" went unanswered");
    assert_eq!(world.get(fresh).await.status, TaskStatus::InputRequired);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_default_stands_for_an_answer_that_did_not_come() {
    let world = World::new().await;
    let decline = Bytes::from_static(b"{\"action\":\"decline\"}");
    let mut defaulted = question("a");
    defaulted.wait = Duration::from_millis(1);
    defaulted.default_response = Some(decline.clone());
    let (partly, _) = world.parked(&[defaulted.clone(), question("b")]).await;
    let (fully, _) = world.parked(&[defaulted]).await;
    let mut swept = std::collections::BTreeSet::new();
    harness::wait::until("both deadlines", 5 * SECOND, async || {
        swept.extend(world.store.fail_unanswered(None).await.unwrap());
        (swept.len() == 2).then_some(())
    })
    .await
    .unwrap();
    assert_eq!(swept, [partly, fully].into());
    assert_eq!(world.store.fail_unanswered(None).await.unwrap(), None);
    let task = world.get(partly).await;
    assert_eq!(task.status, TaskStatus::InputRequired);
    let left: serde_json::Value = serde_json::from_slice(&task.input_requests.unwrap()).unwrap();
    assert_eq!(left.as_object().unwrap().keys().collect::<Vec<_>>(), ["b"]);
    assert_eq!(
        world
            .column(partly, "input_deadline_at > now() + interval '50 minutes'")
            .await
            .as_deref(),
        Some("t")
    );
    assert_eq!(
        world.column(fully, "phase").await.as_deref(),
        Some("queued")
    );
    assert_eq!(
        world.column(fully, "hinted_at").await,
        None,
        "found by the next reconcile"
    );
    let claim = world.claim(fully).await.unwrap();
    assert_eq!(
        world.store.journal(&claim).await.unwrap()[0].value,
        Some(decline)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_before_the_question_is_journaled_and_not_asked() {
    let world = World::new().await;
    let claim = world.running().await;
    let recorded = world
        .store
        .record_answer(&claim, &question("q"), YES.as_bytes(), "offered")
        .await;
    assert_eq!(recorded.unwrap(), Write::Done);
    let _ = world.store.cancel(&world.alice, claim.id()).await.unwrap();
    let recorded = world
        .store
        .record_answer(&claim, &question("r"), YES.as_bytes(), "offered")
        .await;
    assert_eq!(recorded.unwrap(), Write::Lost);
    let by = world.value("SELECT answered_by FROM inputs").await;
    assert_eq!(by.as_deref(), Some("offered"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_key_is_never_used_twice() {
    let world = World::new().await;
    let (id, _) = world.parked(&[question("q")]).await;
    let _ = world
        .store
        .answer(&world.alice, id, &answers(&[("q", YES)]), None)
        .await
        .unwrap();
    let claim = world.claim(id).await.unwrap();
    let again = world
        .store
        .park(&claim, ParkedFor::Task, &[question("q")], NO_WORK)
        .await;
    assert!(matches!(again, Err(store::Error::Bug(_))), "{again:?}");
    assert_eq!(world.column(id, "phase").await.as_deref(), Some("running"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_task_is_cancelled_at_once() {
    let world = World::new().await;
    let (id, _) = world.parked(&[question("q")]).await;
    assert_eq!(
        world.store.cancel(&world.alice, id).await.unwrap(),
        Cancel::Cancelled
    );
    let found = world.store.get(&world.alice, id).await.unwrap();
    let Lookup::Found(task) = found else { panic!() };
    assert_eq!(
        (task.status, task.input_requests),
        (TaskStatus::Cancelled, None)
    );
}

/// Whatever an old release kept of a stranger's trace, an answer lets the task go on.
#[tokio::test(flavor = "multi_thread")]
async fn no_trace_context_keeps_a_task_from_going_on() {
    let world = World::new().await;
    let kept: [Option<&'static [u8]>; 4] = [
        None,
        Some(br#"{"traceparent": "00-1-2-01", "answered": {"traceparent": "old"}}"#),
        Some(br#"{"baggage": "a=\u0000"}"#),
        Some("{\"baggage\": \"ü=\u{10ffff}\"}".as_bytes()),
    ];
    for context in kept {
        let created = world
            .create(&ToolPolicy::default(), |new| {
                new.trace_context = context.map(Bytes::from_static);
            })
            .await;
        let store::Created::New(task) = created else {
            panic!("{created:?}")
        };
        let claim = world.claim(task.id).await.unwrap();
        let parked = world
            .store
            .park(&claim, ParkedFor::Task, &[question("q")], NO_WORK)
            .await;
        assert_eq!(parked.unwrap(), Parked::Parked);
        let answered = world
            .store
            .answer(&world.alice, task.id, &answers(&[("q", YES)]), None)
            .await;
        assert_eq!(answered.unwrap(), resumed());
        let next = world.claim(task.id).await.unwrap();
        // No span is open here: nothing is linked to, and no older answer either.
        let told = next.trace_context.as_deref();
        let told = told.map(|json| serde_json::from_slice::<serde_json::Value>(json).unwrap());
        assert!(
            told.as_ref().is_none_or(|told| told["answered"].is_null()),
            "{told:?}"
        );
        assert_eq!(told.is_some(), context.is_some());
    }
}
