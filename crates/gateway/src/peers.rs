//! Where requests come from: the address of a client, and how many connections one address may have.
//!
//! An address is that of the connection, unless it is a proxy's that the settings trust: then the
//! proxy says whose it is. Nobody else is believed, whatever headers it sends.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderMap;
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::Config;

/// Proxies one behind the other that are looked at.
const HOPS_MAX: usize = 32;

/// In which header a trusted proxy says whose request it passes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AddressHeader {
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

impl AddressHeader {
    fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
        }
    }
}

/// A network or a single address of a trusted proxy.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn network(text: &str) -> Result<IpNet, String> {
    let single = || text.parse::<IpAddr>().map(IpNet::from);
    let network = text.parse::<IpNet>().or_else(|_| single());
    let network =
        network.map_err(|_| format!("{text:?} is no address and no network like 10.0.0.0/8"))?;
    if network.prefix_len() == 0 {
        return Err(format!("{text:?} is everybody: name the proxies"));
    }
    Ok(network.trunc())
}

/// The addresses that this process deals with.
pub(crate) struct Peers {
    trusted: Vec<IpNet>,
    header: AddressHeader,
    seats: Seats,
    connections_max: usize,
}

/// Connections of each address that has one.
type Seats = Arc<Mutex<HashMap<IpAddr, usize>>>;

/// The place of a connection among those of its address, as long as this lives.
pub(crate) struct Seat(Option<(Seats, IpAddr)>);

impl Peers {
    /// Networks that cannot be read were told of when the settings were judged.
    pub(crate) fn new(config: &Config) -> Self {
        let networks = config.trusted_proxies.iter();
        Self {
            trusted: networks.filter_map(|text| network(text).ok()).collect(),
            header: config.client_address_header,
            seats: Arc::default(),
            connections_max: config.limits.connections_of_address_max,
        }
    }

    /// A new connection; `None` if its address has as many as it may. Those of trusted proxies carry
    /// everybody's requests and are not counted.
    pub(crate) fn connect(&self, peer: IpAddr) -> Option<Seat> {
        let peer = peer.to_canonical();
        if self.connections_max == 0 || self.trusts(peer) {
            return Some(Seat(None));
        }
        let key = block(peer);
        let mut seats = lock(&self.seats);
        let taken = seats.get(&key).copied().unwrap_or_default();
        if taken >= self.connections_max {
            return None;
        }
        seats.insert(key, taken + 1);
        Some(Seat(Some((Arc::clone(&self.seats), key))))
    }

    /// Whose request it is that came over a connection of `peer`. Proxies add to the header at its
    /// end, so it is read from there, and no further than to the first address that is no trusted
    /// proxy's: what stands before that may be made up. What cannot be read ends it, too.
    pub(crate) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut known = peer.to_canonical();
        if !self.trusts(known) {
            return known;
        }
        let lines: Vec<&str> = headers
            .get_all(self.header.name())
            .iter()
            .map(|line| line.to_str().unwrap_or_default())
            .collect();
        let hops = lines.iter().rev().flat_map(|line| line.rsplit(','));
        for hop in hops.take(HOPS_MAX) {
            let named = match self.header {
                AddressHeader::XForwardedFor => address(hop.trim()),
                AddressHeader::Forwarded => forwarded_for(hop).and_then(address),
            };
            let Some(named) = named else {
                return known;
            };
            known = named;
            if !self.trusts(known) {
                return known;
            }
        }
        known
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.trusted
            .iter()
            .any(|network| network.contains(&address))
    }
}

/// What one customer of a network provider has: an address, or in IPv6 a network of 64 bits.
pub(crate) fn block(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

/// An address, maybe with a port, and if of IPv6 maybe in brackets.
fn address(text: &str) -> Option<IpAddr> {
    let plain: Option<IpAddr> = text.parse().ok();
    let with_port = || {
        text.parse()
            .ok()
            .map(|socket: std::net::SocketAddr| socket.ip())
    };
    let in_brackets = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    plain
        .or_else(with_port)
        .or_else(in_brackets)
        .map(|address| address.to_canonical())
}

/// `for` of one element of `Forwarded`. (A comma inside of quotes splits it wrongly, and then it is
/// not believed.)
fn forwarded_for(element: &str) -> Option<&str> {
    let mut named = element.split(';').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case("for")
            .then(|| value.trim())
    });
    let (value, None) = (named.next()?, named.next()) else {
        return None;
    };
    let inner = value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    Some(inner.unwrap_or(value))
}

