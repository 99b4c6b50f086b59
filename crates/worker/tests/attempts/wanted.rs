//! What providers are told of who listens.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use store::WantedResource;
use worker::{Provider, ProviderSpec, Resource, Resources, ToolSet};

use crate::world::{Running, SOON, World};

struct Notes {
    told: Mutex<BTreeSet<String>>,
}

#[worker::async_trait]
impl Provider for Notes {
    fn spec(&self) -> ProviderSpec {
        let mut spec = ProviderSpec::new("notes");
        spec.resources = Some(Resources {
            list: vec![Resource::new("note://today", "today")],
            subscribe: true,
            ..Resources::default()
        });
        spec
    }

    fn wanted(&self, uris: &BTreeSet<String>) {
        self.told.lock().unwrap().clone_from(uris);
    }
}

/// How often it looked at what is listened to.
fn looks(worker: &Running) -> u64 {
    let series = "mcp_tasks_store_operation_seconds_count{operation=\"wanted_resources\"} ";
    let scraped = worker.registry.render();
    let line = scraped.lines().find_map(|line| line.strip_prefix(series));
    line.map_or(0, |count| count.parse().unwrap())
}

/// However often listeners come and go, workers read no more than once a second who they are.
#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_listeners_is_looked_at_now_and_then() {
    let world = World::new().await;
    let notes = Arc::new(Notes {
        told: Mutex::default(),
    });
    let tools = ToolSet::new();
    tools.insert_provider(Arc::<Notes>::clone(&notes)).unwrap();
    // Not for long what a message was lost of: it looks now and then all the same.
    let worker = world.serve_set(tools, |config| {
        config.publish_interval = Duration::from_secs(1)
    });
    let looked = async || (looks(&worker) > 0).then_some(());
    harness::wait::until("the worker looks", SOON, looked)
        .await
        .unwrap();
    let (before, begun) = (looks(&worker), Instant::now());
    let mut wanted = BTreeSet::new();
    while begun.elapsed() < Duration::from_secs(3) {
        let uri = format!("note://{}", wanted.len());
        let one = WantedResource {
            place: 0,
            provider: "notes".to_owned(),
            uri: uri.clone(),
        };
        if wanted.len() < 500 {
            world.store.want_resources(&[one], SOON * 10).await.unwrap();
            wanted.insert(uri);
        }
        world.queue.wanted_changed().await;
    }
    let seen = looks(&worker) - before;
    let most = begun.elapsed().as_secs() + 2;
    assert!(seen <= most, "{seen} looks, {most} at most");
    // And the last of them is not missed.
    let all = async || (*notes.told.lock().unwrap() == wanted).then_some(());
    harness::wait::until("the provider is told of all", SOON, all)
        .await
        .unwrap();
}
