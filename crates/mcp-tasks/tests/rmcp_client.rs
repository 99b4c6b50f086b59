//! The Rust SDK's client (`rmcp`) drives the stack that `mcp-tasks dev` starts.
//!
//! Its one-call helper does not follow tasks, so the single calls are used, and each goes through
//! another gateway than the one before.

use std::cell::Cell;
use std::time::{Duration, Instant};

use harness::dev::Processes;
use harness::process::{Process, Spec};
use harness::temp::Temp;
use harness::{ports, wait};
use nix::sys::signal::Signal;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ClientConfig,
    CreateTaskResult, DetailedTask, ErrorData, GetTaskParams, Implementation, MetaObject,
    ProtocolVersion, RequestMetaObject, Task, TaskPayload, TaskStatus, UpdateTaskParams,
};
use rmcp::service::{RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientLifecycleMode, ClientServiceExt, RoleClient};
use serde_json::{Value, json};

/// Used up by failures only.
const SOON: Duration = Duration::from_secs(60);
const READY: Duration = Duration::from_secs(120);
const GRACE: Duration = Duration::from_secs(20);
const GATEWAYS: usize = 2;
const UNKNOWN_TASK: &str = "01900000-0000-7000-8000-000000000000";

#[tokio::test(flavor = "multi_thread")]
async fn rmcp_drives_tasks_from_handle_to_end() {
    let mut stack = Stack::start().await;
    let alice = User::connect(&stack, "alice").await;
    discovers_and_lists(&alice).await;
    gets_a_quick_result_inline(&alice).await;
    let report = answers_a_question(&alice).await;
    cancels(&alice).await;
    tells_a_tools_error_from_a_failure(&alice).await;
    repeats_by_key(&alice).await;

    let bob = User::connect(&stack, "bob").await;
    is_told_nothing_of_foreign_tasks(&bob, &report).await;
    stack.stop().await;
}

async fn discovers_and_lists(user: &User) {
    let server = user.client().peer_info().expect("connected");
    assert_eq!(server.protocol_version, ProtocolVersion::V_2026_07_28);
    assert!(server.capabilities.supports_tasks());
    let listed = user.client().list_all_tools().await.expect("tools/list");
    for name in ["greet", "slow_compute", "build_report", "run_suite"] {
        assert!(listed.iter().any(|tool| tool.name == name), "{name}");
    }
}

async fn gets_a_quick_result_inline(user: &User) {
    let greeting = user.call("greet", json!({"name": "Ada"}), None).await;
    let CallToolResponse::Complete(result) = greeting.expect("greet") else {
        panic!("greet became a task");
    };
    assert_eq!(text(&result), "Hello, Ada!");
}

/// Returns the id of the finished task.
async fn answers_a_question(user: &User) -> String {
    let started = Instant::now();
    let task = user
        .start("build_report", json!({"month": "2026-10"}), None)
        .await;
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "the handle did not come at once"
    );
    assert_eq!(task.status, TaskStatus::Working);
    assert!(task.status_message.is_some(), "says that it is not done");

    let asking = user
        .until(&task.task_id, &[TaskStatus::InputRequired])
        .await
        .payload;
    let TaskPayload::InputRequired { input_requests } = asking else {
        panic!("{asking:?}");
    };
    assert!(input_requests.keys().eq(["charts"]), "{input_requests:?}");

    let answer = json!({"action": "accept", "content": {"charts": true}});
    let update = UpdateTaskParams::new(&task.task_id, [("charts".to_owned(), answer)].into());
    user.client()
        .update_task(update)
        .await
        .expect("tasks/update");
    let seen = user.get(&task.task_id).await.expect("tasks/get");
    assert_ne!(
        seen.status(),
        TaskStatus::InputRequired,
        "the answer was acknowledged, but the question is still shown"
    );

    let done = user.until(&task.task_id, &[TaskStatus::Completed]).await;
    let again = user.get(&task.task_id).await.expect("tasks/get");
    assert_eq!(done.payload, again.payload);
    assert!(!text(&result(done.payload)).is_empty());
    task.task_id
}

