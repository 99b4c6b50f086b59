//! Pages in browsers: which may call us, what they may send, and what they may read (WHATWG Fetch
//! §HTTP-CORS protocol). Tokens travel in a header that the page sets itself, so no credentials of the
//! browser are ever asked for.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use crate::door::Door;
use crate::reply::Body;

/// What pages may send. (Besides, `Mcp-Param-*`.)
const SENT: [&str; 12] = [
    "accept",
    "authorization",
    "baggage",
    "content-type",
    "idempotency-key",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "traceparent",
    "tracestate",
];
const PARAM: &str = "mcp-param-";
/// What pages may read: where to get a token, and when to come again.
const READ: &str = "WWW-Authenticate, Retry-After";
/// For how long a browser need not ask again, in seconds.
const MAX_AGE: &str = "600";

/// The page that sends a request, if it may.
pub(crate) struct Page(Option<HeaderValue>);

impl Page {
    pub(crate) fn of(door: &Door, head: &Parts) -> Self {
        Self(door.page(head))
    }

    /// The answer to a browser that asks before it sends.
    pub(crate) fn preflight(&self, door: &Door, head: &Parts) -> Option<Response<Body>> {
        let asks = head.method == Method::OPTIONS
            && head.headers.contains_key(ORIGIN)
            && head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        if !asks {
            return None;
        }
        let (origin, methods) = if door.is_document(head) {
            // What everybody may read every page may.
            (HeaderValue::from_static("*"), "GET")
        } else {
            (self.0.clone()?, "POST")
        };
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(
            ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static(methods),
        );
        if let Ok(sent) = HeaderValue::from_str(&sent(&head.headers)) {
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, sent);
        }
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
        let vary = "Origin, Access-Control-Request-Headers";
        headers.insert(VARY, HeaderValue::from_static(vary));
        Some(response)
    }

    /// Lets the page read the answer, whatever it is.
    pub(crate) fn show(self, response: &mut Response<Body>) {
        let Some(origin) = self.0 else {
            return;
        };
        let headers = response.headers_mut();
        headers.entry(ACCESS_CONTROL_ALLOW_ORIGIN).or_insert(origin);
        headers.insert(
            ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static(READ),
        );
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
}

/// What the page asked to send, as far as it may.
fn sent(headers: &HeaderMap) -> String {
    let asked = headers.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter();
    let asked = asked.filter_map(|value| value.to_str().ok());
    let names = asked.flat_map(|names| names.split(','));
    let names = names.map(|name| name.trim().to_ascii_lowercase());
    let params = names.filter(|name| name.starts_with(PARAM));
    let fixed = SENT.iter().map(|name| (*name).to_owned());
    fixed.chain(params).collect::<Vec<_>>().join(", ")
}
