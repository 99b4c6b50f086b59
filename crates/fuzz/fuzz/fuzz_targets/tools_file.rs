//! libFuzzer's program for the target `tools_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_tasks_fuzz::run("tools_file", data));
