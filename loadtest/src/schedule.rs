//! Which fault comes when: decided by the seed alone, before the run begins.
//!
//! The kinds are dealt like cards: each comes as often as its row in the deck says, in an order that
//! the seed decides, and none is left out by chance once the deck has been dealt.

use std::time::Duration;

use harness::config::Role;

use crate::fault::{Fault, Link, Target, What};
use crate::rng::Rng;

/// From one fault to the next, on average. Most last for less, some for longer: they overlap.
const EVERY: Duration = Duration::from_millis(5_500);
/// The first comes once the clients are at work.
const FIRST: Duration = Duration::from_secs(2);
/// The last is over before the run is.
const QUIET_END: Duration = Duration::from_secs(3);

/// How many of each there are to break.
#[derive(Debug, Clone, Copy)]
pub struct Numbers {
    /// Gateways.
    pub gateways: usize,
    /// Workers.
    pub workers: usize,
    /// Crons.
    pub crons: usize,
}

/// A fault and when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// From the start of the run.
    pub at: Duration,
    /// What breaks.
    pub fault: Fault,
}

/// Whose: a role (one of its processes is drawn) or a server.
#[derive(Debug, Clone, Copy)]
enum Who {
    One(Role),
    Every(Role),
    Server(Target),
}

/// How many of a kind are in the deck, the kind, and how long it lasts (milliseconds).
type Card = (usize, Who, What, (u64, u64));

const fn one(role: Role) -> Who {
    Who::One(role)
}

/// Leases are 2 s in these runs: what is frozen for longer has lost what it held. Outages of Postgres
/// stay below the 8 s that requests must be able to wait, start and recovery included.
const DECK: [Card; 27] = [
    (3, one(Role::Worker), What::Killed, (100, 3_000)),
    (2, one(Role::Gateway), What::Killed, (100, 3_000)),
    (1, one(Role::Cron), What::Killed, (100, 4_000)),
    (3, one(Role::Worker), What::Frozen, (2_500, 6_000)),
    (1, one(Role::Gateway), What::Frozen, (500, 4_000)),
    (1, one(Role::Cron), What::Frozen, (2_500, 6_000)),
    (1, one(Role::Worker), What::Drained, (0, 1)),
    (1, one(Role::Gateway), What::Drained, (0, 1)),
    (1, Who::Every(Role::Worker), What::Killed, (100, 2_000)),
    (1, Who::Every(Role::Cron), What::Killed, (3_000, 8_000)),
    (2, Who::Server(Target::Redis), What::Killed, (100, 5_000)),
    (1, Who::Server(Target::Redis), What::Flushed, (0, 1)),
    (1, Who::Server(Target::Redis), What::GroupsDeleted, (0, 1)),
    (1, Who::Server(Target::Redis), What::Frozen, (500, 4_000)),
    (3, Who::Server(Target::Postgres), What::Killed, (100, 6_000)),
    (
        2,
        Who::Server(Target::Postgres),
        What::SessionsEnded,
        (0, 1),
    ),
    (1, Who::Server(Target::Postgres), What::Frozen, (200, 3_000)),
    (
        1,
        one(Role::Worker),
        What::Cut(Link::Postgres),
        (200, 5_000),
    ),
    (
        2,
        one(Role::Worker),
        What::Stalled(Link::Postgres),
        (1_000, 5_000),
    ),
    (
        1,
        one(Role::Worker),
        What::HalfOpen(Link::Postgres),
        (500, 3_000),
    ),
    (
        2,
        one(Role::Worker),
        What::ReplyLost(Link::Postgres),
        (500, 3_000),
    ),
    (
        1,
        one(Role::Gateway),
        What::ReplyLost(Link::Postgres),
        (500, 3_000),
    ),
    (
        1,
        one(Role::Gateway),
        What::Cut(Link::Postgres),
        (200, 4_000),
    ),
    (
        1,
        one(Role::Gateway),
        What::HalfOpen(Link::Postgres),
        (200, 1_000),
    ),
    (
        1,
        one(Role::Gateway),
        What::Delayed(Link::Postgres),
        (2_000, 6_000),
    ),
    (1, one(Role::Worker), What::Cut(Link::Redis), (500, 5_000)),
    (
        1,
        one(Role::Gateway),
        What::HalfOpen(Link::Redis),
        (500, 4_000),
    ),
];

/// All faults of a run of this length, in order.
#[must_use]
pub fn plan(seed: u64, duration: Duration, numbers: Numbers) -> Vec<Planned> {
    let mut rng = Rng::part(seed, u64::MAX);
    let mut deck = Vec::new();
    let mut all = Vec::new();
    let mut slot = FIRST;
    while slot + EVERY + QUIET_END <= duration {
        if deck.is_empty() {
            deck = dealt(&mut rng);
        }
        let Some((_, who, what, lasts)) = deck.pop() else {
            break;
        };
        // Anywhere in the slot's first half: neither a beat that the system could fall in with,
        // nor so loose that two slots' faults change places.
        let within = millis(EVERY) / 2;
        let at = slot + Duration::from_millis(rng.between(0, within));
        let left = duration.saturating_sub(at + QUIET_END);
        let lasts = Duration::from_millis(rng.between(lasts.0, lasts.1)).min(left);
        let target = drawn(&mut rng, who, numbers);
        let fault = Fault {
            target,
            what,
            lasts,
        };
        all.push(Planned { at, fault });
        slot += EVERY;
    }
    all
}

fn dealt(rng: &mut Rng) -> Vec<Card> {
    let cards = DECK.iter().flat_map(|card| vec![*card; card.0]);
    let mut deck: Vec<Card> = cards.collect();
    rng.shuffle(&mut deck);
    deck
}

fn drawn(rng: &mut Rng, who: Who, numbers: Numbers) -> Target {
    match who {
        Who::Every(role) => Target::All(role),
        Who::Server(server) => server,
        Who::One(role) => {
            let count = match role {
                Role::Gateway => numbers.gateways,
                Role::Worker => numbers.workers,
                Role::Cron => numbers.crons,
            };
            Target::Node(role, rng.below(count))
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const TEN_MINUTES: Duration = Duration::from_secs(600);
    const NUMBERS: Numbers = Numbers {
        gateways: 3,
        workers: 3,
        crons: 2,
    };

    #[test]
    fn the_seed_decides() {
        let plan = |seed| super::plan(seed, TEN_MINUTES, NUMBERS);
        assert_eq!(plan(1), plan(1));
        assert_ne!(plan(1), plan(2));
    }

    #[test]
    fn ten_minutes_hold_a_hundred_faults_of_every_kind() {
        for seed in 0..100 {
            let plan = plan(seed, TEN_MINUTES, NUMBERS);
            assert!(plan.len() >= 100, "{}", plan.len());
            let kinds: HashSet<String> = plan.iter().map(|one| one.fault.kind()).collect();
            let all: HashSet<String> = DECK
                .iter()
                .map(|(_, who, what, _)| {
                    let fault = Fault {
                        target: drawn(&mut Rng::new(0), *who, NUMBERS),
                        what: *what,
                        lasts: Duration::ZERO,
                    };
                    fault.kind()
                })
                .collect();
            assert_eq!(kinds, all);
        }
    }

    #[test]
    fn faults_end_before_the_run() {
        for one in plan(5, Duration::from_secs(45), NUMBERS) {
            assert!(one.at + one.fault.lasts + QUIET_END <= Duration::from_secs(45));
        }
    }
}
