//! `[[http]]`: a service behind a URL, as a tool.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};

use super::policy::{Effective, Layer};
use super::reader::Section;
use super::tool;
use crate::http::{Allowed, Json, Output, Service, Template, Url};
use crate::web::{self, BLANK, SECRET_BYTES_MIN};

const RESPONSE_BYTES_MAX: usize = 256 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Nobody waits longer, and a clock that has not come so far yet can still be added to.
const WAIT_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// What we say ourselves, or what the connection says.
const NOT_YOURS: [&str; 14] = [
    "baggage",
    "connection",
    "content-length",
    "host",
    "idempotency-key",
    "keep-alive",
    "proxy-connection",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
];

/// What became of a section.
pub(super) struct Read {
    pub(super) service: Service,
    pub(super) policy: Vec<Effective>,
    pub(super) effects: Effective,
}

/// Reads one section; `None` when it has problems, all of which were told.
pub(super) fn read(section: Section<'_, '_>, folder: &Path, defaults: &Layer) -> Option<Read> {
    let tool = tool::read(&section, defaults);
    let callback_wait = duration(&section, "callback_wait");
    if callback_wait.is_some_and(|wait| wait > WAIT_MAX) {
        section.problem(
            section.at("callback_wait"),
            "callback_wait",
            "must be 30 days at most",
        );
    }
    let allowed = Allowed {
        arguments: &tool.arguments,
        callback: callback_wait.is_some(),
    };
    let method = method(&section);
    let url = section
        .require::<String>("url")
        .and_then(|text| url(&section, "url", &text, &allowed));
    let cancel_url = section
        .take::<String>("cancel_url")
        .and_then(|text| url_of_cancel(&section, &text, &allowed, url.as_ref()));
    if cancel_url.is_some() && callback_wait.is_none() {
        let problem =
            "needs a callback_wait: there is nothing to cancel at a service that has answered";
        section.problem(section.at("cancel_url"), "cancel_url", problem);
    }
    let headers = headers(&section, &allowed);
    let secret_headers = secret_headers(&section, folder);
    let bearer_file = section
        .take::<PathBuf>("bearer_file")
        .map(|file| readable(&section, "bearer_file", folder, &file));
    for (name, _) in &secret_headers {
        if headers.iter().any(|(other, _)| other == name) {
            let problem = format!("{name} stands in headers as well");
            section.problem(section.at("secret_headers"), "secret_headers", problem);
        }
    }
    let body = body(&section, &allowed, &method);
    let output = output(&section, tool.output_schema.is_some());
    let service = Service {
        spec: tool.spec,
        pool: pool(&section, folder)?,
        method,
        url: url.or_else(|| Url::read("http://127.0.0.1/", &allowed).ok())?,
        headers,
        secret_headers,
        bearer_file,
        body,
        output,
        output_schema: tool.output_schema,
        effects: tool.effects,
        retry_statuses: retry_statuses(&section),
        timeout: duration(&section, "timeout"),
        response_bytes_max: section
            .take("response_bytes_max")
            .unwrap_or(RESPONSE_BYTES_MAX),
        callback_wait,
        cancel_url,
    };
    section.finish();
    tool.name.map(|_| Read {
        service,
        policy: tool.policy,
        effects: tool.effects_shown,
    })
}

/// With the public authorities where its own cannot be read, so that the rest is looked at, too.
fn pool(section: &Section<'_, '_>, folder: &Path) -> Option<web::Pool> {
    let ca_file = section.take::<PathBuf>("ca_file");
    let ca_file = ca_file.map(|file| folder.join(file));
    let made = web::pool(ca_file.as_deref(), CONNECT_TIMEOUT).or_else(|problem| {
        section.problem(section.at("ca_file"), "", problem);
        web::pool(None, CONNECT_TIMEOUT)
    });
    made.ok()
}

fn duration(section: &Section<'_, '_>, key: &'static str) -> Option<Duration> {
    let duration = section.take::<humantime_serde::Serde<Duration>>(key)?;
    let duration = duration.into_inner();
    if duration.is_zero() {
        section.problem(section.at(key), key, "must be above 0");
    }
    Some(duration)
}

fn method(section: &Section<'_, '_>) -> Method {
    match section.take::<String>("method").as_deref() {
        None | Some("POST") => Method::POST,
        Some("PUT") => Method::PUT,
        Some("PATCH") => Method::PATCH,
        Some("GET") => Method::GET,
        Some(_) => {
            section.wrong_word("method");
            Method::POST
        }
    }
}

fn output(section: &Section<'_, '_>, promised: bool) -> Output {
    match section.take::<String>("output").as_deref() {
        None | Some("auto") => Output::Auto,
        Some("json") => Output::Json,
        Some("text") => {
            if promised {
                let problem = "must not be \"text\" where there is an output_schema";
                section.problem(section.at("output"), "output", problem);
            }
            Output::Text
        }
        Some(_) => {
            section.wrong_word("output");
            Output::Auto
        }
    }
}

