//! What tasks are about, sealed: nothing of it is in the database, all of it comes back byte for byte,
//! keys rotate under running work, and a key that is missing loses nothing.

use bytes::Bytes;
use protocol::TaskStatus;
use store::{
    Begin, Created, Encryption, Ended, Error, JournalKind, Lookup, NewTask, Parked, ParkedFor,
    StepSpec, Store, ToolPolicy, UndoSpec, Write,
};

use crate::support::{
    NO_WORK, SECOND, World, answers, claim_as, config, create, encryption, question, store, token,
};

/// In everything that a client, a tool or a service says.
const SECRET: &str = "hunter2";

fn json(text: &str) -> String {
    format!("{{\"secret\":  \"{SECRET} {text}\"}}")
}

fn with(world: &World, keys: &Encryption) -> Store {
    store(config(world.database.url())).with_encryption(keys)
}

fn secret_call(new: &mut NewTask<'_>) {
    new.arguments = json("arguments").into();
    new.client_capabilities = json("capabilities").into();
    new.offered_responses = Some(json("offered").into());
    let trace = format!("{{\"traceparent\":\"00-1\",\"baggage\":\"user={SECRET}\"}}");
    new.trace_context = Some(trace.into());
}

async fn created(store: &Store, world: &World) -> protocol::TaskId {
    let policy = ToolPolicy {
        tries_max: 2,
        ..ToolPolicy::default()
    };
    match create(store, &world.alice, &policy, secret_call).await {
        Created::New(task) => task.id,
        other => panic!("{other:?}"),
    }
}

