//! Receivers of alerts that are many, slow, choosy or away, and senders that are killed: with real
//! processes, and receivers that do as they are told.

use std::collections::BTreeSet;
use std::time::Duration;

use harness::client::Client;
use harness::config::Role;
use harness::hook::{Hook, Manner, Post};
use harness::wait;
use serde_json::{Value, json};

use crate::stack::Stack;

pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// Used up by failures only.
pub(crate) const SOON: Duration = Duration::from_secs(40);
const TOOL: &str = "chaos_undo";
/// Failures at once.
const MANY: usize = 2_000;
/// Many sweeps for a second message to come by, if there were one.
const QUIET: Duration = Duration::from_secs(3);

fn webhook(name: &str, hook: &Hook) -> String {
    format!(
        "[[alerts.receivers]]\nname = {name:?}\nkind = \"webhook\"\nurl = \"{}/hook\"\n\
         secret = {SECRET:?}\nquestions = true\n",
        hook.url
    )
}

pub(crate) async fn receiver(manner: Manner) -> Hook {
    Hook::start(manner).await.unwrap()
}

/// Arguments of a chaos tool.
fn plan(call: &str, items: Value, end: &str) -> Value {
    json!({ "call": call, "items": items, "end": end })
}

pub(crate) async fn fail(client: &Client, call: &str) -> String {
    let plan = plan(call, json!([]), "failed");
    client.start(TOOL, plan).await.unwrap()
}

/// Once there are so many.
pub(crate) async fn taken(hook: &Hook, path: &str, number: usize) -> Vec<Post> {
    let within = Duration::from_secs(120);
    let posts = wait::until("messages that were taken", within, async || {
        let posts = hook.taken(path);
        (posts.len() >= number).then_some(posts)
    });
    posts.await.unwrap()
}

fn ids(posts: &[Post]) -> BTreeSet<String> {
    let id = |post: &Post| post.headers["webhook-id"].clone();
    posts.iter().map(id).collect()
}

async fn number(stack: &Stack, sql: &str) -> usize {
    let rows = stack.database.rows(sql).await.unwrap();
    rows[0][0].as_deref().unwrap().parse().unwrap()
}

/// Each is told once to each, though there are two crons, and one receiver that never answers
/// holds up nobody else's messages.
#[tokio::test(flavor = "multi_thread")]
async fn many_failures_at_once_and_a_receiver_that_hangs() {
    let (takes, manager) = (receiver(Manner::Take).await, receiver(Manner::Take).await);
    let hangs = receiver(Manner::Hang).await;
    let settings = format!(
        "[alerts]\n{}{}[[alerts.receivers]]\nname = \"am\"\nkind = \"alertmanager\"\nurl = {:?}\n",
        webhook("takes", &takes),
        webhook("hangs", &hangs),
        manager.url,
    );
    let mut stack = Stack::of((1, 1), &settings).await;
    stack
        .cluster
        .add(Role::Cron)
        .unwrap()
        .ready()
        .await
        .unwrap();
    let alice = stack.cluster.client(0, "alice");
    let id = fail(&alice, "one of many").await;
    let failed = format!("SELECT count(*) FROM tasks WHERE id = '{id}' AND status = 'failed'");
    let one = async || (number(&stack, &failed).await == 1).then_some(());
    wait::until("it failed", SOON, one).await.unwrap();
    let copies = format!(
        "INSERT INTO tasks
         SELECT (jsonb_populate_record(t, jsonb_build_object(
                     'id', gen_random_uuid(), 'finished_at', now() - interval '2 hours'))).*
         FROM tasks t, generate_series(1, {MANY}) WHERE t.id = '{id}' RETURNING 1"
    );
    stack.database.rows(&copies).await.unwrap();

    let posts = taken(&takes, "/hook", MANY).await;
    assert_eq!(ids(&posts).len(), MANY, "each once");
    let alerts = |posts: &[Post]| -> Vec<Value> {
        let bodies = posts.iter().map(Post::json);
        bodies
            .flat_map(|body| body.as_array().unwrap().clone())
            .collect()
    };
    let managed = wait::until("all at Alertmanager", SOON, async || {
        let posts = manager.taken("/api/v2/alerts");
        let told: BTreeSet<String> = alerts(&posts)
            .iter()
            .map(|alert| alert["labels"]["fingerprint"].to_string())
            .collect();
        (told.len() == MANY).then_some(posts.len())
    });
    let requests = managed.await.unwrap();
    assert!(requests < MANY / 8, "{requests} requests: not one an alert");
    let hanging = hangs.posts("/hook").len();
    assert!((1..40).contains(&hanging), "asked {hanging} times");

    let read = "UPDATE tasks SET first_fetched_at = now() RETURNING 1";
    stack.database.rows(read).await.unwrap();
    let posts = taken(&takes, "/hook", 2 * MANY).await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(takes.posts("/hook").len(), 2 * MANY, "and not once more");
    assert_eq!(ids(&posts).len(), 2 * MANY);
    let firing = "SELECT count(*) FROM alerts WHERE resolved_at IS NULL";
    assert_eq!(number(&stack, firing).await, 0);
}

