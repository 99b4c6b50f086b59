//! The database's roles for the three processes: each may do its work and none of the others'.

use harness::postgres::Postgres;
use store::{
    Answer, Cancel, ClaimRequest, Created, Lookup, Parked, ParkedFor, Principal, Store, ToolPolicy,
    Write,
};

use crate::support::{
    NO_WORK, SECOND, answers, claim_as, config, create, migrate, question, raw, step, store,
    task_id, token,
};

const ROLES: &str = include_str!("../../../../deploy/postgres/roles.sql");

pub struct Processes {
    _server: Postgres,
    pub url: String,
    pub owner: tokio_postgres::Client,
    pub gateway: Store,
    pub worker: Store,
    pub cron: Store,
    pub alice: Principal,
}

impl Processes {
    pub async fn new() -> Self {
        let server = Postgres::temporary().await.unwrap();
        let url = server.create_database("tasks").await.unwrap();
        migrate(url.clone()).await.unwrap();
        let owner = raw(&url).await;
        // Any number of runs is one.
        for _ in 0..2 {
            owner.batch_execute(ROLES).await.unwrap();
        }
        // As docs/security.md has it: none of them needs any.
        let temporary = "REVOKE TEMPORARY ON DATABASE tasks FROM PUBLIC";
        owner.batch_execute(temporary).await.unwrap();
        let mut of = Vec::new();
        for role in ["gateway", "worker", "cron"] {
            let user = format!("CREATE ROLE {role} LOGIN IN ROLE mcp_tasks_{role}");
            owner.batch_execute(&user).await.unwrap();
            of.push(store(config(&as_role(&url, role))));
        }
        let [gateway, worker, cron] = <[Store; 3]>::try_from(of).ok().unwrap();
        Self {
            _server: server,
            url,
            owner,
            gateway,
            worker,
            cron,
            alice: Principal::verified(
                "https://issuer".into(),
                "alice".into(),
                Some("acme".into()),
            ),
        }
    }

    async fn queued(&self) -> protocol::TaskId {
        let policy = ToolPolicy::default();
        match create(&self.gateway, &self.alice, &policy, |_| ()).await {
            Created::New(task) => task.id,
            other => panic!("{other:?}"),
        }
    }
}

pub fn as_role(url: &str, role: &str) -> String {
    url.replace("postgres@", &format!("{role}@"))
}

/// Each is refused for want of a right, and for nothing else.
pub async fn all_denied(client: &tokio_postgres::Client, statements: &[&str]) {
    for sql in statements {
        let error = client.batch_execute(sql).await.expect_err(sql);
        assert_eq!(error.code().unwrap().code(), "42501", "{sql}: {error}");
        client.batch_execute("ROLLBACK").await.unwrap();
    }
}

fn denied<T: std::fmt::Debug>(result: Result<T, store::Error>, what: &str) {
    let error = result.expect_err(what);
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    assert!(text.contains("permission denied"), "{what}: {text}");
}

