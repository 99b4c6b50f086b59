//! Erasing a principal: live work is stopped by the rule of every cancel and is gone when it has ended;
//! then nothing in any table tells of the principal, and nobody else has lost anything.

use protocol::TaskId;
use serde_json::json;
use store::{
    Act, AuditFilter, Begin, Claim, Created, Encryption, Lookup, NewCallback, Open, ParkedFor,
    Principal, StepSpec, Store, ToolPolicy, Traces, UndoSpec, Write, pseudonym,
};
use uuid::Uuid;

use crate::support::{
    HOUR, NO_WORK, SECOND, World, answers, claim_as, config, create, encryption, principal,
    question, step, store, token,
};

pub const ISSUER: &str = "https://issuer";
/// Stands nowhere else, not even in part.
const ERICA: &str = "erica-4711";
/// In everything that is said for her.
const SAID: &str = "chatter-0815";
/// Used again and again.
const KEYS: [&str; 4] = ["key-1", "key-2", "key-3", "key-4"];

fn erica() -> Principal {
    principal(ERICA)
}

/// The same subject of another issuer.
fn namesake() -> Principal {
    Principal::verified("https://other".to_owned(), ERICA.to_owned(), None)
}

fn said() -> String {
    format!("{{\"said\": \"{SAID}\"}}")
}

pub async fn queued(store: &Store, owner: &Principal, key: Option<&'static str>) -> TaskId {
    let policy = ToolPolicy::default();
    let created = create(store, owner, &policy, |new| {
        new.arguments = said().into();
        new.idempotency_key = key;
    });
    match created.await {
        Created::New(task) => task.id,
        other => panic!("{other:?}"),
    }
}

async fn running(store: &Store, owner: &Principal) -> Claim {
    let id = queued(store, owner, None).await;
    claim_as(store, id, token()).await.unwrap()
}

/// With a finished step that says how it is undone.
async fn acted(store: &Store, owner: &Principal) -> Claim {
    let claim = running(store, owner).await;
    let how = said();
    let spec = StepSpec {
        undo: Some(UndoSpec {
            how: how.as_bytes(),
            idempotent: false,
        }),
        ..step("act")
    };
    let Begin::Act(permit) = store.begin_step(&claim, spec).await.unwrap() else {
        panic!("it may act")
    };
    let done = store.finish_step(&claim, permit, how.as_bytes()).await;
    assert_eq!(done.unwrap(), Write::Done);
    claim
}

pub async fn completed(store: &Store, owner: &Principal, key: Option<&'static str>) -> TaskId {
    let id = queued(store, owner, key).await;
    let claim = claim_as(store, id, token()).await.unwrap();
    let done = store.complete(&claim, said().as_bytes(), NO_WORK).await;
    assert_eq!(done.unwrap(), Write::Done);
    id
}

/// The command, once around: tells live tasks to stop, and erases what is over.
async fn round(store: &Store, audit: Uuid) -> u64 {
    batch(store, audit, 100).await
}

async fn batch(store: &Store, audit: Uuid, limit: i64) -> u64 {
    let live = store.live_of(ISSUER, ERICA, limit).await.unwrap();
    for (id, _) in live.into_iter().filter(|(_, stopping)| !stopping) {
        let operator = "olga";
        let act = Act {
            audit,
            operator,
            id,
        };
        store.operator_cancel(act).await.unwrap();
    }
    store.erase(audit, (ISSUER, ERICA), limit).await.unwrap()
}

async fn begun(store: &Store) -> Uuid {
    let audit = token();
    let target = json!({ "principal": pseudonym(ISSUER, ERICA) });
    let by = ("olga", "tasks erase");
    store.audit(audit, by, &target).await.unwrap();
    audit
}

/// Every value of every column that may hold text, with where it stands.
async fn texts(world: &World) -> Vec<String> {
    let columns = "SELECT format('SELECT %L || '': '' || %I::text FROM %I WHERE %I IS NOT NULL', \
                   table_name || '.' || column_name, column_name, table_name, column_name) \
                   FROM information_schema.columns WHERE table_schema = current_schema() \
                   AND data_type IN ('text', 'bytea', 'json', 'jsonb', 'ARRAY', 'character varying')";
    let columns = world.database.rows(columns).await.unwrap();
    assert!(columns.len() > 60, "{}", columns.len());
    let mut all = Vec::new();
    for sql in columns.into_iter().flatten().flatten() {
        let rows = world.database.rows(&sql).await.unwrap();
        all.extend(rows.into_iter().flatten().flatten());
    }
    all
}