/// All rows of all tables, as text and in hex.
async fn dump(world: &World) -> String {
    let tables = world
        .database
        .rows("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        .await
        .unwrap();
    let mut all = String::new();
    for table in tables.into_iter().flatten().flatten() {
        let sql = format!("SELECT t::text FROM {table} t");
        for text in world
            .database
            .rows(&sql)
            .await
            .unwrap()
            .into_iter()
            .flatten()
            .flatten()
        {
            all.push_str(&text);
            all.push('\n');
        }
    }
    all
}

async fn assert_sealed(world: &World) {
    let all = dump(world).await;
    let hex: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
    for line in all.lines() {
        assert!(!line.contains(SECRET) && !line.contains(&hex), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_said_is_in_the_database_and_all_of_it_comes_back() {
    let world = World::new().await;
    let store = with(&world, &encryption(&["k1"]));
    let id = created(&store, &world).await;
    let claim = claim_as(&store, id, token()).await.unwrap();
    assert_eq!(claim.arguments, json("arguments"));
    assert_eq!(claim.client_capabilities, json("capabilities"));
    assert_eq!(claim.offered_responses.clone().unwrap(), json("offered"));
    let trace = claim.trace_context.clone().unwrap();
    let trace: serde_json::Value = serde_json::from_slice(&trace).unwrap();
    assert_eq!(trace["baggage"], format!("user={SECRET}"));
    // A step with its undo, what the work says of itself, twice.
    let (undo, output) = (json("undo"), json("output"));
    let spec = StepSpec {
        key: "send",
        seq: 0,
        idempotent: false,
        undo: Some(UndoSpec {
            how: undo.as_bytes(),
            idempotent: true,
        }),
    };
    let Begin::Act(permit) = store.begin_step(&claim, spec).await.unwrap() else {
        panic!("it may act")
    };
    let done = store.finish_step(&claim, permit, output.as_bytes());
    assert_eq!(done.await.unwrap(), Write::Done);
    let said = format!("sending {SECRET}");
    assert_eq!(store.progress(&claim, &said).await.unwrap(), Write::Done);
    let changed = world.column(id, "last_updated_at").await;
    assert_eq!(store.progress(&claim, &said).await.unwrap(), Write::Done);
    assert_eq!(
        world.column(id, "last_updated_at").await,
        changed,
        "no news"
    );
    let Lookup::Found(shown) = store.get(&world.alice, id).await.unwrap() else {
        panic!("it is there")
    };
    assert_eq!(shown.status_message.as_deref(), Some(said.as_str()));
    // A question, by default answered; another, answered by its owner.
    let mut asked = question("one");
    asked.default_response = Some(json("default").into());
    let text = String::from_utf8(asked.request.to_vec()).unwrap();
    asked.request = text.replace("one?", SECRET).into();
    let questions = [asked.clone(), question("two")];
    let parked = store.park(&claim, ParkedFor::Task, &questions, NO_WORK);
    assert_eq!(parked.await.unwrap(), Parked::Parked);
    assert_sealed(&world).await;
    let Lookup::Found(shown) = store.get(&world.alice, id).await.unwrap() else {
        panic!("it is there")
    };
    let requests = shown.input_requests.unwrap();
    let requests = std::str::from_utf8(&requests).unwrap();
    assert!(
        requests.contains(&text.replace("one?", SECRET)),
        "{requests}"
    );
    let yes =
        format!("{{\"action\":\"accept\",\"content\":{{\"charts\":true,\"x\":\"{SECRET}\"}}}}");
    for key in ["two", "one"] {
        let given = answers(&[(key, &yes)]);
        store.answer(&world.alice, id, &given, None).await.unwrap();
    }
    assert_sealed(&world).await;
    let claim = claim_as(&store, id, token()).await.unwrap();
    let journal = store.journal(&claim).await.unwrap();
    let values: Vec<_> = journal.iter().map(|e| e.value.clone().unwrap()).collect();
    assert_eq!(values[0], json("output"));
    assert_eq!(values[1..], [Bytes::from(yes.clone()), Bytes::from(yes)]);
    // What sealing adds is nobody's.
    assert_eq!(journal[0].kind, JournalKind::Step);
    let plain = "send".len() + json("output").len() + json("undo").len();
    assert_eq!(journal[0].bytes, i64::try_from(plain).unwrap());
    let result = json("result");
    let done = store.complete(&claim, result.as_bytes(), NO_WORK);
    assert_eq!(done.await.unwrap(), Write::Done);
    assert_sealed(&world).await;
    let Lookup::Found(task) = store.get(&world.alice, id).await.unwrap() else {
        panic!("it is there")
    };
    assert_eq!(
        (task.status, task.result.unwrap()),
        (TaskStatus::Completed, Bytes::from(result))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_sealed_also_where_postgres_words_them() {
    let world = World::new().await;
    let store = with(&world, &encryption(&["k1"]));
    let id = created(&store, &world).await;
    let why = format!("no luck with {SECRET}");
    let claim = claim_as(&store, id, token()).await.unwrap();
    let again = store.retry(&claim, &why, NO_WORK, NO_WORK).await.unwrap();
    assert_eq!(again, Write::Done);
    // The last try is lost, and cron ends the task with what the one before said.
    let _lost = claim_as(&store, id, token()).await.unwrap();
    world.lose_lease(id).await;
    let cron = store.clone();
    harness::wait::until("the task is ended", 10 * SECOND, async || {
        cron.settle_stopped(&[id]).await.unwrap().pop()
    })
    .await
    .unwrap();
    assert_sealed(&world).await;
    let Lookup::Found(task) = store.get(&world.alice, id).await.unwrap() else {
        panic!("it is there")
    };
    let error: serde_json::Value = serde_json::from_slice(&task.error.unwrap()).unwrap();
    assert_eq!(error["data"]["reason"], "attempts_exhausted");
    assert_eq!(error["message"], format!("gave up after 2 tries: {why}"));
    assert_eq!(task.status_message.as_deref(), error["message"].as_str());
    // Operators see why, and what was said only if they ask for it.
    let shown = store.show_task(id).await.unwrap().unwrap();
    assert_eq!(shown.reason.as_deref(), Some("attempts_exhausted"));
    assert_eq!(shown.attempts[0].reason.as_deref(), Some("(sealed)"));
    assert_eq!(shown.last_error.as_deref(), Some("(sealed)"));
    let shown = store.opening().show_task(id).await.unwrap().unwrap();
    assert_eq!(shown.attempts[0].reason.as_deref(), Some(why.as_str()));
    // An error of a tool's own.
    let id = created(&store, &world).await;
    let claim = claim_as(&store, id, token()).await.unwrap();
    let own = format!(
        "{{\"code\": 7, \"message\": \"{SECRET}\", \"data\": {{\"reason\": \"{SECRET}\"}}}}"
    );
    let failed = store.fail(&claim, own.as_bytes(), SECRET, NO_WORK);
    assert_eq!(failed.await.unwrap(), Ended::Done);
    assert_sealed(&world).await;
    let Lookup::Found(task) = store.get(&world.alice, id).await.unwrap() else {
        panic!("it is there")
    };
    assert_eq!(task.error.unwrap(), own);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_rotate_under_work_and_repeats_stay_repeats() {
    let world = World::new().await;
    let old = with(&world, &encryption(&["old"]));
    let keyed = |new: &mut NewTask<'_>| {
        secret_call(new);
        new.idempotency_key = Some("key");
    };
    let policy = ToolPolicy::default();
    let Created::New(task) = create(&old, &world.alice, &policy, keyed).await else {
        panic!("it is new")
    };
    let claim = claim_as(&old, task.id, token()).await.unwrap();
    let both = with(&world, &encryption(&["new", "old"]));
    assert_eq!(both.sealed_by().await.unwrap()[0].key, "old");
    assert_eq!(both.rewrap(100).await.unwrap(), 1);
    assert_eq!(both.rewrap(100).await.unwrap(), 0);
    let keys = both.sealed_by().await.unwrap();
    assert_eq!(
        (keys.len(), keys[0].key.as_str(), keys[0].tasks),
        (1, "new", 1)
    );
    // The worker knows the task's own key, and goes on.
    let result = json("r");
    let done = old.complete(&claim, result.as_bytes(), NO_WORK);
    assert_eq!(done.await.unwrap(), Write::Done);
    let new = with(&world, &encryption(&["new"]));
    let Created::Existing(found) = create(&new, &world.alice, &policy, keyed).await else {
        panic!("it is the same call")
    };
    let Lookup::Found(found) = new.get(&world.alice, found.id).await.unwrap() else {
        panic!("it is there")
    };
    assert_eq!(found.result.unwrap(), json("r"));
    let other = create(&new, &world.alice, &policy, |new| {
        keyed(new);
        new.arguments_digest = [8; 32];
    });
    assert!(matches!(other.await, Created::KeyReused));
    let same = ("key", &[7; 32]);
    let keyed = new.find_keyed(&world.alice, "report", same).await.unwrap();
    assert_eq!(keyed, Some((task.id, true)));
    let digests = "SELECT count(*) FROM idempotency_keys WHERE arguments_digest = decode(repeat('07', 32), 'hex')";
    assert_eq!(world.value(digests).await.as_deref(), Some("0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_key_loses_nothing_and_stops_nobody_else() {
    let world = World::new().await;
    let sealing = with(&world, &encryption(&["k1"]));
    let waiting = created(&sealing, &world).await;
    let done = created(&sealing, &world).await;
    let claim = claim_as(&sealing, done, token()).await.unwrap();
    let result = json("r");
    let written = sealing.complete(&claim, result.as_bytes(), NO_WORK);
    assert_eq!(written.await.unwrap(), Write::Done);
    let clear = world.queued().await;
    let others = [encryption(&["k2"]), Encryption::default(), {
        // Another key by the same name.
        let mut other = encryption(&["k1"]);
        other.keys[0].key = "ab".repeat(32);
        other
    }];
    for keys in &others {
        let blind = with(&world, keys);
        let asked = blind.get(&world.alice, done).await;
        assert!(matches!(asked, Err(Error::KeyMissing { ref key, .. }) if key == "k1"));
        let wanted = [done, clear].map(|id| (world.alice.clone(), id));
        let both = blind.get_many(&wanted).await.unwrap();
        assert!(both[0].is_err() && matches!(both[1], Ok(Lookup::Found(_))));
        // Its state is known to everybody; and what is not sealed runs.
        assert!(blind.get(&world.alice, waiting).await.is_ok());
        assert!(claim_as(&blind, waiting, token()).await.is_none());
        let put_off = "phase || ' ' || tries || ' ' || (run_at > now())";
        assert_eq!(
            world.column(waiting, put_off).await.as_deref(),
            Some("queued 0 true")
        );
        world.set(waiting, "run_at = now(), asleep = false").await;
        assert_eq!(blind.rewrap(100).await.unwrap(), 0);
        assert_eq!(
            blind.list_owned(&world.alice, None, 9).await.unwrap().len(),
            3
        );
    }
    assert!(!with(&world, &others[0]).sealed_by().await.unwrap()[0].here);
    let claim = claim_as(&sealing, waiting, token()).await.unwrap();
    assert_eq!(claim.arguments, json("arguments"));
    let Lookup::Found(task) = sealing.get(&world.alice, done).await.unwrap() else {
        panic!("it is there")
    };
    assert_eq!(task.result.unwrap(), result);
}

#[tokio::test(flavor = "multi_thread")]
async fn encryption_goes_on_and_off_under_work() {
    let world = World::new().await;
    let on = encryption(&["k1"]);
    let mut off = on.clone();
    off.seal = false;
    let (on, off) = (with(&world, &on), with(&world, &off));
    // Made clear, and finished by who seals; made sealed, and finished by who does not.
    for (first, then, sealed) in [(&off, &on, false), (&on, &off, true)] {
        let id = created(first, &world).await;
        let claim = claim_as(then, id, token()).await.unwrap();
        assert_eq!(claim.arguments, json("arguments"));
        let result = json("r");
        let done = then.complete(&claim, result.as_bytes(), NO_WORK);
        assert_eq!(done.await.unwrap(), Write::Done);
        for store in [first, then] {
            let Lookup::Found(task) = store.get(&world.alice, id).await.unwrap() else {
                panic!("it is there")
            };
            assert_eq!(task.result.unwrap(), result);
        }
        let is_sealed = world.column(id, "substr(result, 1, 1) = '\\xff'").await;
        assert_eq!(is_sealed.as_deref(), Some(if sealed { "t" } else { "f" }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_put_elsewhere_does_not_open() {
    let world = World::new().await;
    let store = with(&world, &encryption(&["k1"]));
    let mut ids = Vec::new();
    for text in ["one", "two"] {
        let id = created(&store, &world).await;
        let claim = claim_as(&store, id, token()).await.unwrap();
        let result = json(text);
        let done = store.complete(&claim, result.as_bytes(), NO_WORK);
        assert_eq!(done.await.unwrap(), Write::Done);
        ids.push(id);
    }
    // Another task's result; with its key as well; another column of the same task.
    for moved in [
        format!(
            "result = (SELECT result FROM tasks WHERE id = '{}')",
            ids[1]
        ),
        format!(
            "(result, data_key) = (SELECT result, data_key FROM tasks WHERE id = '{}')",
            ids[1]
        ),
        "result = arguments".to_owned(),
    ] {
        world.run("CREATE TABLE kept AS SELECT * FROM tasks").await;
        world.set(ids[0], &moved).await;
        assert!(store.get(&world.alice, ids[0]).await.is_err(), "{moved}");
        assert!(store.get(&world.alice, ids[1]).await.is_ok());
        world
            .run("UPDATE tasks t SET result = k.result, data_key = k.data_key FROM kept k WHERE k.id = t.id")
            .await;
        world.run("DROP TABLE kept").await;
        assert!(store.get(&world.alice, ids[0]).await.is_ok());
    }
}
