//! What can break.

use std::fmt;
use std::time::Duration;

use harness::config::Role;

/// Who it happens to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// One of our processes, counted from 0 within its role.
    Node(Role, usize),
    /// All processes of a role.
    All(Role),
    /// The Postgres server.
    Postgres,
    /// The Redis server.
    Redis,
}

impl fmt::Display for Target {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Node(role, index) => write!(to, "{}-{}", role.command(), index + 1),
            Target::All(role) => write!(to, "{}s", role.command()),
            Target::Postgres => to.write_str("postgres"),
            Target::Redis => to.write_str("redis"),
        }
    }
}

/// A process' connections to one of the two servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Link {
    /// To Postgres.
    Postgres,
    /// To Redis.
    Redis,
}

impl Link {
    fn name(self) -> &'static str {
        match self {
            Link::Postgres => "postgres",
            Link::Redis => "redis",
        }
    }
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum What {
    /// `SIGKILL`; started again when the fault is over.
    Killed,
    /// `SIGSTOP`, then `SIGCONT`.
    Frozen,
    /// `SIGTERM`: an orderly end; started again afterwards.
    Drained,
    /// `FLUSHALL`.
    Flushed,
    /// Every consumer group is deleted.
    GroupsDeleted,
    /// Every session is ended by `pg_terminate_backend`.
    SessionsEnded,
    /// Connections are reset, and new ones too.
    Cut(Link),
    /// Connections stay open and nothing moves.
    Stalled(Link),
    /// The other side vanished without a word.
    HalfOpen(Link),
    /// Everything is late.
    Delayed(Link),
    /// Now and then a request reaches the server and its reply is lost.
    ReplyLost(Link),
}

impl fmt::Display for What {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Killed => to.write_str("killed"),
            What::Frozen => to.write_str("frozen"),
            What::Drained => to.write_str("drained"),
            What::Flushed => to.write_str("flushed"),
            What::GroupsDeleted => to.write_str("groups deleted"),
            What::SessionsEnded => to.write_str("sessions ended"),
            What::Cut(link) => write!(to, "cut from {}", link.name()),
            What::Stalled(link) => write!(to, "stalled to {}", link.name()),
            What::HalfOpen(link) => write!(to, "half-open to {}", link.name()),
            What::Delayed(link) => write!(to, "delayed to {}", link.name()),
            What::ReplyLost(link) => write!(to, "replies of {} lost", link.name()),
        }
    }
}

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// To whom.
    pub target: Target,
    /// What.
    pub what: What,
    /// For how long, before everything is as it was.
    pub lasts: Duration,
}

impl fmt::Display for Fault {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} {}", self.target, self.what)?;
        if !self.lasts.is_zero() {
            write!(to, " for {} ms", self.lasts.as_millis())?;
        }
        Ok(())
    }
}

impl Fault {
    /// Whether requests have to wait for Postgres meanwhile, or for the gateway they are at. They may
    /// wait for so long only, and two such faults in a row would be one long one.
    #[must_use]
    pub fn makes_requests_wait(&self) -> bool {
        match self.target {
            Target::Postgres => true,
            Target::Node(Role::Gateway, _) | Target::All(Role::Gateway) => matches!(
                self.what,
                What::Frozen
                    | What::Cut(Link::Postgres)
                    | What::Stalled(Link::Postgres)
                    | What::HalfOpen(Link::Postgres)
                    | What::Delayed(Link::Postgres)
                    | What::ReplyLost(Link::Postgres)
            ),
            Target::Node(..) | Target::All(_) | Target::Redis => false,
        }
    }

    /// How long after it requests may still wait: who sent one into a connection that died silently
    /// finds out when its patience with the statement is over.
    #[must_use]
    pub fn aftermath(&self) -> Duration {
        match self.what {
            What::HalfOpen(Link::Postgres) => Duration::from_secs(7),
            _ => Duration::from_millis(2_500),
        }
    }

    /// The kind, for counting: who of which sort, and what.
    #[must_use]
    pub fn kind(&self) -> String {
        let who = match self.target {
            Target::Node(role, _) | Target::All(role) => role.command(),
            Target::Postgres => "postgres",
            Target::Redis => "redis",
        };
        format!("{who} {}", self.what)
    }
}
