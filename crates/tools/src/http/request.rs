//! From a call to a request, and from the request to how it ended.

use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::ResponseFuture;
use protocol::callback::URL_HEADER;
use serde_json::{Map, Value, json};
use worker::{Arguments, ToolError, TraceContext, Undoing};

use super::template::{Field, Url, Values};
use super::{Answered, Ended, Names, Service};
use crate::command::Effects;
use crate::web::{BLANK, Hidden, REDIRECTS_MAX, bearer, chain, redirected, unanswered};

pub(super) use super::template::Refused;

type Body = UnsyncBoxBody<Bytes, String>;

/// All headers that values of a call have made.
const HEADER_BYTES_MAX: usize = 16 * 1024;
/// What a service is told that nobody waits for it any more, at most.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(30);
/// Statuses that say that nothing happened, whatever the service does.
const NOT_NOW: [u16; 4] = [408, 425, 429, 503];
/// Statuses of somebody in between, who may not know.
const IN_BETWEEN: [u16; 2] = [502, 504];

/// A request that can be sent, and what must not be seen of it.
pub(super) struct Prepared {
    method: Method,
    url: Uri,
    headers: HeaderMap,
    body: Bytes,
    secrets: Hidden,
}

impl Prepared {
    /// What must not be seen in what the service says.
    pub(super) fn secrets(&self) -> &Hidden {
        &self.secrets
    }
}

impl Service {
    pub(super) fn prepare(
        &self,
        arguments: &Arguments,
        names: &Names<'_>,
    ) -> Result<Prepared, Refused> {
        let values: Map<String, Value> = arguments
            .parse()
            .map_err(|error| Refused(error.to_string()))?;
        let field = |field| match field {
            Field::IdempotencyKey => Some(names.key.to_owned()),
            Field::CallbackUrl => {
                Some(names.callback.map_or_else(String::new, |to| to.url.clone()))
            }
            other => names.field(other),
        };
        let values = Values {
            arguments: &values,
            field: &field,
        };
        let url = self.url.fill(&values)?;
        let body = match (&self.body, self.method == Method::GET) {
            (_, true) => Bytes::new(),
            (Some(body), false) => {
                let body = body.fill(&values).unwrap_or_default();
                Bytes::from(body.to_string())
            }
            (None, false) if arguments.as_json().is_empty() => Bytes::from_static(b"{}"),
            (None, false) => Bytes::copy_from_slice(arguments.as_json()),
        };
        let (headers, secrets) = self.headers(&values, names)?;
        if let Some(cancel) = &self.cancel_url {
            // Whoever could not be told to stop is not told to begin.
            cancel.fill(&values)?;
        }
        Ok(Prepared {
            method: self.method.clone(),
            url,
            headers,
            body,
            secrets,
        })
    }

