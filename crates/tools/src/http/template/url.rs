//! URLs with places: a value stays where it stands, and the host is known before a call.

use std::fmt::Write as _;

use http::Uri;

use super::{Allowed, Field, Part, Refused, Template, Values, text_of};

/// A URL whose host is known before a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    template: Template,
    /// What it would be with `x` for every value: scheme and host are these.
    pub(crate) shape: Uri,
}

impl Url {
    /// # Errors
    /// In words, when it is no URL, or a value could change the host.
    pub(crate) fn read(text: &str, allowed: &Allowed<'_>) -> Result<Self, String> {
        let template = Template::read(text, allowed)?;
        let first = match template.0.first() {
            Some(Part::Text(text)) => text.as_str(),
            _ => "",
        };
        let host = ["http://", "https://"]
            .iter()
            .find_map(|scheme| first.strip_prefix(scheme))
            .ok_or("must begin with http:// or https:// and a host")?;
        let end = host.find(['/', '?']);
        if end.is_none() && !template.is_plain() {
            return Err(
                "a value would be part of the host: it may stand in the path and behind ?"
                    .to_owned(),
            );
        }
        if host[..end.unwrap_or(host.len())].contains('@') {
            return Err(
                "holds a user's name: use headers, secret_headers or bearer_file".to_owned(),
            );
        }
        if text.contains('#') {
            return Err("has a fragment, which is never sent".to_owned());
        }
        let filled = template.0.iter().map(|part| match part {
            Part::Text(text) => text.as_str(),
            Part::Argument(_) | Part::Field(_) => "x",
        });
        let shape: Uri = filled
            .collect::<String>()
            .parse()
            .map_err(|error| format!("is no URL: {error}"))?;
        if shape.host().is_none_or(str::is_empty) {
            return Err("has no host".to_owned());
        }
        Ok(Self { template, shape })
    }

    /// The URL of one call.
    pub(crate) fn fill(&self, values: &Values<'_>) -> Result<Uri, Refused> {
        let mut url = String::new();
        for part in &self.template.0 {
            let in_query = url.contains('?');
            match part {
                Part::Text(text) => url.push_str(text),
                Part::Field(field) => {
                    let value = (values.field)(*field)
                        .filter(|value| *field != Field::PrincipalTenant || !value.is_empty());
                    let value = value.ok_or_else(|| {
                        // With nothing in its place a service may take it for all of them.
                        Refused(format!(
                            "{{{}}}: is needed in the URL, and this caller has none",
                            field.name()
                        ))
                    })?;
                    if !in_query {
                        check_segment(&format!("{{{}}}", field.name()), &value)?;
                    }
                    encode(&value, &mut url);
                }
                Part::Argument(name) => {
                    let value = values.arguments.get(name).and_then(text_of);
                    let value = value.unwrap_or_default();
                    if !in_query {
                        check_segment(name, &value)?;
                    }
                    encode(&value, &mut url);
                }
            }
        }
        let uri: Uri = url
            .parse()
            .map_err(|error| Refused(format!("the arguments do not make a URL: {error}")))?;
        // Cannot be: the host stands before the first value.
        if (uri.scheme(), uri.authority()) != (self.shape.scheme(), self.shape.authority()) {
            return Err(Refused("the arguments change the host".to_owned()));
        }
        Ok(uri)
    }
}

/// What stands in a path must not lead out of its place, however a server reads it.
fn check_segment(name: &str, value: &str) -> Result<(), Refused> {
    if value.is_empty() {
        return Err(Refused(format!("{name}: is needed, it is part of a path")));
    }
    if value
        .split(['/', '\\'])
        .any(|part| matches!(part, "." | ".."))
    {
        return Err(Refused(format!(
            "{name}: must not hold \".\" or \"..\" as part of a path"
        )));
    }
    if value.contains('\0') {
        return Err(Refused(format!("{name}: holds a zero byte")));
    }
    Ok(())
}

/// Everything but what RFC 3986 calls unreserved.
fn encode(value: &str, to: &mut String) {
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            to.push(char::from(byte));
        } else {
            let _ = write!(to, "%{byte:02X}");
        }
    }
}
