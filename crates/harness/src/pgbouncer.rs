//! A private PgBouncer in front of a Postgres of ours.

use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::error::{Error, Result};
use crate::process::{Process, Spec, find_program};
use crate::temp::Temp;
use crate::user::Identity;
use crate::{ports, postgres, wait};

/// Not on the `PATH` of everyone.
const DEBIAN: &str = "/usr/sbin/pgbouncer";

/// For how long a client keeps its server connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolMode {
    /// Until it disconnects.
    Session,
    /// Until its transaction ends.
    Transaction,
}

/// A running PgBouncer. Ends when dropped.
#[derive(Debug)]
pub struct PgBouncer {
    port: u16,
    process: Process,
    _temp: Temp,
}

impl PgBouncer {
    /// Starts one in front of the server on this port of 127.0.0.1, for user `postgres` without a
    /// password.
    ///
    /// # Errors
    /// If it is not installed or does not answer.
    pub async fn start(postgres_port: u16, mode: PoolMode) -> Result<PgBouncer> {
        let program = find_program("pgbouncer").or_else(|| {
            let file = PathBuf::from(DEBIAN);
            file.is_file().then_some(file)
        });
        let program = program.ok_or_else(|| Error::Missing {
            program: "pgbouncer".into(),
            hint: "install PgBouncer (on Debian: .ci/install test)",
        })?;
        let temp = Temp::new()?;
        let dir = temp.path().join("pgbouncer");
        std::fs::create_dir(&dir).map_err(Error::io("make PgBouncer's folder"))?;
        let write = |name: &str, text: String| {
            let file = dir.join(name);
            std::fs::write(&file, text)
                .map_err(Error::io(format!("write {}", file.display())))
                .map(|()| file)
        };
        let port = ports::free()?;
        let users = write("users", "\"postgres\" \"\"\n".to_owned())?;
        let mode = match mode {
            PoolMode::Session => "session",
            PoolMode::Transaction => "transaction",
        };
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={postgres_port}\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {}\npool_mode = {mode}\n\
             max_client_conn = 200\ndefault_pool_size = 50\n",
            users.display()
        );
        let settings = write("pgbouncer.ini", settings)?;
        let mut spec = Spec::new("pgbouncer", &program, &temp.path().join("pgbouncer.log"))
            .args([settings.display().to_string()]);
        // It refuses to run as root, as Postgres does.
        spec.identity = Identity::unprivileged()?;
        if let Some(identity) = &spec.identity {
            identity.own(&dir)?;
        }
        spec.dir = Some(dir);
        let bouncer = PgBouncer {
            port,
            process: Process::spawn(&spec)?,
            _temp: temp,
        };
        let url = bouncer.url("postgres");
        let answer = async || {
            postgres::rows(&url, "SELECT 1")
                .await
                .map_err(|e| e.to_string())
        };
        wait::for_state("PgBouncer answers", wait::DEFAULT, answer, Result::is_ok)
            .await
            .map(|_| bouncer)
    }

    /// The URL of a database through it.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        self.process.signal(Signal::SIGTERM);
        if self.process.wait_blocking(Duration::from_secs(1)).is_none() {
            self.process.kill9();
        }
    }
}
