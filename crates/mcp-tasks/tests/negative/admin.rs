//! The listener for metrics and probes.

use crate::request::Request;
use crate::row::Answer::{Closed, Status};
use crate::row::{Door, Row, raw, row};

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
        for path in ["/metrics", "/readyz"] {
            let request = Request::new(&format!("{method} {path} HTTP/1.1"));
            rows.push(row(
                format!("admin: {method} {path}"),
                &request,
                Status(405),
            ));
        }
    }
    for path in [
        "/",
        "/mcp",
        "/metrics/",
        "/METRICS",
        "/metrics/../readyz",
        "/debug/pprof",
        "/%6detrics",
        "/readyz%00",
        "//metrics",
    ] {
        let request = Request::new(&format!("GET {path} HTTP/1.1"));
        rows.push(row(format!("admin: GET {path}"), &request, Status(404)));
    }
    rows.push(raw("admin: no HTTP", "GARBAGE\n\r\n\r\n", Status(400)));
    rows.push(raw("admin: zero bytes", vec![0_u8; 32], Status(400)));
    rows.push(raw(
        "admin: HTTP/2",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        Closed,
    ));
    rows.push(raw(
        "admin: half a head",
        "GET /metrics HTTP/1.1\r\nHost: a",
        Closed,
    ));
    let long = Request::new("GET /metrics HTTP/1.1").with("X", "x".repeat(600_000));
    rows.push(row("admin: a header of 600 KB", &long, Status(431)));
    let lengths = Request::new("GET /metrics HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2");
    rows.push(row("admin: two lengths", &lengths, Status(400)));
    rows.into_iter().map(|row| row.to(Door::Admin)).collect()
}
