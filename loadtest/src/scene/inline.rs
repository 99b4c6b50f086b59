//! Short calls, one after another: mostly answered inline, and a task when the answer takes long.

use super::Scene;
use crate::caller::Called;
use crate::calls;

pub(super) async fn play(scene: &mut Scene) {
    scene.begin("inline");
    for _ in 0..scene.rng.between(1, 4) {
        let name = scene.name();
        let call = calls::quick(&mut scene.rng, &name);
        let at = scene.gateway();
        if let Ok(Called::Handle(task)) = scene.caller.call(at, &call, None).await {
            scene.end(&task).await;
        }
    }
}
