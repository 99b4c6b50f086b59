//! What can go wrong while starting or driving real processes.

use std::path::PathBuf;
use std::time::Duration;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the harness. Messages name the program or file and, where there is a log, end with
/// its last lines: a test that fails on another machine must explain itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file, socket or process could not be handled.
    #[error("{what}")]
    Io {
        /// What was attempted, on what.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A program that must be installed was not found.
    #[error("program `{program}` not found; {hint}")]
    Missing {
        /// The program's name.
        program: String,
        /// How to install it.
        hint: &'static str,
    },
    /// A process ended or refused although it should run.
    #[error("{what}{}", tail(log))]
    Failed {
        /// What failed, with the exit status where there is one.
        what: String,
        /// The file that holds the process's output, if it has one.
        log: Option<PathBuf>,
    },
    /// A state was not reached in time.
    #[error("{what} did not happen within {after:?}{}", tail(log))]
    Timeout {
        /// The state that was waited for, and what was seen last.
        what: String,
        /// How long the wait was.
        after: Duration,
        /// The file that holds the process's output, if it has one.
        log: Option<PathBuf>,
    },
    /// There was no complete HTTP answer.
    #[error("{url}: {why}")]
    Http {
        /// Where the request went.
        url: String,
        /// What happened, with its causes.
        why: String,
    },
    /// The server answered with a JSON-RPC error.
    #[error("HTTP {status}, JSON-RPC error {code}: {message} {data}")]
    Rpc {
        /// HTTP status code.
        status: u16,
        /// JSON-RPC error code.
        code: i64,
        /// Its message.
        message: String,
        /// Its data; `Null` if there is none.
        data: serde_json::Value,
    },
    /// Postgres answered with an error or could not be reached.
    #[error("postgres: {}", chain(.0))]
    Postgres(tokio_postgres::Error),
    /// Redis answered with an error or could not be reached.
    #[error("redis: {0}")]
    Redis(::redis::RedisError),
    /// Another part of the program, handed in by the caller, failed.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// Wraps an I/O error with what was attempted.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        Error::Postgres(error)
    }
}

impl From<::redis::RedisError> for Error {
    fn from(error: ::redis::RedisError) -> Self {
        Error::Redis(error)
    }
}

/// `tokio_postgres::Error` prints "db error" and keeps the server's words in its source.
fn chain(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// The last lines of a log, ready to be appended to a message.
fn tail(log: &Option<PathBuf>) -> String {
    log.as_deref().map_or_else(String::new, |log| {
        format!("; {}", crate::logs::tail(log, 15))
    })
}