/// What is there of these words, as text or as the hex that Postgres shows bytes in.
async fn found(world: &World, words: &[&str]) -> Vec<String> {
    let hex = |word: &str| word.bytes().map(|b| format!("{b:02x}")).collect::<String>();
    let mut texts = texts(world).await;
    texts.retain(|text| {
        let mut words = words.iter();
        words.any(|word| text.contains(word) || text.contains(&hex(word)))
    });
    texts
}

/// Everything in every table, row by row.
async fn everything(world: &World) -> Vec<String> {
    let tables = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1";
    let mut all = Vec::new();
    for table in world.database.rows(tables).await.unwrap() {
        let table = table[0].clone().unwrap();
        let sql = format!("SELECT '{table} ' || t::text FROM {table} t ORDER BY 1");
        let rows = world.database.rows(&sql).await.unwrap();
        all.extend(rows.into_iter().flatten().flatten());
    }
    all
}

/// Rows of these owners' tasks, with all that belongs to them.
async fn rows_of(world: &World, ids: &[TaskId]) -> Vec<String> {
    let mut all = everything(world).await;
    all.retain(|row| ids.iter().any(|id| row.contains(&id.to_string())));
    all
}

async fn phase(world: &World, id: TaskId) -> Option<String> {
    world.column(id, "coalesce(phase, status)").await
}

/// One of each, in every state: live ones, ended ones, and what is left of a purged one.
async fn crowd(world: &World, store: &Store) -> Vec<TaskId> {
    let erica = erica();
    let mut ids = vec![queued(store, &erica, Some("key-live")).await];
    ids.push(completed(store, &erica, Some("key-ended")).await);
    // Asks; another asked, and was answered.
    for is_answered in [false, true] {
        let claim = acted(store, &erica).await;
        let mut asked = question("q");
        asked.default_response = Some(said().into());
        let asked = [asked];
        let parked = store.park(&claim, ParkedFor::Task, &asked, NO_WORK).await;
        let _ = parked.unwrap();
        if is_answered {
            let yes = format!(
                "{{\"action\":\"accept\",\"content\":{{\"charts\":true,\"said\":\"{SAID}\"}}}}"
            );
            let given = answers(&[("q", &yes)]);
            let _ = store
                .answer(&erica, claim.id(), &given, None)
                .await
                .unwrap();
        }
        ids.push(claim.id());
    }
    // Waits for a service.
    let claim = running(store, &erica).await;
    let new = NewCallback {
        key: "call".to_owned(),
        seq: 0,
        wait: HOUR,
        signed_by: "one".to_owned(),
        proves: Some(("call".to_owned(), said().into())),
    };
    let opened = store.open_callback(&claim, &new).await.unwrap();
    assert!(matches!(opened, Open::Open(_)));
    ids.push(claim.id());
    // Failed, unread, and told of.
    let claim = running(store, &erica).await;
    let error = format!("{{\"code\":1,\"message\":\"{SAID}\",\"data\":{{\"reason\":\"{SAID}\"}}}}");
    let failed = store.fail(&claim, error.as_bytes(), SAID, NO_WORK).await;
    let _ = failed.unwrap();
    ids.push(claim.id());
    let alert = format!(
        "WITH a AS (INSERT INTO alerts (id, fingerprint, kind, task_id, issuer, subject, tool, reason, task_created_at, since, raised_at) \
         SELECT gen_random_uuid(), id::text, 'unfetched_failure', id, issuer, subject, tool, '{SAID}', created_at, now(), now() \
         FROM tasks WHERE id = '{}' RETURNING id) \
         INSERT INTO alert_deliveries (alert_id, receiver, last_error) SELECT id, 'hook', '{SAID}' FROM a",
        claim.id()
    );
    world.run(&alert).await;
    // Purged: a tombstone.
    let gone = completed(store, &erica, Some("key-gone")).await;
    world
        .set(gone, "expires_at = now(), first_fetched_at = now()")
        .await;
    assert_eq!(store.purge(10, HOUR).await.unwrap(), 1);
    ids.push(gone);
    ids
}

