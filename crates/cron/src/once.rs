//! One sweep, once, for a scheduler that starts processes (a Kubernetes CronJob).

use std::time::Duration;

use uuid::Uuid;

use crate::{Config, Cron, Error, Sweep, sweeps};

/// Long enough for a sweep's batch; renewed while it runs.
const LEASE: Duration = Duration::from_secs(6);
/// Beyond a heartbeat: only who has looked on for that long may call a lease run out.
const GRACE: Duration = Duration::from_millis(2_200);
/// What only a process that stays can do: these watch, or tell what they see.
const LASTING: [&str; 2] = ["versions", sweeps::gauges::NAME];
/// What judges leases.
const JUDGES: [&str; 2] = ["requeue", "stopped"];

/// What came of one sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Once {
    /// It ended well, and moved so many rows.
    Swept(u64),
    /// A long-lived replica leads it, and does the same.
    LedElsewhere,
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
        let (store, holder) = (&self.parts.store, Uuid::new_v4());
        if !store.lead_sweep(sweep.name, holder, LEASE).await? {
            return Ok(Once::LedElsewhere);
        }
        let swept = tokio::select! {
            swept = self.look_and_run(sweep) => swept,
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
        swept.map(Once::Swept)
    }

    async fn look_and_run(&self, sweep: &Sweep) -> crate::Swept {
        if JUDGES.contains(&sweep.name) {
            tokio::time::sleep(self.parts.store.config().heartbeat + GRACE).await;
        }
        (sweep.run)(self.parts.clone()).await
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
