//! libFuzzer's program for the target `http_entry`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_tasks_fuzz::run("http_entry", data));
