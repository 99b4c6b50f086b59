//! Of all answers to a question the first acknowledged one is used, and nobody is asked again.

use std::collections::BTreeMap;

use serde_json::Value;

use super::expect::Told;
use super::world::Story;
use super::{Found, Rule};
use crate::history::{Acknowledgement, Event, Kind};

/// One answer to one question.
#[derive(Clone, Copy)]
struct Answer<'a> {
    event: &'a Event,
    value: &'a Value,
    acknowledged: bool,
}

impl Answer<'_> {
    /// What the tool makes of it.
    fn text(&self) -> String {
        match self.value["action"].as_str() {
            Some("accept") => self.value["content"]["value"].as_str().unwrap_or_default(),
            Some("decline") => "(declined)",
            _ => "(cancelled)",
        }
        .to_owned()
    }
}

pub(super) fn check(story: &Story<'_>, found: &mut Found) {
    let answers = by_question(story);
    for (question, answers) in &answers {
        asked_again(story, question, answers, found);
    }
    shown_after_a_pause(story, found);
    let ends = story.seen().filter_map(|sight| {
        let (result, error) = (sight.view.result.as_deref(), sight.view.error.as_deref());
        let told = result.and_then(Told::of_result);
        Some((
            sight.event,
            told.or_else(|| error.and_then(Told::of_error))?,
        ))
    });
    let inline = story.inline.iter();
    let inline = inline.filter_map(|(event, answer)| Some((*event, Told::of_call(answer)?)));
    if let Some((event, told)) = ends.chain(inline).next() {
        for (question, used) in &told.answers {
            let answers = answers
                .get(question.as_str())
                .map_or(&[][..], Vec::as_slice);
            if let Err(said) = first_was_used(story, event, (question, used), answers) {
                found.add(Rule::FirstAnswer, story, said);
            }
        }
    }
}

fn by_question<'a>(story: &Story<'a>) -> BTreeMap<&'a str, Vec<Answer<'a>>> {
    let mut by_question: BTreeMap<&str, Vec<Answer<'_>>> = BTreeMap::new();
    for event in &story.others {
        let Kind::Updated {
            answers, answer, ..
        } = &event.kind
        else {
            continue;
        };
        let acknowledged = *answer == Acknowledgement::Done;
        for (question, value) in answers {
            by_question.entry(question).or_default().push(Answer {
                event,
                value,
                acknowledged,
            });
        }
    }
    by_question
}

/// Whether the question was shown before the answer was sent, so that the answer cannot have been
/// ignored for coming too early.
fn was_asked(story: &Story<'_>, question: &str, answer: &Answer<'_>) -> bool {
    story.seen().any(|sight| {
        sight.event.until_us <= answer.event.at_us && sight.view.keys.iter().any(|k| k == question)
    })
}

fn first_was_used(
    story: &Story<'_>,
    seen: &Event,
    (question, used): (&String, &String),
    answers: &[Answer<'_>],
) -> Result<(), String> {
    let planned = story.plan.questions().find(|q| q.key == *question);
    let default = planned.filter(|planned| planned.default.as_ref() == Some(used));
    let deadline_us = default.map(|q| story.began_us() + q.wait_ms.unwrap_or_default() * 1000);
    let sent = answers.iter().filter(|answer| answer.text() == *used);
    let sent_us = sent.map(|answer| answer.event.at_us).min();
    // The earliest moment at which what was used can have been taken.
    let taken_us = match (sent_us, deadline_us) {
        (Some(sent_us), _) => sent_us,
        (None, Some(deadline_us)) => deadline_us,
        (None, None) => return Err(format!("{question}: nobody answered {used:?}")),
    };
    if taken_us > seen.until_us {
        return Err(format!("{question}: {used:?} was used before it could be"));
    }
    let earlier = answers.iter().find(|answer| {
        answer.acknowledged
            && answer.text() != *used
            && answer.event.until_us < taken_us
            && was_asked(story, question, answer)
    });
    match earlier {
        None => Ok(()),
        Some(earlier) => Err(format!(
            "{question}: {:?} was acknowledged before {used:?} was even sent, which was used",
            earlier.text()
        )),
    }
}

/// A question that was shown, answered, and the answer acknowledged, is not shown any more.
fn asked_again(story: &Story<'_>, question: &str, answers: &[Answer<'_>], found: &mut Found) {
    // Past its deadline a question without a default ends the task: answers to it are ignored
    // for the moment that this takes.
    let mut planned = story.plan.questions();
    if planned.any(|planned| planned.wait_ms.is_some() && planned.default.is_none()) {
        return;
    }
    let settled = answers
        .iter()
        .filter(|answer| answer.acknowledged && was_asked(story, question, answer));
    let Some(settled_us) = settled.map(|answer| answer.event.until_us).min() else {
        return;
    };
    let again = story.read().find(|sight| {
        sight.event.at_us >= settled_us && sight.view.keys.iter().any(|key| key == question)
    });
    if again.is_some() {
        let said = format!("{question} is asked after its answer was acknowledged");
        found.add(Rule::AskedOnce, story, said);
    }
}

/// A question that was shown, and then not, does not come back.
fn shown_after_a_pause(story: &Story<'_>, found: &mut Found) {
    let mut shown: BTreeMap<&str, u64> = BTreeMap::new();
    let mut gone: BTreeMap<&str, u64> = BTreeMap::new();
    // In the order of asking, a read follows another only if it was asked after that was answered.
    for sight in story.read() {
        let keys = &sight.view.keys;
        for key in keys {
            if gone
                .get(key.as_str())
                .is_some_and(|gone_us| *gone_us <= sight.event.at_us)
            {
                found.add(Rule::AskedOnce, story, format!("{key} is asked twice"));
            }
            shown.entry(key).or_insert(sight.event.until_us);
        }
        for (key, shown_us) in &shown {
            if *shown_us <= sight.event.at_us && !keys.iter().any(|k| k == key) {
                gone.entry(key).or_insert(sight.event.until_us);
            }
        }
    }
}
