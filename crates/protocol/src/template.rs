//! URI templates (RFC 6570) read backwards: whether a URI came out of a template, and with which
//! values. As the SDKs do it: every operator, lists by `*`; a variable of plain form ends at `/`.

use std::collections::BTreeMap;

use regex::{Regex, RegexBuilder};

use crate::raw::shorten;

/// The longest template, in bytes.
const BYTES_MAX: usize = 4096;
/// Variables in one template, at most.
const VARIABLES_MAX: usize = 50;
/// What a compiled template may take, in bytes.
const COMPILED_MAX: usize = 1024 * 1024;
/// What matching may remember of it, in bytes.
const SEARCH_MAX: usize = 64 * 1024;

/// A template, ready to be matched. Matching takes time linear in the URI, whoever wrote it.
#[derive(Clone, Debug)]
pub struct UriTemplate {
    text: String,
    /// In the order of the groups.
    variables: Vec<String>,
    pattern: Regex,
}

impl UriTemplate {
    /// Reads a template.
    ///
    /// # Errors
    /// With what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refuse = |what: &str| format!("template {}: {what}", shorten(text));
        if text.is_empty() || text.len() > BYTES_MAX {
            return Err(refuse("must be 1 to 4096 bytes long"));
        }
        let (mut pattern, mut variables) = ("^".to_owned(), Vec::new());
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (literal, expression) = rest.split_at(at);
            pattern.push_str(&regex::escape(literal));
            let inner = expression
                .strip_prefix('{')
                .ok_or_else(|| refuse("a `}` without its `{`"))?;
            let end = inner
                .find('}')
                .ok_or_else(|| refuse("a `{` without its `}`"))?;
            expand(&inner[..end], &mut pattern, &mut variables).map_err(|what| refuse(&what))?;
            rest = &inner[end + 1..];
        }
        pattern.push_str(&regex::escape(rest));
        pattern.push('$');
        if variables.len() > VARIABLES_MAX {
            return Err(refuse("more than 50 variables"));
        }
        let pattern = RegexBuilder::new(&pattern)
            .size_limit(COMPILED_MAX)
            .dfa_size_limit(SEARCH_MAX)
            .build()
            .map_err(|_| refuse("too large"))?;
        Ok(Self {
            text: text.to_owned(),
            variables,
            pattern,
        })
    }

    /// The template, as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its variables, in order.
    #[must_use]
    pub fn variables(&self) -> &[String] {
        &self.variables
    }

    /// The values with which the template gives this URI, percent-decoded; `None` if it does not.
    /// A variable that occurs twice has its last value.
    #[must_use]
    pub fn matches(&self, uri: &str) -> Option<BTreeMap<String, String>> {
        let captures = self.pattern.captures(uri)?;
        let values = self.variables.iter().enumerate();
        Some(
            values
                .filter_map(|(at, name)| {
                    let value = captures.get(at + 1)?;
                    Some((name.clone(), decode(value.as_str())))
                })
                .collect(),
        )
    }
}

/// What one expression matches: RFC 6570 §2.2 and §3.2.
fn expand(
    expression: &str,
    pattern: &mut String,
    variables: &mut Vec<String>,
) -> Result<(), String> {
    let operators = ['+', '#', '.', '/', ';', '?', '&'];
    let operator = expression.chars().next().filter(|c| operators.contains(c));
    let names = &expression[operator.map_or(0, char::len_utf8)..];
    for (at, spec) in names.split(',').enumerate() {
        let explodes = spec.ends_with('*');
        let name = spec.trim_end_matches('*');
        let name = name.split_once(':').map_or(name, |(name, _)| name);
        let plain = |c: char| c.is_alphanumeric() || "_.%-".contains(c);
        if name.is_empty() || !name.chars().all(plain) {
            return Err(format!("`{{{}}}` names no variable", shorten(expression)));
        }
        variables.push(name.to_owned());
        let first = at == 0;
        let escaped = regex::escape(name);
        let piece = match operator {
            None if explodes => r"([^?#]+)".to_owned(),
            None if first => r"([^/?#,]+)".to_owned(),
            None => r",([^/?#,]+)".to_owned(),
            Some('+') if first => "(.+)".to_owned(),
            Some('+') => ",(.+)".to_owned(),
            Some('#') if first => "#(.+)".to_owned(),
            Some('#') => ",(.+)".to_owned(),
            Some('.') => r"\.([^/?#.,]+)".to_owned(),
            Some('/') if explodes => r"/([^?#]+)".to_owned(),
            Some('/') => r"/([^/?#,]+)".to_owned(),
            // What has no value is left out of a query (RFC 6570 §3.2.8), so each may be missing.
            Some('?') if first => format!(r"(?:\?{escaped}=([^&#]*))?"),
            Some('?' | '&') => format!("(?:[?&]{escaped}=([^&#]*))?"),
            Some(_) => format!("(?:;{escaped}(?:=([^;/?#]*))?)?"),
        };
        pattern.push_str(&piece);
    }
    Ok(())
}

