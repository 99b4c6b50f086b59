//! Gateways come and go behind a load balancer that learns of it late, while clients call.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use harness::client::Client;
use harness::cluster::Cluster;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::support::{SOON, System};

/// The balancer asks for readiness so often, and acts on what it hears so much later.
const ASKS: Duration = Duration::from_millis(200);
const LATE: Duration = Duration::from_millis(600);
const CLIENTS: usize = 8;

/// Each gateway in turn is asked to end and started again: no call fails. (That failures would be
/// seen is shown by a kill.)
#[tokio::test(flavor = "multi_thread")]
async fn gateways_are_replaced_without_one_failed_call() {
    let settings = "[gateway]\ndrain_delay = \"2s\"\ndrain_deadline = \"3s\"";
    let mut system = System::with(2, 1, settings).await;
    let balancer = Balancer::start(&system.cluster).await;
    let load = Load::default();
    let replace = async {
        for n in [0, 1] {
            tokio::time::sleep(Duration::from_millis(500)).await;
            system.cluster.gateways[n].stop(SOON).await.unwrap();
            system.cluster.gateways[n].start_again().unwrap();
            system.cluster.gateways[n].ready().await.unwrap();
            balancer.sees(n, true).await;
        }
        load.enough.store(true, Ordering::Relaxed);
    };
    tokio::join!(load.run(&balancer), replace);
    let (calls, failures) = load.counts();
    assert!(
        failures.is_empty(),
        "{} of {calls} failed: {failures:?}",
        failures.len()
    );
    assert!(calls > 200, "{calls} calls are no load");
    println!("{calls} calls over two replaced gateways, none failed");

    let load = Load::default();
    let kill = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        system.cluster.gateways[0].kill9();
        tokio::time::sleep(Duration::from_millis(700)).await;
        load.enough.store(true, Ordering::Relaxed);
    };
    tokio::join!(load.run(&balancer), kill);
    assert!(!load.counts().1.is_empty(), "a kill must be seen");
}

/// Clients that call, read and cancel, over connections that they keep and over new ones.
#[derive(Default)]
struct Load {
    enough: AtomicBool,
    calls: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Load {
    async fn run(&self, balancer: &Balancer) {
        let url = format!("http://{}/mcp", balancer.address);
        let clients = (0..CLIENTS).map(|n| {
            let client = Client::new(&url).bearer(&format!("client-{n}"));
            async move {
                while !self.enough.load(Ordering::Relaxed) {
                    // Every other client has no connection yet.
                    let fresh = n % 2 == 0;
                    let client = if fresh {
                        client.clone().timeout(SOON)
                    } else {
                        client.clone()
                    };
                    self.once(&client).await;
                }
            }
        });
        join_all(clients).await;
    }

    async fn once(&self, client: &Client) {
        self.calls.fetch_add(3, Ordering::Relaxed);
        let whole = async {
            let id = client.start("slow_compute", json!({"seconds": 5})).await?;
            client.get(&id).await?;
            client.cancel(&id).await?;
            Ok::<_, harness::Error>(())
        };
        if let Err(error) = whole.await {
            self.failures.lock().unwrap().push(error.to_string());
        }
    }

    fn counts(&self) -> (u64, Vec<String>) {
        let failures = self.failures.lock().unwrap().clone();
        (self.calls.load(Ordering::Relaxed), failures)
    }
}

/// Passes connections on to gateways that said they were ready, a while ago.
struct Balancer {
    address: SocketAddr,
    ready: Arc<[AtomicBool; 2]>,
    _end: DropGuard,
}

impl Balancer {
    async fn start(cluster: &Cluster) -> Balancer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let ready: Arc<[AtomicBool; 2]> = Arc::new([true, true].map(AtomicBool::new));
        let end = CancellationToken::new();
        let tasks = TaskTracker::new();
        let mut upstreams = Vec::new();
        for (n, node) in cluster.gateways.iter().enumerate() {
            let url = node.url();
            let host = url.trim_start_matches("http://").trim_end_matches("/mcp");
            upstreams.push(host.parse::<SocketAddr>().unwrap());
            let probe = format!("{}/readyz", node.admin());
            let (ready, ended) = (Arc::clone(&ready), end.clone());
            tasks.spawn(async move { ended.run_until_cancelled(watch(probe, &ready[n])).await });
        }
        let (seen, ended, pairs) = (Arc::clone(&ready), end.clone(), tasks.clone());
        tasks.spawn(async move {
            let turn = AtomicUsize::new(0);
            let accept = async {
                while let Ok((client, _)) = listener.accept().await {
                    let turn = turn.fetch_add(1, Ordering::Relaxed);
                    let is_up = |n: &usize| seen[*n].load(Ordering::Relaxed);
                    let Some(n) = (turn..turn + 2).map(|n| n % 2).find(is_up) else {
                        continue;
                    };
                    let (upstream, ended) = (upstreams[n], ended.clone());
                    pairs.spawn(
                        async move { ended.run_until_cancelled(pass(client, upstream)).await },
                    );
                }
            };
            ended.run_until_cancelled(accept).await
        });
        Balancer {
            address,
            ready,
            _end: end.drop_guard(),
        }
    }

    /// Waits until the balancer sends, or no longer sends, connections to this gateway.
    async fn sees(&self, gateway: usize, ready: bool) {
        let look = async || self.ready[gateway].load(Ordering::Relaxed);
        harness::wait::for_state("the balancer", SOON, look, |seen| *seen == ready)
            .await
            .unwrap();
    }
}

async fn watch(probe: String, ready: &AtomicBool) {
    let http = harness::http::Http::new(Duration::from_secs(1));
    loop {
        let now = http
            .get(&probe)
            .await
            .is_ok_and(|reply| reply.status == 200);
        tokio::time::sleep(LATE).await;
        ready.store(now, Ordering::Relaxed);
        tokio::time::sleep(ASKS).await;
    }
}

async fn pass(mut client: TcpStream, upstream: SocketAddr) {
    if let Ok(mut server) = TcpStream::connect(upstream).await {
        let (_, _) = (client.set_nodelay(true), server.set_nodelay(true));
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    }
}
