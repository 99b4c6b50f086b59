//! What is true of all processes together, told by the replica that leads the gauges sweep, and by no
//! other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use telemetry::metrics::IntGaugeVec;

use crate::metrics::Counts;

/// Values of one gauge by its labels, in their order.
pub(crate) type Rows = BTreeMap<Vec<String>, i64>;

/// A gauge whose values are told all at once. A scrape in between sees old or new ones, and none
/// missing: a gap would end an alert.
#[derive(Clone)]
pub(crate) struct Told {
    gauge: IntGaugeVec,
    shown: Arc<Mutex<BTreeSet<Vec<String>>>>,
}

impl Told {
    fn new(gauge: &IntGaugeVec) -> Self {
        Self {
            gauge: gauge.clone(),
            shown: Arc::default(),
        }
    }

    /// These, and no others.
    pub(crate) fn tell(&self, rows: Rows) {
        let mut shown = lock(&self.shown);
        for (labels, value) in &rows {
            self.gauge.with_label_values(labels).set(*value);
        }
        let rows: BTreeSet<_> = rows.into_keys().collect();
        for gone in shown.difference(&rows) {
            // Only what was set is removed, and only here.
            let _ = self.gauge.remove_label_values(gone);
        }
        *shown = rows;
    }
}

macro_rules! state {
    ($($gauge:ident),+ $(,)?) => {
        /// The gauges of the leader.
        #[derive(Clone)]
        pub(crate) struct State {
            $(pub(crate) $gauge: Told,)+
        }

        impl State {
            pub(crate) fn new(counts: &Counts) -> Self {
                Self { $($gauge: Told::new(&counts.$gauge),)+ }
            }

            /// Another replica tells it now.
            pub(crate) fn forget(&self) {
                $(self.$gauge.tell(Rows::new());)+
            }
        }
    };
}

state! {
    live, oldest, due, due_age, unfetched, unfetched_age, workers, paused, unhinted, unhinted_age,
    hints, hints_pending, consumers, waiting, waiting_age, sealed,
}

/// Until when this replica leads which sweep.
#[derive(Clone, Default)]
pub(crate) struct Leads(Arc<Mutex<BTreeMap<&'static str, Option<Instant>>>>);

impl Leads {
    pub(crate) fn set(&self, sweep: &'static str, until: Option<Instant>) {
        lock(&self.0).insert(sweep, until);
    }

    pub(crate) fn has(&self, sweep: &str) -> bool {
        lock(&self.0)
            .get(sweep)
            .is_some_and(|until| is_ahead(*until))
    }

    /// Every sweep, and whether this replica leads it.
    pub(crate) fn all(&self) -> Vec<(&'static str, bool)> {
        let leads = lock(&self.0);
        let each = leads
            .iter()
            .map(|(sweep, until)| (*sweep, is_ahead(*until)));
        each.collect()
    }
}

fn is_ahead(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() < until)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use telemetry::Registry;

    use super::*;

    fn rows(tools: &[&str]) -> Rows {
        let row = |tool: &&str| (vec![(*tool).to_owned()], 1);
        tools.iter().map(row).collect()
    }

    #[test]
    fn what_is_told_replaces_what_was_told() {
        let registry = Registry::new();
        let state = State::new(&Counts::new(&registry));
        let told = |tool: &str| {
            let line = format!("mcp_tasks_tasks_due{{tool=\"{tool}\"}} 1");
            registry.render().contains(&line)
        };
        state.due.tell(rows(&["a", "b"]));
        assert_eq!((told("a"), told("b")), (true, true));
        state.due.tell(rows(&["b"]));
        assert_eq!((told("a"), told("b")), (false, true));
        state.forget();
        assert_eq!((told("a"), told("b")), (false, false));
        state.due.tell(rows(&["a"]));
        assert!(told("a"));
    }

    #[test]
    fn a_lead_is_over_when_its_time_is() {
        let leads = Leads::default();
        let now = Instant::now();
        leads.set("ahead", Some(now + Duration::from_secs(600)));
        leads.set("over", Some(now));
        leads.set("another's", None);
        assert!(leads.has("ahead"));
        assert!(!leads.has("over") && !leads.has("another's") && !leads.has("unknown"));
        assert_eq!(leads.all().iter().filter(|(_, leads)| *leads).count(), 1);
    }
}