/// Killed after it claimed a message and before the receiver took it: a repeat, never a loss.
#[tokio::test(flavor = "multi_thread")]
async fn a_sender_that_is_killed_leaves_its_message_to_the_next() {
    let hook = receiver(Manner::Hang).await;
    let settings = format!(
        "[alerts]\nunfetched_after = \"0s\"\n{}",
        webhook("hook", &hook)
    );
    let mut stack = Stack::of((1, 1), &settings).await;
    let alice = stack.cluster.client(0, "alice");
    let id = fail(&alice, "killed").await;
    let sent = wait::until("it is being sent", SOON, async || {
        hook.posts("/hook").first().cloned()
    });
    let sent = sent.await.unwrap();
    let cron = &mut stack.cluster.crons[0];
    cron.kill9();
    hook.set(Manner::Take);
    cron.start_again().unwrap();
    cron.ready().await.unwrap();
    // The claim of the dead one is over.
    let over = "UPDATE alert_deliveries SET next_at = now() WHERE next_at IS NOT NULL RETURNING 1";
    stack.database.rows(over).await.unwrap();
    let posts = taken(&hook, "/hook", 1).await;
    let header = |post: &Post| post.headers["webhook-id"].clone();
    assert_eq!(header(&posts[0]), header(&sent), "the same message");
    assert_eq!(header(&sent), format!("unfetched_failure:{id}:firing"));
    tokio::time::sleep(QUIET).await;
    assert_eq!(hook.taken("/hook").len(), 1);
    assert_eq!(number(&stack, "SELECT count(*) FROM alerts").await, 1);
}

/// One message that is refused keeps no other; while a receiver is away, what it shall be told of is
/// purged on time and the message waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_message_and_a_receiver_that_is_away_lose_nothing() {
    let hook = receiver(Manner::Take).await;
    let settings = format!(
        "[alerts]\nunfetched_after = \"1h\"\n{}",
        webhook("hook", &hook)
    );
    let stack = Stack::of((1, 1), &settings).await;
    let alice = stack.cluster.client(0, "alice");
    let mut tasks = Vec::new();
    for call in ["refused", "second", "third"] {
        tasks.push(fail(&alice, call).await);
    }
    let failed = "SELECT count(*) FROM tasks WHERE status = 'failed'";
    let all = async |number_of| {
        let look = async || (number(&stack, failed).await == number_of).then_some(());
        wait::until("all have failed", SOON, look).await.unwrap();
    };
    all(3).await;
    hook.set(Manner::Refuse(tasks[0].clone()));
    let now = "UPDATE tasks SET finished_at = now() - interval '2 hours' RETURNING 1";
    stack.database.rows(now).await.unwrap();
    let posts = taken(&hook, "/hook", 2).await;
    assert!(posts.iter().all(|post| !post.body.contains(&tasks[0])));

    hook.set(Manner::Status(503));
    let fourth = fail(&alice, "fourth").await;
    all(4).await;
    let over = "UPDATE tasks SET expires_at = now() RETURNING 1";
    stack.database.rows(over).await.unwrap();
    let purged = async || (number(&stack, "SELECT count(*) FROM tasks").await == 0).then_some(());
    wait::until("the payload is purged", SOON, purged)
        .await
        .unwrap();
    let gone = alice.get(&fourth).await.unwrap_err().to_string();
    assert!(gone.contains("expired"), "{gone}");
    assert_eq!(hook.taken("/hook").len(), 2);
    let waits =
        "SELECT count(*) FROM alert_deliveries WHERE state = 'firing' AND delivered_at IS NULL";
    assert_eq!(number(&stack, waits).await, 2);

    hook.set(Manner::Take);
    let posts = taken(&hook, "/hook", 4).await;
    assert_eq!(ids(&posts).len(), 4);
    assert!(posts.iter().any(|post| post.body.contains(&fourth)));
}

