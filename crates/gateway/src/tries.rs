//! How many tokens one address may show that turn out to be worth nothing.
//!
//! A token that is being looked at counts as bad until it is known to be good: else as many as come at one time would
//! all be let through, and who hangs up before that would be counted never. Good ones come in crowds as well, from
//! behind one address after a restart, so who comes beyond that is not refused: it waits until it is known what the
//! others' are worth.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

use crate::auth::Refused;
use crate::config::Config;
use crate::error::Error;
use crate::peers::block;

/// Addresses, before those that are at rest are thrown out.
const ADDRESSES_MIN: usize = 1024;
/// Addresses of which no token is being looked at that are remembered, at most.
const ADDRESSES_MAX: usize = 64 * 1024;
/// Tokens of one address that wait for their turn.
const WAITING_MAX: usize = 256;
/// Of all places of requests, which who waits holds one of, this part is for those who wait.
const WAITING_PART: usize = 8;
/// How long one waits for its turn.
const TURN_WAIT: Duration = Duration::from_secs(2);
/// Who waits looks so often whether time alone has made room.
const LOOK: Duration = Duration::from_millis(250);

/// What is known of the tokens of all addresses.
pub(crate) struct Tries(Arc<Shared>);

struct Shared {
    /// Bad tokens of one address, per second; 0: any number.
    rate: f64,
    burst: f64,
    waiting: Semaphore,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    addresses: HashMap<IpAddr, Address>,
    next_sweep: usize,
}

struct Address {
    /// Bad tokens that it may still show, those that are being looked at not taken off.
    left: f64,
    filled_at: Instant,
    /// Tokens that are being looked at.
    looking: u32,
    waiting: VecDeque<oneshot::Sender<Turn>>,
}

/// A token may be looked at, and was bad unless it is said to be good.
pub(crate) struct Try {
    /// `None` where there is no limit.
    of: Option<(Arc<Shared>, IpAddr)>,
    bad: bool,
}

type Turn = Result<Try, Error>;

impl Tries {
    pub(crate) fn new(config: &Config) -> Self {
        Self(Arc::new(Shared {
            rate: f64::from(config.limits.refused_tokens_of_address_per_second),
            burst: f64::from(config.limits.refused_tokens_of_address_burst),
            waiting: Semaphore::new((config.limits.requests_max / WAITING_PART).max(1)),
            book: Mutex::default(),
        }))
    }

    /// Waits until this address may show a token that is not known to be good.
    ///
    /// # Errors
    /// If too many of its tokens were bad, or too many wait.
    pub(crate) async fn begin(&self, client: IpAddr) -> Result<Try, Error> {
        if self.0.rate == 0.0 {
            return Ok(Try {
                of: None,
                bad: true,
            });
        }
        let key = block(client);
        let mut turn = self.ask(key)?;
        let mut given = match turn.try_recv() {
            Ok(turn) => turn?,
            Err(_) => self.wait(turn, key).await?,
        };
        // One that was given to nobody was of no token.
        given.bad = true;
        Ok(given)
    }

    async fn wait(&self, mut turn: oneshot::Receiver<Turn>, key: IpAddr) -> Turn {
        let Ok(_waiting) = self.0.waiting.try_acquire() else {
            return Err(crowded());
        };
        let until = Instant::now() + TURN_WAIT;
        while Instant::now() < until {
            match tokio::time::timeout(LOOK, &mut turn).await {
                Ok(given) => return given.unwrap_or_else(|_| Err(crowded())),
                Err(_) => self.0.look(key),
            }
        }
        Err(crowded())
    }

    fn ask(&self, key: IpAddr) -> Result<oneshot::Receiver<Turn>, Error> {
        let now = Instant::now();
        let mut book = self.0.lock();
        let address = book.address(key, now, &self.0);
        let (sender, receiver) = oneshot::channel();
        if address.waiting.len() >= WAITING_MAX {
            // Whose callers hung up.
            address.waiting.retain(|waiting| !waiting.is_closed());
        }
        if address.waiting.len() >= WAITING_MAX {
            return Err(crowded());
        }
        address.waiting.push_back(sender);
        let turns = self.0.turns(address, now, key);
        drop(book);
        hand_out(turns);
        Ok(receiver)
    }
}

impl Try {
    /// The token is what it says, or there was none.
    pub(crate) fn was_good(mut self) {
        self.bad = false;
    }
}

