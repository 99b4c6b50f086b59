//! What an ended task shows stays the same, to the byte.

use super::world::Story;
use super::{Found, Rule};

pub(super) fn check(story: &Story<'_>, found: &mut Found) {
    let Some(first) = story.end() else {
        return;
    };
    for sight in story.seen().filter(|sight| sight.view.is_terminal()) {
        let (a, b) = (first.view, sight.view);
        if (&a.status, &a.result, &a.error) != (&b.status, &b.result, &b.error) {
            let said = format!(
                "{} {:?} {:?} became {} {:?} {:?}",
                a.status, a.result, a.error, b.status, b.result, b.error
            );
            found.add(Rule::TerminalIsFinal, story, said);
        }
    }
    let ends = story.seen().filter(|sight| sight.view.is_terminal());
    let Some(shown_us) = ends.map(|sight| sight.event.until_us).min() else {
        return;
    };
    // A notification may be late; a read may not.
    let again = story
        .read()
        .find(|sight| sight.event.at_us >= shown_us && !sight.view.is_terminal());
    if let Some(again) = again {
        let said = format!("{} again after {}", again.view.status, first.view.status);
        found.add(Rule::TerminalIsFinal, story, said);
    }
}
