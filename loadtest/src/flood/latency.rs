//! The p99 of one principal's reads, quiet and while another one sends five times what it may.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use harness::{Error, Result};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::target::Target;
use crate::bench::connection::Connection;
use crate::bench::wire::Wire;

/// A task that does not exist costs as much as one that does.
const UNKNOWN: &str = "00000000-0000-7000-8000-000000000000";
/// Requests of the quiet one, a second.
const READS: u64 = 50;
/// Connections of the flood.
const CONNECTIONS: u64 = 20;

/// What was seen of the quiet one.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// Requests.
    pub count: usize,
    /// Half of them took no longer.
    pub p50: Duration,
    /// Of a hundred, all but one.
    pub p99: Duration,
    /// The slowest.
    pub max: Duration,
    /// Those that were not answered 200.
    pub refused: usize,
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        write!(
            f,
            "{} reads, p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms, {} refused",
            self.count,
            ms(self.p50),
            ms(self.p99),
            ms(self.max),
            self.refused
        )
    }
}

/// Reads as `bob` for so long, at an even pace, each from the moment in which it was due. On a thread of its
/// own: what a flood in this process does to its own clients is no gateway's doing.
///
/// # Errors
/// If a connection breaks.
pub async fn quiet(target: &Target, time: Duration) -> Result<Seen> {
    let request = target.wire("bob").get(UNKNOWN);
    let address = target.address()?;
    let reading = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(Error::io("start a runtime"))?;
        runtime.block_on(reads(address, &request, time))
    };
    let read = tokio::task::spawn_blocking(reading).await;
    read.map_err(|error| Error::Other(format!("the reader: {error}")))?
}

async fn reads(address: SocketAddr, request: &[u8], time: Duration) -> Result<Seen> {
    let connecting = Connection::open(address).await;
    let mut connection = connecting.map_err(Error::io("connect"))?;
    let (begun, mut took, mut refused) = (Instant::now(), Vec::new(), 0);
    let every = Duration::from_secs(1) / u32::try_from(READS).unwrap_or(1);
    let mut due = begun;
    while begun.elapsed() < time {
        tokio::time::sleep_until(due).await;
        let status = connection.ask(request).await.map_err(Error::io("read"))?;
        took.push(due.elapsed());
        refused += usize::from(status != 200);
        due += every;
    }
    took.sort_unstable();
    let at = |share: usize| took[(took.len() * share / 100).min(took.len() - 1)];
    Ok(Seen {
        count: took.len(),
        p50: at(50),
        p99: at(99),
        max: at(100),
        refused,
    })
}

/// A flood from a process of its own, on one core. Ends when dropped.
#[derive(Debug)]
pub struct Flood(Child);

impl Flood {
    /// Starts this program again as the generator of so many requests a second.
    ///
    /// # Errors
    /// If `taskset` is not installed.
    pub fn start(target: &Target, rate: u64) -> Result<Flood> {
        let own = std::env::current_exe().map_err(Error::io("find this program"))?;
        let address = target.address()?.to_string();
        let child = Command::new("taskset")
            .args(["-c", "1"])
            .arg(own)
            .args(["generate", "--at", &address, "--rate", &rate.to_string()])
            .stdout(Stdio::inherit())
            .spawn();
        child.map(Flood).map_err(Error::io("start taskset"))
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends as `mallory` until it is killed, and tells every other second what was answered.
///
/// # Errors
/// If nobody listens there.
pub async fn generate(at: SocketAddr, rate: u64) -> Result<()> {
    let request = Wire::new(&format!("http://{at}/mcp"), "mallory").get(UNKNOWN);
    let (served, limited) = (AtomicU64::new(0), AtomicU64::new(0));
    let one = async || {
        let mut ticks = interval(
            Duration::from_secs(1) * 10 / u32::try_from(rate * 10 / CONNECTIONS).unwrap_or(1),
        );
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        loop {
            let Ok(mut connection) = Connection::open(at).await else {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            loop {
                ticks.tick().await;
                match connection.ask(&request).await {
                    Ok(429) => limited.fetch_add(1, Ordering::Relaxed),
                    Ok(_) => served.fetch_add(1, Ordering::Relaxed),
                    Err(_) => break,
                };
            }
        }
    };
    let telling = async {
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let a_second = |of: &AtomicU64| of.swap(0, Ordering::Relaxed) / 2;
            println!(
                "  flood: {} served and {} refused a second",
                a_second(&served),
                a_second(&limited)
            );
        }
    };
    let floods = futures::future::join_all((0..CONNECTIONS).map(|_| one()));
    tokio::select! {
        _ = floods => {}
        () = telling => {}
    }
    Ok(())
}