    fn headers(
        &self,
        values: &Values<'_>,
        names: &Names<'_>,
    ) -> Result<(HeaderMap, Hidden), Refused> {
        let mut headers = HeaderMap::new();
        let agent = concat!("mcp-tasks/", env!("CARGO_PKG_VERSION"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
        headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
        if self.method != Method::GET {
            let json = HeaderValue::from_static("application/json");
            headers.insert(header::CONTENT_TYPE, json);
        }
        let mut left = HEADER_BYTES_MAX;
        for (name, template) in &self.headers {
            // One whose argument is not given is left out.
            let Some(text) = template.fill(values) else {
                continue;
            };
            left = left
                .checked_sub(text.len())
                .ok_or_else(|| Refused(format!("{name}: too long for headers")))?;
            let value = text.is_ascii().then(|| HeaderValue::from_str(&text).ok());
            let value = value.flatten().ok_or_else(|| {
                Refused(format!(
                    "{name}: a header holds one line of printable ASCII"
                ))
            })?;
            headers.insert(name, value);
        }
        let mut secrets = Vec::new();
        for (name, file) in &self.secret_headers {
            let text = secret(file)?;
            let unfit = || unreadable(file, "it is no value of a header");
            let mut value = HeaderValue::from_str(&text).map_err(|_| unfit())?;
            value.set_sensitive(true);
            headers.insert(name, value);
            secrets.push(text);
        }
        if let Some(file) = &self.bearer_file {
            let token = secret(file)?;
            let value = bearer(&token);
            let value = value.ok_or_else(|| unreadable(file, "it holds no token"))?;
            headers.insert(header::AUTHORIZATION, value);
            secrets.push(token.trim().to_owned());
        }
        ours(&mut headers, names);
        Ok((headers, Hidden::new(secrets)))
    }

    /// Sends it. An error says that nothing happened, or that nobody knows; `pause` is what the
    /// service asked for before another try.
    pub(super) async fn send(
        &self,
        prepared: &Prepared,
        trace: &TraceContext,
        pause: &mut Option<Duration>,
    ) -> Result<Ended, ToolError> {
        let exchange = self.exchange(prepared, trace, pause);
        match self.timeout {
            None => exchange.await,
            Some(timeout) => match tokio::time::timeout(timeout, exchange).await {
                Ok(ended) => ended,
                Err(_) => {
                    let text = format!("the service did not answer within {timeout:?}");
                    Err(ToolError::outcome_unknown(text))
                }
            },
        }
    }

    async fn exchange(
        &self,
        prepared: &Prepared,
        trace: &TraceContext,
        pause: &mut Option<Duration>,
    ) -> Result<Ended, ToolError> {
        let mut url = prepared.url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let response = self.request(prepared, &url, trace).await;
            let response = response.map_err(|error| {
                let text = prepared.secrets.text(&unanswered(&error));
                if error.is_connect() {
                    ToolError::retryable(format!("the service cannot be reached: {text}"))
                } else {
                    ToolError::outcome_unknown(format!("the service did not answer: {text}"))
                }
            })?;
            let status = response.status();
            if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
                let response = response.map(|body| {
                    let body = body.map_err(|error| chain(&error));
                    body.boxed_unsync()
                });
                return self.read(prepared, response, pause).await;
            }
            match redirected(&url, status, response.headers().get(header::LOCATION)) {
                Ok(next) => url = next,
                Err(why) => return Ok(redirect(status, &prepared.secrets.text(&why))),
            }
        }
        let why = format!("redirects more than {REDIRECTS_MAX} times");
        Ok(redirect(StatusCode::PERMANENT_REDIRECT, &why))
    }

    fn request(&self, prepared: &Prepared, url: &Uri, trace: &TraceContext) -> ResponseFuture {
        let mut request = http::Request::new(Full::new(prepared.body.clone()));
        *request.method_mut() = prepared.method.clone();
        *request.uri_mut() = url.clone();
        request.headers_mut().clone_from(&prepared.headers);
        for (name, value) in [
            ("traceparent", &trace.traceparent),
            ("tracestate", &trace.tracestate),
            ("baggage", &trace.baggage),
        ] {
            if let Some(Ok(value)) = value.as_deref().map(HeaderValue::from_str) {
                request.headers_mut().insert(name, value);
            }
        }
        self.pool.request(request)
    }

