//! I14: the statements of the releases that may run beside this one, on this one's schema.
//!
//! `tests/released/<release>/` holds every statement of a release, as it was; CONTRIBUTING says
//! when a folder comes and goes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use protocol::TaskId;
use store::{Answer, Begin, Claim, Ended, Parked, ParkedFor, StepSpec, UndoSpec, Write};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use crate::support::{
    HOUR, NO_WORK, SECOND, World, YES, answers, claim_as, question, step, task_id, token,
};

/// The release whose statements are run here, and not only prepared.
const OLD: &str = "0.1.0";

fn released() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/released")
}

fn releases() -> BTreeSet<String> {
    std::fs::read_dir(released())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

fn statements(release: &str) -> BTreeMap<String, String> {
    std::fs::read_dir(released().join(release))
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect()
}

fn numbers(release: &str) -> Vec<u32> {
    let parts = release.split('.');
    parts.map(|part| part.parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_of_a_supported_release_fits_this_schema() {
    let world = World::new().await;
    let client = world.raw().await;
    for release in releases() {
        let statements = statements(&release);
        assert!(statements.contains_key("claim"), "{release} is empty");
        for (name, sql) in statements {
            // Several statements, run by the migrator only.
            if name == "schema_tables" {
                client.batch_execute(&sql).await.unwrap();
                continue;
            }
            let prepared = client.prepare(&sql).await;
            assert!(prepared.is_ok(), "{release} {name}: {:?}", prepared.err());
        }
    }
}

/// Those that the changelog tells of and the schema still supports, but not this one.
#[tokio::test(flavor = "multi_thread")]
async fn every_supported_release_has_its_statements_here() {
    let world = World::new().await;
    let oldest = world.value("SELECT oldest_supported_release FROM schema_support");
    let oldest = numbers(&oldest.await.unwrap());
    let changelog = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../CHANGELOG.md");
    let changelog = std::fs::read_to_string(changelog).unwrap();
    let cut: BTreeSet<String> = changelog
        .lines()
        .filter_map(|line| line.strip_prefix("## ")?.split(' ').next())
        .filter(|release| release.starts_with(|first: char| first.is_ascii_digit()))
        .filter(|release| *release != store::migrate::release() && numbers(release) >= oldest)
        .map(str::to_owned)
        .collect();
    assert_eq!(releases(), cut, "see Releases in CONTRIBUTING.md");
}

/// An attempt, as the old release's statements name it.
type Mine = (Uuid, i32, Uuid);

type Arguments<'a> = &'a [&'a (dyn ToSql + Sync)];
type Rows = Result<Vec<Row>, tokio_postgres::Error>;

/// A process of the old release: its statements, and nothing else of it.
struct Old {
    client: Client,
    statements: BTreeMap<String, String>,
}

impl Old {
    async fn new(world: &World) -> Old {
        Old {
            client: world.raw().await,
            statements: statements(OLD),
        }
    }

    async fn run(&self, name: &str, arguments: Arguments<'_>) -> Vec<Row> {
        self.try_run(name, arguments).await.unwrap()
    }

    async fn try_run(&self, name: &str, arguments: Arguments<'_>) -> Rows {
        let statement = self.client.prepare(&self.statements[name]).await?;
        self.client.query(&statement, arguments).await
    }

    /// A task of Alice's with a handle.
    async fn create(&self, world: &World) -> Uuid {
        let id = *task_id().as_uuid();
        let alice = &world.alice;
        let (arguments, digest, capabilities) = (&b"{}"[..], &[7_u8; 32][..], &b"{}"[..]);
        let none = None::<&[u8]>;
        let created = self
            .run(
                "create",
                &[
                    &id,
                    &alice.issuer,
                    &alice.subject,
                    &alice.tenant,
                    &"report",
                    &1_i32,
                    &"default",
                    &0_i16,
                    &arguments,
                    &digest,
                    &capabilities,
                    &none,
                    &none,
                    &None::<&str>,
                    &"queued",
                    &Some(3_600_000_i64),
                    &None::<i64>,
                    &5_i32,
                    &3_600_000_i64,
                    &30_000_i64,
                    &true,
                    &None::<&str>,
                ],
            )
            .await;
        assert_eq!(created.len(), 1);
        id
    }

    /// The attempt, if it gets the job.
    async fn claim(&self, id: Uuid, token: Uuid) -> Option<Mine> {
        let resumes = &[1_i32][..];
        let rows = self
            .run(
                "claim",
                &[
                    &id,
                    &"report",
                    &1_i32,
                    &resumes,
                    &token,
                    &60_000_i64,
                    &1_200_i64,
                    &5_000_i64,
                    &"worker-1",
                ],
            )
            .await;
        rows.first().map(|row| (id, row.get("attempt"), token))
    }

    async fn begin(&self, (id, attempt, token): Mine, key: &str, seq: i32) -> bool {
        let arguments: Arguments<'_> = &[&id, &attempt, &token, &key, &seq, &false];
        let rows = self.run("begin_step", arguments).await;
        rows[0].get::<_, i64>("begun") == 1
    }

    async fn finish(&self, (id, attempt, token): Mine, key: &str) {
        let output = &b"1"[..];
        let arguments: Arguments<'_> = &[&id, &attempt, &token, &key, &output];
        self.run("finish_step", arguments).await;
    }

    async fn park(&self, (id, attempt, token): Mine, key: &str) -> bool {
        let asked = question(key);
        let request = std::str::from_utf8(&asked.request).unwrap();
        let object = format!("{{\"{key}\":{request}}}");
        let (object, keys, seqs) = (object.as_bytes(), &[key][..], &[1_i32][..]);
        let (requests, defaults) = (&[request.as_bytes()][..], &[None::<&[u8]>][..]);
        let waits = &[3_600_000_i64][..];
        let arguments: Arguments<'_> = &[
            &id, &attempt, &token, &"task", &object, &keys, &seqs, &requests, &defaults, &waits,
            &5_i64,
        ];
        !self.run("park", arguments).await.is_empty()
    }

    /// As its gateway did it: under the lock of the row.
    async fn answer(&self, world: &World, id: Uuid, key: &str) {
        let alice = &world.alice;
        self.client.batch_execute("BEGIN").await.unwrap();
        let locked = self
            .run("lock_task", &[&id, &alice.issuer, &alice.subject])
            .await;
        assert_eq!(locked[0].get::<_, &str>("phase"), "parked");
        assert!(!locked[0].get::<_, bool>("stopping"));
        let outstanding = self.run("outstanding", &[&id]).await;
        assert_eq!(outstanding[0].get::<_, &str>("key"), key);
        let (keys, values) = (&[key][..], &[YES.as_bytes()][..]);
        self.run("store_answers", &[&id, &keys, &values, &"owner"])
            .await;
        self.run("resume", &[&id, &None::<&str>]).await;
        self.client.batch_execute("COMMIT").await.unwrap();
    }

    async fn complete(&self, (id, attempt, token): Mine, result: &[u8]) {
        let arguments: Arguments<'_> = &[&id, &attempt, &token, &result, &5_i64];
        self.run("complete", arguments).await;
    }

    async fn fail(&self, (id, attempt, token): Mine) -> Rows {
        let error = &b"{\"code\":1,\"message\":\"m\"}"[..];
        let arguments: Arguments<'_> = &[&id, &attempt, &token, &error, &"m", &5_i64];
        self.try_run("fail", arguments).await
    }

    async fn tell_to_stop(&self, id: Uuid) {
        self.run("request_stop", &[&id, &"cancelled", &None::<&str>])
            .await;
    }

    async fn settle(&self, id: Uuid) -> Rows {
        self.settle_all(&[id]).await
    }

    async fn settle_all(&self, ids: &[Uuid]) -> Rows {
        let attempts = vec![None::<i32>; ids.len()];
        let tokens = vec![None::<Uuid>; ids.len()];
        let arguments: Arguments<'_> = &[
            &ids,
            &attempts,
            &tokens,
            &5_000_i64,
            &1_200_i64,
            &60_000_i64,
        ];
        self.try_run("settle_stopped", arguments).await
    }

    /// The status, as its gateway would show it.
    async fn status(&self, world: &World, id: Uuid) -> String {
        let ids = &[id][..];
        let issuers = &[world.alice.issuer.as_str()][..];
        let subjects = &[world.alice.subject.as_str()][..];
        let rows = self.run("get", &[&ids, &issuers, &subjects]).await;
        rows[0].get("status")
    }
}

/// The same attempt, in a process of this release; or the next one, if there is none.
async fn taken(world: &World, id: Uuid, token: Uuid) -> Claim {
    let id = TaskId::from_uuid(id);
    claim_as(&world.store, id, token).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_lives_by_the_old_statements_alone() {
    let world = World::new().await;
    let old = Old::new(&world).await;
    let id = old.create(&world).await;
    let mine = old.claim(id, token()).await.unwrap();
    assert!(old.begin(mine, "deploy", 0).await);
    old.finish(mine, "deploy").await;
    assert!(old.park(mine, "sure").await);
    assert_eq!(old.status(&world, id).await, "input_required");
    old.answer(&world, id, "sure").await;
    let mine = old.claim(id, token()).await.unwrap();
    assert_eq!(mine.1, 2);
    let journal = old.run("journal", &[&id]).await;
    let done = journal.iter().map(|row| (row.get("key"), row.get("done")));
    let done: Vec<(&str, bool)> = done.collect();
    assert_eq!(done, [("deploy", true), ("sure", true)]);
    old.complete(mine, b"{\"n\":  1}").await;
    assert_eq!(old.status(&world, id).await, "completed");
    let task = world.get(TaskId::from_uuid(id)).await;
    assert_eq!(task.result.as_deref(), Some(&b"{\"n\":  1}"[..]));
    // One that fails, and one that is cancelled.
    let id = old.create(&world).await;
    let mine = old.claim(id, token()).await.unwrap();
    assert!(old.begin(mine, "deploy", 0).await);
    let _ = old.fail(mine).await.unwrap();
    assert_eq!(old.status(&world, id).await, "failed");
    let id = old.create(&world).await;
    old.tell_to_stop(id).await;
    assert_eq!(old.settle(id).await.unwrap().len(), 1);
    assert_eq!(old.status(&world, id).await, "cancelled");
}

/// Old and new processes take turns at one task.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_passes_between_old_and_new_processes() {
    let world = World::new().await;
    let old = Old::new(&world).await;
    let store = &world.store;
    // Made by an old gateway, begun by a new worker, taken over by an old one.
    let id = old.create(&world).await;
    let claim = taken(&world, id, token()).await;
    let permit = world.begin(&claim, "deploy").await;
    let finished = store.finish_step(&claim, permit, b"1").await.unwrap();
    assert_eq!(finished, Write::Done);
    let released = store.release(&claim, None, NO_WORK).await.unwrap();
    assert_eq!(released, Write::Done);
    let mine = old.claim(id, token()).await.unwrap();
    assert!(!old.begin(mine, "deploy", 0).await, "it has acted");
    assert!(old.begin(mine, "announce", 1).await);
    // The old worker is lost while its step is open: in doubt for the new one.
    let claim = world.steal(claim.id()).await;
    assert_eq!(claim.attempt(), 3);
    assert_eq!(claim.open_step.as_deref(), Some("announce"));
    let begun = store.begin_step(&claim, step("announce")).await.unwrap();
    assert!(matches!(begun, Begin::InDoubt), "{begun:?}");
    let failed = store.fail(&claim, b"{\"code\":1}", "m", NO_WORK).await;
    assert_eq!(failed.unwrap(), Ended::Done);
    assert_eq!(old.status(&world, id).await, "failed");
    // Asked by a new worker and answered at an old gateway, and the other way round.
    let claim = world.running().await;
    let asked = [question("q")];
    let parked = store.park(&claim, ParkedFor::Task, &asked, NO_WORK).await;
    assert_eq!(parked.unwrap(), Parked::Parked);
    old.answer(&world, *claim.id().as_uuid(), "q").await;
    assert!(world.claim(claim.id()).await.is_some());
    let id = old.create(&world).await;
    let mine = old.claim(id, token()).await.unwrap();
    assert!(old.park(mine, "q").await);
    let id = TaskId::from_uuid(id);
    let answers = answers(&[("q", YES)]);
    let answered = store.answer(&world.alice, id, &answers, None).await;
    assert!(matches!(answered.unwrap(), Answer::Resumed { .. }));
}

/// An old worker does not say when it took the job, so that it is not charged by the time of
/// somebody before it.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_attempt_is_not_charged_with_the_time_before_it() {
    let world = World::new().await;
    let old = Old::new(&world).await;
    let claim = world.running().await;
    let released = world.store.release(&claim, None, NO_WORK).await.unwrap();
    assert_eq!(released, Write::Done);
    // It waits for hours; then an old worker takes it, and is lost.
    let id = claim.id();
    world
        .set(id, "claimed_at = claimed_at - interval '3 hours'")
        .await;
    assert!(old.claim(*id.as_uuid(), token()).await.is_some());
    let next = world.steal(id).await;
    assert!(next.work_left + SECOND * 120 > HOUR, "{:?}", next.work_left);
}

/// An old process knows nothing of undoing: it may take no task that is being undone, and when it ends
/// one that is to be undone, the task is undone first all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_an_old_process_ends_is_undone_first() {
    let world = World::new().await;
    let old = Old::new(&world).await;
    let store = &world.store;
    for expected in ["cancelled", "failed"] {
        let claim = world.running().await;
        let id = *claim.id().as_uuid();
        let Begin::Act(permit) = store.begin_step(&claim, undoable()).await.unwrap() else {
            panic!()
        };
        let finished = store.finish_step(&claim, permit, b"1").await.unwrap();
        assert_eq!(finished, Write::Done);
        let released = store.release(&claim, None, NO_WORK).await.unwrap();
        assert_eq!(released, Write::Done);
        if expected == "cancelled" {
            // In one batch with a task that has nothing to undo.
            let other = old.create(&world).await;
            for id in [id, other] {
                old.tell_to_stop(id).await;
            }
            let settled = old.settle_all(&[id, other]).await.unwrap();
            assert_eq!(settled.len(), 2);
            assert_eq!(old.status(&world, other).await, "cancelled");
        } else {
            let mine = old.claim(id, token()).await.unwrap();
            let _ = old.fail(mine).await.unwrap();
        }
        undone_by_this_release(&world, &old, claim.id()).await;
        assert_eq!(old.status(&world, id).await, expected);
    }
}

