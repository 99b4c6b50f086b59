//! Why the queue could not be asked. Each means the same to a caller: go on without the hint.

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Why the queue could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is wrong; only at start.
    #[error("queue settings: {0}")]
    Config(String),
    /// Redis is known to be unreachable; nothing was sent. Safe to repeat.
    #[error("redis is not reachable")]
    Unavailable,
    /// Redis did not answer within `command_timeout`. The command may still be carried out.
    #[error("redis did not answer in time")]
    Timeout,
    /// The connection failed. The command may have been carried out.
    #[error("the connection to redis failed")]
    Connection(#[source] RedisError),
    /// Redis refused the command (out of memory, read-only replica, missing permission).
    #[error("redis refused the command")]
    Refused(#[source] RedisError),
}

impl Error {
    pub(crate) fn from_redis(error: RedisError) -> Error {
        if breaks_connection(&error) {
            Error::Connection(error)
        } else {
            Error::Refused(error)
        }
    }

    /// What Redis refuses until somebody changes something, and what to do.
    pub fn refusal(&self) -> Option<&'static str> {
        match self {
            Error::Connection(error) | Error::Refused(error) => refusal(error),
            Error::Config(_) | Error::Unavailable | Error::Timeout => None,
        }
    }

    /// The metric label of this error.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Error::Config(_) => "config",
            Error::Unavailable => "unavailable",
            Error::Timeout => "timeout",
            Error::Connection(_) => "connection",
            Error::Refused(_) => "refused",
        }
    }
}

/// What is refused until somebody changes something, and what to do.
pub(crate) fn refusal(error: &redis::RedisError) -> Option<&'static str> {
    if matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
        || error.kind() == redis::ErrorKind::AuthenticationFailed
    {
        return Some(
            "it refuses user or password: mend redis.password_file, or what redis.url says",
        );
    }
    if error.code() == Some("NOPERM") {
        return Some("its user lacks a right: allow it all commands on our keys and channels");
    }
    if error.code() == Some("MOVED") {
        return Some("it is a Redis Cluster: set redis.cluster = true");
    }
    let detail = error.detail().unwrap_or_default();
    if detail.contains("cluster support disabled") {
        return Some("it is no Redis Cluster: leave redis.cluster out");
    }
    if detail.contains("unknown command") {
        return Some("it does not know a command of ours: Redis 7 or newer is needed");
    }
    // The library shares its causes.
    let shared = std::error::Error::source(error)?.downcast_ref::<Shared>()?;
    let inner = shared.downcast_ref::<std::io::Error>()?.get_ref()?;
    inner.is::<rustls::Error>().then_some(
        "its certificate is not accepted: see the log, redis.ca_file, and the host of redis.url",
    )
}

type Shared = std::sync::Arc<dyn std::error::Error + Send + Sync>;

/// Whether the connection is of no more use after this error. A server that turned into a replica,
/// or is still loading, or whose cluster is down, is left in the hope that the next connection reaches a better one.
pub(crate) fn breaks_connection(error: &RedisError) -> bool {
    let wrong_server = matches!(
        error.kind(),
        ErrorKind::Server(
            ServerErrorKind::ReadOnly
                | ServerErrorKind::MasterDown
                | ServerErrorKind::BusyLoading
                | ServerErrorKind::ClusterDown
        )
    );
    wrong_server || error.is_io_error() || error.is_unrecoverable_error()
}

/// Whether somebody else of the cluster keeps what was asked for, or soon will.
pub(crate) fn is_elsewhere(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Server(
            ServerErrorKind::Moved | ServerErrorKind::Ask | ServerErrorKind::TryAgain
        )
    )
}

/// Whether a read failed because its stream or group is gone (`FLUSHALL`, `DEL`, a restart without
/// data): to be made again, not an outage.
pub(crate) fn group_is_gone(error: &RedisError) -> bool {
    matches!(error.code(), Some("NOGROUP" | "UNBLOCKED"))
}

/// The metric label of a failed read.
pub(crate) fn read_error_kind(error: &RedisError) -> &'static str {
    if group_is_gone(error) {
        "group_gone"
    } else if is_elsewhere(error) {
        "moved"
    } else if error.is_timeout() {
        "timeout"
    } else if breaks_connection(error) {
        "connection"
    } else {
        "refused"
    }
}
