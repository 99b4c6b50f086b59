//! Why the store could not be asked. A refusal is never an error: refusals are outcomes.

use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;

use crate::refusal::Refusal;

/// What went wrong, by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres cannot be reached, also not by waiting. Try again later.
    #[error("postgres is unavailable")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A statement took longer than it may. Try again later.
    #[error("a statement timed out")]
    Timeout(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A row holds what it must not hold. An operator must look.
    #[error("{table}.{column} of {id} cannot be read")]
    Corrupt {
        /// Table of the row.
        table: &'static str,
        /// Column that cannot be read.
        column: &'static str,
        /// The row's key.
        id: String,
    },
    /// What is stored of a task is sealed, and the key that opens it is not here. It can be read again
    /// when the settings have the key.
    #[error(
        "task {id} is sealed with the key \"{key}\", which is not among encryption.keys, or is another one there"
    )]
    KeyMissing {
        /// The task.
        id: protocol::TaskId,
        /// Name of the key.
        key: String,
    },
    /// The schema does not fit this binary; the message says what to run.
    #[error("{0}")]
    Schema(String),
    /// Postgres refused a statement of ours: a fault of this program.
    #[error("postgres refused a statement")]
    Bug(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// One failed try, before it is known whether another one helps.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The connection is gone or cannot be had; the statement may be tried again.
    Transient(Box<dyn std::error::Error + Send + Sync>),
    /// Trying again does not help.
    Final(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

impl From<PoolError> for Fault {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => Self::connecting(error),
            other => Self::Transient(Box::new(other)),
        }
    }
}

impl Fault {
    /// Why there is no connection.
    pub(crate) fn connecting(error: tokio_postgres::Error) -> Self {
        let error = match Refusal::of(error) {
            Ok(refusal) => return Self::Final(Error::Unavailable(Box::new(refusal))),
            Err(error) => error,
        };
        match Self::from(error) {
            // Not mended by waiting, but not a fault of this program either.
            Self::Final(Error::Bug(source)) => Self::Final(Error::Unavailable(source)),
            other => other,
        }
    }
}

impl Error {
    /// What Postgres refuses until somebody changes something, if that is why it is unavailable.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Unavailable(source) => source.downcast_ref(),
            Self::Timeout(_)
            | Self::Corrupt { .. }
            | Self::KeyMissing { .. }
            | Self::Schema(_)
            | Self::Bug(_) => None,
        }
    }
}

impl Error {
    /// Its class, for traces.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::Timeout(_) => "timeout",
            Self::Corrupt { .. } => "corrupt",
            Self::KeyMissing { .. } => "key_missing",
            Self::Schema(_) => "schema",
            Self::Bug(_) => "bug",
        }
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(code) = error.code() else {
            return if error.is_closed() || is_io(&error) {
                Self::Transient(Box::new(error))
            } else {
                Self::Final(Error::Bug(Box::new(error)))
            };
        };
        if *code == SqlState::QUERY_CANCELED {
            return Self::Final(Error::Timeout(Box::new(error)));
        }
        if *code == SqlState::INSUFFICIENT_PRIVILEGE {
            return Self::connecting(error);
        }
        let transient = ["08", "53"]
            .iter()
            .any(|class| code.code().starts_with(class))
            || [
                SqlState::ADMIN_SHUTDOWN,
                SqlState::CRASH_SHUTDOWN,
                SqlState::CANNOT_CONNECT_NOW,
                // Postgres ended a session that seemed forgotten: this process was not awake.
                SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
                SqlState::IDLE_SESSION_TIMEOUT,
                SqlState::T_R_SERIALIZATION_FAILURE,
                SqlState::T_R_DEADLOCK_DETECTED,
                // A former primary that became a standby: the next connection finds the new one.
                SqlState::READ_ONLY_SQL_TRANSACTION,
                SqlState::LOCK_NOT_AVAILABLE,
            ]
            .contains(code);
        if transient {
            Self::Transient(Box::new(error))
        } else {
            Self::Final(Error::Bug(Box::new(Complaint::of(&error))))
        }
    }
}

/// Why Postgres refused a statement, without the row: its detail would show arguments and results.
#[derive(Debug)]
struct Complaint {
    code: String,
    message: String,
    about: Option<String>,
}

impl Complaint {
    fn of(error: &tokio_postgres::Error) -> Self {
        let told = error.as_db_error();
        Self {
            code: error.code().map_or("", SqlState::code).to_owned(),
            message: told.map_or_else(|| error.to_string(), |told| told.message().to_owned()),
            about: told.and_then(|told| {
                let what = [told.table(), told.column(), told.constraint()];
                let what: Vec<&str> = what.into_iter().flatten().collect();
                (!what.is_empty()).then(|| what.join("."))
            }),
        }
    }
}

impl std::fmt::Display for Complaint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}", self.message, self.code)?;
        if let Some(about) = &self.about {
            write!(f, ", {about}")?;
        }
        f.write_str(")")
    }
}

impl std::error::Error for Complaint {}

fn is_io(error: &tokio_postgres::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if error.is::<std::io::Error>() {
            return true;
        }
        source = error.source();
    }
    // Time-outs and "unexpected end" of a connection attempt carry no source.
    let text = error.to_string();
    text.contains("timeout") || text.contains("communicating") || text.contains("connect")
}