    async fn read(
        &self,
        prepared: &Prepared,
        response: Response<Body>,
        pause: &mut Option<Duration>,
    ) -> Result<Ended, ToolError> {
        let (head, mut body) = response.into_parts();
        let status = head.status.as_u16();
        let text_of = |name| head.headers.get(name)?.to_str().ok();
        // It is told, too.
        let kind = prepared
            .secrets
            .text(text_of(header::CONTENT_TYPE).unwrap_or_default());
        let not_now = match &self.retry_statuses {
            Some(statuses) => statuses.contains(&status),
            None => {
                NOT_NOW.contains(&status)
                    || IN_BETWEEN.contains(&status) && self.effects != Effects::Once
            }
        };
        if not_now {
            let seconds = text_of(header::RETRY_AFTER).and_then(|text| text.trim().parse().ok());
            *pause = seconds.map(Duration::from_secs);
            return Err(ToolError::retryable(format!(
                "the service answered {status}"
            )));
        }
        if IN_BETWEEN.contains(&status) && self.effects == Effects::Once {
            let text = format!("a gateway of the service answered {status}");
            return Err(ToolError::outcome_unknown(text));
        }
        if status == 202 && self.callback_wait.is_some() {
            return Ok(Ended::Accepted);
        }
        let mut whole = BytesMut::new();
        let mut cut = false;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                let text = prepared.secrets.text(&error);
                ToolError::outcome_unknown(format!("the service's answer broke off: {text}"))
            })?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let room = self.response_bytes_max.saturating_sub(whole.len());
            whole.extend_from_slice(&data[..data.len().min(room)]);
            if data.len() > room {
                cut = true;
                break;
            }
        }
        Ok(Ended::Answered(Answered {
            status,
            kind,
            body: match cut {
                true => prepared.secrets.cut(whole.freeze()),
                false => prepared.secrets.bytes(whole.freeze()),
            }
            .to_vec(),
            cut,
        }))
    }

    /// Tells the service that nobody wants its result any more.
    pub(super) async fn cancel(&self, url: &Url, undoing: &Undoing) -> Result<(), ToolError> {
        let (task, key) = (undoing.task_id().to_string(), undoing.idempotency_key());
        let of_call = format!("{task}:{}", undoing.step());
        let names = Names {
            task: &task,
            attempt: undoing.tries(),
            key: &key,
            callback: None,
            principal: undoing.principal(),
        };
        let gone = |Refused(why): Refused| ToolError::failed(super::answer::INTERNAL, why);
        let arguments: Map<String, Value> = undoing.arguments().parse()?;
        let field = |field| match field {
            // Of the call that is to end.
            Field::IdempotencyKey => Some(of_call.clone()),
            Field::CallbackUrl => Some(String::new()),
            other => names.field(other),
        };
        let values = Values {
            arguments: &arguments,
            field: &field,
        };
        let (headers, secrets) = self.headers(&values, &names).map_err(gone)?;
        let body = json!({ "taskId": task, "idempotencyKey": of_call });
        let prepared = Prepared {
            method: Method::POST,
            url: url.fill(&values).map_err(gone)?,
            headers,
            body: Bytes::from(body.to_string()),
            secrets,
        };
        let asked = self.request(&prepared, &prepared.url, &TraceContext::default());
        let response = match tokio::time::timeout(CANCEL_TIMEOUT, asked).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                let text = prepared.secrets.text(&unanswered(&error));
                return Err(ToolError::retryable(format!("it cannot be told: {text}")));
            }
            Err(_) => return Err(ToolError::retryable("it does not answer")),
        };
        let status = response.status();
        match status.as_u16() {
            // The last three: there is nothing (any more) that could be ended.
            200..=299 | 404 | 409 | 410 => Ok(()),
            408 | 425 | 429 | 500..=599 => {
                Err(ToolError::retryable(format!("it answered {status}")))
            }
            _ => {
                let text = format!("it answered {status}");
                Err(ToolError::failed(super::answer::INTERNAL, text))
            }
        }
    }
}

fn redirect(status: StatusCode, why: &str) -> Ended {
    Ended::Answered(Answered {
        status: status.as_u16(),
        kind: "text/plain".to_owned(),
        body: why.as_bytes().to_vec(),
        cut: false,
    })
}

/// What we say of ourselves; no template can change it.
fn ours(headers: &mut HeaderMap, names: &Names<'_>) {
    let attempt = names.attempt.to_string();
    let mut put = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    put("idempotency-key", names.key);
    put("mcp-tasks-task-id", names.task);
    put("mcp-tasks-attempt", &attempt);
    if let Some(callback) = names.callback {
        put(URL_HEADER, &callback.url);
    }
}

impl Names<'_> {
    /// What a place of ours holds that is the same for every request of an attempt.
    fn field(&self, field: Field) -> Option<String> {
        match field {
            Field::TaskId => Some(self.task.to_owned()),
            Field::Attempt => Some(self.attempt.to_string()),
            Field::PrincipalIssuer => Some(self.principal.issuer.clone()),
            Field::PrincipalSubject => Some(self.principal.subject.clone()),
            Field::PrincipalTenant => self.principal.tenant.clone(),
            Field::IdempotencyKey | Field::CallbackUrl => None,
        }
    }
}

/// Read at every call, so that it may change.
fn secret(file: &Path) -> Result<String, Refused> {
    let text =
        std::fs::read_to_string(file).map_err(|error| unreadable(file, &error.to_string()))?;
    // As it arrives: blanks around a value are none of it (RFC 9110 §5.5).
    Ok(text.trim_matches(BLANK).to_owned())
}

fn unreadable(file: &Path, why: &str) -> Refused {
    tracing::error!(file = %file.display(), why, "a secret cannot be used");
    Refused("a secret of this tool cannot be read".to_owned())
}