fn lock(seats: &Seats) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
    seats.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some((seats, key)) = &self.0 else { return };
        let mut seats = lock(seats);
        match seats.get_mut(key) {
            Some(taken) if *taken > 1 => *taken -= 1,
            Some(_) => drop(seats.remove(key)),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(change: impl FnOnce(&mut Config)) -> Peers {
        let mut config = Config {
            trusted_proxies: vec!["10.0.0.0/8".to_owned(), "fd00::1".to_owned()],
            ..Config::default()
        };
        config.limits.connections_of_address_max = 2;
        change(&mut config);
        Peers::new(&config)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn client(peers: &Peers, peer: &str, lines: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            for name in ["x-forwarded-for", "forwarded"] {
                headers.append(name, line.parse().unwrap());
            }
        }
        peers.client(ip(peer), &headers).to_string()
    }

    #[test]
    fn only_trusted_proxies_are_believed_and_read_from_the_right() {
        let peers = peers(|_| {});
        for (peer, lines, expected) in [
            ("1.2.3.4", &["9.9.9.9"][..], "1.2.3.4"),
            ("1.2.3.4", &["10.0.0.1"], "1.2.3.4"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["9.9.9.9"], "9.9.9.9"),
            ("::ffff:10.0.0.1", &["9.9.9.9"], "9.9.9.9"),
            ("fd00::1", &["9.9.9.9"], "9.9.9.9"),
            ("fd00::2", &["9.9.9.9"], "fd00::2"),
            // Made up by the client, before what the proxy added.
            ("10.0.0.1", &["6.6.6.6, 9.9.9.9"], "9.9.9.9"),
            ("10.0.0.1", &["6.6.6.6", "9.9.9.9"], "9.9.9.9"),
            (
                "10.0.0.1",
                &["6.6.6.6, 10.6.6.6, 9.9.9.9, 10.0.0.2"],
                "9.9.9.9",
            ),
            ("10.0.0.1", &["6.6.6.6, junk, 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["9.9.9.9, "], "10.0.0.1"),
            ("10.0.0.1", &["unknown"], "10.0.0.1"),
            ("10.0.0.1", &["9.9.9.9:4711"], "9.9.9.9"),
            ("10.0.0.1", &["[2001:db8::1]:4711"], "2001:db8::1"),
            ("10.0.0.1", &["[2001:db8::1]"], "2001:db8::1"),
            ("10.0.0.1", &["2001:db8::1"], "2001:db8::1"),
            ("10.0.0.1", &["10.0.0.2, 10.0.0.3"], "10.0.0.2"),
        ] {
            assert_eq!(client(&peers, peer, lines), expected, "{peer} {lines:?}");
        }
    }

    /// So many proxies one behind the other, and a client before them.
    #[test]
    fn so_many_proxies_are_looked_at() {
        let peers = peers(|_| {});
        for (proxies, expected) in [
            (HOPS_MAX - 2, "9.9.9.9"),
            (HOPS_MAX - 1, "9.9.9.9"),
            (HOPS_MAX, "10.0.0.2"),
            (1000, "10.0.0.2"),
        ] {
            let mut hops = vec!["9.9.9.9"];
            hops.resize(1 + proxies, "10.0.0.2");
            let line = hops.join(",");
            assert_eq!(client(&peers, "10.0.0.1", &[&line]), expected, "{proxies}");
        }
    }

    #[test]
    fn the_standard_header_is_read_where_it_is_named() {
        let peers = peers(|config| config.client_address_header = AddressHeader::Forwarded);
        for (line, expected) in [
            ("for=9.9.9.9", "9.9.9.9"),
            (
                "proto=https; For=\"[2001:db8::1]:4711\";by=10.0.0.1",
                "2001:db8::1",
            ),
            ("for=6.6.6.6, for=\"9.9.9.9:80\"", "9.9.9.9"),
            ("for=6.6.6.6, for=_hidden", "10.0.0.1"),
            ("for=6.6.6.6, for=unknown", "10.0.0.1"),
            ("for=6.6.6.6, proto=http", "10.0.0.1"),
            ("for=6.6.6.6;for=7.7.7.7", "10.0.0.1"),
            ("9.9.9.9", "10.0.0.1"),
        ] {
            assert_eq!(client(&peers, "10.0.0.1", &[line]), expected, "{line}");
        }
    }

    #[test]
    fn so_many_connections_of_one_address() {
        let peers = peers(|_| {});
        let connect = |address: &str| peers.connect(ip(address));
        let one = connect("1.2.3.4");
        let two = connect("::ffff:1.2.3.4");
        assert!(one.is_some() && two.is_some() && connect("1.2.3.4").is_none());
        assert!(connect("1.2.3.5").is_some());
        let _of_a_proxy: Vec<_> = (0..9).map(|_| connect("10.0.0.1").unwrap()).collect();
        drop(one);
        assert!(connect("1.2.3.4").is_some());
        // Whoever has a network of IPv6 has one address here.
        let _all: Vec<_> = (0..2)
            .map(|n| connect(&format!("2001:db8::{n}")).unwrap())
            .collect();
        assert!(connect("2001:db8:0:0:1::").is_none());
        assert!(connect("2001:db8:0:1::").is_some());
    }

    #[test]
    fn none_is_no_limit() {
        let peers = peers(|config| config.limits.connections_of_address_max = 0);
        let all: Vec<_> = (0..100).map(|_| peers.connect(ip("1.2.3.4"))).collect();
        assert!(all.iter().all(Option::is_some));
    }

    #[test]
    fn addresses_without_connections_are_forgotten() {
        let peers = peers(|_| {});
        let kept = [peers.connect(ip("1.2.3.4")), peers.connect(ip("1.2.3.4"))];
        drop(peers.connect(ip("1.2.3.5")));
        assert_eq!(lock(&peers.seats).len(), 1);
        drop(kept);
        assert!(lock(&peers.seats).is_empty());
    }

    #[test]
    fn networks_are_read() {
        for good in ["10.0.0.0/8", "10.1.2.3/8", "10.0.0.1", "fd00::/8", "::1"] {
            assert!(network(good).is_ok(), "{good}");
        }
        for bad in ["", "10.0.0.0/33", "proxy", "0.0.0.0/0", "::/0", "10.0.0"] {
            assert!(network(bad).is_err(), "{bad}");
        }
    }
}