impl Drop for Try {
    fn drop(&mut self) {
        if let Some((shared, key)) = self.of.take() {
            shared.ended(key, self.bad);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(self: &Arc<Self>, key: IpAddr, bad: bool) {
        let now = Instant::now();
        let mut book = self.lock();
        let Some(address) = book.addresses.get_mut(&key) else {
            return;
        };
        address.looking -= 1;
        let before = address.left_at(now, self);
        if bad {
            address.left = (before - 1.0).max(0.0);
            address.filled_at = now;
        }
        let too_many = before >= 1.0 && address.left_at(now, self) < 1.0;
        let turns = self.turns(address, now, key);
        if address.rests(now, self) {
            book.addresses.remove(&key);
        }
        drop(book);
        if too_many {
            tracing::info!(client.address = %key, "too many bad tokens from one address");
        }
        hand_out(turns);
    }

    /// Gives out what time alone has made room for.
    fn look(self: &Arc<Self>, key: IpAddr) {
        let mut book = self.lock();
        let Some(address) = book.addresses.get_mut(&key) else {
            return;
        };
        let turns = self.turns(address, Instant::now(), key);
        drop(book);
        hand_out(turns);
    }

    /// Whose turn it is, first come, first served. All are refused whom only time could help.
    fn turns(
        self: &Arc<Self>,
        address: &mut Address,
        now: Instant,
        key: IpAddr,
    ) -> Vec<(oneshot::Sender<Turn>, Turn)> {
        let left = address.left_at(now, self);
        let mut turns = Vec::new();
        while f64::from(address.looking) + 1.0 <= left
            && let Some(sender) = address.waiting.pop_front()
        {
            if sender.is_closed() {
                continue;
            }
            address.looking += 1;
            let turn = Try {
                of: Some((Arc::clone(self), key)),
                bad: false,
            };
            turns.push((sender, Ok(turn)));
        }
        if left < 1.0 {
            let limited = || Error::Limited {
                what: "bad tokens from this address",
                retry_after: Duration::from_secs_f64(((1.0 - left) / self.rate).clamp(1.0, 3600.0)),
            };
            let refused = address.waiting.drain(..);
            turns.extend(refused.map(|sender| (sender, Err(limited()))));
        }
        turns
    }
}

/// Without the lock: a turn that nobody takes any more ends here.
fn hand_out(turns: Vec<(oneshot::Sender<Turn>, Turn)>) {
    for (sender, turn) in turns {
        drop(sender.send(turn));
    }
}

fn crowded() -> Error {
    Error::Auth(Refused::Unavailable {
        message: "too many tokens from this address are being checked",
    })
}

impl Book {
    fn address(&mut self, key: IpAddr, now: Instant, of: &Shared) -> &mut Address {
        if self.addresses.len() >= self.next_sweep.max(ADDRESSES_MIN) {
            self.addresses.retain(|_, address| !address.rests(now, of));
            if self.addresses.len() > ADDRESSES_MAX {
                self.addresses.retain(|_, address| address.looking > 0);
            }
            self.next_sweep = 2 * self.addresses.len();
        }
        self.addresses.entry(key).or_insert_with(|| Address {
            left: of.burst,
            filled_at: now,
            looking: 0,
            waiting: VecDeque::new(),
        })
    }
}

impl Address {
    fn left_at(&self, now: Instant, of: &Shared) -> f64 {
        let since = now.duration_since(self.filled_at).as_secs_f64();
        of.burst.min(self.left + since * of.rate)
    }

    /// A new one would be the same.
    fn rests(&self, now: Instant, of: &Shared) -> bool {
        self.looking == 0 && self.left_at(now, of) >= of.burst
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::future::join_all;

    use super::*;

    const BURST: usize = 3;

    fn tries(change: impl FnOnce(&mut Config)) -> Tries {
        let mut config = Config::default();
        config.limits.refused_tokens_of_address_per_second = 1;
        config.limits.refused_tokens_of_address_burst = 3;
        change(&mut config);
        Tries::new(&config)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn known(tries: &Tries) -> usize {
        tries.0.lock().addresses.len()
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_bad_tokens_of_one_address() {
        let tries = tries(|_| {});
        let (bad, good) = (ip("1.2.3.4"), ip("1.2.3.5"));
        for _ in 0..BURST {
            // Also of who hung up before it was known.
            drop(tries.begin(bad).await.unwrap());
        }
        let Err(Error::Limited { retry_after, .. }) = tries.begin(bad).await else {
            panic!("it has shown too many");
        };
        assert_eq!(retry_after, Duration::from_secs(1));
        tries.begin(good).await.unwrap().was_good();
        tokio::time::advance(Duration::from_millis(900)).await;
        assert!(tries.begin(bad).await.is_err());
        tokio::time::advance(Duration::from_millis(200)).await;
        drop(tries.begin(bad).await.expect("it may try again"));
        assert!(tries.begin(bad).await.is_err());
    }

    /// They are bad until they are known to be good, also while nothing is known of any.
    #[tokio::test(start_paused = true)]
    async fn a_wave_is_let_through_no_further_than_one_after_the_other() {
        let tries = tries(|_| {});
        let client = ip("1.2.3.4");
        let looked_at = async || {
            let turn = tries.begin(client).await?;
            tokio::time::sleep(Duration::from_millis(1)).await;
            drop(turn);
            Ok::<(), Error>(())
        };
        let wave = join_all((0..100).map(|_| looked_at())).await;
        assert_eq!(wave.iter().filter(|turn| turn.is_ok()).count(), BURST);
        let limited = |turn: &&Result<(), Error>| matches!(turn, Err(Error::Limited { .. }));
        assert_eq!(wave.iter().filter(limited).count(), 100 - BURST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_with_good_ones_waits_for_its_turn() {
        let tries = tries(|_| {});
        let client = ip("1.2.3.4");
        let order = Mutex::new(Vec::new());
        let (tries, order) = (&tries, &order);
        let looked_at = |n| async move {
            let turn = tries.begin(client).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
            order.lock().unwrap().push(n);
            turn.was_good();
        };
        join_all((0..200).map(looked_at)).await;
        assert_eq!(*order.lock().unwrap(), (0..200).collect::<Vec<_>>());
        assert_eq!(known(tries), 0, "nothing is kept of who showed good ones");
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_wait_and_so_long() {
        let tries = tries(|_| {});
        let client = ip("1.2.3.4");
        let mut held = Vec::new();
        for _ in 0..BURST {
            held.push(tries.begin(client).await.unwrap());
        }
        let all = |many| join_all((0..many).map(|_| tries.begin(client)));
        let begun = Instant::now();
        let crowd = all(WAITING_MAX + 1).await;
        assert_eq!(begun.elapsed(), TURN_WAIT);
        let is_crowd = |turn: &&Turn| matches!(turn, Err(Error::Auth(refused)) if matches!(refused, Refused::Unavailable { .. }));
        assert_eq!(crowd.iter().filter(is_crowd).count(), WAITING_MAX + 1);
        // Whoever went away has left the line.
        let mut waiting = all(WAITING_MAX).boxed_local();
        assert!(futures::poll!(&mut waiting).is_pending());
        let last = tries.begin(client).now_or_never();
        assert!(last.is_some_and(|turn| turn.is_err()), "the line is full");
        drop(waiting);
        let mut next = tries.begin(client).boxed_local();
        assert!(futures::poll!(&mut next).is_pending());
        held.pop().unwrap().was_good();
        assert!(next.await.is_ok());
    }

    /// Of all addresses together: each holds a place that others need.
    #[tokio::test(start_paused = true)]
    async fn so_many_of_all_wait() {
        let tries = tries(|config| {
            config.limits.requests_max = 80;
            config.limits.refused_tokens_of_address_burst = 1;
        });
        let looked_at = join_all((0..20).map(|n| tries.begin(ip(&format!("1.2.3.{n}"))))).await;
        assert!(looked_at.iter().all(Result::is_ok));
        let mut waiting: Vec<_> = (0..20)
            .map(|n| tries.begin(ip(&format!("1.2.3.{n}"))).boxed_local())
            .collect();
        let mut told = 0;
        for one in &mut waiting {
            told += usize::from(futures::poll!(one).is_ready());
        }
        assert_eq!(told, 20 - 80 / WAITING_PART);
    }

    #[tokio::test(start_paused = true)]
    async fn what_time_makes_room_for_is_given_to_who_waits() {
        let tries = tries(|_| {});
        let client = ip("1.2.3.4");
        for _ in 1..BURST {
            drop(tries.begin(client).await.unwrap());
        }
        let _long = tries.begin(client).await.unwrap();
        let begun = Instant::now();
        assert!(tries.begin(client).await.is_ok());
        let waited = begun.elapsed();
        assert!(waited <= Duration::from_millis(1_250), "{waited:?}");
    }

    /// Its caller hung up just when it was given out.
    #[tokio::test(start_paused = true)]
    async fn a_turn_that_nobody_takes_is_given_to_the_next() {
        let tries = tries(|config| config.limits.refused_tokens_of_address_burst = 1);
        let client = ip("1.2.3.4");
        let first = tries.begin(client).await.unwrap();
        let mut gone = tries.begin(client).boxed_local();
        let mut next = tries.begin(client).boxed_local();
        assert!(futures::poll!(&mut gone).is_pending());
        assert!(futures::poll!(&mut next).is_pending());
        first.was_good();
        drop(gone);
        assert!(next.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn none_is_no_limit() {
        let tries = tries(|config| config.limits.refused_tokens_of_address_per_second = 0);
        for _ in 0..100 {
            tries.begin(ip("1.2.3.4")).await.unwrap();
        }
        assert_eq!(known(&tries), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_addresses_are_bounded() {
        let tries = tries(|_| {});
        let kept = tries.begin(ip("1.2.3.4")).await.unwrap();
        for n in 0..3 * u32::try_from(ADDRESSES_MAX).unwrap() {
            let client = IpAddr::V4((0x2000_0000 + n).into());
            drop(tries.begin(client).await.unwrap());
        }
        assert!(known(&tries) <= 2 * ADDRESSES_MAX + 2, "{}", known(&tries));
        drop(kept);
        tries.0.lock().next_sweep = 0;
        tokio::time::advance(Duration::from_secs(60)).await;
        tries.begin(ip("9.9.9.9")).await.unwrap();
        assert_eq!(known(&tries), 1);
    }
}