fn url(
    section: &Section<'_, '_>,
    key: &'static str,
    text: &str,
    allowed: &Allowed<'_>,
) -> Option<Url> {
    match Url::read(text, allowed) {
        Ok(url) => Some(url),
        Err(problem) => {
            section.problem(section.at(key), key, problem);
            None
        }
    }
}

/// Who cancels shows the same credentials, so it is the same server.
fn url_of_cancel(
    section: &Section<'_, '_>,
    text: &str,
    allowed: &Allowed<'_>,
    url_of_call: Option<&Url>,
) -> Option<Url> {
    let allowed = Allowed {
        callback: false,
        ..*allowed
    };
    let cancel = url(section, "cancel_url", text, &allowed)?;
    if let Some(call) = url_of_call
        && (cancel.shape.scheme(), cancel.shape.authority())
            != (call.shape.scheme(), call.shape.authority())
    {
        let problem = "is another server than `url`, whose credentials it must not see";
        section.problem(section.at("cancel_url"), "cancel_url", problem);
    }
    Some(cancel)
}

fn header(section: &Section<'_, '_>, key: &'static str, name: &str) -> Option<HeaderName> {
    let at = section.at(key);
    let Ok(header) = name.parse::<HeaderName>() else {
        section.problem(at, key, format!("{name:?} is no name of a header"));
        return None;
    };
    if NOT_YOURS.contains(&header.as_str()) || header.as_str().starts_with("mcp-tasks-") {
        section.problem(at, key, format!("{name} is set by the worker itself"));
        return None;
    }
    Some(header)
}

fn headers(section: &Section<'_, '_>, allowed: &Allowed<'_>) -> Vec<(HeaderName, Template)> {
    let written: BTreeMap<String, String> = section.take("headers").unwrap_or_default();
    let read = written.iter().filter_map(|(name, text)| {
        let header = header(section, "headers", name)?;
        let template = match Template::read(text, allowed) {
            Ok(template) => template,
            Err(problem) => {
                section.problem(
                    section.at("headers"),
                    "headers",
                    format!("{name}: {problem}"),
                );
                return None;
            }
        };
        if !text.is_ascii() || HeaderValue::from_str(text).is_err() {
            let problem = format!("{name}: a header holds one line of printable ASCII");
            section.problem(section.at("headers"), "headers", problem);
        }
        Some((header, template))
    });
    read.collect()
}

fn secret_headers(section: &Section<'_, '_>, folder: &Path) -> Vec<(HeaderName, PathBuf)> {
    let written: BTreeMap<String, PathBuf> = section.take("secret_headers").unwrap_or_default();
    let read = written.iter().filter_map(|(name, file)| {
        let header = header(section, "secret_headers", name)?;
        Some((header, readable(section, "secret_headers", folder, file)))
    });
    read.collect()
}

fn readable(section: &Section<'_, '_>, key: &'static str, folder: &Path, file: &Path) -> PathBuf {
    let file = folder.join(file);
    match std::fs::read_to_string(&file) {
        Ok(secret) => note_short(section, key, key, &file, &secret),
        Err(error) => {
            let problem = format!("{}: {error}", file.display());
            section.problem(section.at(key), key, problem);
        }
    }
    file
}

/// Says that a secret is one that nothing can hide: what files held before goes on working.
pub(super) fn note_short(
    section: &Section<'_, '_>,
    key: &'static str,
    name: &str,
    file: &Path,
    secret: &str,
) {
    // One that is empty is told when it is needed.
    let length = secret.trim_matches(BLANK).len();
    if (1..SECRET_BYTES_MIN).contains(&length) {
        let note = format!(
            "{}: the secret is shorter than {SECRET_BYTES_MIN} bytes, and so it is not hidden in \
             what the server says: use a longer one",
            file.display()
        );
        section.note(section.at(key), name, note);
    }
}

fn body(section: &Section<'_, '_>, allowed: &Allowed<'_>, method: &Method) -> Option<Json> {
    let value = section.json("body")?;
    if *method == Method::GET {
        section.problem(section.at("body"), "body", "a GET has none");
    }
    match Json::read(&value, allowed) {
        Ok(body) => Some(body),
        Err(problem) => {
            section.problem(section.at("body"), "body", problem);
            None
        }
    }
}

fn retry_statuses(section: &Section<'_, '_>) -> Option<Vec<u16>> {
    let statuses: Vec<u16> = section.take("retry_statuses")?;
    if statuses.iter().any(|status| !(400..=599).contains(status)) {
        section.wrong_word("retry_statuses");
    }
    Some(statuses)
}