/// A question is told at once, whether or not Redis is there, and nobody is told what was asked,
/// with what arguments, or what a tool said when it failed.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_told_without_redis_and_nothing_of_what_was_said() {
    let hook = receiver(Manner::Take).await;
    let settings = format!(
        "[alerts]\nunfetched_after = \"0s\"\nquestion_after = \"1s\"\n{}",
        webhook("hook", &hook)
    );
    let mut stack = Stack::of((1, 1), &settings).await;
    let alice = stack.cluster.client(0, "planted-principal");
    stack.redis.kill9();
    let items = json!([{ "ask": [{ "key": "planted" }] }]);
    let asks = plan("planted", items, "result");
    let id = alice.start(TOOL, asks).await.unwrap();
    let posts = taken(&hook, "/hook", 2).await;
    let types: BTreeSet<String> = posts
        .iter()
        .map(|post| post.json()["type"].as_str().unwrap().to_owned())
        .collect();
    let expected = ["question_asked.firing", "question_waiting.firing"];
    assert_eq!(types, expected.map(str::to_owned).into());
    assert!(posts.iter().all(|post| post.json()["taskId"] == id));
    assert_eq!(posts[0].json()["type"], "question_asked.firing");

    let yes = json!({ "planted": { "action": "accept", "content": { "value": "planted" } } });
    let asked = alice.get(&id).await.unwrap();
    let key = asked["inputRequests"].as_object().unwrap();
    let key = key.keys().next().unwrap().clone();
    let answer = json!({ key: yes["planted"] });
    alice.update(&id, answer).await.unwrap();
    taken(&hook, "/hook", 4).await;
    let exhausts = plan("planted", json!([]), "exhaust");
    let exhausted = alice.start("chaos_gives_up", exhausts).await;
    exhausted.unwrap();
    let near = wait::until("its last try is told", SOON, async || {
        let posts = hook.taken("/hook");
        let kinds = ["attempts_near_max.firing", "unfetched_failure.firing"];
        let told = |kind: &str| posts.iter().any(|post| post.json()["type"] == kind);
        kinds.into_iter().all(told).then_some(posts)
    });
    for post in near.await.unwrap() {
        assert!(!post.body.contains("planted"), "{post:?}");
    }
    let log = std::fs::read_to_string(stack.cluster.crons[0].log()).unwrap();
    assert!(!log.contains("planted"), "{log}");
}

/// A receiver that sends us on is away: what a message says, and its signature, are for it alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_leads_elsewhere_is_not_followed() {
    let elsewhere = receiver(Manner::Take).await;
    let (hook, manager) = (receiver(Manner::Take).await, receiver(Manner::Take).await);
    hook.set(Manner::Redirect(format!("{}/hook", elsewhere.url)));
    manager.set(Manner::Redirect(format!("{}/api/v2/alerts", elsewhere.url)));
    let settings = format!(
        "[alerts]\nunfetched_after = \"0s\"\n{}[[alerts.receivers]]\nname = \"am\"\nkind = \"alertmanager\"\nurl = {:?}\n",
        webhook("hook", &hook),
        manager.url,
    );
    let mut stack = Stack::of((1, 1), &settings).await;
    let alice = stack.cluster.client(0, "alice");
    let _ = fail(&alice, "failed").await;
    for (hook, path) in [(&hook, "/hook"), (&manager, "/api/v2/alerts")] {
        // Tried again, so the first answer was read.
        let tried = async || (hook.posts(path).len() >= 2).then_some(());
        wait::until("a second try", SOON, tried).await.unwrap();
        assert!(elsewhere.posts(path).is_empty(), "{path}");
        hook.set(Manner::Take);
        let _ = taken(hook, path, 1).await;
        assert!(elsewhere.posts(path).is_empty(), "{path}");
    }
    let log = std::fs::read_to_string(stack.cluster.nodes().last().unwrap().log()).unwrap();
    assert!(!log.contains(SECRET), "{log}");
}
