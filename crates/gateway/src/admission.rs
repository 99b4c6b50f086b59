//! What one principal may take: requests a second and at once, calls that wait, subscriptions, live tasks. Who
//! takes too much is refused before it costs anything, so that it costs the others nothing. Services
//! that call back have no principal: what they may take is counted by the task that they call for.
//!
//! Requests, waits and subscriptions are counted in this process, live tasks in Postgres ([`LiveTasks`]).
//! What is remembered here no other replica misses: with n replicas a principal may take n times the
//! first three.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::TaskId;
use store::{Principal, Store};
use tokio::time::Instant;

use crate::config::Limits;
use crate::error::Error;
use crate::live_tasks::{Limit, LiveTasks, Whose};

/// Accounts, before those that are at rest are thrown out.
const ACCOUNTS_MIN: usize = 1024;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// To read a task. A client that is refused that gives up a task that lives, so reads are
    /// refused last: an account may be overdrawn for them.
    Read,
    /// Anything else.
    Other,
    /// It is not told before the body is read, which is short. [`Admission::was_other`] tells later.
    Untold,
}

/// What is held open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Request,
    Call,
    Listen,
}

/// The accounts of this process.
pub(crate) struct Admission {
    book: Arc<Mutex<Book>>,
    hasher: RandomState,
    rate: f64,
    burst: f64,
    open_max: usize,
    calls_max: usize,
    listens_max: usize,
    live_max: u64,
    live_of_tenant_max: u64,
    live: LiveTasks,
}

#[derive(Default)]
struct Book {
    accounts: HashMap<u64, Account>,
    next_sweep: usize,
}

/// Of one principal.
struct Account {
    /// Requests that it may still send at once; below 0 it is overdrawn.
    requests: f64,
    filled_at: Instant,
    open: usize,
    calls: usize,
    listens: usize,
}

/// A place that is taken as long as this lives.
pub(crate) struct Place {
    book: Arc<Mutex<Book>>,
    key: u64,
    kind: Kind,
    taken: usize,
    max: usize,
}

impl Admission {
    pub(crate) fn new(limits: &Limits) -> Self {
        let number = |n: u32| f64::from(n);
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        Self {
            book: Arc::default(),
            hasher: RandomState::new(),
            rate: number(limits.requests_of_principal_per_second),
            burst: number(limits.requests_of_principal_burst),
            open_max: limits.requests_of_principal_max,
            calls_max: limits.held_calls_of_principal_max,
            listens_max: limits.listens_of_principal_max,
            live_max: count(limits.live_tasks_of_principal_max),
            live_of_tenant_max: count(limits.live_tasks_of_tenant_max),
            live: LiveTasks::default(),
        }
    }

    /// A book of its own, for the tasks that services call for.
    pub(crate) fn of_callbacks(limits: &Limits) -> Self {
        Self::new(&Limits {
            requests_of_principal_per_second: limits.callbacks_of_task_per_second,
            requests_of_principal_burst: limits.callbacks_of_task_burst,
            requests_of_principal_max: limits.callbacks_of_task_max,
            ..limits.clone()
        })
    }

    /// A request of the principal that `key` stands for, and its place among those that are being answered.
    ///
    /// # Errors
    /// If it sends more than it may, or has as many open.
    pub(crate) fn request(&self, key: u64, asks: Asks) -> Result<Place, Error> {
        self.let_in(Instant::now(), key, asks)
    }

    /// A call of a service for this task, as a request of a principal.
    ///
    /// # Errors
    /// If there are more of them than there may be.
    pub(crate) fn callback(&self, task: TaskId) -> Result<Place, Error> {
        let key = self.hasher.hash_one(task.as_bytes());
        self.let_in(Instant::now(), key, Asks::Other)
    }

    fn let_in(&self, now: Instant, key: u64, asks: Asks) -> Result<Place, Error> {
        let mut book = lock(&self.book);
        let account = book.account(key, now, self);
        if account.open >= self.open_max {
            return Err(limited("open requests"));
        }
        self.draw(account, now, asks)?;
        account.open += 1;
        Ok(Place {
            book: Arc::clone(&self.book),
            key,
            kind: Kind::Request,
            taken: account.open,
            max: self.open_max,
        })
    }

