//! libFuzzer's program for the target `sealed`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_tasks_fuzz::run("sealed", data));
