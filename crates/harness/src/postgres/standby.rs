//! A second server that follows the first, and takes its place.

use std::time::Duration;

use super::{Postgres, admin, binaries, home};
use crate::error::{Error, Result};
use crate::process::{Process, Spec};
use crate::temp::Temp;
use crate::wait;

const COPY: Duration = Duration::from_secs(60);

impl Postgres {
    /// Starts a standby in a temporary folder: a copy of this server that follows it and answers
    /// reads. With the same settings, on a port of its own.
    ///
    /// # Errors
    /// As [`Postgres::start`], or if the copy can't be made.
    pub async fn standby(&self) -> Result<Postgres> {
        let temp = Temp::new()?;
        let home = home::prepare(temp.path(), self.identity.as_ref())?;
        let log = temp.path().join("postgres.log");
        let program = binaries::find("pg_basebackup", Some(&self.data()))?;
        let mut spec = Spec::new("pg_basebackup", &program, &log).args([
            format!("--pgdata={}", home.join("data").display()),
            "--host=127.0.0.1".to_owned(),
            format!("--port={}", self.port),
            "--username=postgres".to_owned(),
            "--checkpoint=fast".to_owned(),
            "--write-recovery-conf".to_owned(),
            "--no-sync".to_owned(),
        ]);
        spec.identity.clone_from(&self.identity);
        spec.dir = Some(home);
        let status = Process::spawn(&spec)?.wait(COPY).await?;
        if !status.success() {
            let what = format!("pg_basebackup from port {}: {status}", self.port);
            return Err(Error::Failed {
                what,
                log: Some(log),
            });
        }
        let mut options = self.options.clone();
        options.port = None;
        let mut standby = Postgres::start(temp.path(), options).await?;
        standby.temp = Some(temp);
        Ok(standby)
    }

    /// From now on every commit waits until a standby has it too; returns when one follows.
    ///
    /// # Errors
    /// [`Error::Timeout`] if none does.
    pub async fn commit_with_standby(&self) -> Result<()> {
        let url = self.url("postgres");
        let demand = "ALTER SYSTEM SET synchronous_standby_names = '*'";
        admin::rows(&url, demand).await?;
        admin::rows(&url, "SELECT pg_reload_conf()").await?;
        let follows = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        let look = async || admin::rows(&url, follows).await.unwrap_or_default();
        let one = |rows: &Vec<Vec<Option<String>>>| {
            rows.first()
                .and_then(|row| row.first())
                .is_some_and(|count| count.as_deref() == Some("1"))
        };
        wait::for_state("a synchronous standby", wait::DEFAULT, look, one)
            .await
            .map(drop)
    }

    /// Makes this standby a primary; returns when it takes writes.
    ///
    /// # Errors
    /// [`Error::Postgres`] if it is none or can't be reached.
    pub async fn promote(&self) -> Result<()> {
        let promote = "SELECT pg_promote(true, 30)";
        admin::rows(&self.url("postgres"), promote).await.map(drop)
    }
}
