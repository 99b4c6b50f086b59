//! Tasks that are listened to instead of polled: when the stream breaks, at another gateway.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{AGAIN, Scene};
use crate::calls;

/// A stream that says nothing for so long is left for another.
const SILENCE: Duration = Duration::from_secs(12);

pub(super) async fn play(scene: &mut Scene) {
    scene.begin("listen");
    let mut calls = Vec::new();
    for _ in 0..scene.rng.between(2, 8) {
        let name = scene.name();
        calls.push(calls::steps(&mut scene.rng, &name));
    }
    let mut open = scene.start(&calls).await;
    while !open.is_empty() && !scene.is_over() {
        let at = scene.gateway();
        let Some(mut listening) = scene.caller.listen(at, &open).await else {
            sleep(AGAIN).await;
            continue;
        };
        while !scene.is_over() {
            let left = scene.until.saturating_duration_since(Instant::now());
            let heard = scene.caller.hear(&mut listening, SILENCE.min(left)).await;
            let Some(view) = heard else {
                break;
            };
            if view.is_terminal() {
                open.retain(|id| *id != view.id);
            }
            if open.is_empty() {
                break;
            }
        }
    }
}
