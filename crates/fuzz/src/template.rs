//! Templates: of resources' URIs, read backwards, and of services' URLs, filled.

use std::collections::BTreeMap;

use protocol::template::UriTemplate;
use serde_json::{Map, Value};

/// Bytes: a template, a line end, a URI.
pub(crate) fn uri(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (template, uri) = text.split_once('\n').unwrap_or((&text, ""));
    let read = match UriTemplate::parse(template) {
        Ok(read) => read,
        Err(why) => return assert!(!why.is_empty() && why.len() < 1500, "{why}"),
    };
    assert_eq!(read.as_str(), template);
    if let Some(values) = read.matches(uri) {
        for name in values.keys() {
            assert!(read.variables().contains(name), "{name}");
        }
    }
    // Expanded with plain values, it is matched with the same ones.
    let Some((expanded, values)) = expand(template, &read) else {
        return;
    };
    let matched = read.matches(&expanded);
    assert_eq!(matched.as_ref(), Some(&values), "{template} {expanded}");
}

/// RFC 6570 for templates of simple expressions with literals between them, each variable once.
fn expand(template: &str, read: &UriTemplate) -> Option<(String, BTreeMap<String, String>)> {
    let mut names = read.variables().to_vec();
    let count = names.len();
    names.sort();
    names.dedup();
    if names.len() != count || template.contains("}{") {
        return None;
    }
    let (mut expanded, mut values, mut rest) = (String::new(), BTreeMap::new(), template);
    while let Some((literal, inner)) = rest.split_once('{') {
        let (name, after) = inner.split_once('}')?;
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return None;
        }
        expanded.push_str(literal);
        // A value that no literal can be mistaken for.
        let value = format!("q{}z", values.len());
        if template.contains(&value) || literal.is_empty() && !values.is_empty() {
            return None;
        }
        expanded.push_str(&format!("%71{}", &value[1..]));
        values.insert(name.to_owned(), value);
        rest = after;
    }
    // What separates values must not look like a part of one.
    let literals = template
        .split('{')
        .skip(1)
        .filter_map(|part| part.split_once('}'));
    let separate = |(_, literal): (&str, &str)| literal.is_empty() || literal.starts_with('/');
    if !literals.into_iter().all(separate) {
        return None;
    }
    expanded.push_str(rest);
    Some((expanded, values))
}

/// Bytes: a URL with places, a line end, the JSON of the arguments. Filled, it leads to the same host
/// and has as many segments.
pub(crate) fn url(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (template, json) = text.split_once('\n').unwrap_or((&text, "{}"));
    let Ok(arguments) = serde_json::from_str::<Map<String, Value>>(json) else {
        return;
    };
    let Some((shape, filled)) = tools::fuzzed::url(template, &arguments) else {
        return;
    };
    assert_eq!(
        (shape.scheme(), shape.authority()),
        (filled.scheme(), filled.authority())
    );
    let segments = |uri: &http::Uri| uri.path().split('/').count();
    assert_eq!(segments(&shape), segments(&filled), "{shape} {filled}");
    assert_eq!(shape.query().is_some(), filled.query().is_some());
    let members = |uri: &http::Uri| uri.query().map(|query| query.split('&').count());
    assert_eq!(members(&shape), members(&filled), "{shape} {filled}");
}
