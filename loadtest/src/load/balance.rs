//! What a load balancer does for clients: it looks at each gateway all the time, and sends nobody to
//! one that does not take connections.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::rng::Rng;

const LOOK: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_millis(500);

/// Which gateways take connections.
#[derive(Debug)]
pub struct Balance {
    /// Host and port of each.
    places: Vec<String>,
    up: Vec<AtomicBool>,
}

impl Balance {
    /// For these endpoints, all of them up.
    #[must_use]
    pub fn new(urls: &[String]) -> Balance {
        Balance {
            places: urls.iter().map(|url| place(url)).collect(),
            up: urls.iter().map(|_| AtomicBool::new(true)).collect(),
        }
    }

    /// Any gateway that is up; any at all if none is.
    pub fn pick(&self, rng: &mut Rng) -> usize {
        let up: Vec<usize> = (0..self.up.len())
            .filter(|index| self.up[*index].load(Ordering::Relaxed))
            .collect();
        if up.is_empty() {
            return rng.below(self.up.len());
        }
        *rng.pick(&up)
    }

    /// A request to it failed: nobody else is sent there before it was looked at.
    pub fn failed(&self, index: usize) {
        self.up[index].store(false, Ordering::Relaxed);
    }

    /// Looks at all of them until dropped.
    pub async fn watch(&self) {
        loop {
            for (place, up) in self.places.iter().zip(&self.up) {
                let connected = timeout(PATIENCE, TcpStream::connect(place)).await;
                up.store(matches!(connected, Ok(Ok(_))), Ordering::Relaxed);
            }
            sleep(LOOK).await;
        }
    }
}

/// `host:port` of a URL.
fn place(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let place = rest.split('/').next().unwrap_or(rest);
    if place.contains(':') {
        place.to_owned()
    } else {
        format!("{place}:80")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_to_a_failed_gateway() {
        let urls = ["http://127.0.0.1:1/mcp", "http://127.0.0.1:2/mcp"].map(str::to_owned);
        let balance = Balance::new(&urls);
        assert_eq!(balance.places[1], "127.0.0.1:2");
        balance.failed(0);
        let mut rng = Rng::new(1);
        assert!((0..50).all(|_| balance.pick(&mut rng) == 1));
        balance.failed(1);
        assert!((0..50).any(|_| balance.pick(&mut rng) == 0));
    }
}
