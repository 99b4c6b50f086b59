//! What a tool says of itself and of its failure is kept, and read with many others: as much of it as is allowed.

use protocol::ErrorObject;
use protocol::code::reason;
use serde_json::json;

/// The longest beginning of at most `max` bytes.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// An error as JSON of at most `max` bytes. Of one that is longer the code is left, the reason if it is a word of ours,
/// and the beginning of the message.
pub(crate) fn error_json(error: &ErrorObject, max: usize) -> Vec<u8> {
    let json = |error: &ErrorObject| serde_json::to_vec(error).unwrap_or_default();
    let whole = json(error);
    if whole.len() <= max {
        return whole;
    }
    let known = reason_of(error).map(|reason| json!({ "reason": reason }));
    let mut keep = max;
    loop {
        let short = json(&ErrorObject {
            code: error.code,
            message: cut(&error.message, keep).to_owned(),
            data: known.clone(),
        });
        if short.len() <= max || keep == 0 {
            return short;
        }
        // Each byte less is one byte less at least: what is escaped takes more.
        keep = keep
            .min(error.message.len())
            .saturating_sub(short.len() - max);
    }
}

/// Why a task of ours failed; what a tool says of its own error is left out.
pub(crate) fn reason_of(error: &ErrorObject) -> Option<&'static str> {
    let data = error.data.as_ref();
    let told = data.and_then(|data| data["reason"].as_str())?;
    reason::ALL.iter().copied().find(|known| *known == told)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn error(message: &str, data: Value) -> ErrorObject {
        ErrorObject {
            code: -32603,
            message: message.to_owned(),
            data: Some(data),
        }
    }

    #[test]
    fn an_error_fits_whatever_it_says() {
        for message in [
            "",
            "m",
            &"m".repeat(5000),
            &"é".repeat(3000),
            &"\u{1}\"".repeat(2000),
        ] {
            for data in [
                json!({"reason": "attempts_exhausted", "lastError": "x".repeat(5000)}),
                json!({"reason": "password", "more": "x".repeat(5000)}),
                json!(null),
            ] {
                let whole = error(message, data);
                let all = serde_json::to_vec(&whole).unwrap();
                let length = all.len();
                for max in [128, 1024, length - 1, length, length + 1] {
                    let json = error_json(&whole, max);
                    assert!(json.len() <= max.max(100), "{max}: {}", json.len());
                    let read: ErrorObject = serde_json::from_slice(&json).unwrap();
                    assert!(message.starts_with(&read.message));
                    assert_eq!(length <= max, json == all, "{max} of {length}");
                    if length > max {
                        let ours = whole.data.as_ref().unwrap()["reason"] == "attempts_exhausted";
                        let reason = ours.then(|| json!({"reason": "attempts_exhausted"}));
                        assert_eq!(read.data, reason);
                    }
                }
            }
        }
    }

    #[test]
    fn as_much_of_a_message_is_kept_as_fits() {
        let long = error(&"m".repeat(5000), json!("x"));
        assert_eq!(error_json(&long, 1024).len(), 1024);
    }
}
