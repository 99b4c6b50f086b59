//! Headers that mirror the body, against a decoder of base64 written by the letter of RFC 4648.
//!
//! Bytes: a header's value, a line end, the body's value.

use http::{HeaderMap, HeaderValue};
use protocol::headers::{self, NameHeader};
use protocol::jsonrpc::Params;
use serde_json::Value;
use serde_json::value::RawValue;

pub(crate) fn run(data: &[u8]) {
    let (value, body) = match data.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &[][..]),
    };
    let Ok(header) = HeaderValue::from_bytes(value) else {
        return;
    };
    let mut map = HeaderMap::new();
    map.append("mcp-name", header.clone());
    map.append("accept", header.clone());
    map.append("content-type", header.clone());
    let _ = gateway::fuzzed::kinds(&map);
    let read = gateway::fuzzed::one(&map, "mcp-name");
    assert_eq!(read.is_ok(), header.to_str().is_ok());
    map.append("mcp-name", header);
    assert!(
        gateway::fuzzed::one(&map, "mcp-name").is_err(),
        "it is there twice"
    );
    let Ok(value) = std::str::from_utf8(value) else {
        return;
    };
    let trimmed = headers::trim_ows(value);
    let decoded = headers::decode(trimmed).map(std::borrow::Cow::into_owned);
    assert_eq!(decoded, reference(trimmed), "{trimmed:?}");
    let Ok(body) = std::str::from_utf8(body) else {
        return;
    };
    name(value, decoded.as_deref(), body);
    param(value, decoded.as_deref(), body);
}

fn name(value: &str, decoded: Option<&str>, body: &str) {
    let params = serde_json::json!({ "name": body }).to_string();
    let params: &RawValue = serde_json::from_str(&params).expect("it was printed");
    let params = Params::read(Some(params)).expect("an object");
    let named = headers::name_in("tools/call", &params);
    let judged = headers::check_name("tools/call", Some(value), named.as_deref());
    match judged {
        Ok(judged) => assert_eq!((judged, decoded), (NameHeader::Matches, Some(body))),
        Err(mismatch) => {
            assert_ne!(decoded, Some(body));
            assert_eq!(mismatch.is_malformed, decoded.is_none());
        }
    }
    // Any text can be said.
    let encoded = encode(body);
    let judged = headers::check_name("tools/call", Some(&encoded), named.as_deref());
    assert_eq!(judged, Ok(NameHeader::Matches));
}

/// A mirrored argument that is whatever the body holds.
fn param(value: &str, decoded: Option<&str>, body: &str) {
    let text = format!("{{\"p\":{body}}}");
    let Ok(arguments) = serde_json::from_str::<&RawValue>(&text) else {
        return;
    };
    let param = protocol::headers::ParamHeader {
        header: "Mcp-Param-P".to_owned(),
        path: vec!["p".to_owned()],
    };
    let judged = headers::check_param(&param, Some(arguments), Some(value));
    let Ok(read) = serde_json::from_str::<Value>(&text) else {
        return;
    };
    match &read["p"] {
        Value::String(text) => assert_eq!(judged.is_ok(), decoded == Some(text)),
        Value::Number(_) if body.trim().parse::<f64>().is_ok() => {
            // Equal digits are equal; and equal numbers have no distance as doubles.
            let header = decoded.unwrap_or_default();
            let [ours, theirs] = [body.trim(), header].map(|text| text.parse::<f64>());
            if judged.is_ok() {
                assert_eq!(ours, theirs, "{body} and {header}");
            }
            if body.trim() == header {
                assert!(judged.is_ok());
            }
        }
        Value::Null if read.as_object().is_some_and(|all| all.len() == 1) => {
            assert!(judged.is_err());
        }
        _ => {}
    }
    let _ = headers::check_param(&param, Some(arguments), None);
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// RFC 4648 §4, strictly: padded, in order, with no bits left over.
fn reference(value: &str) -> Option<String> {
    let inner = value.strip_prefix("=?base64?");
    let Some(text) = inner.and_then(|rest| rest.strip_suffix("?=")) else {
        return Some(value.to_owned());
    };
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let data = text.trim_end_matches('=');
    let padding = text.len() - data.len();
    if padding > 2 || (padding > 0 && (data.len() + padding) % 4 != 0) {
        return None;
    }
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for byte in data.bytes() {
        let digit = ALPHABET.iter().position(|own| *own == byte)?;
        bits = (bits << 6) | u32::try_from(digit).ok()?;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 0xff).ok()?);
            bits &= (1 << count) - 1;
        }
    }
    if bits != 0 || count >= 6 {
        return None;
    }
    String::from_utf8(bytes).ok()
}

fn encode(text: &str) -> String {
    let mut out = String::from("=?base64?");
    for chunk in text.as_bytes().chunks(3) {
        let mut bits = 0_u32;
        for at in 0..3 {
            bits = (bits << 8) | u32::from(chunk.get(at).copied().unwrap_or(0));
        }
        for at in 0..4 {
            let digit = usize::try_from((bits >> (18 - 6 * at)) & 63).unwrap_or(0);
            out.push(if at <= chunk.len() {
                char::from(ALPHABET[digit])
            } else {
                '='
            });
        }
    }
    out.push_str("?=");
    out
}
