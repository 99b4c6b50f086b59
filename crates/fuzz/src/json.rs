//! JSON: digests of arguments, schemas, messages of upstream servers.

use serde_json::{Map, Value};

/// Equal values have equal digests, however they are written.
pub(crate) fn digests(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else {
        return;
    };
    let digest = |value: &Value| gateway::fuzzed::digest(value).expect("JSON has a canonical form");
    let first = digest(&value);
    let pretty = serde_json::to_string_pretty(&value).expect("a value prints");
    let again: Value = serde_json::from_str(&pretty).expect("it was printed");
    // A double that was read may be printed as one that is read as its neighbour.
    if again == value {
        assert_eq!(digest(&again), first, "white space");
    }
    assert_eq!(digest(&backwards(&value)), first, "order of members");
    // Another value has another digest.
    let other = serde_json::json!([value]);
    assert_ne!(digest(&other), first);
    // A schema of a stranger, against a stranger's arguments.
    if let Some((schema, arguments)) = value
        .as_array()
        .and_then(|both| both.first().zip(both.get(1)))
        && let Err(told) = gateway::fuzzed::check_schema(&schema.to_string(), arguments)
    {
        assert!(!told.is_empty() && told.chars().count() < 4000, "{told}");
    }
}

fn backwards(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(backwards).collect(),
        Value::Object(members) => {
            let members = members.iter().rev();
            let turned: Map<_, _> = members
                .map(|(name, value)| (name.clone(), backwards(value)))
                .collect();
            Value::Object(turned)
        }
        other => other.clone(),
    }
}

/// A message of a server, written as we would write it, is read as the same.
pub(crate) fn upstream_message(data: &[u8]) {
    match tools::fuzzed::message(data) {
        Err(why) => assert!(!why.is_empty() && why.len() < 1500, "{why}"),
        Ok(written) => {
            let again = tools::fuzzed::message(written.as_bytes());
            assert_eq!(again.as_ref(), Ok(&written));
        }
    }
}
