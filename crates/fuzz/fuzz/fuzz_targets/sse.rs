//! libFuzzer's program for the target `sse`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_tasks_fuzz::run("sse", data));
