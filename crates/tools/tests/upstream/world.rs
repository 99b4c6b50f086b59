//! Upstreams as a worker runs them, without a worker.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tools::upstream::{UpstreamConfig, Upstreams, Wanted};
use worker::testkit::Kit;
use worker::{Tool, ToolSet};

/// Running upstreams, until dropped.
pub struct World {
    pub tools: ToolSet,
    pub upstreams: Arc<Upstreams>,
    told: Arc<Mutex<BTreeMap<String, Result<(), String>>>>,
    shutdown: CancellationToken,
    running: JoinSet<()>,
}

pub fn config(url: &str) -> UpstreamConfig {
    UpstreamConfig {
        prefix: "up_".to_owned(),
        timeout: Duration::from_secs(20),
        ..UpstreamConfig::at("up", url)
    }
}

impl World {
    pub fn start(configs: Vec<UpstreamConfig>) -> Self {
        let upstreams = Arc::new(Upstreams::new());
        let wanted = configs.into_iter().map(Wanted::plain).collect();
        upstreams.set(wanted).unwrap();
        let (tools, shutdown) = (ToolSet::new(), CancellationToken::new());
        let told: Arc<Mutex<BTreeMap<String, Result<(), String>>>> = Arc::default();
        let mut running = JoinSet::new();
        let (set, until, heard) = (tools.clone(), shutdown.clone(), Arc::clone(&told));
        let shared = Arc::clone(&upstreams);
        running.spawn(async move {
            let tell = |name: &str, how: Option<Result<(), String>>| {
                let mut heard = heard.lock().unwrap();
                match how {
                    Some(how) => drop(heard.insert(name.to_owned(), how)),
                    None => drop(heard.remove(name)),
                }
            };
            shared.run(&set, &until, tell).await;
        });
        Self {
            tools,
            upstreams,
            told,
            shutdown,
            running,
        }
    }

    /// With the tools of this server listed.
    pub async fn of(url: &str) -> Self {
        Self::with(config(url)).await
    }

    /// The same with these settings.
    pub async fn with(config: UpstreamConfig) -> Self {
        let world = Self::start(vec![config]);
        world.until(|_, told| told == Some(&Ok(()))).await;
        world
    }

    /// Waits until the tools and the state of "up" are so.
    pub async fn until(&self, is_so: impl Fn(&ToolSet, Option<&Result<(), String>>) -> bool) {
        for _ in 0..6000 {
            if is_so(&self.tools, self.told.lock().unwrap().get("up")) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("it never was so: {:?}", self.told.lock().unwrap());
    }

    pub fn names(&self) -> Vec<String> {
        let specs = self.tools.specs();
        specs.iter().map(|spec| spec.name().to_owned()).collect()
    }

    pub fn tool(&self, name: &str) -> Arc<dyn Tool> {
        self.tools
            .get(name)
            .unwrap_or_else(|| panic!("no {name} among {:?}", self.names()))
    }

    pub fn kit(&self, name: &str) -> Kit {
        Kit::of(self.tool(name))
    }

    /// As a worker that ends.
    pub async fn end(mut self) {
        self.shutdown.cancel();
        while self.running.join_next().await.is_some() {}
    }
}
