//! Tasks that ask: answered all at once or one by one, from another device, twice with different
//! answers at the same time, with answers to questions that nobody asked, or not at all.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Scene;
use crate::calls;
use crate::plan::Plan;

#[derive(Debug, Clone, Copy)]
enum How {
    AtOnce,
    OneByOne,
    Racing,
    OtherDevice,
    Late,
}

pub(super) async fn play(scene: &mut Scene) {
    scene.begin("ask");
    if scene.rng.percent(12) {
        return in_vain(scene).await;
    }
    let mut calls = Vec::new();
    for _ in 0..scene.rng.between(1, 6) {
        let name = scene.name();
        calls.push(calls::asks(&mut scene.rng, &name));
    }
    let tasks = scene.start(&calls).await;
    let mut followers: Vec<Scene> = tasks.iter().map(|_| scene.twin()).collect();
    let each = followers.iter_mut().zip(&tasks);
    let each = each.map(|(scene, task)| converse(scene, task));
    futures::future::join_all(each).await;
}

async fn in_vain(scene: &mut Scene) {
    let name = scene.name();
    let call = calls::asks_in_vain(&mut scene.rng, &name);
    for task in scene.start(&[call]).await {
        scene.end(&task).await;
    }
}

/// Answers whatever the task asks until it is over. (A read may show a question that was answered
/// a moment ago: the answer then comes too late and counts for nothing.)
async fn converse(scene: &mut Scene, task: &str) {
    while let Some(seen) = scene.question(task).await {
        if seen.is_terminal() {
            return;
        }
        let how = scene.rng.weighted(&[
            (4, How::AtOnce),
            (3, How::OneByOne),
            (3, How::Racing),
            (2, How::OtherDevice),
            (1, How::Late),
        ]);
        answer(scene, task, &seen.keys, how).await;
    }
}

async fn answer(scene: &mut Scene, task: &str, keys: &[String], how: How) {
    match how {
        How::AtOnce => {
            let mut keys = keys.to_vec();
            if scene.rng.percent(20) {
                keys.push("nobody-asked".to_owned());
            }
            send(scene, task, &keys).await;
        }
        How::OneByOne => {
            let mut keys = keys.to_vec();
            scene.rng.shuffle(&mut keys);
            for key in keys {
                send(scene, task, &[key]).await;
                scene.pause(200).await;
            }
        }
        How::Racing => {
            let (mut mine, mut other) = (scene.twin(), scene.other_device());
            tokio::join!(send(&mut mine, task, keys), send(&mut other, task, keys));
        }
        How::OtherDevice => send(&mut scene.other_device(), task, keys).await,
        How::Late => scene.pause(3_000).await,
    }
}

/// Sends answers until some are acknowledged: others each time, so that the result tells which of
/// them counted. The first that came through must, whether its acknowledgement did or not.
pub(super) async fn send(scene: &mut Scene, task: &str, keys: &[String]) {
    while !scene.is_over() {
        let all: BTreeMap<String, Value> = keys
            .iter()
            .map(|key| {
                let value = format!("{:016x}", scene.rng.bits());
                (key.clone(), Plan::response(&value))
            })
            .collect();
        let at = scene.gateway();
        match scene.caller.update(at, task, all).await {
            Ok(()) => return,
            Err(trouble) if trouble.is_final() => return,
            Err(_) => tokio::time::sleep(super::AGAIN).await,
        }
    }
}
