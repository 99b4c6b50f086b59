//! The token of a request (RFC 6750 §2.1).

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::{Refused, invalid, malformed};

/// What the parameter is called that holds a token in a URL or a form (RFC 6750 §2.2, §2.3).
const PARAMETER: &str = "access_token";

/// Refuses a URL that holds a token: it would stand in the logs of every proxy on the way (OAuth 2.1
/// §5.1, MCP 2026-07-28 §Token Requirements). That it is good makes it no better.
pub(crate) fn none_in_url(query: Option<&str>) -> Result<(), Refused> {
    let mut parameters = query.unwrap_or_default().split('&');
    let named = |parameter: &str| parameter.split('=').next() == Some(PARAMETER);
    match parameters.any(named) {
        true => Err(malformed("an access token must not be in the URL")),
        false => Ok(()),
    }
}

/// The token of the one `Authorization: Bearer` header, of at most so many bytes; `None` if there is
/// none. Credentials of another scheme are none that we could judge: who sends them is told what we
/// take, without an error code (RFC 6750 §3.1).
pub(super) fn token(headers: &HeaderMap, bytes_max: usize) -> Result<Option<&str>, Refused> {
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
        return Err(Refused::Unauthorized {
            error: None,
            message: "the Authorization header must be a Bearer token",
        });
    }
    let token = token.trim();
    if token.len() > bytes_max {
        return Err(invalid("the bearer token is longer than this server takes"));
    }
    if token.is_empty() || !is_token(token) {
        return Err(invalid("the bearer token is malformed"));
    }
    Ok(Some(token))
}

/// Whether a token, or a part of one, may be written so (RFC 6750 §2.1: b64token, and two letters that
/// names have).
pub(super) fn is_token(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=@:".contains(&byte);
    text.bytes().all(is_letter)
}
