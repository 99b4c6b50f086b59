//! What a load balancer is to clients: each request goes to a gateway that said lately that it is
//! ready.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use harness::client::Client;
use harness::cluster::Cluster;
use harness::http::Http;
use tokio::task::JoinSet;

/// Between two looks; a gateway that ends keeps accepting for longer.
const PROBE: Duration = Duration::from_millis(50);

pub struct Front {
    ready: Mutex<Vec<String>>,
    next: AtomicUsize,
    base: Client,
}

impl Front {
    /// In front of these gateways; `probes` ends with the test.
    pub fn start(cluster: &Cluster, probes: &mut JoinSet<()>) -> Arc<Front> {
        let gateways: Vec<(String, String)> = cluster
            .gateways
            .iter()
            .map(|node| (node.url(), format!("{}/readyz", node.admin())))
            .collect();
        let front = Arc::new(Front {
            ready: Mutex::new(gateways.iter().map(|(url, _)| url.clone()).collect()),
            next: AtomicUsize::default(),
            base: Client::new(""),
        });
        let probed = Arc::clone(&front);
        probes.spawn(async move {
            let http = Http::new(Duration::from_millis(500));
            loop {
                let looks = gateways.iter().map(async |(url, probe)| {
                    let ready = http.get(probe).await.is_ok_and(|reply| reply.status == 200);
                    ready.then(|| url.clone())
                });
                let ready = join_all(looks).await.into_iter().flatten().collect();
                *probed.ready.lock().unwrap() = ready;
                tokio::time::sleep(PROBE).await;
            }
        });
        front
    }

    /// A caller of this name, at the next gateway in turn.
    pub fn client(&self, name: &str) -> Client {
        let ready = self.ready.lock().unwrap();
        assert!(!ready.is_empty(), "no gateway is ready");
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        self.base.at(&ready[next % ready.len()]).bearer(name)
    }
}
