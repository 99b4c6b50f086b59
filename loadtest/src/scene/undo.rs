//! Tasks whose steps can be undone: they fail, or are cancelled somewhere in between.

use super::Scene;
use super::cancel::cancel;
use crate::calls::{self, Call};

pub(super) async fn play(scene: &mut Scene) {
    scene.begin("undo");
    let mut calls = Vec::new();
    for _ in 0..scene.rng.between(1, 6) {
        let name = scene.name();
        calls.push(calls::undone(&mut scene.rng, &name));
    }
    let waiting = calls.iter().any(Call::waits);
    let tasks = scene.start(&calls).await;
    if waiting || scene.rng.percent(20) {
        scene.pause(1_500).await;
        for task in &tasks {
            cancel(scene, task).await;
        }
    }
    scene.ends(&tasks).await;
}
