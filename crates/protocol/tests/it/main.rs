//! The protocol crate from outside: every pure rule of the wire, with bad input.

// The short name that the crate has everywhere else in the workspace.
extern crate mcp_tasks_protocol as protocol;

mod headers;
mod idempotency;
mod input;
mod jsonrpc;
mod legacy;
mod meta;
mod oracle;
mod provided;
mod subscriptions;
mod tasks;
mod tools;

use serde_json::value::RawValue;

/// JSON text as a raw value.
fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).expect("the test wrote JSON")
}

/// A printed message as a value, after a check that it is one line.
fn value(json: &[u8]) -> serde_json::Value {
    assert!(
        !json.contains(&b'\n'),
        "a message must fit one line of an event stream"
    );
    serde_json::from_slice(json).expect("we print JSON")
}
