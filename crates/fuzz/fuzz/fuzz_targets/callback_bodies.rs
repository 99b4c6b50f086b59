//! libFuzzer's program for the target `callback_bodies`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mcp_tasks_fuzz::run("callback_bodies", data));
