//! The whole system with a user of Postgres for each kind of process: everything that tasks go through
//! works, nothing is refused, and no process can do what is another's.

use std::process::Command;

use harness::client::Client;
use harness::cluster::Cluster;
use harness::config::Role;
use harness::postgres::{self, Postgres};
use harness::redis::Redis;
use harness::temp::Temp;
use harness::wait;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::callbacks::{Service, post};
use crate::support::{SOON, keyed, plan};

const BINARY: &str = env!("CARGO_BIN_EXE_mcp-tasks");

/// Sweeps that a test need not wait for, and everything that is ever written down.
const SETTINGS: &str = r#"
[cron]
reconcile_interval = "200ms"
deadline_interval = "200ms"
purge_interval = "200ms"
alerts_interval = "200ms"
gauges_interval = "500ms"
[alerts]
unfetched_after = "1s"
[[alerts.receivers]]
name = "log"
kind = "log"
[callbacks]
keys = ["1f1e1d1c1b1a191817161514131211100f0e0d0c0b0a09080706050403020100"]
public_url = "http://callbacks.example"
"#;

struct World {
    cluster: Cluster,
    postgres: Postgres,
    url: String,
    service: Service,
    _redis: Redis,
    _dir: Temp,
}

/// The same database as another user.
fn as_role(url: &str, role: &str) -> String {
    url.replace("postgres@", &format!("{role}@"))
}

impl World {
    async fn new() -> Self {
        let (postgres, redis) = tokio::join!(Postgres::temporary(), Redis::temporary());
        let (postgres, redis) = (postgres.unwrap(), redis.unwrap());
        let url = postgres.create_database("roles").await.unwrap();
        let dir = Temp::new().unwrap();
        let owner = dir.path().join("owner.toml");
        std::fs::write(&owner, format!("[postgres]\nurl = \"{url}\"\n")).unwrap();
        let migrate = ["migrate", "--roles", "--config"];
        let migrated = Command::new(BINARY).args(migrate).arg(&owner).output();
        let migrated = migrated.unwrap();
        let told = String::from_utf8_lossy(&migrated.stderr);
        assert!(migrated.status.success(), "{told}");
        for role in ["gateway", "worker", "cron"] {
            let user = format!("CREATE ROLE {role} LOGIN IN ROLE mcp_tasks_{role}");
            postgres::rows(&url, &user).await.unwrap();
        }
        let service = Service::start().await;
        let settings = format!("{SETTINGS}{}", files(&dir, &service.url));
        let mut cluster = plan(&url, &redis.url())
            .of(0, 0, 0)
            .settings(&settings)
            .start()
            .await
            .unwrap();
        let chaos = format!(
            "[tools]\nfixtures = \"chaos\"\nledger = {:?}\n",
            dir.path().join("ledger")
        );
        for (role, user, more) in [
            (Role::Gateway, "gateway", ""),
            (Role::Gateway, "gateway", ""),
            (Role::Worker, "worker", ""),
            (Role::Worker, "worker", chaos.as_str()),
            (Role::Cron, "cron", ""),
        ] {
            let change = |plan: &mut harness::node::Plan| {
                plan.common.postgres_url = as_role(&url, user);
                let over = more.parse().unwrap();
                harness::config::merge(&mut plan.common.settings, &over);
            };
            cluster.add_with(role, change).unwrap();
        }
        cluster.ready().await.unwrap();
        let world = Self {
            cluster,
            postgres,
            url,
            service,
            _redis: redis,
            _dir: dir,
        };
        let alice = world.client("alice");
        let listed = async || alice.list().await.unwrap_or_default();
        let all = |tools: &Vec<Value>| {
            let names = ["greet", "slow_compute", "chaos_undo", "job"];
            let has = |name: &&str| tools.iter().any(|tool| tool["name"] == *name);
            names.iter().all(has)
        };
        wait::for_state("the tools", SOON, listed, all)
            .await
            .unwrap();
        world
    }

    fn client(&self, name: &str) -> Client {
        Client::new(&self.cluster.gateways[0].url()).bearer(&format!("mtk_{name}"))
    }

    async fn count(&self, sql: &str) -> i64 {
        let rows = postgres::rows(&self.url, sql).await.unwrap();
        rows[0][0].as_deref().unwrap().parse().unwrap()
    }

    async fn until(&self, what: &str, sql: &str) {
        let look = async || self.count(sql).await;
        wait::for_state(what, SOON, look, |count| *count > 0)
            .await
            .unwrap();
    }

    /// What Postgres refused to anybody.
    fn refused(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.postgres.log()).unwrap();
        let lines = log
            .lines()
            .filter(|line| line.contains("permission denied"));
        lines.map(str::to_owned).collect()
    }
}

