//! Functions that every request passes through, by themselves: `cargo bench -p mcp-tasks-loadtest`.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures::executor::block_on;
use futures::future::join_all;
use gateway::fuzzed::{Purpose, Sealer, digest};
use protocol::meta::{Implementation, ResultMeta};
use protocol::tasks::{TaskState, TaskView, write_create_result, write_detailed};
use protocol::{TaskId, Timestamp, headers, jsonrpc};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use store::ToolPolicy;

/// The coalescing is private to its crate, and small: its source is used as it is.
#[path = "../../crates/store/src/batch.rs"]
mod batch;
/// So is what decides between result and handle.
#[path = "../../crates/gateway/src/promotion.rs"]
#[expect(dead_code, reason = "labels of metrics are not what is measured")]
mod promotion;

/// What `batch.rs` calls locks and channels.
mod sync {
    pub(crate) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

    pub(crate) use tokio::sync::{Semaphore, oneshot};
}

const TASK: &str = "018bcfe5-6801-7000-8000-00009e3779b1";

fn body(method: &str, params: Value) -> Vec<u8> {
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    });
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        .to_string()
        .into_bytes()
}

fn parse(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parse");
    let get = body("tasks/get", json!({"taskId": TASK}));
    for (name, kib) in [("call of 1 kB", 1), ("call of 64 kB", 64)] {
        let arguments = json!({"text": "x".repeat(kib * 1_024)});
        let call = body(
            "tools/call",
            json!({"name": "noop", "arguments": arguments}),
        );
        group.throughput(Throughput::Bytes(call.len() as u64));
        group.bench_with_input(BenchmarkId::new("request", name), &call, |bencher, call| {
            bencher.iter(|| jsonrpc::parse(black_box(call), jsonrpc::Limits::default()));
        });
    }
    group.throughput(Throughput::Bytes(get.len() as u64));
    group.bench_with_input(
        BenchmarkId::new("request", "tasks/get"),
        &get,
        |bencher, get| {
            bencher.iter(|| jsonrpc::parse(black_box(get), jsonrpc::Limits::default()));
        },
    );
    group.finish();
}

fn check_headers(criterion: &mut Criterion) {
    let params = RawValue::from_string(json!({"taskId": TASK}).to_string()).expect("it is JSON");
    criterion.bench_function("headers/version, method and name", |bencher| {
        bencher.iter(|| {
            let version = headers::check_version(black_box(Some("2026-07-28")), "2026-07-28");
            let method = headers::check_method(black_box(Some("tasks/get")), "tasks/get");
            let name = headers::check_name("tasks/get", black_box(Some(TASK)), Some(&params));
            (version.is_ok(), method.is_ok(), name.is_ok())
        });
    });
}

fn write(criterion: &mut Criterion) {
    let server: Implementation =
        serde_json::from_value(json!({"name": "mcp-tasks", "version": "0"})).expect("it is one");
    let meta = ResultMeta::new(&server);
    let result =
        json!({"content": [{"type": "text", "text": "x".repeat(500)}], "resultType": "complete"});
    let result = result.to_string();
    let view = |state| TaskView {
        task_id: TASK.parse::<TaskId>().expect("it is an id"),
        state,
        status_message: Some("the work is done"),
        created_at: Timestamp::from_unix_ms(1_796_000_000_000),
        last_updated_at: Timestamp::from_unix_ms(1_796_000_001_000),
        ttl_ms: Some(3_600_000),
        poll_interval_ms: 500,
    };
    criterion.bench_function("write/handle", |bencher| {
        bencher.iter(|| write_create_result(black_box(&view(TaskState::Working)), &meta));
    });
    criterion.bench_function("write/finished task of 0.5 kB", |bencher| {
        bencher.iter(|| {
            write_detailed(
                black_box(&view(TaskState::Completed(result.as_bytes()))),
                &meta,
            )
        });
    });
}

fn request_state(criterion: &mut Criterion) {
    let key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f".to_owned();
    let sealer = Sealer::new(&[key]).expect("it is a key");
    let arguments = json!({"month": "2026-11", "charts": true});
    let purpose = Purpose {
        method: "tools/call",
        principal: ("https://id.example.com".to_owned(), "alice".to_owned()),
        tool: "build_report".to_owned(),
        digest: digest(&arguments).expect("it is JSON"),
    };
    let round = (TASK.parse::<TaskId>().expect("it is an id"), 1);
    let sealed = sealer
        .state(round, i64::MAX, &purpose)
        .expect("there is a key");
    assert_eq!(sealer.open_state(&sealed, &purpose), Some(round));
    criterion.bench_function("request state/seal", |bencher| {
        bencher.iter(|| sealer.state(black_box(round), i64::MAX, &purpose));
    });
    criterion.bench_function("request state/open", |bencher| {
        bencher.iter(|| sealer.open_state(black_box(&sealed), &purpose));
    });
    criterion.bench_function("arguments/digest", |bencher| {
        bencher.iter(|| digest(black_box(&arguments)));
    });
}

fn promote(criterion: &mut Criterion) {
    let policy = ToolPolicy::default();
    let load = promotion::Load {
        queue_waited: std::time::Duration::ZERO,
        full_percent: 10,
        inline_budget: std::time::Duration::from_secs(3),
        inline_budget_max: std::time::Duration::from_secs(60),
        call_limit: std::time::Duration::from_secs(600),
        ask_budget: std::time::Duration::from_secs(10),
        closing: false,
    };
    let call = promotion::Call {
        declared: true,
        policy: &policy,
        wants_task: false,
        first_round: true,
    };
    criterion.bench_function("promotion/plan", |bencher| {
        bencher.iter(|| promotion::plan(black_box(call), black_box(load)));
    });
}

/// Answers without a round trip: what is left is what asking together costs.
fn coalesce(criterion: &mut Criterion) {
    let limits = batch::Limits {
        batch_max: 64,
        in_flight_max: 1,
    };
    let batches: batch::Batches<u64, u64> = batch::Batches::new(limits);
    let answer = |questions: Vec<u64>| async move { Ok::<_, ()>(questions) };
    let mut group = criterion.benchmark_group("coalescing");
    group.bench_function("a lone question", |bencher| {
        bencher.iter(|| block_on(batches.ask(black_box(1), answer)));
    });
    group.throughput(Throughput::Elements(64));
    group.bench_function("64 at once", |bencher| {
        bencher.iter(|| {
            block_on(join_all(
                (0..64).map(|question| batches.ask(question, answer)),
            ))
        });
    });
    group.finish();
}

criterion_group!(
    hot,
    parse,
    check_headers,
    write,
    request_state,
    promote,
    coalesce
);
criterion_main!(hot);
