//! Breaks one promise on purpose, in the running system, to see the checker find it.
//!
//! The product has no switch for this. What breaks it are triggers in the run's own database,
//! installed after the migrations: to our processes they look like a bug of their own.

pub mod drill;

use harness::{Error, Result};

use crate::checker::Rule;
use crate::scene::Kind;

/// A way to break a promise.
#[derive(Debug, Clone, Copy)]
pub struct Sabotage {
    /// Its name.
    pub name: &'static str,
    /// The one promise that it breaks.
    pub rule: Rule,
    /// What happens.
    pub what: &'static str,
    sql: &'static str,
    /// What clients do for it to show soon.
    pub(crate) mix: &'static [(u64, Kind)],
}

const ALL: &[Sabotage] = &[
    Sabotage {
        name: "lost-task",
        rule: Rule::Resolvable,
        what: "a task is deleted when it ends",
        sql: include_str!("sabotage/lost_task.sql"),
        mix: &[(1, Kind::Poll)],
    },
    Sabotage {
        name: "stuck-task",
        rule: Rule::Ends,
        what: "a new task is not due before tomorrow",
        sql: include_str!("sabotage/stuck_task.sql"),
        mix: &[(1, Kind::Poll)],
    },
    Sabotage {
        name: "other-result",
        rule: Rule::RightEnd,
        what: "a result is altered before it is stored",
        sql: include_str!("sabotage/other_result.sql"),
        mix: &[(1, Kind::Poll), (1, Kind::Inline)],
    },
    Sabotage {
        name: "forgotten-journal",
        rule: Rule::AtMostOnce,
        what: "a claim forgets which steps have finished",
        sql: include_str!("sabotage/forgotten_journal.sql"),
        mix: &[(1, Kind::Ask)],
    },
    Sabotage {
        name: "skipped-step",
        rule: Rule::EveryStep,
        what: "the journal of a new task says that its first step has finished",
        sql: include_str!("sabotage/skipped_step.sql"),
        mix: &[(1, Kind::Poll)],
    },
    Sabotage {
        name: "early-cancelled",
        rule: Rule::NoActAfterCancel,
        what: "a cancel shows at once, and the work goes on",
        sql: include_str!("sabotage/early_cancelled.sql"),
        mix: &[(1, Kind::Cancel)],
    },
    Sabotage {
        name: "later-result",
        rule: Rule::TerminalIsFinal,
        what: "a result gets another byte once it was read",
        sql: include_str!("sabotage/later_result.sql"),
        mix: &[(1, Kind::Poll)],
    },
    Sabotage {
        name: "told-stranger",
        rule: Rule::Foreign,
        what: "other principals learn that a task was there",
        sql: include_str!("sabotage/told_stranger.sql"),
        mix: &[(1, Kind::Poll), (2, Kind::Foreign)],
    },
    Sabotage {
        name: "last-answer",
        rule: Rule::FirstAnswer,
        what: "a later answer to a question replaces the first",
        sql: include_str!("sabotage/last_answer.sql"),
        mix: &[(1, Kind::Correct)],
    },
    Sabotage {
        name: "asked-again",
        rule: Rule::AskedOnce,
        what: "a second round of questions shows those of the first again",
        sql: include_str!("sabotage/asked_again.sql"),
        mix: &[(1, Kind::Ask)],
    },
    Sabotage {
        name: "forgotten-key",
        rule: Rule::OneTask,
        what: "idempotency keys are forgotten at once",
        sql: include_str!("sabotage/forgotten_key.sql"),
        mix: &[(1, Kind::Keys)],
    },
    Sabotage {
        name: "forgotten-undo",
        rule: Rule::Undone,
        what: "steps forget how they are undone",
        sql: include_str!("sabotage/forgotten_undo.sql"),
        mix: &[(1, Kind::Undo)],
    },
];

/// All of them: one a rule.
#[must_use]
pub fn all() -> &'static [Sabotage] {
    ALL
}

/// The one of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Sabotage> {
    ALL.iter().find(|sabotage| sabotage.name == name)
}

impl Sabotage {
    /// Sets it up in a migrated database, for the tasks of principals whose name begins so; with an
    /// empty text for all.
    ///
    /// # Errors
    /// If Postgres refuses.
    pub async fn install(&self, postgres_url: &str, principals: &str) -> Result<()> {
        if !principals
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-')
        {
            let what = format!("{principals:?} cannot begin a principal's name here");
            return Err(Error::Failed { what, log: None });
        }
        let sql = self.sql.replace("{principals}", principals);
        harness::postgres::rows(postgres_url, &sql).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_rule_is_broken_by_one() {
        let broken: BTreeSet<Rule> = ALL.iter().map(|sabotage| sabotage.rule).collect();
        assert_eq!(broken, BTreeSet::from(Rule::ALL));
        assert_eq!(broken.len(), ALL.len());
        assert!(find("lost-task").is_some() && find("nothing").is_none());
    }

    #[test]
    fn each_keeps_to_the_principals_it_is_told() {
        for sabotage in ALL {
            assert!(sabotage.sql.contains("'{principals}'"), "{}", sabotage.name);
        }
    }
}