    /// Takes one request of what the account may send.
    fn draw(&self, account: &mut Account, now: Instant, asks: Asks) -> Result<(), Error> {
        if self.rate == 0.0 {
            return Ok(());
        }
        let since = now.duration_since(account.filled_at).as_secs_f64();
        account.requests = self.burst.min(account.requests + since * self.rate);
        account.filled_at = now;
        let floor = match asks {
            Asks::Read | Asks::Untold => 1.0 - self.burst,
            Asks::Other => 1.0,
        };
        if account.requests < floor {
            return Err(self.too_many(floor - account.requests));
        }
        account.requests -= 1.0;
        Ok(())
    }

    /// A request that was let in as untold turned out to be no read.
    ///
    /// # Errors
    /// If the account was overdrawn for it, as [`Self::request`] would have said. It is given back.
    pub(crate) fn was_other(&self, key: u64) -> Result<(), Error> {
        if self.rate == 0.0 {
            return Ok(());
        }
        let mut book = lock(&self.book);
        let account = book.account(key, Instant::now(), self);
        if account.requests >= 0.0 {
            return Ok(());
        }
        account.requests += 1.0;
        Err(self.too_many(1.0 - account.requests))
    }

    /// So many requests must come back before one more is let in.
    fn too_many(&self, lacking: f64) -> Error {
        let wait = lacking / self.rate;
        Error::Limited {
            what: "requests",
            retry_after: Duration::from_secs_f64(wait.clamp(1.0, 3600.0)),
        }
    }

    /// A call that may have to wait for its result. Whether it may is for [`Place::is_over`] to say,
    /// since it may become a task instead.
    pub(crate) fn call(&self, principal: &Principal) -> Place {
        self.place(principal, Kind::Call, self.calls_max)
    }

    /// A subscription.
    ///
    /// # Errors
    /// If the principal has as many as it may.
    pub(crate) fn listen(&self, principal: &Principal) -> Result<Place, Error> {
        let place = self.place(principal, Kind::Listen, self.listens_max);
        if place.is_over() {
            return Err(limited("subscriptions"));
        }
        Ok(place)
    }

    /// A new task of this principal. Calls that come in the same moment may each find the last
    /// room, so the limit is kept about, not exactly.
    ///
    /// # Errors
    /// If it, or its tenant, has as many live ones as it may; or when Postgres could not be asked.
    pub(crate) async fn task(&self, store: &Store, principal: &Principal) -> Result<(), Error> {
        let limits = self.live_limits(principal);
        let count = |maxima, patience| {
            let store = store.with_wait(patience);
            async move { store.count_live(principal, maxima).await }
        };
        let patience = store.config().wait_max;
        self.live.take(&limits, patience, count).await
    }

    fn live_limits(&self, principal: &Principal) -> Vec<Limit> {
        let mut limits = Vec::with_capacity(2);
        if self.live_max > 0 {
            limits.push(Limit {
                whose: Whose::Principal,
                key: self.key(principal),
                max: self.live_max,
            });
        }
        if let Some(tenant) = principal
            .tenant
            .as_ref()
            .filter(|_| self.live_of_tenant_max > 0)
        {
            limits.push(Limit {
                whose: Whose::Tenant,
                key: self.hasher.hash_one((&principal.issuer, tenant)),
                max: self.live_of_tenant_max,
            });
        }
        limits
    }

    fn place(&self, principal: &Principal, kind: Kind, max: usize) -> Place {
        let key = self.key(principal);
        let mut book = lock(&self.book);
        let taken = book.account(key, Instant::now(), self).of(kind);
        *taken += 1;
        Place {
            book: Arc::clone(&self.book),
            key,
            kind,
            taken: *taken,
            max,
        }
    }

