//! Calls with an idempotency key: repeated one after another, raced at several gateways, repeated
//! after a lost answer, and used again with other arguments.

use futures::future::join_all;
use tokio::time::sleep;

use super::{AGAIN, Scene};
use crate::caller::Called;
use crate::calls::{self, Call};

pub(super) async fn play(scene: &mut Scene) {
    scene.begin("keys");
    let name = scene.name();
    let call = if scene.rng.percent(40) {
        calls::quick(&mut scene.rng, &name)
    } else {
        calls::steps(&mut scene.rng, &name)
    };
    let key = format!("key-{name}");
    let task = if scene.rng.percent(50) {
        race(scene, &call, &key).await
    } else {
        repeat(scene, &call, &key).await
    };
    if scene.rng.percent(40) {
        let name = scene.name();
        let other = calls::steps(&mut scene.rng, &name);
        let at = scene.gateway();
        let misused = Call {
            tool: call.tool,
            plan: other.plan,
        };
        let _ = scene.caller.call(at, &misused, Some(&key)).await;
    }
    if let Some(task) = task {
        scene.end(&task).await;
    }
    // By now it is over: the stored outcome.
    if scene.rng.percent(60) {
        repeat(scene, &call, &key).await;
    }
}

/// The same call at every gateway at once, from two devices.
async fn race(scene: &mut Scene, call: &Call, key: &str) -> Option<String> {
    let other = scene.caller.other_device();
    let callers = [&scene.caller, &other];
    let racing = (0..scene.caller.gateways()).map(|at| {
        let caller = callers[at % callers.len()];
        async move { caller.call(at, call, Some(key)).await }
    });
    let answers = join_all(racing).await;
    let handle = answers.into_iter().find_map(|answer| match answer {
        Ok(Called::Handle(task)) => Some(task),
        Ok(Called::Inline) | Err(_) => None,
    });
    match handle {
        Some(task) => Some(task),
        None => repeat(scene, call, key).await,
    }
}

/// Until there is an answer.
pub(super) async fn repeat(scene: &mut Scene, call: &Call, key: &str) -> Option<String> {
    while !scene.is_over() {
        let at = scene.gateway();
        match scene.caller.call(at, call, Some(key)).await {
            Ok(Called::Handle(task)) => return Some(task),
            Ok(Called::Inline) => return None,
            Err(trouble) if trouble.is_final() => return None,
            Err(_) => sleep(AGAIN).await,
        }
    }
    None
}
