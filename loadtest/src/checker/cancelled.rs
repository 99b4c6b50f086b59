//! `cancelled` means that nothing visible happens any more.

use super::world::Story;
use super::{Found, Rule};

pub(super) fn check(story: &Story<'_>, found: &mut Found) {
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
