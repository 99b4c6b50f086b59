//! What a request of an older revision says about itself: its `_meta`, which may be missing, and
//! whether it asks for a task.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::jsonrpc::InvalidParams;
use crate::meta::{
    CLIENT_CAPABILITIES_KEY, ClientCapabilities, EXTENSION_TASKS, IDEMPOTENCY_KEY, MetaError,
    PROTOCOL_VERSION_KEY, RequestMeta, TraceContext, progress_token,
};
use crate::raw::{self, Object, shorten};
use crate::writer;

/// Whom a call can reach with a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// Nobody: without a session, what `initialize` declared is forgotten.
    Nobody,
    /// Whoever asks for the task's result, as far as this very request declares it.
    AsTask,
}

/// Reads `params._meta`. Nothing in it is required. What the client can do is what this request
/// declares under [`CLIENT_CAPABILITIES_KEY`], which a host may add to a call; by default nothing.
///
/// # Errors
/// If `_meta` is no object, has a key twice, or a value that we would use is malformed.
pub fn request_meta(
    params: Option<&RawValue>,
    version: &str,
    answers: Answers,
) -> Result<RequestMeta, MetaError> {
    let params = Object::params(params)?;
    let meta = match params.present("_meta") {
        Some(meta) => Object::strict(meta, "it")?,
        None => Object::default(),
    };
    // Older clients need not say it there; whoever does says the same as in the header.
    if let Some(named) = meta.string(PROTOCOL_VERSION_KEY)?
        && named != version
    {
        let named = shorten(&named);
        return Err(MetaError::Malformed(format!(
            "`{PROTOCOL_VERSION_KEY}` says {named}, and MCP-Protocol-Version says {version}"
        )));
    }
    let text = |name: &str| meta.get(name).and_then(raw::string);
    Ok(RequestMeta {
        protocol_version: version.to_owned(),
        client_info: None,
        capabilities: capabilities(meta.present(CLIENT_CAPABILITIES_KEY), answers)?,
        trace: TraceContext {
            traceparent: text("traceparent"),
            tracestate: text("tracestate"),
            baggage: text("baggage"),
        },
        progress_token: meta
            .present("progressToken")
            .map(progress_token)
            .transpose()?,
        idempotency_key: meta.string(IDEMPOTENCY_KEY)?,
    })
}

fn capabilities(
    declared: Option<&RawValue>,
    answers: Answers,
) -> Result<ClientCapabilities, InvalidParams> {
    let declared = match declared {
        Some(declared) => Object::strict(declared, &format!("`{CLIENT_CAPABILITIES_KEY}`"))?,
        None => Object::default(),
    };
    let mut out = writer::Object::with_capacity(128);
    if answers == Answers::AsTask {
        for kind in ["elicitation", "sampling", "roots"] {
            if let Some(settings) = declared.present(kind).filter(|value| raw::is_object(value)) {
                out = out.raw(kind, settings.get());
            }
        }
        out = out.value("extensions", &serde_json::json!({ EXTENSION_TASKS: {} }));
    }
    ClientCapabilities::parse(&out.finish())
}

