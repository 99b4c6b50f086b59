//! The token of a request (RFC 6750 §2.1).

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::{Refused, invalid, malformed};

/// A token longer than this is no token of ours.
const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// The token of the one `Authorization: Bearer` header; `None` if there is no such header. Tokens in
/// a URL's query or in a form are not looked for (MCP 2026-07-28 §Authorization).
pub(super) fn token(headers: &HeaderMap) -> Result<Option<&str>, Refused> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(malformed("the Authorization header occurs twice"));
    }
    let text = value
        .to_str()
        .map_err(|_| malformed("the Authorization header is not ASCII"))?;
    let (scheme, token) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(malformed("the Authorization header must be a Bearer token"));
    }
    let token = token.trim();
    // RFC 6750 §2.1: b64token.
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=@:".contains(&byte);
    if token.is_empty() || token.len() > TOKEN_BYTES_MAX || !token.bytes().all(is_token) {
        return Err(invalid("the bearer token is malformed"));
    }
    Ok(Some(token))
}
