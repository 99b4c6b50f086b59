//! libFuzzer's program for the target `tokens`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_tasks_fuzz::run("tokens", data));