/// Whether a call asks to become a task: `params.task` (MCP 2025-11-25 §Creating Tasks). Its `ttl`
/// is a wish that the server may override; ours comes from the tool's policy.
///
/// # Errors
/// If `task` is no object, or its `ttl` no number of milliseconds.
pub fn wants_task(params: Option<&RawValue>) -> Result<bool, InvalidParams> {
    let params = Object::params(params)?;
    let Some(task) = params.present("task") else {
        return Ok(false);
    };
    let task = Object::strict(task, "`task`")?;
    let ttl = task.present("ttl").map(|ttl| {
        let value: Option<Value> = serde_json::from_str(ttl.get()).ok();
        value.and_then(|value| value.as_f64())
    });
    match ttl {
        None => Ok(true),
        Some(Some(ms)) if ms.is_finite() && ms >= 0.0 => Ok(true),
        Some(_) => Err(InvalidParams::new(
            "`task.ttl` must be a number of milliseconds, 0 or more",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn nothing_is_required() {
        for params in [
            None,
            Some("{}"),
            Some(r#"{"_meta":null}"#),
            Some(r#"{"_meta":{}}"#),
        ] {
            let params = params.map(raw);
            let meta = request_meta(params.as_deref(), "2025-11-25", Answers::Nobody).unwrap();
            assert_eq!(meta.capabilities.as_json(), "{}");
            assert!(meta.progress_token.is_none());
        }
    }

    /// What is wrong, where, and what is allowed.
    #[test]
    fn what_is_malformed_is_told() {
        let key = PROTOCOL_VERSION_KEY;
        let same = format!(r#"{{"_meta":{{"{key}":"2025-11-25"}}}}"#);
        assert!(request_meta(Some(&raw(&same)), "2025-11-25", Answers::Nobody).is_ok());
        for (bad, told) in [
            (
                r#"{"_meta":[]}"#.to_owned(),
                "params._meta: it must be an object".to_owned(),
            ),
            (
                r#"{"_meta":{"a":1,"a":2}}"#.to_owned(),
                "params._meta: it has the key `a` twice".to_owned(),
            ),
            (
                r#"{"_meta":{"progressToken":{}}}"#.to_owned(),
                "params._meta: `progressToken` must be a string or a number of at most 1 KiB"
                    .to_owned(),
            ),
            (
                format!(r#"{{"_meta":{{"{CLIENT_CAPABILITIES_KEY}":7}}}}"#),
                format!("params._meta: `{CLIENT_CAPABILITIES_KEY}` must be an object"),
            ),
            (
                format!(r#"{{"_meta":{{"{key}":7}}}}"#),
                format!("params._meta: `{key}` must be a string"),
            ),
            (
                format!(r#"{{"_meta":{{"{key}":"2025-06-18"}}}}"#),
                format!(
                    "params._meta: `{key}` says 2025-06-18, and MCP-Protocol-Version says 2025-11-25"
                ),
            ),
        ] {
            let refused = request_meta(Some(&raw(&bad)), "2025-11-25", Answers::Nobody);
            assert_eq!(refused.unwrap_err().to_string(), told, "{bad}");
        }
    }

    #[test]
    fn only_a_task_can_be_asked_and_only_for_what_its_call_declares() {
        let params = raw(&format!(
            r#"{{"_meta":{{"{CLIENT_CAPABILITIES_KEY}":{{"elicitation":{{}},"sampling":1,"tasks":{{}}}}}}}}"#
        ));
        let read = |answers| {
            let meta = request_meta(Some(&params), "2025-11-25", answers).unwrap();
            meta.capabilities
        };
        assert_eq!(read(Answers::Nobody).as_json(), "{}");
        let declared = read(Answers::AsTask);
        assert!(declared.declares_tasks());
        assert!(declared.supports(crate::input::InputKind::ElicitForm));
        assert!(!declared.supports(crate::input::InputKind::Sampling));
    }

    #[test]
    fn a_task_is_asked_for_by_an_object() {
        for (params, wanted) in [
            ("{}", Some(false)),
            (r#"{"task":null}"#, Some(false)),
            (r#"{"task":{}}"#, Some(true)),
            (r#"{"task":{"ttl":60000,"pollInterval":1}}"#, Some(true)),
            (r#"{"task":{"ttl":60000.5}}"#, Some(true)),
            (r#"{"task":{"ttl":null}}"#, Some(true)),
            (r#"{"task":true}"#, None),
            (r#"{"task":[]}"#, None),
            (r#"{"task":{"ttl":-1}}"#, None),
            (r#"{"task":{"ttl":"60s"}}"#, None),
            (r#"{"task":{"ttl":{}}}"#, None),
            (r#"{"task":{"ttl":1,"ttl":2}}"#, None),
        ] {
            assert_eq!(wants_task(Some(&raw(params))).ok(), wanted, "{params}");
        }
    }
}
