//! The examples of the documentation, served as they are.

use std::sync::Arc;

use serde_json::json;
use worker::Tool;
use worker::testkit::Kit;

use crate::world::{World, call, text};

/// A folder with the examples in it: they write into their own.
fn examples() -> World {
    let world = World::new();
    let from = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples");
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        if entry.path().is_dir() {
            continue;
        }
        std::fs::copy(
            entry.path(),
            world.path(entry.file_name().to_str().unwrap()),
        )
        .unwrap();
    }
    world
}

pub async fn the_example_file_is_good() {
    let file = tools::file::load(&examples().path("tools.toml"));
    let file = file.unwrap_or_else(|error| panic!("{error}"));
    let names: Vec<&str> = file.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["empty_folder", "list_folder", "release", "wait"]);
    for script in ["release.py", "empty_folder.sh"] {
        let text = std::fs::read_to_string(examples().path(script)).unwrap();
        assert!(
            text.lines().count() <= 30,
            "{script} is to be read at a glance"
        );
    }
}

fn release(tool: &Arc<dyn Tool>) -> Kit {
    Kit::of(Arc::clone(tool)).arguments(json!({"version": "1.2"}))
}

pub async fn the_python_example_asks_and_publishes_once() {
    let world = examples();
    let tool = world.tool("release");
    let run = release(&tool).run().await;
    assert!(run.result().unwrap_err().is_parked());
    assert_eq!(run.asked()[0].0, "publish");
    let reports = run.progress().len();
    assert!((1..=3).contains(&reports), "{reports}");
    let yes = json!({"action": "accept", "content": {"publish": true}});
    let run = release(&tool).answer("publish", yes.clone()).run().await;
    assert_eq!(text(&run), "published https://example.com/1.2");
    assert_eq!(run.acts().last(), Some(&"publish"));
    // Built only once, though it ran twice.
    assert!(run.progress().len() <= 3);
    let log = world.read("releases.log");
    assert!(
        log.starts_with("1.2 ") && log.trim_end().ends_with(":publish"),
        "{log}"
    );
    assert_eq!(log.lines().count(), 1);
    let run = release(&tool)
        .answer("publish", json!({"action": "decline"}))
        .run()
        .await;
    assert_eq!(text(&run), "not published");
    let run = release(&tool)
        .answer("publish", yes)
        .cancel_at("publish")
        .run()
        .await;
    assert!(run.result().is_err());
    assert_eq!(world.read("releases.log"), log);
    world.wait_gone().await;
}

pub async fn the_shell_example_asks_before_it_deletes() {
    let world = examples();
    let tool = world.tool("empty_folder");
    let folder = world.path("some folder");
    std::fs::create_dir(&folder).unwrap();
    for name in ["a", "-b", "c d"] {
        std::fs::write(folder.join(name), "").unwrap();
    }
    let kit = || Kit::of(Arc::clone(&tool)).arguments(json!({"folder": folder}));
    let count = || std::fs::read_dir(&folder).unwrap().count();
    let run = kit().run().await;
    assert!(run.result().unwrap_err().is_parked());
    assert_eq!(run.asked()[0].1["params"]["message"], "Delete 3 files?");
    let no = json!({"action": "accept", "content": {"empty": false}});
    assert_eq!(text(&kit().answer("sure", no).run().await), "left alone");
    assert_eq!(count(), 3);
    let yes = json!({"action": "accept", "content": {"empty": true}});
    let run = kit().answer("sure", yes).run().await;
    assert_eq!(text(&run), "emptied");
    assert_eq!(run.acts(), ["delete"]);
    assert_eq!(count(), 0);
    world.assert_gone();
}

pub async fn a_plain_program_is_a_tool() {
    let world = examples();
    let tool = world.tool("list_folder");
    let folder = world.path("list");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("-la"), "").unwrap();
    assert_eq!(text(&call(&tool, json!({"folder": folder})).await), "-la");
    let run = call(&tool, json!({"folder": folder, "all": true})).await;
    assert_eq!(text(&run).lines().count(), 3);
}