#[tokio::test]
async fn each_process_does_its_work_and_no_others() {
    let all = Processes::new().await;
    let (gateway, worker, cron, alice) = (&all.gateway, &all.worker, &all.cron, &all.alice);

    // What each needs is there.
    for process in [gateway, worker, cron] {
        process.check_schema().await.unwrap();
        assert_eq!(process.missing_rights().await.unwrap(), Vec::new());
    }

    // The gateway's work.
    let id = all.queued().await;
    gateway.hand_out(id).await.unwrap();
    gateway.hold(&[id], SECOND).await.unwrap();
    gateway.mark_hinted(&[(id, None)]).await.unwrap();
    gateway.count_live(alice, (10, 10)).await.unwrap();
    gateway.list_owned(alice, None, 10).await.unwrap();
    gateway.tools().await.unwrap();
    assert!(matches!(
        gateway.get(alice, id).await.unwrap(),
        Lookup::Found(_)
    ));
    let unknown = gateway.get(alice, task_id()).await.unwrap();
    assert!(matches!(unknown, Lookup::Unknown));
    let cancelled = gateway.cancel(alice, all.queued().await).await.unwrap();
    assert_eq!(cancelled, Cancel::Cancelled);

    // Not the worker's: taking a job, its journal, its result.
    let request = ClaimRequest {
        id,
        tool: "report",
        version: 1,
        resumes: &[1],
        token: token(),
        worker: "gateway",
    };
    denied(gateway.claim(&request).await, "a claim by the gateway");
    let claim = claim_as(worker, id, token()).await.unwrap();
    denied(
        gateway.begin_step(&claim, step("a")).await,
        "a step by the gateway",
    );
    denied(
        gateway.complete(&claim, b"{}", NO_WORK).await,
        "a result by the gateway",
    );
    let of_gateway = raw(&as_role(&all.url, "gateway")).await;
    let others = [
        "UPDATE tasks SET result = 'x'",
        "UPDATE tasks SET subject = 'mallory'",
        "UPDATE tasks SET arguments = 'x'",
        "UPDATE tasks SET claim_token = NULL",
        "UPDATE tasks SET alerted_at = now()",
        "INSERT INTO tasks SELECT * FROM tasks",
        "INSERT INTO tasks (id, status, result) VALUES (gen_random_uuid(), 'completed', 'x')",
        "INSERT INTO steps DEFAULT VALUES",
        "INSERT INTO inputs DEFAULT VALUES",
        "INSERT INTO callbacks DEFAULT VALUES",
        "UPDATE callbacks SET step_output = 'x'",
        "UPDATE inputs SET request = 'x'",
        "DELETE FROM steps",
        "DELETE FROM inputs",
        "DELETE FROM callbacks",
        "DELETE FROM attempts",
        "SELECT output FROM steps",
        "UPDATE tools SET version = 2",
        "DELETE FROM workers",
        "SELECT * FROM audit",
        "DELETE FROM audit",
        "SELECT * FROM alerts",
        "CREATE TABLE mine (a int)",
        "TRUNCATE tasks",
        "DROP TABLE tasks",
    ];
    all_denied(&of_gateway, &others).await;

    // The worker's work, with an answer by the gateway between.
    let asked = [question("q")];
    let parked = worker.park(&claim, ParkedFor::Task, &asked, NO_WORK).await;
    assert_eq!(parked.unwrap(), Parked::Parked);
    let accepted = r#"{"action": "accept", "content": {"charts": true}}"#;
    let answers = answers(&[("q", accepted)]);
    let colleague = Principal {
        subject: "bob".to_owned(),
        ..alice.clone()
    };
    let answered = gateway
        .answer_for_tenant(&colleague, id, &answers, None)
        .await;
    assert!(matches!(answered.unwrap(), Answer::Resumed { .. }));
    let claim = claim_as(worker, id, token()).await.unwrap();
    let result = worker.complete(&claim, b"{}", NO_WORK).await.unwrap();
    assert_eq!(result, Write::Done);

    // Not the gateway's.
    let of_worker = raw(&as_role(&all.url, "worker")).await;
    let others = [
        "INSERT INTO tasks SELECT * FROM tasks",
        "DELETE FROM tasks",
        "UPDATE tasks SET subject = 'mallory'",
        "UPDATE tasks SET arguments = 'x'",
        "UPDATE tasks SET first_fetched_at = now()",
        "UPDATE inputs SET response = 'x'",
        "UPDATE callbacks SET response = 'x'",
        "DELETE FROM inputs",
        "DELETE FROM callbacks",
        "SELECT * FROM idempotency_keys",
        "SELECT * FROM audit",
        "DELETE FROM tombstones",
    ];
    all_denied(&of_worker, &others).await;

    // Cron's work: what is over is deleted, and leaves its tombstone.
    let over = "UPDATE tasks SET created_at = now() - interval '2 days', expires_at = now() - interval '1 day' \
                WHERE phase IS NULL";
    all.owner.batch_execute(over).await.unwrap();
    assert!(cron.purge(100, SECOND).await.unwrap() >= 1);
    cron.expire(100).await.unwrap();
    cron.gauges().await.unwrap();
    cron.purge_audit(100, SECOND).await.unwrap();
    let of_cron = raw(&as_role(&all.url, "cron")).await;
    let others = [
        "INSERT INTO tasks SELECT * FROM tasks",
        "UPDATE tasks SET result = 'x'",
        "UPDATE tasks SET subject = 'mallory'",
        "UPDATE tasks SET first_fetched_at = now()",
        "SELECT arguments FROM tasks",
        "SELECT result FROM tasks",
        "SELECT response FROM inputs",
        "INSERT INTO steps DEFAULT VALUES",
        "UPDATE steps SET output = 'x'",
        "UPDATE callbacks SET response = 'x'",
        "INSERT INTO audit DEFAULT VALUES",
        "UPDATE audit SET operator = 'x'",
        "UPDATE audit SET outcome = 'x'",
        "UPDATE audit_tasks SET outcome = 'x'",
        "UPDATE tombstones SET final_status = 'x'",
    ];
    all_denied(&of_cron, &others).await;
}

