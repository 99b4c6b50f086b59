//! A task of another principal and one that never existed are answered with the same bytes, after the
//! same work: neither content nor headers nor time tell them apart, over any method of any revision.

use std::time::{Duration, Instant};

use harness::client::{Answer, Client};
use harness::sse::Stream;
use serde_json::{Value, json};

use crate::support::{SOON, World};

const ROUNDS: usize = 300;
/// A share of pairs nearer to a half than this is no difference that anybody could use; what is seen
/// without one is within 0.06 of it, and with a watch that tells 0.2 from it.
const SKEW: f64 = 0.1;

/// How often the first is slower than the second, of all pairs: a half if nothing tells them apart
/// (the statistic of Mann and Whitney, which outliers do not move).
fn slower(first: &[Duration], second: &[Duration]) -> f64 {
    let mut wins = 0.0;
    for a in first {
        for b in second {
            wins += match a.cmp(b) {
                std::cmp::Ordering::Greater => 1.0,
                std::cmp::Ordering::Equal => 0.5,
                std::cmp::Ordering::Less => 0.0,
            };
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "there are few")]
    let pairs = (first.len() * second.len()) as f64;
    wins / pairs
}

/// Asks for both in turn, so that whatever else this machine does meets both alike. A busy one may still
/// be unlucky once; a difference that is there would be there each time.
pub async fn compare(what: &str, foreign: &Foreign, ask: impl AsyncFn(&str) -> Duration) {
    let mut shares = Vec::new();
    for _ in 0..4 {
        let (mut watched, mut others, mut second) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let unknown = protocol::TaskId::new(0).to_string();
            // Each of them comes first and comes second.
            let (ids, first) = match round / 2 % 2 {
                0 => (&foreign.watched, &mut watched),
                _ => (&foreign.others, &mut others),
            };
            let known = &ids[round / 4 % ids.len()];
            if round % 2 == 0 {
                first.push(ask(known).await);
                second.push(ask(&unknown).await);
            } else {
                second.push(ask(&unknown).await);
                first.push(ask(known).await);
            }
        }
        let found = [slower(&watched, &second), slower(&others, &second)];
        for times in [&mut watched, &mut others, &mut second] {
            times.sort_unstable();
        }
        println!(
            "{what}: watched {:?}, others {:?}, unknown {:?} (medians); slower in {:.1} % and {:.1} % of pairs",
            watched[watched.len() / 2],
            others[others.len() / 2],
            second[second.len() / 2],
            100.0 * found[0],
            100.0 * found[1],
        );
        if found.iter().all(|share| (share - 0.5).abs() <= SKEW) {
            return;
        }
        shares.push(found);
    }
    panic!("{what}: {shares:?}");
}

/// Tasks of Alice's in every state that one can be in, one of them purged.
pub struct Foreign {
    /// Those that go on: she listens to them here.
    watched: Vec<String>,
    others: Vec<String>,
    _listening: Stream,
}

impl Foreign {
    pub async fn of(world: &World, alice: &Client) -> Self {
        let (mut watched, mut others) = (Vec::new(), Vec::new());
        for n in 0..20 {
            let id = alice.start("task", json!({})).await.unwrap();
            let goes_on = match n % 4 {
                0 => {
                    let claim = world.claim_task("task", id.parse().unwrap()).await;
                    let result = crate::support::text(&"x".repeat(10_000));
                    world.complete(&claim, &result).await;
                    false
                }
                1 => {
                    let claim = world.claim_task("task", id.parse().unwrap()).await;
                    world.park(&claim, store::ParkedFor::Task, &["k"]).await;
                    true
                }
                2 if n < 4 => {
                    let over = format!(
                        "UPDATE tasks SET status = 'completed', result = '{{}}', phase = NULL, finished_at = now(), \
                         expires_at = now() WHERE id = '{id}'"
                    );
                    world.database.rows(&over).await.unwrap();
                    let hour = std::time::Duration::from_secs(3600);
                    assert_eq!(world.store.purge(10, hour).await.unwrap(), 1);
                    false
                }
                2 => {
                    alice.cancel(&id).await.unwrap();
                    false
                }
                _ => true,
            };
            match goes_on {
                true => watched.push(id),
                false => others.push(id),
            }
        }
        let mut listening = alice.listen(json!({"taskIds": watched})).await.unwrap();
        let first = listening.next(SOON).await.unwrap().unwrap();
        let agreed = &first["params"]["notifications"]["taskIds"];
        assert_eq!(agreed.as_array().unwrap().len(), watched.len());
        let watches = async || world.metric("mcp_tasks_queue_watches");
        harness::wait::for_state("they are watched", SOON, watches, |n| {
            *n >= f64::from(u32::try_from(watched.len()).unwrap())
        })
        .await
        .unwrap();
        Self {
            watched,
            others,
            _listening: listening,
        }
    }

