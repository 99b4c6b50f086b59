//! Functions that every request passes through, by themselves: `make bench-hot`.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gateway::fuzzed::{Purpose, Sealer, digest};
use protocol::meta::{Implementation, ResultMeta};
use protocol::tasks::{TaskState, TaskView, write_create_result, write_detailed};
use protocol::{TaskId, Timestamp, headers, jsonrpc};
use serde_json::value::RawValue;
use serde_json::{Value, json};

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
    let call = |kib: usize| {
        let arguments = json!({"text": "x".repeat(kib * 1_024)});
        body(
            "tools/call",
            json!({"name": "noop", "arguments": arguments}),
        )
    };
    let get = body("tasks/get", json!({"taskId": TASK}));
    for (name, request) in [
        ("tasks/get", get),
        ("call of 1 kB", call(1)),
        ("call of 64 kB", call(64)),
    ] {
        group.throughput(Throughput::Bytes(request.len() as u64));
        group.bench_with_input(
            BenchmarkId::new("request", name),
            &request,
            |bencher, request| {
                bencher.iter(|| jsonrpc::parse(black_box(request), jsonrpc::Limits::default()));
            },
        );
    }
    group.finish();
    criterion.bench_function("parse/task id", |bencher| {
        bencher.iter(|| black_box(TASK).parse::<TaskId>());
    });
}

fn check_headers(criterion: &mut Criterion) {
    let params = RawValue::from_string(json!({"taskId": TASK}).to_string()).expect("it is JSON");
    criterion.bench_function("headers/version, method and name", |bencher| {
        bencher.iter(|| {
            let version = headers::check_version(black_box(Some("2026-07-28")), "2026-07-28");
            let method = headers::check_method(black_box(Some("tasks/get")), "tasks/get");
            let params = jsonrpc::Params::read(Some(&params)).expect("it is an object");
            let named = headers::name_in("tasks/get", &params);
            let name = headers::check_name("tasks/get", black_box(Some(TASK)), named.as_deref());
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

criterion_group!(hot, parse, check_headers, write, request_state);
criterion_main!(hot);
