//! I1, I7: exactly one task a key, committed before anyone hears of it.

use bytes::Bytes;
use protocol::TaskStatus;
use store::{Answer, Created, Lookup, Parked, ParkedFor, ToolPolicy};
use tokio::task::JoinSet;

use crate::support::{
    HOUR, NO_WORK, SECOND, World, YES, answers, config, create, question, store, task_id,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_new_task_reads_back_as_it_was_made() {
    let world = World::new().await;
    let policy = ToolPolicy {
        ttl: Some(2 * HOUR),
        priority: 3,
        queue: "slow".to_owned(),
        ..ToolPolicy::default()
    };
    let created = world
        .create(&policy, |new| {
            new.offered_responses = Some(Bytes::from_static(b"{\"a\":{}}"));
            new.trace_context = Some(Bytes::from_static(b"{\"traceparent\":\"00\"}"));
        })
        .await;
    let Created::New(task) = created else {
        panic!("{created:?}")
    };
    assert_eq!(task.status, TaskStatus::Working);
    assert_eq!(task.status_message.as_deref(), Some("queued"));
    assert_eq!(task.ttl_ms, Some(7_200_000));
    assert_eq!(task.created_at, task.last_updated_at);
    assert!(task.queued && task.handed_out && !task.keyed && !task.fetched);
    assert_eq!(
        world.store.get(&world.alice, task.id).await.unwrap(),
        Lookup::Found(Box::new(task.clone()))
    );
    let stored = "queue || ' ' || priority || ' ' || work_ms_max || ' ' || tries_max || ' ' || hint_epoch \
                  || ' ' || (extract(milliseconds FROM created_at) = floor(extract(milliseconds FROM created_at)))";
    assert_eq!(
        world.column(task.id, stored).await.as_deref(),
        Some("slow 3 3600000 5 epoch true")
    );
    // What the worker gets is what was sent, byte for byte.
    let claim = world.claim(task.id).await.unwrap();
    assert_eq!(&claim.arguments[..], b"{\"month\": \"may\"}");
    assert_eq!(&claim.client_capabilities[..], b"{\"elicitation\":{}}");
    assert_eq!(claim.offered_responses.as_deref(), Some(&b"{\"a\":{}}"[..]));
    assert_eq!(
        claim.trace_context.as_deref(),
        Some(&b"{\"traceparent\":\"00\"}"[..])
    );
    assert_eq!((claim.attempt(), claim.tries, claim.tries_max), (1, 0, 5));
    assert_eq!(claim.work_left, HOUR);
    assert_eq!(claim.principal, world.alice);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_racing_calls_with_one_key_make_one_task() {
    let world = World::new().await;
    // Two processes, as two gateways would be.
    let stores = [world.store.clone(), store(config(world.database.url()))];
    let mut calls = JoinSet::new();
    for n in 0..100 {
        let (store, alice) = (stores[n % 2].clone(), world.alice.clone());
        calls.spawn(async move {
            create(&store, &alice, &ToolPolicy::default(), |new| {
                new.idempotency_key = Some("key");
                if n % 10 == 9 {
                    new.arguments_digest = [8; 32];
                }
            })
            .await
        });
    }
    let (mut new, mut existing, mut reused, mut ids) = (0, 0, 0, std::collections::HashSet::new());
    for created in calls.join_all().await {
        match created {
            Created::New(task) => {
                new += 1;
                ids.insert(task.id);
            }
            Created::Existing(task) => {
                existing += 1;
                ids.insert(task.id);
            }
            Created::KeyReused => reused += 1,
        }
    }
    assert_eq!((new, ids.len()), (1, 1));
    // Whichever arguments came first, the others are refused.
    assert!(
        (existing, reused) == (89, 10) || (existing, reused) == (9, 90),
        "{existing} {reused}"
    );
    assert_eq!(
        world.value("SELECT count(*) FROM tasks").await.as_deref(),
        Some("1")
    );
    assert_eq!(
        world
            .value("SELECT count(*) FROM idempotency_keys")
            .await
            .as_deref(),
        Some("1")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_belongs_to_one_principal_and_one_tool() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    for (owner, tool) in [
        (&world.alice, "report"),
        (&world.alice, "deploy"),
        (&world.mallory, "report"),
    ] {
        let created = create(&world.store, owner, &policy, |new| {
            new.tool = tool;
            new.idempotency_key = Some("key");
        })
        .await;
        assert!(matches!(created, Created::New(_)), "{created:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keyed_task_is_kept_a_day_at_least() {
    let world = World::new().await;
    let policy = ToolPolicy {
        ttl: Some(2 * HOUR),
        ..ToolPolicy::default()
    };
    let created = world
        .create(&policy, |new| new.idempotency_key = Some("key"))
        .await;
    let Created::New(task) = created else {
        panic!()
    };
    assert_eq!(task.ttl_ms, Some(86_400_000));
    assert!(task.keyed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_by_key_gets_the_outcome() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    let created = world
        .create(&policy, |new| new.idempotency_key = Some("key"))
        .await;
    let Created::New(task) = created else {
        panic!()
    };
    let claim = world.claim(task.id).await.unwrap();
    let _ = world
        .store
        .complete(&claim, b"{\"n\":1}", NO_WORK)
        .await
        .unwrap();
    let again = world
        .create(&policy, |new| new.idempotency_key = Some("key"))
        .await;
    let Created::Existing(again) = again else {
        panic!("{again:?}")
    };
    assert_eq!((again.id, again.status), (task.id, TaskStatus::Completed));
    assert_eq!(again.result, None, "which may be large: it is read");
    let read = world.get(again.id).await;
    assert_eq!(read.result.as_deref(), Some(&b"{\"n\":1}"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_makes_no_second_task() {
    let world = World::new().await;
    let proxy = harness::proxy::Proxy::to_port(harness::postgres::shared().await.unwrap().port())
        .await
        .unwrap();
    let through = store(config(&proxy.through(world.database.url())));
    let policy = ToolPolicy::default();
    for key in [None, Some("key")] {
        proxy.swallow_reply_to("lost reply");
        let id = task_id();
        let created = create(&through, &world.alice, &policy, |new| {
            new.id = id;
            new.status_message = "lost reply";
            new.idempotency_key = key;
        })
        .await;
        let Created::New(task) = created else {
            panic!("{created:?}")
        };
        assert_eq!(task.id, id);
    }
    assert_eq!(*proxy.swallowed().borrow(), 2, "both replies were lost");
    assert_eq!(
        world.value("SELECT count(*) FROM tasks").await.as_deref(),
        Some("2")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_belongs_to_somebody_else_is_no_panic() {
    let world = World::new().await;
    let id = world.queued().await;
    let policy = ToolPolicy::default();
    let new = store::NewTask {
        id,
        principal: &world.mallory,
        tool: "report",
        tool_version: 1,
        policy: &policy,
        arguments: Bytes::new(),
        arguments_digest: [7; 32],
        client_capabilities: Bytes::new(),
        offered_responses: None,
        trace_context: None,
        idempotency_key: None,
        status_message: "",
        hold: SECOND,
        handed_out: false,
        hint_epoch: None,
    };
    let refused = world.store.create(&new).await;
    assert!(matches!(refused, Err(store::Error::Bug(_))), "{refused:?}");
    assert_eq!(
        world.get(id).await.status_message.as_deref(),
        Some("queued")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_without_end_stays_in_the_range_of_a_timestamp() {
    let world = World::new().await;
    let policy = ToolPolicy {
        ttl: Some(std::time::Duration::MAX),
        ttl_max: Some(std::time::Duration::MAX),
        ..ToolPolicy::default()
    };
    let id = world.queued_with(&policy).await;
    let claim = world.claim(id).await.unwrap();
    let mut question = crate::support::question("q");
    question.wait = std::time::Duration::MAX;
    let parked = world
        .store
        .park(&claim, store::ParkedFor::Task, &[question], NO_WORK)
        .await
        .unwrap();
    assert_eq!(parked, store::Parked::Parked);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_is_given_out_only_of_a_task_that_goes_on() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    let hidden = |key: Option<&'static str>| {
        let (world, policy) = (&world, &policy);
        async move {
            let created = world
                .create(policy, |new| {
                    new.handed_out = false;
                    new.idempotency_key = key;
                })
                .await;
            match created {
                Created::New(task) => {
                    assert!(!task.handed_out);
                    task.id
                }
                other => panic!("{other:?}"),
            }
        }
    };
    let id = hidden(None).await;
    assert!(world.store.hand_out(id).await.unwrap().unwrap().handed_out);
    let stopped = hidden(None).await;
    assert_eq!(
        world.store.abandon(&[stopped], HOUR).await.unwrap(),
        [stopped]
    );
    assert!(world.store.hand_out(stopped).await.unwrap().is_none());
    // With a key, a lost caller may come back: its task is not abandoned.
    let keyed = hidden(Some("key")).await;
    assert_eq!(world.store.abandon(&[keyed, id], HOUR).await.unwrap(), []);
    assert!(world.store.hand_out(keyed).await.unwrap().is_some());
    // A second hand-out of a stopping task (a repeat by key) keeps to what the first caller saw.
    let _claim = world.claim(keyed).await.unwrap();
    let _ = world.store.cancel(&world.alice, keyed).await.unwrap();
    let before = world.column(keyed, "handed_out_at").await;
    assert!(world.store.hand_out(keyed).await.unwrap().is_some());
    assert_eq!(world.column(keyed, "handed_out_at").await, before);
    // Over is over: the caller gets the outcome.
    let over = hidden(None).await;
    let claim = world.claim(over).await.unwrap();
    let _ = world.store.complete(&claim, b"{}", NO_WORK).await.unwrap();
    assert!(world.store.hand_out(over).await.unwrap().is_none());
    assert!(world.store.hand_out(task_id()).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn holds_grow_and_never_shrink() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    let created = world
        .create(&policy, |new| {
            new.handed_out = false;
            new.hold = SECOND;
        })
        .await;
    let Created::New(task) = created else {
        panic!()
    };
    world.store.hold(&[task.id], HOUR).await.unwrap();
    let long = world.column(task.id, "held_until").await;
    world
        .store
        .hold(&[task.id, task_id()], SECOND)
        .await
        .unwrap();
    assert_eq!(world.column(task.id, "held_until").await, long);
    assert_eq!(
        world
            .column(task.id, "held_until > now() + interval '59 minutes'")
            .await
            .as_deref(),
        Some("t")
    );
}

/// Somebody was asked, on another connection or another gateway, and has the whole time that the
/// question has, whoever goes away meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_away_cuts_no_question_short() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    let created = world
        .create(&policy, |new| {
            new.handed_out = false;
            new.hold = SECOND;
        })
        .await;
    let Created::New(task) = created else {
        panic!()
    };
    let claim = world.claim(task.id).await.unwrap();
    let asked = [question("q")];
    let parked = world
        .store
        .park(&claim, ParkedFor::Caller, &asked, NO_WORK)
        .await;
    assert_eq!(parked.unwrap(), Parked::Parked);
    world.store.hold(&[task.id], HOUR).await.unwrap();
    let long = world.column(task.id, "held_until").await;
    let stopped = world.store.abandon(&[task.id], SECOND).await.unwrap();
    assert_eq!(stopped, []);
    assert_eq!(world.column(task.id, "held_until").await, long);
    // Answered, it is held by whoever brought the answer; and by nobody when that one goes away.
    let answers = answers(&[("q", YES)]);
    let answered = world
        .store
        .answer(&world.alice, task.id, &answers, None)
        .await;
    assert!(matches!(answered.unwrap(), Answer::Resumed { .. }));
    let stopped = world.store.abandon(&[task.id], SECOND).await.unwrap();
    assert_eq!(stopped, []);
    let short = "held_until < now() + interval '1 minute'";
    assert_eq!(world.column(task.id, short).await.as_deref(), Some("t"));
}
