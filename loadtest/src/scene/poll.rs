//! Tasks that are started at once and polled, each time at any gateway, to their end and a little
//! beyond: what a terminal task shows must not change.

use super::Scene;
use crate::calls;

pub(super) async fn play(scene: &mut Scene) {
    scene.begin("poll");
    let mut calls = Vec::new();
    for _ in 0..scene.rng.between(2, 9) {
        let name = scene.name();
        calls.push(if scene.rng.percent(6) {
            calls::hopeless(&mut scene.rng, &name)
        } else {
            calls::steps(&mut scene.rng, &name)
        });
    }
    let tasks = scene.start(&calls).await;
    scene.ends(&tasks).await;
    if scene.rng.percent(30) {
        scene.pause(1_000).await;
        for task in &tasks {
            let at = scene.gateway();
            let _ = scene.caller.read(at, task).await;
        }
    }
}
