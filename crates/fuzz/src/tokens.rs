//! Tokens and what they say, before anything of it is believed.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue};
use serde_json::Value;

const NOW: i64 = 1_790_000_000;
/// Few, so that longer ones are met as well.
const TOKEN_BYTES_MAX: usize = 1024;

pub(crate) fn run(data: &[u8]) {
    if let Ok(value) = HeaderValue::from_bytes(data) {
        let mut map = HeaderMap::new();
        map.append("authorization", value.clone());
        if let Some(token) = gateway::fuzzed::bearer(&map, TOKEN_BYTES_MAX) {
            assert!(!token.is_empty() && token.len() <= TOKEN_BYTES_MAX);
            assert!(token.bytes().all(|byte| byte.is_ascii_graphic()));
        }
        map.append("authorization", value);
        assert_eq!(
            gateway::fuzzed::bearer(&map, TOKEN_BYTES_MAX),
            None,
            "two are none"
        );
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = gateway::fuzzed::looks_like_jwt(text);
        if let Some((signed, payload, signature)) = gateway::fuzzed::jwt(text) {
            // There is one way to write what was read.
            let [payload, signature] =
                [payload, signature].map(|part| BASE64_URL_SAFE_NO_PAD.encode(part));
            assert_eq!(text, format!("{signed}.{signature}"));
            assert!(signed.ends_with(&format!(".{payload}")));
        }
    }
    let _ = gateway::fuzzed::jwks(data);
    for introspected in [false, true] {
        let Some(claimed) = gateway::fuzzed::claims(data, NOW, introspected) else {
            continue;
        };
        let read: Value = serde_json::from_slice(data).expect("it was read");
        assert_eq!(claimed.issuer, "https://issuer.example");
        assert_eq!(read["sub"], claimed.subject.as_str());
        assert!(!claimed.subject.is_empty() && claimed.subject.len() <= 512);
        assert!(!claimed.subject.contains('\0'));
        // Of an address, the case of scheme and host says nothing (RFC 3986 §6.2.2.1).
        let (origin, path) = ("https://resource.example", "/mcp");
        let is_ours = |one: &Value| {
            let split = one
                .as_str()
                .and_then(|one| one.split_at_checked(origin.len()));
            split.is_some_and(|(start, rest)| start.eq_ignore_ascii_case(origin) && rest == path)
        };
        let for_us = match &read["aud"] {
            Value::Array(all) => all.iter().any(is_ours),
            one => is_ours(one),
        };
        assert!(for_us);
        assert!(introspected || read["iss"] == "https://issuer.example");
        match claimed.until {
            Some(until) => assert!(until > NOW),
            None => assert!(introspected, "a token that never ends"),
        }
    }
}
