//! Undoing steps of programs: started once more, for that alone.

use std::sync::Arc;

use serde_json::json;
use worker::testkit::{Kit, Run};

use crate::world::{World, text};

/// Rents a machine, which can be given back, and then has no luck. What follows `if undoing:` is
/// how it gives back.
fn renter(undo: &str) -> String {
    format!(
        "start = hear()\n\
         if start['type'] == 'undo':\n\
         \x20   with open('undo.log', 'a') as log: log.write(json.dumps(start) + '\\n')\n\
         \x20   {undo}\n\
         \x20   sys.exit(0)\n\
         say(type='step', key='rent', undo=dict(data=dict(pool='x'), idempotent=start['arguments'].get('x', False)))\n\
         if hear()['type'] == 'go': say(type='end', key='rent', output='machine 7')\n\
         say(type='step', key='use'); hear()\n\
         say(type='end', key='use', error='no luck')\n\
         sys.stdin.read()"
    )
}

const DONE: &str = "say(type='end', key=start['key'])";

async fn run(world: &World, undo: &str, more: &str) -> Run {
    std::fs::remove_file(world.path("undo.log")).ok();
    let tool = world.python(&renter(undo), more);
    let arguments = json!({"x": more.contains("# idempotent")});
    Kit::of(Arc::clone(&tool)).arguments(arguments).run().await
}

pub async fn a_finished_step_is_undone_by_the_program() {
    let world = World::new();
    let undone = run(&world, DONE, "").await;
    assert_eq!(undone.undone(), ["rent"]);
    assert_eq!(undone.not_undone(), []);
    let said = undone.result().unwrap_err().as_failed().unwrap();
    assert_eq!(said.message, "no luck");
    let log = world.read("undo.log");
    let told: serde_json::Value = serde_json::from_str(log.trim()).unwrap();
    assert_eq!(told["key"], "rent");
    assert_eq!(told["data"], json!({"pool": "x"}));
    assert_eq!(told["output"], "machine 7");
    assert_eq!(told["arguments"], json!({"x": false}));
    let key = told["idempotencyKey"].as_str().unwrap();
    assert!(key.ends_with(":rent:undo") && key.starts_with(told["task"].as_str().unwrap()));
    world.wait_gone().await;
}

pub async fn a_cancel_is_followed_by_the_undo() {
    let world = World::new();
    let tool = world.python(&renter(DONE), "");
    let kit = Kit::of(Arc::clone(&tool)).arguments(json!({}));
    let run = kit.cancel_at("use").run().await;
    assert_eq!((run.status(), run.undone()), ("cancelled", vec!["rent"]));
    world.wait_gone().await;
}

pub async fn an_undo_that_did_not_happen_is_named_or_tried_again() {
    let world = World::new();
    let failed = "say(type='end', key='rent', error='gone'); sys.stdin.read()";
    let given_up = run(&world, failed, "").await;
    assert_eq!(given_up.not_undone().len(), 1);
    assert!(
        given_up.not_undone()[0].1.contains("gone"),
        "{:?}",
        given_up.not_undone()
    );
    assert_eq!(world.read("undo.log").lines().count(), 1);
    // The second time it goes well.
    let busy = format!(
        "say(type='end', key='rent', error='busy', retry=True) if start['attempt'] == 1 else {DONE}"
    );
    let twice = run(&world, &busy, "").await;
    assert_eq!(twice.undone(), ["rent"]);
    assert_eq!(world.read("undo.log").lines().count(), 2);
    let code = format!("sys.exit(75) if start['attempt'] == 1 else {DONE}");
    let twice = run(&world, &code, "retry_exit_codes = [75]").await;
    assert_eq!(twice.undone(), ["rent"]);
    assert_eq!(world.read("undo.log").lines().count(), 2);
    world.wait_gone().await;
}

pub async fn an_undo_of_unknown_end_is_repeated_only_if_it_may_be() {
    let world = World::new();
    let silent = format!("sys.exit(0) if start['attempt'] == 1 else {DONE}");
    let unknown = run(&world, &silent, "").await;
    let why = &unknown.not_undone()[0].1;
    assert!(
        why.contains("it ended in the middle of step \"rent\""),
        "{why}"
    );
    assert_eq!(world.read("undo.log").lines().count(), 1);
    let repeated = run(&world, &silent, "# idempotent").await;
    assert_eq!(repeated.undone(), ["rent"]);
    assert_eq!(world.read("undo.log").lines().count(), 2);
    // Nor may it do other things than undo. It is ended for that.
    let busy = "say(type='step', key='other'); sys.stdin.read(); import time; time.sleep(1000)";
    let broken = run(&world, busy, "grace = \"100ms\"").await;
    let why = &broken.not_undone()[0].1;
    assert!(
        why.contains("it said \"step\" in the middle of step \"rent\""),
        "{why}"
    );
    world.wait_gone().await;
}

/// A shell script sees in its environment what it is to undo.
pub async fn a_shell_script_can_undo() {
    let world = World::new();
    let script = "read -r start\n\
        if [ -n \"$MCP_TASKS_UNDO\" ]; then\n\
        \x20 echo \"$MCP_TASKS_UNDO $MCP_TASKS_UNDO_DATA $MCP_TASKS_UNDO_OUTPUT\" >> undo.log\n\
        \x20 echo '{\"type\":\"end\",\"key\":\"make\"}'; exit\n\
        fi\n\
        echo '{\"type\":\"step\",\"key\":\"make\",\"undo\":{\"data\":{\"n\":3}}}'; read -r go\n\
        echo '{\"type\":\"end\",\"key\":\"make\",\"output\":[1]}'\n\
        echo '{\"type\":\"result\",\"text\":\"made\"}'\n[ -z \"$FAIL\" ] || exit 3";
    let tool = world.script(script, "protocol = \"stdout\"");
    assert_eq!(text(&Kit::of(tool).run().await), "made");
    assert_eq!(world.read("undo.log"), "");
    // A junk line after the step fails the task.
    let tool = world.script(&format!("{script}\necho junk"), "protocol = \"stdout\"");
    let run = Kit::of(tool).run().await;
    assert_eq!(run.undone(), ["make"]);
    assert_eq!(world.read("undo.log"), "make {\"n\":3} [1]\n");
    world.wait_gone().await;
}
