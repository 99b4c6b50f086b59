//! Cancels at any moment: at once (queued), a little later (running), while a question waits
//! (parked), after the end, and twenty at the same time.

use super::Scene;
use crate::calls;

pub(super) async fn play(scene: &mut Scene) {
    scene.begin("cancel");
    match scene.rng.between(0, 10) {
        0 => many(scene).await,
        1 | 2 => parked(scene).await,
        _ => some(scene).await,
    }
}

/// Each at a moment of its own.
async fn some(scene: &mut Scene) {
    let mut calls = Vec::new();
    for _ in 0..scene.rng.between(1, 5) {
        let name = scene.name();
        calls.push(calls::long(&mut scene.rng, &name));
    }
    let tasks = scene.start(&calls).await;
    let mut twins: Vec<Scene> = tasks.iter().map(|_| scene.twin()).collect();
    let each = twins.iter_mut().zip(&tasks);
    let each = each.map(|(scene, task)| cancel_some_time(scene, task));
    futures::future::join_all(each).await;
}

async fn cancel_some_time(scene: &mut Scene, task: &str) {
    let moment = scene.rng.weighted(&[(2, 0), (5, 1_200), (1, 3_000)]);
    scene.pause(moment).await;
    cancel(scene, task).await;
    scene.end(task).await;
    if scene.rng.percent(30) {
        cancel(scene, task).await;
    }
}

async fn parked(scene: &mut Scene) {
    let name = scene.name();
    let call = calls::asks(&mut scene.rng, &name);
    for task in scene.start(&[call]).await {
        scene.question(&task).await;
        cancel(scene, &task).await;
        scene.end(&task).await;
    }
}

/// Twenty requests for one task, from two devices at all gateways; or twenty tasks at once.
async fn many(scene: &mut Scene) {
    const MANY: usize = 20;
    let same = scene.rng.percent(50);
    let mut calls = Vec::new();
    for _ in 0..if same { 1 } else { MANY } {
        let name = scene.name();
        calls.push(calls::long(&mut scene.rng, &name));
    }
    let tasks = scene.start(&calls).await;
    scene.pause(800).await;
    let targets: Vec<String> = tasks.iter().cycle().take(MANY).cloned().collect();
    let mut devices: Vec<Scene> = targets.iter().map(|_| scene.other_device()).collect();
    let each = devices.iter_mut().zip(&targets);
    futures::future::join_all(each.map(|(scene, task)| cancel(scene, task))).await;
    scene.ends(&tasks).await;
}

/// Until it is acknowledged: cancelling twice is cancelling once.
pub(super) async fn cancel(scene: &mut Scene, task: &str) {
    while !scene.is_over() {
        let at = scene.gateway();
        match scene.caller.cancel(at, task).await {
            Ok(()) => return,
            Err(trouble) if trouble.is_final() => return,
            Err(_) => tokio::time::sleep(super::AGAIN).await,
        }
    }
}