async fn cancels(user: &User) {
    let task = user
        .start("slow_compute", json!({"seconds": 60}), None)
        .await;
    for _ in 0..2 {
        let params = CancelTaskParams::new(&task.task_id);
        user.client()
            .cancel_task(params)
            .await
            .expect("tasks/cancel");
        user.until(&task.task_id, &[TaskStatus::Cancelled]).await;
    }
}

async fn tells_a_tools_error_from_a_failure(user: &User) {
    let task = user.start("failing_job", json!({}), None).await;
    let done = user.until(&task.task_id, &[TaskStatus::Completed]).await;
    assert_eq!(result(done.payload).is_error, Some(true));

    let task = user.start("protocol_error_job", json!({}), None).await;
    let failed = user.until(&task.task_id, &[TaskStatus::Failed]).await;
    let TaskPayload::Failed { error } = failed.payload else {
        panic!("{failed:?}");
    };
    let error = Value::Object(error);
    assert!(
        error["code"].is_i64() && error["message"].is_string(),
        "{error}"
    );
}

async fn repeats_by_key(user: &User) {
    let key = Some("rmcp-1");
    let once = user.start("slow_compute", json!({"seconds": 2}), key).await;
    let twice = user.start("slow_compute", json!({"seconds": 2}), key).await;
    assert_eq!(once.task_id, twice.task_id);
    let other = user.call("slow_compute", json!({"seconds": 3}), key).await;
    assert_eq!(refusal(other).code.0, -32602);

    let done = user.until(&once.task_id, &[TaskStatus::Completed]).await;
    let repeat = user
        .call("slow_compute", json!({"seconds": 2}), key)
        .await
        .expect("a repeat after the end");
    let CallToolResponse::Complete(repeat) = repeat else {
        panic!("a repeat after the end made a task");
    };
    assert_eq!(text(&repeat), text(&result(done.payload)));
}

async fn is_told_nothing_of_foreign_tasks(user: &User, foreign: &str) {
    for id in [foreign, UNKNOWN_TASK] {
        let client = user.client();
        let refusals = [
            refusal(user.get(id).await),
            refusal(client.cancel_task(CancelTaskParams::new(id)).await),
            refusal(
                client
                    .update_task(UpdateTaskParams::new(id, [].into()))
                    .await,
            ),
        ];
        for error in refusals {
            assert_eq!(error.code.0, -32602);
            assert_eq!(error.message, "Failed to retrieve task: Task not found");
            assert_eq!(error.data, None);
        }
    }
}

/// One caller with a connection to every gateway.
struct User {
    clients: Vec<RunningService<RoleClient, ClientConfig>>,
    turn: Cell<usize>,
}

impl User {
    async fn connect(stack: &Stack, name: &str) -> User {
        let mut clients = Vec::new();
        for gateway in &stack.processes.gateways {
            let config = StreamableHttpClientTransportConfig::with_uri(gateway.url.as_str())
                .auth_header(name);
            let capabilities = json!({
                "elicitation": {},
                "extensions": {"io.modelcontextprotocol/tasks": {}},
            });
            let info = ClientConfig::new(
                serde_json::from_value(capabilities).expect("capabilities"),
                Implementation::new("mcp-tasks-rmcp", "1.0.0"),
            );
            // Its default is the handshake of older revisions.
            let lifecycle = ClientLifecycleMode::Discover {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            };
            let transport = StreamableHttpClientTransport::from_config(config);
            let client = info.serve_with_lifecycle(transport, lifecycle).await;
            clients.push(client.expect("rmcp connects"));
        }
        User {
            clients,
            turn: Cell::new(0),
        }
    }

    /// A connection to another gateway than last time.
    fn client(&self) -> &RunningService<RoleClient, ClientConfig> {
        self.turn.set(self.turn.get() + 1);
        &self.clients[self.turn.get() % self.clients.len()]
    }