    /// What stands for a principal in this process.
    pub(crate) fn key(&self, principal: &Principal) -> u64 {
        self.hasher
            .hash_one((&principal.issuer, &principal.subject, "principal"))
    }
}

/// A principal has as many of something as it may.
pub(crate) fn limited(what: &'static str) -> Error {
    Error::Limited {
        what,
        retry_after: Duration::from_secs(1),
    }
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Book {
    fn account(&mut self, key: u64, now: Instant, of: &Admission) -> &mut Account {
        if self.accounts.len() >= self.next_sweep.max(ACCOUNTS_MIN) {
            self.accounts.retain(|_, account| !account.rests(now, of));
            self.next_sweep = 2 * self.accounts.len();
        }
        self.accounts.entry(key).or_insert_with(|| Account {
            requests: of.burst,
            filled_at: now,
            open: 0,
            calls: 0,
            listens: 0,
        })
    }
}

impl Account {
    fn of(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Request => &mut self.open,
            Kind::Call => &mut self.calls,
            Kind::Listen => &mut self.listens,
        }
    }

    /// A new one would be the same.
    fn rests(&self, now: Instant, of: &Admission) -> bool {
        let since = now.duration_since(self.filled_at).as_secs_f64();
        self.open == 0
            && self.calls == 0
            && self.listens == 0
            && self.requests + since * of.rate >= of.burst
    }
}

impl Place {
    /// The principal had all its places before.
    pub(crate) fn is_over(&self) -> bool {
        self.taken > self.max
    }

