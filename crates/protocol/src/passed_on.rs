//! Results that some other program printed, made fit to store and to send.

use crate::raw::{self, Object, shorten};

/// A complete result that some other program printed: on one line, with `resultType` added where an
/// older server left it out, and with `member`, whose text must begin with `opens`.
pub(crate) fn complete(json: &[u8], member: &str, opens: char) -> Result<String, String> {
    let text = std::str::from_utf8(json)
        .map_err(|error| error.to_string())?
        .trim();
    let object = Object::read(text).map_err(|error| format!("not a result: {error}"))?;
    if let Some(name) = object.duplicate() {
        return Err(format!(
            "not a result: the key `{}` occurs twice",
            shorten(name)
        ));
    }
    if !object
        .get(member)
        .is_some_and(|value| value.get().starts_with(opens))
    {
        let kind = if opens == '[' { "array" } else { "object" };
        return Err(format!("not a result: `{member}` must be an {kind}"));
    }
    let text = raw::compact(text);
    match object.get("resultType").map(raw::string) {
        Some(Some(kind)) if kind == "complete" => Ok(text),
        Some(_) => Err("not a completed result: `resultType` must be \"complete\"".to_owned()),
        None => Ok(format!("{{\"resultType\":\"complete\",{}", &text[1..])),
    }
}