/// Percent-decoded; as it is where that is no text.
fn decode(value: &str) -> String {
    if !value.contains('%') {
        return value.to_owned();
    }
    let hex = |byte: Option<&u8>| byte.and_then(|b| char::from(*b).to_digit(16));
    let bytes = value.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let pair = (hex(bytes.get(at + 1)), hex(bytes.get(at + 2)));
        if let (b'%', (Some(high), Some(low))) = (bytes[at], pair) {
            out.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(template: &str, uri: &str) -> Option<String> {
        let found = UriTemplate::parse(template).unwrap().matches(uri)?;
        let shown: Vec<String> = found.iter().map(|(k, v)| format!("{k}={v}")).collect();
        Some(shown.join(" "))
    }

    #[test]
    fn a_uri_is_read_by_its_template() {
        let of = |template, uri| values(template, uri).unwrap_or_else(|| "no".to_owned());
        assert_eq!(
            of("test://template/{id}/data", "test://template/123/data"),
            "id=123"
        );
        assert_eq!(
            of("test://template/{id}/data", "test://template/a/b/data"),
            "no"
        );
        assert_eq!(
            of("test://template/{id}/data", "test://template//data"),
            "no"
        );
        assert_eq!(of("t://{a}-{b}", "t://1-2"), "a=1 b=2");
        assert_eq!(of("file:///{+path}", "file:///a/b.txt"), "path=a/b.txt");
        assert_eq!(of("t://x{/a,b}", "t://x/1/2"), "a=1 b=2");
        assert_eq!(of("t://x{/rest*}", "t://x/1/2"), "rest=1/2");
        assert_eq!(of("t://x{.ext}", "t://x.png"), "ext=png");
        assert_eq!(of("t://x{#frag}", "t://x#top"), "frag=top");
        assert_eq!(
            of("t://x{?q,lang}", "t://x?q=a%20b&lang=en"),
            "lang=en q=a b"
        );
        assert_eq!(of("t://x{?q,lang}", "t://x?lang=en"), "lang=en");
        assert_eq!(of("t://x{?q,lang}", "t://x"), "");
        assert_eq!(of("t://x{;v}", "t://x;v=1"), "v=1");
        assert_eq!(
            of("t://x.y/{id}", "t://xzy/1"),
            "no",
            "literals are literal"
        );
        assert_eq!(of("t://{id}", "t://%E2%98%83"), "id=☃");
        assert_eq!(of("t://{id}", "t://%FF%zz"), "id=%FF%zz");
    }

    #[test]
    fn what_is_no_template_is_refused() {
        for bad in [
            "",
            "a{",
            "a}b",
            "a{}",
            "a{b c}",
            "a{+}",
            "a{b,}",
            &"a".repeat(5000),
        ] {
            assert!(UriTemplate::parse(bad).is_err(), "{bad}");
        }
        let many: String = (0..51).map(|n| format!("/{{v{n}}}")).collect();
        assert!(UriTemplate::parse(&many).is_err());
    }

    #[test]
    fn nobody_can_make_matching_slow() {
        let template: String = (0..50).map(|n| format!("{{+v{n}}}")).collect();
        let uri = "a".repeat(8192);
        let began = std::time::Instant::now();
        assert!(
            UriTemplate::parse(&template)
                .unwrap()
                .matches(&uri)
                .is_some()
        );
        assert!(began.elapsed() < std::time::Duration::from_secs(20));
    }
}