/// What each process runs. (The commands of operators are the owner's.)
const OF_GATEWAYS: &str = "abandon audit_delegate call_of clock count_live create create_one delivered_inline existing \
    find_callback forget_orphan get get_one hand_out hold hold_asked keep_waiting list_owned lock_called \
    lock_for_answer lock_task mark_fetched mark_hinted outstanding progress_callback providers queue_waits \
    receive_callback request_stop resource_updates resume schema_state settle_stopped store_answers \
    task_key tombstone tombstones tools want_resources";
const OF_WORKERS: &str = "abandon_step begin_step begin_undo claim claim_best claim_one claim_queued claimed_as complete complete_one \
    delist_provider delist_tool elect_tools fail fail_undo finish_step finish_undo give_up_undos heartbeat hinted \
    journal lock_running lock_slots lock_tools lock_undoing next_undo open_callback park progress put_off \
    record_answer record_resource_updates register_provider register_tool release repeated retry retry_undo \
    schema_state set_current settle_stopped slots stop_own task_key touch_tools undone undos unhinted unserve \
    unserve_providers wait_callback wake wanted_resources worker_alive worker_gone";
const OF_CRONS: &str = "delist_unserved delist_unserved_providers due_deliveries elect_tools end_holds expire \
    expiring forget_resources forsaken gauges give_up_undos keep_waiting lead_sweep lock_task lock_tools \
    lock_unanswered lock_undoing mark_hinted outstanding purge purge_alerts purge_audit purge_tombstones \
    purgeable queue_ages raise_live raise_unfetched request_stop resolve_alerts resume rewrap rewrappable schema_state \
    sealed_by sent_deliveries set_current settle_stopped slots stoppable store_answers sweep_success swept tool_names tool_states \
    unanswered undo_forsaken undone undos unfetched unheld unhinted unhinted_ages unjudged unsent_delivery \
    version_gone waiting_callbacks wake watched";

/// What the commands of operators run, as the owner of the tables.
const OF_OPERATORS: &str = "audit_begin audit_done audit_end audit_list audit_task bury doctor_server doctor_sweeps elsewhere erase erase_traces list_tasks live_of \
    members_of missing_rights pause_tool queues record_migration repeat_task repeatable repeats requeue_task reseal resume_tool \
    schema_exists schema_migrations schema_tables server session set_oldest_supported show_alerts show_attempts \
    show_callbacks show_inputs show_steps show_task show_tombstone stopped_by task_owner traces \
    try_migration_lock workers";

/// A statement that is on no list is tried under no role: whoever adds one says whose it is.
#[test]
fn every_statement_is_somebodys() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sql");
    let listed: std::collections::BTreeSet<&str> =
        [OF_GATEWAYS, OF_WORKERS, OF_CRONS, OF_OPERATORS]
            .iter()
            .flat_map(|list| list.split_whitespace())
            .collect();
    let files = std::fs::read_dir(dir).unwrap().flatten();
    let names = files.filter_map(|file| {
        let name = file.file_name().into_string().unwrap();
        name.strip_suffix(".sql").map(str::to_owned)
    });
    let mut missing: Vec<String> = names
        .filter(|name| !listed.contains(name.as_str()))
        .collect();
    missing.sort();
    assert!(
        missing.is_empty(),
        "add each to the list of the process that runs it (a statement of operators to theirs): {missing:?}"
    );
}

/// Postgres looks at rights before it plans, and plans without acting.
#[tokio::test]
async fn every_statement_of_a_process_is_allowed_to_it() {
    let all = Processes::new().await;
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sql");
    let mut refused = Vec::new();
    for (role, statements) in [
        ("gateway", OF_GATEWAYS),
        ("worker", OF_WORKERS),
        ("cron", OF_CRONS),
    ] {
        let client = raw(&as_role(&all.url, role)).await;
        for name in statements.split_whitespace() {
            let sql = std::fs::read_to_string(dir.join(format!("{name}.sql"))).unwrap();
            let arguments = match client.prepare(&sql).await.unwrap().params().len() {
                0 => String::new(),
                n => format!("({})", vec!["NULL"; n].join(", ")),
            };
            let explain =
                format!("PREPARE s_{name} AS {sql}; EXPLAIN EXECUTE s_{name} {arguments}");
            if let Err(error) = client.batch_execute(&explain).await {
                refused.push(format!("{role}: {name}: {error:?}"));
            }
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
}
