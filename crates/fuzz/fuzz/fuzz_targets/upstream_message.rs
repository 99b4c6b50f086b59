//! libFuzzer's program for the target `upstream_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_tasks_fuzz::run("upstream_message", data));
