//! One sweep, once, for a scheduler that starts processes (a Kubernetes CronJob).

use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::{Config, Cron, Error, Parts, Sweep, sweeps};

/// Long enough for a sweep's batch; renewed while it runs.
const LEASE: Duration = Duration::from_secs(6);
/// Beyond a heartbeat: only who has looked on for that long may call a lease run out.
const GRACE: Duration = Duration::from_millis(2_200);
/// What only a process that stays can do: it tells what it sees on its `/metrics`, where nobody would
/// look at a process that ends.
const LASTING: [&str; 1] = [sweeps::gauges::NAME];
/// What looks on over time. A process that does not stay takes the word of the workers: one that has
/// been up for so long shows that others had the time to come back.
pub(crate) const WATCHERS: [&str; 2] = [sweeps::versions::NAME, sweeps::catalogue::NAME];
/// What judges leases.
const JUDGES: [&str; 2] = ["requeue", "stopped"];

/// What came of one sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Once {
    /// It ended well, and moved so many rows.
    Swept(u64),
    /// A long-lived replica leads it, and does the same.
    LedElsewhere,
    /// Not enough was judged: no worker has been up for as long as what is judged must be unserved.
    /// Rows moved all the same.
    Unwatched(u64),
}

/// The names and intervals of all sweeps, in the order in which they are run.
#[must_use]
pub fn intervals(config: &Config) -> Vec<(&'static str, Duration)> {
    let table = crate::table(config);
    table
        .iter()
        .map(|sweep| (sweep.name, sweep.interval))
        .collect()
}

impl Cron {
    /// Runs one sweep once, under its leader lease like any other replica.
    ///
    /// # Errors
    /// [`Error::NoSuchSweep`] and [`Error::Lasting`] say which there are; others are the sweep's.
    pub async fn run_once(&self, name: &str) -> Result<Once, Error> {
        let Some(sweep) = self.table.iter().find(|sweep| sweep.name == name) else {
            let names = self.table.iter().map(|sweep| sweep.name);
            let known: Vec<&str> = names.filter(|name| !LASTING.contains(name)).collect();
            return Err(Error::NoSuchSweep {
                name: name.to_owned(),
                known: known.join(", "),
            });
        };
        if LASTING.contains(&sweep.name) {
            return Err(Error::Lasting(sweep.name));
        }
        let (parts, watched) = self.looking_on(sweep).await?;
        let (store, holder) = (&self.parts.store, Uuid::new_v4());
        if !store.lead_sweep(sweep.name, holder, LEASE).await? {
            return Ok(Once::LedElsewhere);
        }
        let swept = tokio::select! {
            swept = look_and_run(&parts, sweep) => swept,
            lost = self.lead_on(sweep.name, holder) => match lost {
                Ok(()) => return Ok(Once::LedElsewhere),
                Err(error) => Err(error),
            },
        };
        if swept.is_ok() {
            store.swept(sweep.name, holder).await?;
        }
        // Best effort: it runs out by itself.
        let _ = store.lead_sweep(sweep.name, holder, Duration::ZERO).await;
        swept.map(if watched {
            Once::Swept
        } else {
            Once::Unwatched
        })
    }

    /// As if this process had looked on for as long as workers have; and whether that is enough.
    async fn looking_on(&self, sweep: &Sweep) -> Result<(Parts, bool), Error> {
        let mut parts = self.parts.clone();
        if !WATCHERS.contains(&sweep.name) {
            return Ok((parts, true));
        }
        let watched = self.parts.store.watched().await?.unwrap_or_default();
        let since = Instant::now().checked_sub(watched);
        parts.watching_since = since.unwrap_or(parts.watching_since);
        let needed = match sweep.name {
            sweeps::catalogue::NAME => parts.config.tool_wait,
            _ => parts.config.version_wait,
        };
        let enough = parts.watching_since.elapsed() >= needed;
        Ok((parts, enough))
    }

    async fn lead_on(&self, name: &str, holder: Uuid) -> Result<(), Error> {
        loop {
            tokio::time::sleep(LEASE / 3).await;
            if !self.parts.store.lead_sweep(name, holder, LEASE).await? {
                return Ok(());
            }
        }
    }
}

async fn look_and_run(parts: &Parts, sweep: &Sweep) -> crate::Swept {
    if JUDGES.contains(&sweep.name) {
        tokio::time::sleep(parts.store.config().heartbeat + GRACE).await;
    }
    let (moved, ended) = crate::sweep(parts, sweep).await;
    ended.map(|()| moved)
}