    fn all(&self) -> impl Iterator<Item = &String> {
        self.watched.iter().chain(&self.others)
    }
}

/// All that came but the time of day.
fn shown(answer: &Answer) -> String {
    let headers = answer.headers.iter();
    let headers: Vec<_> = headers.filter(|(name, _)| *name != "date").collect();
    format!("{} {headers:?} {:?}", answer.status, answer.body)
}

fn params(id: &str) -> Value {
    json!({"taskId": id, "inputResponses": {"k": {"action": "decline"}}})
}

const METHODS: [&str; 3] = ["tasks/get", "tasks/update", "tasks/cancel"];

#[tokio::test]
async fn time_does_not_tell_foreign_tasks_from_unknown_ones() {
    let world = World::new().await;
    let foreign = Foreign::of(&world, &world.client("alice")).await;
    let mallory = world.client("mallory");
    for method in METHODS {
        let time = async |id: &str| {
            let request = mallory.request(method, params(id));
            let started = Instant::now();
            let answer = request.send().await.unwrap();
            assert_eq!(answer.error_code(), Some(-32602));
            started.elapsed()
        };
        compare(method, &foreign, time).await;
    }
}

#[tokio::test]
async fn nor_does_the_time_of_a_subscription() {
    let world = World::new().await;
    let foreign = Foreign::of(&world, &world.client("alice")).await;
    let mallory = world.client("mallory");
    let time = async |id: &str| {
        let started = Instant::now();
        let mut stream = mallory.listen(json!({"taskIds": [id]})).await.unwrap();
        let first = stream.next(SOON).await.unwrap().unwrap();
        let took = started.elapsed();
        assert_eq!(first["params"]["notifications"], json!({"taskIds": []}));
        took
    };
    compare("subscriptions/listen", &foreign, time).await;
}

/// What clients of 2025-11-25 send.
fn older<'a>(client: &'a Client, method: &str, id: &str) -> harness::client::Request<'a> {
    let request = client.request(method, json!({}));
    request
        .params(json!({"taskId": id}))
        .header("mcp-protocol-version", "2025-11-25")
        .without_header("mcp-method")
        .without_header("mcp-name")
}

#[tokio::test]
async fn nor_does_it_tell_clients_of_older_revisions() {
    let world = World::new().await;
    let foreign = Foreign::of(&world, &world.client("alice")).await;
    let mallory = world.client("mallory");
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let time = async |id: &str| {
            let request = older(&mallory, method, id);
            let started = Instant::now();
            let answer = request.send().await.unwrap();
            assert_eq!(answer.error_code(), Some(-32602), "{method}");
            started.elapsed()
        };
        compare(&format!("2025-11-25 {method}"), &foreign, time).await;
    }
}

#[tokio::test]
async fn the_bytes_are_the_same_headers_included() {
    let world = World::new().await;
    let foreign = Foreign::of(&world, &world.client("alice")).await;
    let mallory = world.client("mallory");
    let unknown = protocol::TaskId::new(0).to_string();
    for id in foreign.all() {
        for method in METHODS {
            let ask = async |id: &str| {
                let request = mallory.request(method, params(id)).id(json!(1));
                shown(&request.send().await.unwrap())
            };
            assert_eq!(ask(id).await, ask(&unknown).await, "{method}");
        }
        for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
            let ask = async |id: &str| {
                let request = older(&mallory, method, id).id(json!(1));
                shown(&request.send().await.unwrap())
            };
            assert_eq!(ask(id).await, ask(&unknown).await, "2025-11-25 {method}");
        }
    }
}