    /// How much was taken before, in percent.
    pub(crate) fn full_percent(&self) -> u64 {
        let percent = (self.taken - 1).saturating_mul(100) / self.max.max(1);
        u64::try_from(percent).unwrap_or(u64::MAX)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut book = lock(&self.book);
        if let Some(account) = book.accounts.get_mut(&self.key) {
            let taken = account.of(self.kind);
            *taken = taken.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(change: impl FnOnce(&mut Limits)) -> Admission {
        let mut limits = Limits {
            requests_of_principal_per_second: 10,
            requests_of_principal_burst: 5,
            requests_of_principal_max: 4,
            held_calls_of_principal_max: 2,
            listens_of_principal_max: 2,
            ..Limits::default()
        };
        change(&mut limits);
        Admission::new(&limits)
    }

    fn request_at(
        admission: &Admission,
        now: Instant,
        who: &Principal,
        asks: Asks,
    ) -> Result<Place, Error> {
        admission.let_in(now, admission.key(who), asks)
    }

    fn who(name: &str) -> Principal {
        Principal::verified("i".to_owned(), name.to_owned(), None)
    }

    #[test]
    fn a_bucket_fills_with_time() {
        let admission = admission(|_| {});
        let (alice, bob, start) = (who("alice"), who("bob"), Instant::now());
        let ask = |who: &Principal, ms: u64| {
            let now = start + Duration::from_millis(ms);
            (0..8)
                .filter(|_| request_at(&admission, now, who, Asks::Other).is_ok())
                .count()
        };
        assert_eq!(ask(&alice, 0), 5, "the burst");
        assert_eq!(ask(&bob, 0), 5, "another's is another's");
        assert_eq!(ask(&alice, 50), 0);
        assert_eq!(ask(&alice, 250), 2);
        assert_eq!(ask(&alice, 3_600_000), 5, "never more");
    }

    #[test]
    fn reads_are_refused_last() {
        let admission = admission(|_| {});
        let (alice, start) = (who("alice"), Instant::now());
        while request_at(&admission, start, &alice, Asks::Other).is_ok() {}
        let read = |now| request_at(&admission, now, &alice, Asks::Read);
        assert_eq!((0..20).filter(|_| read(start).is_ok()).count(), 5);
        let refused = request_at(&admission, start, &alice, Asks::Other);
        let Err(Error::Limited { retry_after, .. }) = refused else {
            panic!("it is overdrawn");
        };
        assert_eq!(retry_after, Duration::from_secs(1), "at least");
        assert!(read(start).is_err());
        assert!(read(start + Duration::from_millis(110)).is_ok());
    }

    #[test]
    fn what_was_no_read_overdraws_nothing() {
        let admission = admission(|_| {});
        let (alice, start) = (who("alice"), Instant::now());
        let untold = || request_at(&admission, start, &alice, Asks::Untold);
        for _ in 0..5 {
            untold().unwrap();
            assert!(admission.was_other(admission.key(&alice)).is_ok());
        }
        // However often it is tried, it takes nothing of what reads may overdraw.
        for _ in 0..20 {
            untold().unwrap();
            assert!(admission.was_other(admission.key(&alice)).is_err());
        }
        assert_eq!((0..20).filter(|_| untold().is_ok()).count(), 5);
    }

    #[test]
    fn so_many_are_answered_at_once() {
        let admission = admission(|limits| limits.requests_of_principal_burst = 100);
        let (alice, bob) = (who("alice"), who("bob"));
        let ask = |who| request_at(&admission, Instant::now(), who, Asks::Other);
        let mut open: Vec<Place> = (0..4).map(|_| ask(&alice).unwrap()).collect();
        for asks in [Asks::Other, Asks::Read, Asks::Untold] {
            assert!(
                request_at(&admission, Instant::now(), &alice, asks).is_err(),
                "{asks:?}"
            );
        }
        assert!(ask(&bob).is_ok());
        open.pop();
        assert!(ask(&alice).is_ok());
    }

    /// To the last one, at once and one after another.
    #[test]
    fn so_many_calls_for_one_task() {
        let limits = Limits {
            callbacks_of_task_per_second: 1,
            callbacks_of_task_burst: 5,
            callbacks_of_task_max: 3,
            ..Limits::default()
        };
        let admission = Admission::of_callbacks(&limits);
        let (one, other) = (TaskId::new(0), TaskId::new(0));
        let open: Vec<_> = (0..4).map(|_| admission.callback(one)).collect();
        let fits: Vec<bool> = open.iter().map(Result::is_ok).collect();
        assert_eq!(fits, [true, true, true, false]);
        assert!(
            admission.callback(other).is_ok(),
            "another task's are its own"
        );
        drop(open);
        let fits: Vec<bool> = (0..3).map(|_| admission.callback(one).is_ok()).collect();
        assert_eq!(fits, [true, true, false], "of five");
    }

    #[test]
    fn places_come_back() {
        let admission = admission(|_| {});
        let alice = who("alice");
        let one = admission.listen(&alice);
        let two = admission.listen(&alice);
        assert!(one.is_ok() && two.is_ok() && admission.listen(&alice).is_err());
        assert!(admission.listen(&who("bob")).is_ok());
        drop(one);
        assert!(admission.listen(&alice).is_ok());
        let calls: Vec<Place> = (0..3).map(|_| admission.call(&alice)).collect();
        let over: Vec<bool> = calls.iter().map(Place::is_over).collect();
        assert_eq!(over, [false, false, true]);
        let full: Vec<u64> = calls.iter().map(Place::full_percent).collect();
        assert_eq!(full, [0, 50, 100]);
    }

    #[test]
    fn whoever_rests_is_forgotten() {
        let admission = admission(|_| {});
        let place = admission.listen(&who("alice"));
        let start = Instant::now();
        for n in 0..10 * ACCOUNTS_MIN {
            let now = start + Duration::from_secs(1 + n as u64);
            drop(request_at(
                &admission,
                now,
                &who(&n.to_string()),
                Asks::Other,
            ));
        }
        let known = lock(&admission.book).accounts.len();
        assert!(known <= ACCOUNTS_MIN, "{known} accounts");
        drop(place);
        assert!(admission.listen(&who("alice")).is_ok());
    }

    #[test]
    fn no_rate_is_no_limit() {
        let admission = admission(|limits| limits.requests_of_principal_per_second = 0);
        let all = (0..1000)
            .all(|_| request_at(&admission, Instant::now(), &who("alice"), Asks::Other).is_ok());
        assert!(all);
    }
}
