//! A private Redis, a queue on it, and short words for both.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use harness::redis::Redis;
use protocol::TaskId;
use queue::{Config, Consumer, Event, Hint, Lane, Queue, Watch};
use redis::FromRedisValue;
use telemetry::Registry;

/// Longer than anything here takes unless it fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A queue as one process has it, with its metrics.
pub struct Process {
    pub queue: Queue,
    pub registry: Registry,
}

/// Short times, so that what happens "after a while" happens in a test.
pub fn config(redis: &Redis) -> Config {
    Config {
        url: redis.url(),
        block: Duration::from_millis(500),
        command_timeout: Duration::from_millis(500),
        connect_timeout: Duration::from_millis(500),
        probe_interval: Duration::from_millis(100),
        reclaim_idle: Duration::from_secs(60),
        reclaim_interval: Duration::from_millis(100),
        ..Config::default()
    }
}

/// Starts Redis and connects a queue to it.
pub async fn start() -> (Redis, Process) {
    let redis = Redis::temporary().await.unwrap();
    let process = connect(config(&redis)).await;
    (redis, process)
}

/// A queue that is connected.
pub async fn connect(config: Config) -> Process {
    let process = Process::new(config);
    process.connected(true).await;
    process
}

impl Process {
    pub fn new(config: Config) -> Process {
        let registry = Registry::new();
        let queue = Queue::new(config, &registry).unwrap();
        Process { queue, registry }
    }

    /// Waits until the queue is connected, or is not.
    pub async fn connected(&self, connected: bool) {
        let mut receiver = self.queue.connected();
        let wait = receiver.wait_for(|now| *now == connected);
        tokio::time::timeout(PATIENCE, wait)
            .await
            .expect("in time")
            .expect("the queue lives");
    }

    /// Waits until the queue knows that Redis is gone.
    pub async fn lost(&self) {
        let links = async || {
            ["commands", "subscriber"]
                .map(|link| self.metric(&format!("mcp_tasks_queue_connected{{link=\"{link}\"}}")))
        };
        let gone = |up: &[f64; 2]| *up == [0.0, 0.0];
        harness::wait::for_state("the loss of redis", PATIENCE, links, gone)
            .await
            .unwrap();
        assert!(!*self.queue.connected().borrow());
    }

    /// The value of a metric, by its line up to the blank; 0 if there is none.
    pub fn metric(&self, line: &str) -> f64 {
        let text = self.registry.render();
        let value = text
            .lines()
            .find_map(|l| l.strip_prefix(line)?.strip_prefix(' '));
        value.map_or(0.0, |value| value.parse().unwrap())
    }

    /// Pushes `count` new tasks.
    pub async fn push(&self, lane: &Lane, count: usize) -> Vec<TaskId> {
        let mut ids = Vec::new();
        for _ in 0..count {
            let id = new_id();
            self.queue.push(lane, id).await.unwrap();
            ids.push(id);
        }
        ids
    }
}

pub fn new_id() -> TaskId {
    TaskId::new(1_764_000_000_000)
}

pub fn lane(tool: &str) -> Lane {
    Lane {
        tool: tool.to_owned(),
        version: 1,
    }
}

/// Calls `next` until there are `count` hints, as a worker with `count` free places would.
pub async fn take(consumer: &mut Consumer, count: usize) -> Vec<Hint> {
    let deadline = Instant::now() + PATIENCE;
    let mut hints = Vec::new();
    while hints.len() < count {
        assert!(
            Instant::now() < deadline,
            "only {} of {count} hints came",
            hints.len()
        );
        let taken = consumer.next(count - hints.len()).await;
        hints.extend(taken.unwrap_or_default().hints);
    }
    hints
}

/// Asserts that no hint comes for `time`.
pub async fn nothing(consumer: &mut Consumer, time: Duration) {
    let deadline = Instant::now() + time;
    while Instant::now() < deadline {
        let hints = consumer.next(10).await.unwrap().hints;
        assert!(hints.is_empty(), "{hints:?}");
    }
}

pub fn ids(hints: &[Hint]) -> Vec<TaskId> {
    sorted(hints.iter().map(|hint| hint.id).collect())
}

pub fn sorted(mut ids: Vec<TaskId>) -> Vec<TaskId> {
    ids.sort();
    ids
}

pub async fn event(watch: &mut Watch) -> Event {
    tokio::time::timeout(PATIENCE, watch.next())
        .await
        .expect("an event in time")
}

/// Runs a command on Redis.
pub async fn ask<T: FromRedisValue>(redis: &Redis, words: &[&str]) -> T {
    redis::from_redis_value(redis.command(words).await.unwrap()).unwrap()
}

/// All job streams of the test's Redis.
pub async fn streams(redis: &Redis) -> Vec<String> {
    ask(redis, &["KEYS", "{mcp-tasks:s*}:jobs:*"]).await
}

/// Entries in all job streams.
pub async fn entries(redis: &Redis) -> u64 {
    let mut sum = 0;
    for stream in streams(redis).await {
        sum += ask::<u64>(redis, &["XLEN", &stream]).await;
    }
    sum
}

/// What is pending for each consumer, over all streams; a consumer without anything shows as 0.
pub async fn pending(redis: &Redis) -> HashMap<String, u64> {
    let mut sums = HashMap::new();
    for stream in streams(redis).await {
        // A stream that nobody has read from has no group yet.
        let asked = redis
            .command(&["XINFO", "CONSUMERS", &stream, "workers"])
            .await;
        let Ok(consumers) = asked else { continue };
        let consumers: redis::streams::StreamInfoConsumersReply =
            redis::from_redis_value(consumers).unwrap();
        for consumer in consumers.consumers {
            *sums.entry(consumer.name).or_default() += consumer.pending as u64;
        }
    }
    sums
}
