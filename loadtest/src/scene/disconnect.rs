//! Callers who hang up before the answer: without a key nobody will come back, with one somebody
//! does.

use std::time::Duration;

use super::{Scene, keys};
use crate::calls;

pub(super) async fn play(scene: &mut Scene) {
    scene.begin("disconnect");
    let name = scene.name();
    let call = if scene.rng.percent(60) {
        calls::quick(&mut scene.rng, &name)
    } else {
        calls::steps(&mut scene.rng, &name)
    };
    let key = scene.rng.percent(50).then(|| format!("key-{name}"));
    let at = scene.gateway();
    let patience = Duration::from_millis(scene.rng.between(1, 120));
    scene
        .caller
        .call_and_hang_up(at, &call, key.as_deref(), patience)
        .await;
    if let Some(key) = key {
        scene.pause(1_000).await;
        if let Some(task) = keys::repeat(scene, &call, &key).await {
            scene.end(&task).await;
        }
    }
}