    async fn call(
        &self,
        tool: &'static str,
        arguments: Value,
        key: Option<&str>,
    ) -> Result<CallToolResponse, ServiceError> {
        let Value::Object(arguments) = arguments else {
            panic!("arguments are an object");
        };
        let mut params = CallToolRequestParams::new(tool).with_arguments(arguments);
        if let Some(key) = key {
            let mut meta = MetaObject::new();
            let name = "io.github.mcp-tasks/idempotencyKey".to_owned();
            meta.0.insert(name, key.into());
            params.meta = Some(RequestMetaObject(meta));
        }
        self.client().call_tool_once(params).await
    }

    /// Calls a tool that answers with a handle.
    async fn start(&self, tool: &'static str, arguments: Value, key: Option<&str>) -> Task {
        match self.call(tool, arguments, key).await {
            Ok(CallToolResponse::Task(CreateTaskResult { task, .. })) => task,
            other => panic!("{tool} did not become a task: {other:?}"),
        }
    }

    async fn get(&self, id: &str) -> Result<DetailedTask, ServiceError> {
        Ok(self.client().get_task(GetTaskParams::new(id)).await?.task)
    }

    /// Polls at the server's pace until the task has one of the statuses.
    async fn until(&self, id: &str, statuses: &[TaskStatus]) -> DetailedTask {
        let deadline = Instant::now() + SOON;
        loop {
            let task = self.get(id).await.expect("tasks/get");
            if statuses.contains(&task.status()) {
                return task;
            }
            assert!(!task.status().is_terminal(), "it ended otherwise: {task:?}");
            assert!(Instant::now() < deadline, "it takes too long: {task:?}");
            let pause = task.task.poll_interval_ms.expect("pollIntervalMs");
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }
}

fn text(result: &CallToolResult) -> String {
    let texts = result.content.iter().filter_map(|block| block.as_text());
    texts.map(|text| text.text.as_str()).collect()
}

fn result(payload: TaskPayload) -> CallToolResult {
    let TaskPayload::Completed { result } = payload else {
        panic!("{payload:?}");
    };
    serde_json::from_value(Value::Object(result)).expect("a tool's result")
}

fn refusal<T: std::fmt::Debug>(answer: Result<T, ServiceError>) -> ErrorData {
    match answer {
        Err(ServiceError::McpError(error)) => error,
        other => panic!("not refused: {other:?}"),
    }
}

/// A stack of its own, which ends with the test.
struct Stack {
    dev: Process,
    processes: Processes,
    _folder: Temp,
}

impl Stack {
    async fn start() -> Stack {
        let folder = Temp::new().expect("a folder");
        let data = folder.path().join("data");
        let log = folder.path().join("dev.log");
        let port = ports::free().expect("a port");
        let spec = Spec::new("dev", env!("CARGO_BIN_EXE_mcp-tasks").as_ref(), &log)
            .args(["dev", "--fresh", "--fixtures", "conformance"])
            .args(["--port", &port.to_string()])
            .args(["--gateways", &GATEWAYS.to_string()])
            .args(["--data-dir", &data.to_string_lossy()]);
        let mut dev = Process::spawn(&spec).expect("mcp-tasks dev starts");
        let listing = data.join("processes.json");
        let processes = wait::until("processes.json", READY, async || {
            assert_eq!(dev.ended(), None, "mcp-tasks dev ended: {}", read(&log));
            serde_json::from_slice::<Processes>(&std::fs::read(&listing).ok()?).ok()
        })
        .await
        .unwrap_or_else(|error| panic!("{error}: {}", read(&log)));
        Stack {
            dev,
            processes,
            _folder: folder,
        }
    }

    async fn stop(&mut self) {
        self.dev.signal(Signal::SIGINT);
        let ended = self.dev.wait(GRACE).await.expect("mcp-tasks dev stops");
        assert!(ended.success(), "{ended}");
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // After a failure; what it started dies with it.
        self.dev.kill9();
    }
}

fn read(log: &std::path::Path) -> String {
    std::fs::read_to_string(log).unwrap_or_default()
}
