//! A stranger who learned ids probes them with every method, beside one that nobody ever had.

use super::Scene;

/// What no task is called.
const NOBODY: &str = "00000000-0000-7000-8000-000000000000";
const LISTEN: &str = "subscriptions/listen";
const METHODS: [&str; 4] = ["tasks/get", "tasks/update", "tasks/cancel", LISTEN];

pub(super) async fn play(scene: &mut Scene) {
    scene.begin("foreign");
    for _ in 0..scene.rng.between(1, 6) {
        let board = &scene.caller.shared.board;
        let Some(entry) = board.foreign(&scene.caller.principal, &mut scene.rng) else {
            return;
        };
        let task = if scene.rng.percent(20) {
            NOBODY
        } else {
            &entry.task
        };
        let at = scene.gateway();
        match *scene.rng.pick(&METHODS) {
            LISTEN => scene.caller.eavesdrop(at, task).await,
            method => scene.caller.probe(at, method, task).await,
        }
        scene.pause(100).await;
    }
}
