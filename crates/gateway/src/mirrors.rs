//! The headers that a request mirrors its body in. Their names are read once and not for each request, which
//! looks at them again and again.

use http::{HeaderMap, HeaderName};
use protocol::headers::{self, HeaderMismatch};

static METHOD: HeaderName = HeaderName::from_static("mcp-method");
static NAME: HeaderName = HeaderName::from_static("mcp-name");
static PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// `Mcp-Method`.
///
/// # Errors
/// If it occurs twice or is no visible ASCII, as of all of them.
pub(crate) fn method(headers: &HeaderMap) -> Result<Option<&str>, HeaderMismatch> {
    one(headers, &METHOD, headers::METHOD)
}

/// `Mcp-Name`.
///
/// # Errors
/// As of [`method`].
pub(crate) fn name(headers: &HeaderMap) -> Result<Option<&str>, HeaderMismatch> {
    one(headers, &NAME, headers::NAME)
}

/// `MCP-Protocol-Version`, without the white space around it.
///
/// # Errors
/// As of [`method`].
pub(crate) fn protocol_version(headers: &HeaderMap) -> Result<Option<&str>, HeaderMismatch> {
    let version = one(headers, &PROTOCOL_VERSION, headers::PROTOCOL_VERSION)?;
    Ok(version.map(headers::trim_ows))
}

/// Any other one, by the name that messages call it.
///
/// # Errors
/// As of [`method`].
pub(crate) fn named<'a>(
    headers: &'a HeaderMap,
    name: &str,
) -> Result<Option<&'a str>, HeaderMismatch> {
    match HeaderName::from_bytes(name.as_bytes()) {
        Ok(key) => one(headers, &key, name),
        Err(_) => Ok(None),
    }
}

/// The value of a header that may occur once, as visible ASCII.
fn one<'a>(
    headers: &'a HeaderMap,
    key: &HeaderName,
    name: &str,
) -> Result<Option<&'a str>, HeaderMismatch> {
    let mut values = headers.get_all(key).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let shown = || String::from_utf8_lossy(value.as_bytes()).into_owned();
    match (value.to_str(), values.next()) {
        (Ok(text), None) => Ok(Some(text)),
        (Ok(_), Some(_)) => Err(HeaderMismatch::malformed(name, "it occurs twice")),
        (Err(_), _) => Err(HeaderMismatch::malformed(name, &shown())),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn names_are_those_of_the_protocol() {
        for (key, name) in [
            (&METHOD, headers::METHOD),
            (&NAME, headers::NAME),
            (&PROTOCOL_VERSION, headers::PROTOCOL_VERSION),
        ] {
            assert!(key.as_str().eq_ignore_ascii_case(name), "{name}");
        }
    }

    #[test]
    fn a_value_occurs_once_and_can_be_read() {
        let mut headers = HeaderMap::new();
        assert_eq!(method(&headers), Ok(None));
        headers.append("Mcp-Method", HeaderValue::from_static("tasks/get"));
        headers.append(
            "MCP-Protocol-Version",
            HeaderValue::from_static(" 2026-07-28\t"),
        );
        assert_eq!(method(&headers), Ok(Some("tasks/get")));
        assert_eq!(named(&headers, "MCP-METHOD"), Ok(Some("tasks/get")));
        assert_eq!(named(&headers, "no name"), Ok(None));
        assert_eq!(protocol_version(&headers), Ok(Some("2026-07-28")));
        headers.append("mcp-method", HeaderValue::from_static("tasks/get"));
        let twice = method(&headers).unwrap_err().to_string();
        assert!(
            twice.contains("Mcp-Method") && twice.contains("twice"),
            "{twice}"
        );
        headers.append("Mcp-Name", HeaderValue::from_bytes(b"\xff").unwrap());
        assert!(name(&headers).unwrap_err().is_malformed);
    }
}
