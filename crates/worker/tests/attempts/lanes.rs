//! Hints of several streams: one that gets another stream's job is not lost to its own.

use std::sync::Arc;
use std::time::Duration;

use protocol::TaskId;
use queue::Lane;
use serde_json::json;
use store::ToolPolicy;
use telemetry::{Health, Registry};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use worker::{Arguments, CallToolResult, Context, Definition, Tool, ToolError, ToolSet, ToolSpec};

use crate::world::{SOON, World};

/// A tool of some name, that takes a moment.
struct Brief(&'static str, ToolPolicy);

#[worker::async_trait]
impl Tool for Brief {
    fn spec(&self) -> ToolSpec {
        let mut spec = ToolSpec::new(Definition::new(self.0, &json!({ "type": "object" })));
        spec.policy = self.1.clone();
        spec
    }

    async fn call(&self, _: &mut Context, _: Arguments) -> Result<CallToolResult, ToolError> {
        tokio::time::sleep(Duration::from_millis(10)).await;
        Ok(CallToolResult::text("done"))
    }
}

/// A worker with one place.
fn worker(
    world: &Arc<World>,
    tools: &[(&'static str, &ToolPolicy)],
) -> AbortOnDropHandle<Result<(), worker::Error>> {
    let set = ToolSet::new();
    for (name, policy) in tools {
        set.insert(Arc::new(Brief(name, (*policy).clone())))
            .unwrap();
    }
    worker_of(world, set, 1)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the handle is owned by what is returned"
)]
fn worker_of(
    world: &Arc<World>,
    set: ToolSet,
    slots: usize,
) -> AbortOnDropHandle<Result<(), worker::Error>> {
    let registry = Registry::new();
    let settings = worker::Config {
        slots,
        ..worker::Config::default()
    };
    let (store, queue) = (world.store.clone(), world.queue.clone());
    let health = Health::new(&registry);
    let worker = worker::Worker::new(settings, store, queue, set, &registry, health);
    AbortOnDropHandle::new(tokio::spawn(Box::pin(worker.run(CancellationToken::new()))))
}

/// A task of Alice's, which is then somebody else's.
async fn start(world: &World, tool: &'static str, subject: &str, policy: &ToolPolicy) {
    let id = world.start_with(policy, |new| new.tool = tool).await;
    let owner = format!("UPDATE tasks SET subject = '{subject}' WHERE id = '{id}'");
    world.rows(&owner).await;
    hint(world, tool, id).await;
}

async fn hint(world: &World, tool: &str, id: TaskId) {
    let lane = Lane {
        tool: tool.to_owned(),
        version: 1,
    };
    world.queue.push(&lane, id).await.unwrap();
}

async fn all_end(world: &World, tasks: usize) {
    let done = "SELECT count(*) FROM tasks WHERE status = 'completed'";
    harness::wait::for_state(
        "all tasks end without another hint",
        SOON,
        async || world.rows(done).await[0][0].clone(),
        |count| *count == Some(tasks.to_string()),
    )
    .await
    .unwrap();
}

/// How many hints there are in the streams of these tools.
async fn hints(world: &World, tools: &[&str]) -> u64 {
    let streams = world.queue.streams().await.unwrap();
    let of_tools = streams
        .iter()
        .filter(|(lane, _)| tools.contains(&lane.tool.as_str()));
    of_tools.map(|(_, standing)| standing.entries).sum()
}

async fn no_hint_stays(world: &World, tools: &[&str]) {
    harness::wait::until("all hints are used up", SOON, async || {
        (hints(world, tools).await == 0).then_some(())
    })
    .await
    .unwrap();
}

/// One worker serves both tools, the other one of them; each has one place, so that every job is taken
/// by turn. Nobody hints anything again.
#[tokio::test(flavor = "multi_thread")]
async fn workers_of_different_tools_strand_no_job() {
    let world = World::new().await;
    let policy = ToolPolicy::default();
    for n in 0..15 {
        start(&world, "first", &format!("a{}", n % 3), &policy).await;
        start(&world, "second", &format!("b{}", n % 2), &policy).await;
    }
    let _both = worker(&world, &[("first", &policy), ("second", &policy)]);
    let _second = worker(&world, &[("second", &policy)]);
    all_end(&world, 30).await;
    no_hint_stays(&world, &["first", "second"]).await;
}

/// More waits than there are places, in two streams, for as long as it lasts: every job is taken by turn, half
/// of them by a hint of the other stream. Hints do not become more and more meanwhile: a worker that finds
/// some thinks that more waits than it has places, and takes by turn what a hint would lead to for less.
#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_that_stays_leaves_no_hints_behind() {
    const CROWD: usize = 20;
    const JOBS: usize = 600;
    let world = World::new().await;
    let policy = ToolPolicy::default();
    let both = [("first", &policy), ("second", &policy)];
    let _workers = [worker(&world, &both), worker(&world, &both)];
    let waiting = "SELECT count(*) FROM tasks WHERE phase = 'queued'";
    let (mut made, mut most) = (0, 0);
    while made < JOBS {
        let waits = world.rows(waiting).await[0][0].clone().unwrap();
        for _ in waits.parse::<usize>().unwrap()..CROWD {
            let tool = ["first", "second"][made % 2];
            start(&world, tool, &format!("a{}", made % 3), &policy).await;
            made += 1;
        }
        most = most.max(hints(&world, &["first", "second"]).await);
    }
    println!("at most {most} hints for {CROWD} jobs that wait");
    assert!(most < 6 * CROWD as u64, "{most} hints");
    all_end(&world, made).await;
    no_hint_stays(&world, &["first", "second"]).await;
}

/// A limited and an unlimited tool in one queue, and a priority.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_slot_is_woken_and_nobody_else_waits() {
    let world = World::new().await;
    let plain = ToolPolicy::default();
    let limited = ToolPolicy {
        concurrency: Some(1),
        priority: 5,
        ..ToolPolicy::default()
    };
    let tools = [("limited", &limited), ("plain", &plain)];
    for n in 0..15 {
        start(&world, "limited", &format!("a{}", n % 3), &limited).await;
        start(&world, "plain", &format!("a{}", n % 3), &plain).await;
    }
    let _workers = [
        worker(&world, &tools),
        worker(&world, &tools),
        worker(&world, &tools),
    ];
    all_end(&world, 30).await;
    no_hint_stays(&world, &["limited", "plain"]).await;
}

