//! Short calls, one after another: mostly answered inline, and a task when the answer takes long.
//! Clients that know nothing of tasks wait for longer ones too.

use super::{AGAIN, Scene};
use crate::caller::Called;
use crate::calls;

pub(super) async fn play(scene: &mut Scene) {
    scene.begin("inline");
    if scene.rng.percent(25) {
        return held(scene).await;
    }
    for _ in 0..scene.rng.between(1, 4) {
        let name = scene.name();
        let call = calls::quick(&mut scene.rng, &name);
        let at = scene.gateway();
        if let Ok(Called::Handle(task)) = scene.caller.call(at, &call, None).await {
            scene.end(&task).await;
        }
    }
}

/// By a client that does not know tasks: held until its end, with or without a key.
async fn held(scene: &mut Scene) {
    let name = scene.name();
    let call = calls::steps(&mut scene.rng, &name);
    let key = scene.rng.percent(50).then(|| format!("key-{name}"));
    let caller = scene.caller.undeclared();
    while !scene.is_over() {
        let at = scene.gateway();
        match caller.call(at, &call, key.as_deref()).await {
            Err(trouble) if !trouble.is_final() && key.is_some() => {
                tokio::time::sleep(AGAIN).await;
            }
            Ok(_) | Err(_) => return,
        }
    }
}
