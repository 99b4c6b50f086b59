//! No step begins once a cancel was acknowledged, and `cancelled` means that nothing visible happens
//! any more.

use super::world::Story;
use super::{Found, Rule};
use crate::history::{Acknowledgement, Kind};
use crate::ledger::What;

pub(super) fn check(story: &Story<'_>, found: &mut Found) {
    if let Some(step) = begun_after_cancel(story) {
        let said = format!("step {step} began after a cancel was acknowledged");
        found.add(Rule::NoActAfterCancel, story, said);
    }
    let shown = story
        .seen()
        .filter(|sight| sight.view.status == "cancelled");
    let Some(shown_us) = shown.map(|sight| sight.event.until_us).min() else {
        return;
    };
    let late = story
        .visible()
        .into_iter()
        .find(|line| line.at_us > shown_us);
    if let Some(late) = late {
        let said = format!(
            "step {} acted {} ms after cancelled was shown",
            late.step,
            (late.at_us - shown_us).div_ceil(1000)
        );
        found.add(Rule::NoActAfterCancel, story, said);
    }
}

/// The step that was open when the cancel came may act yet. Any later one began when that one had
/// acted.
fn begun_after_cancel<'a>(story: &'a Story<'_>) -> Option<&'a str> {
    let acknowledged = story.others.iter().filter(|event| {
        let Kind::Cancelled { answer, .. } = &event.kind else {
            return false;
        };
        *answer == Acknowledgement::Done
    });
    let acknowledged_us = acknowledged.map(|event| event.until_us).min()?;
    let mut late = story.plan.steps().filter(|step| {
        let acts = story.of_step(&step.key, What::Act).map(|line| line.at_us);
        acts.min()
            .is_some_and(|first_us| first_us > acknowledged_us)
    });
    late.next()?;
    late.next().map(|step| step.key.as_str())
}