/// Keys of callers, and a tool whose service answers later.
fn files(dir: &Temp, service: &str) -> String {
    let entry = |name: &str, scopes: &str| {
        let hash = Sha256::digest(format!("mtk_{name}"));
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        format!(
            "[[key]]\nsha256 = \"{hash}\"\nsubject = \"{name}\"\ntenant = \"acme\"\nscopes = [{scopes}]\n"
        )
    };
    let keys = dir.path().join("keys.toml");
    let all = [entry("alice", ""), entry("bob", "\"approve\"")].concat();
    std::fs::write(&keys, all).unwrap();
    let tools = dir.path().join("tools.toml");
    let job = format!(
        "[[http]]\nname = \"job\"\ndescription = \"D.\"\nurl = \"{service}/job\"\n\
         callback_wait = \"1h\"\neffects = \"repeatable\"\n[http.policy]\ninline_budget = \"0s\"\n"
    );
    std::fs::write(&tools, job).unwrap();
    format!(
        "[auth]\nmode = \"tokens\"\napi_keys_file = {keys:?}\n[auth.scopes]\ndelegate = [\"approve\"]\n\
         [tools]\nfile = {tools:?}\n"
    )
}

fn chaos(call: &str, items: Value, end: &str) -> Value {
    json!({ "call": call, "items": items, "end": end })
}

/// One that acts, and asks for a word.
fn asking() -> Value {
    json!([acting(), {"ask": [{"key": "word"}]}])
}

fn acting() -> Value {
    json!({"step": {"key": "act", "undo": {"refuses": 1}}})
}

impl World {
    /// At once, and again by key; as a task that a colleague answers for, heard of all the while.
    async fn calls_and_questions(&self) {
        let (alice, bob) = (self.client("alice"), self.client("bob"));
        let greet = keyed("greet", json!({"name": "Ada"}), "k");
        for _ in 0..2 {
            let answer = alice.request("tools/call", greet.clone()).send().await;
            let answer = answer.unwrap().message;
            assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
        }
        let id = alice.start("chaos_undo", chaos("a", asking(), "result"));
        let id = id.await.unwrap();
        let mut stream = alice.listen(json!({"taskIds": [id]})).await.unwrap();
        alice
            .wait_status(&id, "input_required", SOON)
            .await
            .unwrap();
        let word = json!({"word": {"action": "accept", "content": {"value": "yes"}}});
        bob.update(&id, word).await.unwrap();
        let task = alice.wait_end(&id, SOON).await.unwrap();
        assert_eq!(task["status"], "completed", "{task}");
        assert!(stream.next(SOON).await.unwrap().is_some());
        assert_eq!(self.count("SELECT count(*) FROM audit").await, 1);
    }

    /// One that fails and is undone; nobody reads of it, and people are told. Two that are stopped.
    async fn ends(&self) {
        let alice = self.client("alice");
        let unread = alice.start("chaos_undo", chaos("b", json!([acting()]), "failed"));
        let unread = unread.await.unwrap();
        let told = format!(
            "SELECT count(*) FROM alerts a JOIN alert_deliveries d ON d.alert_id = a.id \
             WHERE a.task_id = '{unread}' AND d.delivered_at IS NOT NULL"
        );
        self.until("an alert is sent", &told).await;
        let task = alice.get(&unread).await.unwrap();
        assert_eq!(task["status"], "failed", "{task}");

        let runs = self.running(600).await;
        let parked = alice.start("chaos_undo", chaos("c", asking(), "result"));
        let parked = parked.await.unwrap();
        alice
            .wait_status(&parked, "input_required", SOON)
            .await
            .unwrap();
        for id in [&runs, &parked] {
            alice.cancel(id).await.unwrap();
            alice.wait_status(id, "cancelled", SOON).await.unwrap();
        }
    }

    /// A task that a worker has.
    async fn running(&self, seconds: u32) -> String {
        let alice = self.client("alice");
        let id = alice.start("slow_compute", json!({"seconds": seconds}));
        let id = id.await.unwrap();
        let runs = format!("SELECT count(*) FROM tasks WHERE id = '{id}' AND phase = 'running'");
        self.until("it runs", &runs).await;
        id
    }

    /// A service that answers later, and what is provided beside tools.
    async fn others(&self) {
        let alice = self.client("alice");
        let job = alice.start("job", json!({})).await.unwrap();
        let place = self.service.request(0).await.url;
        let place = place.strip_prefix("http://callbacks.example").unwrap();
        let place = self.cluster.gateways[1].url().replace("/mcp", place);
        for body in [
            "{\"progress\":1,\"message\":\"half way\"}",
            "{\"text\":\"done\"}",
        ] {
            let (status, said) = post(&place, body).await;
            assert!(matches!(status, 200 | 202), "{status}: {said}");
        }
        let task = alice.wait_end(&job, SOON).await.unwrap();
        assert_eq!(task["status"], "completed", "{task}");
        for (method, params) in [
            ("resources/list", json!({})),
            ("prompts/list", json!({})),
            ("resources/read", json!({"uri": "test://static-text"})),
        ] {
            let answer = alice.request(method, params).send().await.unwrap();
            assert!(answer.message["result"].is_object(), "{}", answer.message);
        }
    }