/// A step that a new worker began, and said how it is undone; an old one repeats and finishes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_an_old_worker_finishes_is_undone() {
    let world = World::new().await;
    let old = Old::new(&world).await;
    let claim = world.running().await;
    let id = *claim.id().as_uuid();
    let repeatable = StepSpec {
        idempotent: true,
        ..undoable()
    };
    let begun = world.store.begin_step(&claim, repeatable).await.unwrap();
    assert!(matches!(begun, Begin::Act(_)), "{begun:?}");
    world.lose_lease(claim.id()).await;
    let mine = harness::wait::until("an old worker has it", SECOND * 10, async || {
        old.claim(id, token()).await
    });
    let mine = mine.await.unwrap();
    assert!(old.begin(mine, "deploy", 0).await, "it may act again");
    old.finish(mine, "deploy").await;
    let _ = old.fail(mine).await.unwrap();
    undone_by_this_release(&world, &old, claim.id()).await;
    assert_eq!(old.status(&world, id).await, "failed");
}

fn undoable() -> StepSpec<'static> {
    StepSpec {
        undo: Some(UndoSpec {
            how: b"{}",
            idempotent: true,
        }),
        ..step("deploy")
    }
}

/// Nothing of the end shows before that, and an old process cannot get hold of it.
async fn undone_by_this_release(world: &World, old: &Old, task: TaskId) {
    let (store, id) = (&world.store, *task.as_uuid());
    assert_eq!(old.status(world, id).await, "working");
    assert_eq!(old.claim(id, token()).await, None, "not its job");
    assert!(old.settle(id).await.unwrap().is_empty());
    let undoing = world.claim(task).await.unwrap();
    let next = store.next_undo(&undoing).await.unwrap().unwrap();
    assert_eq!(next.key, "deploy");
    let begun = store.begin_undo(&undoing, &next).await.unwrap();
    assert_eq!(begun, Write::Done);
    let finished = store.finish_undo(&undoing, "deploy").await.unwrap();
    assert_eq!(finished, Write::Done);
    assert_eq!(store.undone(&undoing).await.unwrap(), Write::Done);
}