async fn settled(world: &World, store: &Store, audit: Uuid) {
    harness::wait::until("all is erased", 60 * SECOND, async || {
        round(store, audit).await;
        let live = store.live_of(ISSUER, ERICA, 100).await.unwrap();
        for (id, _) in &live {
            // As cron does with what no worker holds, and a worker with what is to be undone.
            if phase(world, *id).await.as_deref() == Some("running") {
                world.lose_lease(*id).await;
            }
            let _ = store.settle_stopped(&[*id]).await.unwrap();
            if phase(world, *id).await.as_deref() == Some("undoing")
                && let Some(claim) = claim_as(store, *id, token()).await
            {
                while let Some(next) = store.next_undo(&claim).await.unwrap() {
                    let begun = store.begin_undo(&claim, &next).await.unwrap();
                    assert_eq!(begun, Write::Done);
                    let _ = store.finish_undo(&claim, &next.key).await.unwrap();
                }
                assert_eq!(store.undone(&claim).await.unwrap(), Write::Done);
            }
        }
        live.is_empty().then_some(())
    })
    .await
    .unwrap();
    round(store, audit).await;
    store.erase_traces(ISSUER, ERICA).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn looking_changes_nothing() {
    let world = World::new().await;
    crowd(&world, &world.store).await;
    let before = everything(&world).await;
    let traces = world.store.traces(ISSUER, ERICA).await.unwrap();
    let expected = Traces {
        ended: 2,
        live: 4,
        tombstones: 1,
        keys: 2,
        alerts: 1,
        audits: 0,
    };
    assert_eq!(traces, expected);
    assert_eq!(
        world.store.live_of(ISSUER, ERICA, 9).await.unwrap().len(),
        4
    );
    assert_eq!(everything(&world).await, before);
}

/// Both clear and sealed: what is sealed still has names, keys and ids.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_in_any_table_and_nobody_else_lost_anything() {
    for keys in [Encryption::default(), encryption(&["k1"])] {
        let world = World::new().await;
        let store = store(config(world.database.url())).with_encryption(&keys);
        let ids = crowd(&world, &store).await;
        // Others: of the same issuer, and of the same name.
        let mut others = Vec::new();
        for other in [&world.alice, &namesake()] {
            others.push(completed(&store, other, Some("key-ended")).await);
            others.push(queued(&store, other, None).await);
        }
        // What was done to her, and by her, before.
        let filtered = |issuer: Option<&str>| {
            let filter = match issuer {
                Some(issuer) => json!({ "principal": ERICA, "issuer": issuer }),
                None => json!({ "principal": ERICA }),
            };
            json!({ "filter": filter })
        };
        let by = ("olga", "tasks cancel");
        for issuer in [None, Some(ISSUER), Some("https://other")] {
            let target = filtered(issuer);
            store.audit(token(), by, &target).await.unwrap();
        }
        let delegate = format!("{ISSUER} {ERICA}");
        let by = (delegate.as_str(), "tasks/update");
        store.audit(token(), by, &json!({})).await.unwrap();
        assert_eq!(store.traces(ISSUER, ERICA).await.unwrap().audits, 3);
        assert!(found(&world, &[ERICA]).await.len() > 10);
        let before = rows_of(&world, &others).await;

        let audit = begun(&store).await;
        settled(&world, &store, audit).await;
        let left = store.traces(ISSUER, ERICA).await.unwrap();
        assert_eq!(left, Traces::default());
        assert_eq!(rows_of(&world, &others).await, before);
        // The namesake's own, and a filter that named her issuer.
        let mut names = found(&world, &[ERICA]).await;
        names.retain(|text| {
            !text.starts_with("tasks.subject: ") && !text.starts_with("idempotency_keys.subject: ")
        });
        assert_eq!(names.len(), 1, "{names:?}");
        assert!(
            names[0].starts_with("audit.target: ") && names[0].contains("https://other"),
            "{names:?}"
        );
        let of_others = others.iter().map(|id| id.to_string());
        let of_others: Vec<String> = of_others.collect();
        let own = format!(
            "SELECT count(*) FROM tasks WHERE id::text <> ALL('{{{}}}')",
            of_others.join(",")
        );
        assert_eq!(world.value(&own).await.as_deref(), Some("0"));
        for table in [
            "steps",
            "inputs",
            "attempts",
            "callbacks",
            "alerts",
            "alert_deliveries",
            "tombstones",
        ] {
            let count = world.value(&format!("SELECT count(*) FROM {table}")).await;
            assert_eq!(count.as_deref(), Some("0"), "{table}");
        }
        // Said by others only, and by them as often as before.
        if keys.keys.is_empty() {
            assert_eq!(found(&world, &[SAID]).await.len(), 6);
        } else {
            assert_eq!(found(&world, &[SAID]).await, Vec::<String>::new());
        }
        // The audit knows which, and not whose.
        let filter = AuditFilter {
            limit: 100,
            ..AuditFilter::default()
        };
        let audits = store.audits(filter).await.unwrap();
        let line = audits.iter().find(|line| line.id == audit).unwrap();
        let erased = line.tasks.iter().filter(|task| task.outcome == "erased");
        assert_eq!(erased.count(), ids.len() - 1, "{:?}", line.tasks);
        let stands_for = pseudonym(ISSUER, ERICA);
        assert_eq!(line.target, json!({ "principal": stands_for }));
        let renamed = audits.iter().filter(|line| {
            line.operator == stands_for || line.target["filter"]["principal"] == json!(stands_for)
        });
        assert_eq!(renamed.count(), 3);
        // Unknown to their owner, as to anybody else.
        for id in &ids {
            for owner in [&erica(), &world.mallory] {
                let lookup = store.get(owner, *id).await.unwrap();
                assert!(matches!(lookup, Lookup::Unknown), "{id}: {lookup:?}");
            }
        }
        // A key that was used makes a new task.
        for key in ["key-ended", "key-live", "key-gone"] {
            queued(&store, &erica(), Some(key)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn live_work_stops_by_the_rule_of_cancel_and_goes_when_it_has_ended() {
    let world = World::new().await;
    let store = &world.store;
    let erica = erica();
    let waits = queued(store, &erica, None).await;
    let runs = running(store, &erica).await;
    let open = running(store, &erica).await;
    let Begin::Act(permit) = store.begin_step(&open, step("act")).await.unwrap() else {
        panic!("it may act")
    };
    let undoes = acted(store, &erica).await;
    let asked = [question("q")];
    let parked = store.park(&undoes, ParkedFor::Task, &asked, NO_WORK).await;
    let _ = parked.unwrap();
    let audit = begun(store).await;
    assert_eq!(round(store, audit).await, 1, "the one that nobody held");
    assert_eq!(phase(&world, waits).await, None);
    // Told to stop, and not erased while they run.
    for claim in [&runs, &open] {
        assert_eq!(phase(&world, claim.id()).await.as_deref(), Some("running"));
        let refused = store.begin_step(claim, step("more")).await.unwrap();
        assert!(matches!(refused, Begin::Stop), "{refused:?}");
    }
    let given = answers(&[("q", crate::support::YES)]);
    let _ = store
        .answer(&erica, undoes.id(), &given, None)
        .await
        .unwrap();
    assert_eq!(phase(&world, undoes.id()).await.as_deref(), Some("undoing"));
    assert_eq!(round(store, audit).await, 0);
    assert_eq!(
        world.value("SELECT count(*) FROM tasks").await.as_deref(),
        Some("3")
    );
    // The step that was open lands; then all of them end.
    let landed = store.finish_step(&open, permit, b"1").await.unwrap();
    assert_eq!(landed, Write::Done);
    for claim in [&runs, &open] {
        let _ = store.confirm_stopped(claim).await.unwrap();
    }
    assert_eq!(round(store, audit).await, 2);
    let undoing = claim_as(store, undoes.id(), token()).await.unwrap();
    assert!(undoing.undoing);
    let next = store.next_undo(&undoing).await.unwrap().unwrap();
    assert_eq!(
        store.begin_undo(&undoing, &next).await.unwrap(),
        Write::Done
    );
    assert_eq!(round(store, audit).await, 0, "what undoes is not cut short");
    let undone = store.finish_undo(&undoing, &next.key).await.unwrap();
    assert_eq!(undone, Write::Done);
    assert_eq!(store.undone(&undoing).await.unwrap(), Write::Done);
    assert_eq!(round(store, audit).await, 1);
    store.erase_traces(ISSUER, ERICA).await.unwrap();
    let left = store.traces(ISSUER, ERICA).await.unwrap();
    assert_eq!(left, Traces::default());
    // Whoever still held one can do nothing any more.
    for claim in [&runs, &open, &undoing] {
        let late = store.begin_step(claim, step("late")).await.unwrap();
        assert!(matches!(late, Begin::Stop), "{late:?}");
        let late = store.complete(claim, b"{}", NO_WORK).await.unwrap();
        assert_eq!(late, Write::Lost);
    }
    assert_eq!(found(&world, &[ERICA]).await, Vec::<String>::new());
}

/// Two commands at once, killed anywhere (each round may be the last of its process), while the principal
/// goes on creating: whatever was made before the last rounds is gone, and nothing is left in halves.
#[tokio::test(flavor = "multi_thread")]
async fn erases_beside_each_other_and_beside_creates_leave_no_halves() {
    let world = World::new().await;
    let store = &world.store;
    for _ in 0..30 {
        completed(store, &erica(), None).await;
    }
    let creating = async {
        for n in 0..40 {
            let (owner, policy) = (erica(), ToolPolicy::default());
            let created = create(store, &owner, &policy, |new| {
                new.idempotency_key = Some(KEYS[n % KEYS.len()]);
            });
            // New, or the one that is there: never an answer about one that was erased.
            match created.await {
                Created::New(_) | Created::Existing(_) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    let erasing = async || {
        let mut erased = 0;
        for _ in 0..20 {
            // A command that was killed after its first batch, and the next one.
            let audit = begun(store).await;
            erased += batch(store, audit, 4).await;
            store.erase_traces(ISSUER, ERICA).await.unwrap();
        }
        erased
    };
    let ((), one, two) = tokio::join!(creating, erasing(), erasing());
    assert!(one + two >= 30, "{one} and {two}");
    // Each task has its key, and each key its task.
    let halves = "SELECT count(*) FROM tasks t FULL JOIN idempotency_keys k ON k.task_id = t.id \
                  WHERE t.id IS NULL OR (k.task_id IS NULL AND t.idempotency_key IS NOT NULL)";
    assert_eq!(world.value(halves).await.as_deref(), Some("0"));
    let audit = begun(store).await;
    settled(&world, store, audit).await;
    assert_eq!(
        store.traces(ISSUER, ERICA).await.unwrap(),
        Traces::default()
    );
    assert_eq!(found(&world, &[ERICA]).await, Vec::<String>::new());
    let twice = "SELECT count(*) FROM (SELECT 1 FROM audit_tasks WHERE outcome = 'erased' GROUP BY task_id HAVING count(*) > 1) x";
    assert_eq!(
        world.value(twice).await.as_deref(),
        Some("0"),
        "each was erased once"
    );
}

/// Who belongs to a tenant, by its tasks or by what is left of them; and who has others as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_is_those_who_have_tasks_of_it() {
    let world = World::new().await;
    let store = &world.store;
    let of = |issuer: &str, subject: &str, tenant: Option<&str>| {
        let tenant = tenant.map(str::to_owned);
        Principal::verified(issuer.to_owned(), subject.to_owned(), tenant)
    };
    for owner in [
        of(ISSUER, "anna", Some("acme")),
        of(ISSUER, "ben", Some("acme")),
        of(ISSUER, "ben", Some("other")),
        of(ISSUER, "cleo", Some("acme")),
        of(ISSUER, "cleo", None),
        of(ISSUER, "dora", Some("other")),
        of("https://other", "erik", Some("acme")),
        of(ISSUER, "finn", None),
    ] {
        queued(store, &owner, None).await;
    }
    // Purged, and buried by an operator: tombstones.
    let purged = completed(store, &of(ISSUER, "gil", Some("acme")), None).await;
    world
        .set(purged, "expires_at = now(), first_fetched_at = now()")
        .await;
    assert_eq!(store.purge(10, HOUR).await.unwrap(), 1);
    let buried = completed(store, &of(ISSUER, "hana", Some("acme")), None).await;
    let act = Act {
        audit: begun(store).await,
        operator: "olga",
        id: buried,
    };
    store.operator_expire(act, HOUR).await.unwrap();
    let members = store.members_of(ISSUER, "acme").await.unwrap();
    let members: Vec<(&str, bool)> = members
        .iter()
        .map(|member| (member.subject.as_str(), member.elsewhere))
        .collect();
    let expected = [
        ("anna", false),
        ("ben", true),
        ("cleo", true),
        ("gil", false),
        ("hana", false),
    ];
    assert_eq!(members, expected);
    assert_eq!(store.members_of(ISSUER, "nobody").await.unwrap(), []);
}
