//! The gateway that checks tokens, and its metadata.

use serde_json::json;

use crate::request::{Request, modern};
use crate::row::Answer::{Error, Status};
use crate::row::{Door, Row, row};
use crate::stack::API_KEY;

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let discover = || modern("server/discover", json!({}));
    rows.push(row(
        "no token, where one is needed",
        &discover().without("Authorization"),
        Error(401, 401),
    ));
    for (name, token) in [
        ("a name", "alice"),
        ("a key that is none", "mtk_x"),
        ("a key without its head", "negative"),
        ("a key in capitals", "MTK_NEGATIVE"),
        ("a JWT that is unsigned", "eyJhbGciOiJub25lIn0.e30."),
        ("a JWT by HMAC", "eyJhbGciOiJIUzI1NiJ9.e30.AAAA"),
        ("a JWT without a header", "..AAAA"),
        ("a JWT of no base64", "eyJ!.e30.AAAA"),
        ("a JWT of four parts", "eyJhbGciOiJFUzI1NiJ9.e30.AAAA.AAAA"),
        (
            "a JWT of five parts",
            "eyJhbGciOiJkaXIiLCJlbmMiOiJBMTI4R0NNIn0..AAAA.AAAA.AAAA",
        ),
        ("a JWT of nobody", "eyJhbGciOiJFUzI1NiJ9.e30.AAAA"),
        (
            "a JWT of another issuer",
            "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJodHRwczovL2V2aWwuZXhhbXBsZSJ9.AAAA",
        ),
        (
            "a JWT of ten thousand letters",
            &format!("eyJ{}.e30.AAAA", "A".repeat(10_000)),
        ),
    ] {
        let request = discover().set("Authorization", format!("Bearer {token}"));
        rows.push(row(
            format!("a token that is {name}, to be checked"),
            &request,
            Error(401, 401),
        ));
    }
    let machine = |request: Request| request.set("Authorization", format!("Bearer {API_KEY}"));
    let call = modern(
        "tools/call",
        json!({"name": "greet", "arguments": {"name": "x"}}),
    );
    rows.push(row("a scope that is missing", &machine(call), Error(403, 403)).saying("call"));
    let document = "/.well-known/oauth-protected-resource";
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let request = Request::new(&format!("{method} {document} HTTP/1.1"));
        rows.push(row(
            format!("{method} the metadata"),
            &request,
            Error(404, 404),
        ));
    }
    for path in [
        "/.well-known/",
        "/.well-known/oauth-protected-resource/",
        "/.well-known/oauth-protected-resource/other",
        "/.well-known/oauth-protected-resource/mcp/x",
        "/.well-known/oauth-protected-resourcex",
        "/.well-known/openid-configuration",
        "/.well-known/../mcp",
        "/.well-known/%6fauth-protected-resource",
    ] {
        let request = Request::new(&format!("GET {path} HTTP/1.1"));
        rows.push(row(
            format!("metadata at {path}"),
            &request,
            Error(404, 404),
        ));
    }
    let request = Request::new(&format!("GET {document} HTTP/1.1\r\nContent-Length: x"));
    rows.push(row("metadata by a broken head", &request, Status(400)));
    rows.into_iter().map(|row| row.to(Door::Tokens)).collect()
}
