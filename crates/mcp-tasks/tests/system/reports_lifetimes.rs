//! Time to live: while it lasts a task can be read, and when it is over its work has stopped.

use std::time::{Duration, Instant};

use harness::process::{Process, Spec};
use harness::temp::Temp;
use serde_json::json;
use worker::{Arguments, CallToolResult, Context, Definition, Tool, ToolError, ToolSet, ToolSpec};

use crate::reports_tools::{self, Ledger};
use crate::support::{SOON, System};

/// A tool that outlives its TTL is stopped: until then every read finds the task, and after it
/// nothing is done any more.
#[tokio::test(flavor = "multi_thread")]
async fn expiry_stops_the_work() {
    let (system, ledger, _tools) = reports_tools::system(2, "").await;
    let alice = system.cluster.client(0, "alice");
    let work = json!({"label": "late", "steps": 400, "pause_ms": 50});
    let id = alice.start("toil", work).await.unwrap();
    ledger.acted("late", 3).await;
    // Tools whose TTL is shorter than their work are refused, so the end of the TTL is moved.
    let near = format!(
        "UPDATE tasks SET expires_at = now() + interval '1 s' WHERE id = '{id}' RETURNING 1"
    );
    system.database.rows(&near).await.unwrap();
    let expires = Ledger::now_ms() + 1_000;
    let other = system.cluster.client(1, "alice");
    let deadline = Instant::now() + SOON;
    let failed = loop {
        // Never "unknown": it is shown as failed for a while first.
        let task = other.get(&id).await.unwrap();
        if task["status"] != "working" {
            break task;
        }
        assert!(Instant::now() < deadline, "{task}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let shown = Ledger::now_ms();
    assert_eq!(failed["status"], "failed");
    assert_eq!(
        failed["error"]["data"]["reason"], "task_expired",
        "{failed}"
    );
    assert!(
        shown - expires < 5_000,
        "stopped {} ms late",
        shown - expires
    );
    let last = ledger.acts("late").last().unwrap().at_ms;
    assert!(
        last < expires + 300,
        "acted {} ms after its TTL",
        last - expires
    );
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(
        ledger.acts("late").last().unwrap().at_ms,
        last,
        "acted after its end"
    );
}

/// Milliseconds everywhere on the wire, and units everywhere in the settings.
#[tokio::test(flavor = "multi_thread")]
async fn seconds_are_never_taken_for_milliseconds() {
    let system = System::of(1, 1).await;
    let alice = system.cluster.client(0, "alice");
    for (tool, arguments) in [
        ("slow_compute", json!({"seconds": 1})),
        ("confirm_delete", json!({"filename": "a"})),
        ("build_report", json!({"month": "2026-11"})),
    ] {
        let id = alice.start(tool, arguments).await.unwrap();
        let task = alice.get(&id).await.unwrap();
        let (ttl, poll) = (&task["ttlMs"], &task["pollIntervalMs"]);
        assert!(
            ttl.as_u64().is_some_and(|ttl| ttl >= 3_600_000),
            "{tool}: ttlMs {ttl}"
        );
        let sane = poll
            .as_u64()
            .is_some_and(|poll| (100..=60_000).contains(&poll));
        assert!(sane, "{tool}: pollIntervalMs {poll}");
        alice.cancel(&id).await.unwrap();
    }
    // A number without a unit is refused, whatever it was meant to be, and the setting is named.
    let dir = Temp::new().unwrap();
    for (section, name) in [
        ("postgres", "lease"),
        ("gateway", "hold"),
        ("cron", "hint_age"),
    ] {
        let file = dir.path().join("settings.toml");
        std::fs::write(&file, format!("[{section}]\n{name} = 15\n")).unwrap();
        let said = check(&file, &dir).await;
        assert!(said.contains(name), "{section}.{name}: {said}");
    }
}

async fn check(file: &std::path::Path, dir: &Temp) -> String {
    let log = dir.path().join("check.log");
    std::fs::write(&log, "").unwrap();
    let args = ["config", "check", "--config"].map(str::to_owned);
    let spec = Spec::new("check", env!("CARGO_BIN_EXE_mcp-tasks").as_ref(), &log)
        .args(args)
        .args([file.display().to_string()]);
    let mut process = Process::spawn(&spec).unwrap();
    let status = process.wait(SOON).await.unwrap();
    assert!(!status.success(), "a bare number was taken");
    std::fs::read_to_string(&log).unwrap()
}

/// Nothing but a specification.
struct WithTtl(Option<Duration>);

#[worker::async_trait]
impl Tool for WithTtl {
    fn spec(&self) -> ToolSpec {
        let mut spec = ToolSpec::new(Definition::new("with_ttl", &json!({"type": "object"})));
        spec.policy.work_limit = Duration::from_secs(60);
        spec.policy.ttl = self.0;
        spec
    }

    async fn call(&self, _: &mut Context, _: Arguments) -> Result<CallToolResult, ToolError> {
        Ok(CallToolResult::text("done"))
    }
}

/// A tool whose tasks would expire at birth, at work or before they can be fetched cannot be served.
#[test]
fn a_ttl_that_cannot_work_is_refused() {
    let serve = |ttl| ToolSet::new().insert(std::sync::Arc::new(WithTtl(ttl)));
    let needed = WithTtl(None).spec().policy.ttl_needed();
    let second = Duration::from_secs(1);
    for ttl in [Duration::ZERO, second, 60 * second, needed - second] {
        let refused = serve(Some(ttl)).unwrap_err().to_string();
        assert!(
            refused.contains("with_ttl") && refused.contains("ttl"),
            "{refused}"
        );
    }
    serve(Some(needed)).unwrap();
    serve(None).unwrap();
}
