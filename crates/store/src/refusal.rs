//! What Postgres refuses until somebody changes something: waiting does not help, so it must not
//! look like an outage.

use tokio_postgres::error::SqlState;

/// Why Postgres does not let this process in, or not do its work, and what to do. It names
/// settings, and shows nothing of them.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {todo}")]
pub struct Refusal {
    what: &'static str,
    todo: &'static str,
    #[source]
    source: tokio_postgres::Error,
}

impl Refusal {
    /// What is refused.
    #[must_use]
    pub fn what(&self) -> &'static str {
        self.what
    }

    /// What to do.
    #[must_use]
    pub fn todo(&self) -> &'static str {
        self.todo
    }

    /// Whether it is one.
    pub(crate) fn is(error: &tokio_postgres::Error) -> bool {
        by_code(error).or_else(|| by_certificate(error)).is_some()
    }

    /// `Err` when it is none.
    pub(crate) fn of(error: tokio_postgres::Error) -> Result<Refusal, tokio_postgres::Error> {
        match by_code(&error).or_else(|| by_certificate(&error)) {
            Some((what, todo)) => Ok(Refusal {
                what,
                todo,
                source: error,
            }),
            None => Err(error),
        }
    }
}

type Told = (&'static str, &'static str);

fn by_code(error: &tokio_postgres::Error) -> Option<Told> {
    const NO_DATABASE: Told = (
        "the database of postgres.url does not exist",
        "create it and run `mcp-tasks migrate`, or mend the name",
    );
    let code = error.code()?;
    Some(match *code {
        SqlState::INVALID_PASSWORD => (
            "postgres refuses the password",
            "mend postgres.password_file, or the password in postgres.url",
        ),
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION => (
            "postgres does not let the role of postgres.url in from here",
            "create the role, and allow it in pg_hba.conf; or mend postgres.url",
        ),
        SqlState::INVALID_CATALOG_NAME => NO_DATABASE,
        SqlState::INSUFFICIENT_PRIVILEGE => (
            "the role of postgres.url lacks a right",
            "grant it to the role; `mcp-tasks doctor` says which are missing",
        ),
        // PgBouncer has no codes of its own.
        SqlState::PROTOCOL_VIOLATION => {
            let message = error.as_db_error()?.message();
            if message.starts_with("no such database") {
                NO_DATABASE
            } else if message.starts_with("no such user") {
                (
                    "the pooler does not know the role of postgres.url",
                    "add it to the pooler's users, or mend postgres.url",
                )
            } else {
                return None;
            }
        }
        _ => return None,
    })
}

/// What stands in the way of an encrypted connection.
fn by_certificate(error: &tokio_postgres::Error) -> Option<Told> {
    const OFFERS_NONE: &str = "server does not support TLS";
    const NO_PASSWORD: &str = "password missing";
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = in_io(error) {
            return Some(certificate(error));
        }
        match error.to_string().as_str() {
            OFFERS_NONE => {
                return Some((
                    "postgres offers no encryption, and sslmode of postgres.url asks for it",
                    "set ssl = on there; or sslmode=disable, where the way is safe",
                ));
            }
            NO_PASSWORD => {
                return Some((
                    "postgres asks for a password, and none is set",
                    "set postgres.password_file, or a password in postgres.url",
                ));
            }
            _ => {}
        }
        cause = error.source();
    }
    None
}

/// The error of TLS that an error of input and output may stand for.
fn in_io<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return Some(error);
    }
    let inner = error.downcast_ref::<std::io::Error>()?.get_ref()?;
    inner.downcast_ref()
}

fn certificate(error: &rustls::Error) -> Told {
    use rustls::CertificateError as Wrong;
    match error {
        rustls::Error::InvalidCertificate(Wrong::UnknownIssuer) => (
            "the certificate of postgres is signed by an authority that is not trusted",
            "name its authority in postgres.ca_file (sslrootcert)",
        ),
        rustls::Error::InvalidCertificate(
            Wrong::NotValidForName | Wrong::NotValidForNameContext { .. },
        ) => (
            "the certificate of postgres is for another host than that of postgres.url",
            "use the name that it is for; or sslmode=verify-ca, which leaves names unchecked",
        ),
        rustls::Error::InvalidCertificate(Wrong::Expired | Wrong::ExpiredContext { .. }) => (
            "the certificate of postgres has expired",
            "renew it; or mend the clock of this machine",
        ),
        _ => (
            "no encrypted connection to postgres comes to be",
            "look at the cause in the log; sslmode=disable, where the way is safe",
        ),
    }
}