    /// A worker dies in the middle, and comes back; what is over is deleted, and leaves its tombstone.
    async fn losses(&mut self) {
        let lost = self.running(10).await;
        let worker = &mut self.cluster.workers[0];
        worker.kill9();
        worker.start_again().unwrap();
        worker.ready().await.unwrap();
        self.client("alice").wait_end(&lost, SOON).await.unwrap();
        let over = "UPDATE tasks SET created_at = now() - interval '3 days', \
                    expires_at = now() - interval '2 days' WHERE phase IS NULL";
        postgres::rows(&self.url, over).await.unwrap();
        self.until("it is purged", "SELECT count(*) FROM tombstones")
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_works_with_a_user_for_each_process_and_nothing_is_refused() {
    let mut world = World::new().await;
    world.calls_and_questions().await;
    world.ends().await;
    world.others().await;
    world.losses().await;
    for node in world.cluster.nodes() {
        assert!(node.stop(SOON).await.unwrap().success());
    }
    assert_eq!(world.refused(), Vec::<String>::new());

    // And each refuses to be another. (The tests of the store try each statement.)
    for (role, writes) in [
        (
            "gateway",
            &[
                "UPDATE tasks SET result = 'x'",
                "UPDATE tasks SET claim_token = gen_random_uuid()",
                "UPDATE tasks SET subject = 'mallory'",
                "INSERT INTO tasks SELECT * FROM tasks",
                "INSERT INTO steps DEFAULT VALUES",
                "INSERT INTO inputs DEFAULT VALUES",
                "UPDATE steps SET attempt = 9",
                "UPDATE callbacks SET step_output = 'x'",
                "DELETE FROM steps",
                "DELETE FROM callbacks",
                "SELECT output FROM steps",
                "INSERT INTO workers DEFAULT VALUES",
                "UPDATE tools SET version = version + 1",
                "DELETE FROM tombstones",
                "SELECT * FROM audit",
            ][..],
        ),
        (
            "worker",
            &[
                "INSERT INTO tasks DEFAULT VALUES",
                "DELETE FROM tasks",
                "UPDATE tasks SET subject = 'mallory'",
                "SELECT * FROM idempotency_keys",
                "SELECT * FROM audit",
            ],
        ),
        (
            "cron",
            &[
                "INSERT INTO tasks DEFAULT VALUES",
                "UPDATE tasks SET result = 'x'",
                "SELECT arguments FROM tasks",
                "UPDATE audit SET operator = 'x'",
                "INSERT INTO tools DEFAULT VALUES",
                "CREATE TABLE mine (a int)",
            ],
        ),
    ] {
        for sql in writes {
            let refused = postgres::rows(&as_role(&world.url, role), sql).await;
            let told = format!("{:?}", refused.expect_err(sql));
            assert!(told.contains("permission denied"), "{role}: {sql}: {told}");
        }
    }
    // Which Postgres writes down, so that what was looked for above would have been found.
    assert!(world.refused().len() >= 26, "{:?}", world.refused());
}

/// Nobody but who makes the roles once needs a right to make roles: the owner of the tables gives them their rights.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_who_may_make_no_roles_gives_rights_to_those_that_are_there() {
    let postgres = Postgres::temporary().await.unwrap();
    let super_url = postgres.create_database("unused").await.unwrap();
    let run = async |url: &str, sql: &str| postgres::rows(url, sql).await.unwrap();
    for sql in [
        "CREATE ROLE owner LOGIN",
        "CREATE DATABASE owned OWNER owner",
    ] {
        run(&super_url, sql).await;
    }
    let url = as_role(&postgres.url("owned"), "owner");
    let dir = Temp::new().unwrap();
    let settings = dir.path().join("owner.toml");
    std::fs::write(&settings, format!("[postgres]\nurl = \"{url}\"\n")).unwrap();
    let migrate = || {
        let migrate = ["migrate", "--roles", "--config"];
        let migrated = Command::new(BINARY).args(migrate).arg(&settings).output();
        let migrated = migrated.unwrap();
        let said = [migrated.stdout, migrated.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        (migrated.status.success(), said)
    };
    // Without them the schema is there, and what is missing is said.
    let (done, said) = migrate();
    assert!(
        !done && said.contains("permission denied to create role"),
        "{said}"
    );
    for role in ["gateway", "worker", "cron"] {
        run(&super_url, &format!("CREATE ROLE mcp_tasks_{role} NOLOGIN")).await;
        run(
            &super_url,
            &format!("CREATE ROLE {role} LOGIN IN ROLE mcp_tasks_{role}"),
        )
        .await;
    }
    for _ in 0..2 {
        let (done, said) = migrate();
        assert!(done, "{said}");
    }
    let gateway = as_role(&postgres.url("owned"), "gateway");
    run(&gateway, "SELECT count(*) FROM tasks").await;
    let refused = postgres::rows(&gateway, "UPDATE tasks SET result = 'x'").await;
    assert!(
        format!("{refused:?}").contains("permission denied"),
        "{refused:?}"
    );
}
