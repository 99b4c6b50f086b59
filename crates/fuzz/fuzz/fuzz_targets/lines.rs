//! libFuzzer's program for the target `lines`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_tasks_fuzz::run("lines", data));