/// Two jobs end, and both times the same job is found to be next: the second hint leads to a job that runs already,
/// and there is a slot for one that has no hint.
#[tokio::test(flavor = "multi_thread")]
async fn a_hint_whose_job_runs_fills_the_other_slot() {
    let world = World::new().await;
    let policy = ToolPolicy {
        concurrency: Some(2),
        ..ToolPolicy::default()
    };
    let tool = |new: &mut store::NewTask<'_>| new.tool = "limited";
    let first = world.start_with(&policy, tool).await;
    let request = store::ClaimRequest {
        id: first,
        tool: "limited",
        version: 1,
        resumes: &[1],
        token: uuid::Uuid::new_v4(),
        worker: "another",
    };
    world.store.claim(&request).await.unwrap().unwrap();
    world.start_with(&policy, tool).await;
    hint(&world, "limited", first).await;
    let _worker = worker(&world, &[("limited", &policy)]);
    all_end(&world, 1).await;
    no_hint_stays(&world, &["limited"]).await;
}

/// Much of a tool with slots enough for all waits beside something more urgent, with as many hints as there are jobs. They
/// do not become more and more, and lead to nothing out of turn; and what is less urgent is not forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn a_limited_tool_takes_its_turn_and_no_more() {
    const JOBS: usize = 60;
    let world = World::new().await;
    let urgent = ToolPolicy {
        priority: 5,
        concurrency: Some(40),
        ..ToolPolicy::default()
    };
    let plain = ToolPolicy {
        concurrency: Some(40),
        ..ToolPolicy::default()
    };
    for n in 0..JOBS {
        start(&world, "plain", &format!("a{}", n % 3), &plain).await;
        start(&world, "urgent", &format!("a{}", n % 3), &urgent).await;
    }
    let _worker = worker(&world, &[("plain", &plain), ("urgent", &urgent)]);
    let begun = async |tool: &str| {
        let sql = format!("SELECT count(*) FROM tasks WHERE tool = '{tool}' AND attempt > 0");
        let count = world.rows(&sql).await[0][0].clone().unwrap();
        count.parse::<usize>().unwrap()
    };
    let halfway = async || (begun("urgent").await >= JOBS / 2).then_some(());
    harness::wait::until("half of what is urgent has begun", SOON, halfway)
        .await
        .unwrap();
    let (low, high) = (begun("plain").await, begun("urgent").await);
    println!("{low} plain jobs beside {high} urgent ones");
    // One of eight.
    assert!(low >= 2 && low * 4 <= high, "{low} beside {high}");
    let left = hints(&world, &["plain", "urgent"]).await;
    assert!(left < 3 * JOBS as u64, "{left} hints");
    all_end(&world, 2 * JOBS).await;
    no_hint_stays(&world, &["plain", "urgent"]).await;
}

/// The only hint of those who wait for a slot names a job that was cancelled meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_hint_whose_job_was_cancelled_fills_the_slot() {
    let world = World::new().await;
    let policy = ToolPolicy {
        concurrency: Some(1),
        ..ToolPolicy::default()
    };
    let tool = |new: &mut store::NewTask<'_>| new.tool = "limited";
    let first = world.start_with(&policy, tool).await;
    world.start_with(&policy, tool).await;
    hint(&world, "limited", first).await;
    let cancelled = format!(
        "UPDATE tasks SET status = 'cancelled', phase = NULL, finished_at = now() WHERE id = '{first}'"
    );
    world.rows(&cancelled).await;
    let _worker = worker(&world, &[("limited", &policy)]);
    all_end(&world, 1).await;
    no_hint_stays(&world, &["limited"]).await;
}
