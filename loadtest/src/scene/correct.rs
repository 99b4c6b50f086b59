//! Somebody thinks better of an answer while other questions of the round are still open: the first
//! that was acknowledged counts all the same.

use super::Scene;
use super::ask::send;
use crate::calls::{self, Call};
use crate::plan::Item;

pub(super) async fn play(scene: &mut Scene) {
    scene.begin("correct");
    let name = scene.name();
    let call = loop {
        let call = calls::asks(&mut scene.rng, &name);
        if has_open_rounds(&call) {
            break call;
        }
    };
    for task in scene.start(&[call]).await {
        while let Some(seen) = scene.question(&task).await {
            if seen.is_terminal() {
                break;
            }
            let (first, rest) = seen.keys.split_at(1);
            send(scene, &task, first).await;
            send(&mut scene.other_device(), &task, first).await;
            if !rest.is_empty() {
                send(scene, &task, rest).await;
            }
        }
    }
}

/// Whether a round has several questions.
fn has_open_rounds(call: &Call) -> bool {
    call.plan
        .items
        .iter()
        .any(|item| matches!(item, Item::Ask(questions) if questions.len() > 1))
}
