//! URIs of an upstream's resources, as they are here: with what its settings put before them, so
//! that two servers with the same URIs are told apart, also where results link to them.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::message;

type Members = BTreeMap<String, Box<RawValue>>;

/// What stands before each URI; mostly nothing.
#[derive(Clone, Copy)]
pub(super) struct Links<'a>(pub(super) &'a str);

impl Links<'_> {
    /// A URI of the server's, as it is here.
    pub(super) fn here(&self, uri: &str) -> String {
        format!("{}{uri}", self.0)
    }

    /// A URI of ours, as the server knows it.
    pub(super) fn there<'u>(&self, uri: &'u str) -> &'u str {
        uri.strip_prefix(self.0).unwrap_or(uri)
    }

    /// The result of a tool: links and embedded resources.
    pub(super) fn of_tool(&self, result: &RawValue) -> Option<Box<RawValue>> {
        self.each(result, "content", |block| self.block(block))
    }

    /// The result of `prompts/get`.
    pub(super) fn of_prompt(&self, result: &RawValue) -> Option<Box<RawValue>> {
        self.each(result, "messages", |message| {
            self.member(message, "content", |block| self.block(block))
        })
    }

    /// The result of `resources/read`.
    pub(super) fn of_resource(&self, result: &RawValue) -> Option<Box<RawValue>> {
        self.each(result, "contents", |contents| self.uri(contents))
    }

    fn block(&self, block: &RawValue) -> Option<Box<RawValue>> {
        let members: Members = serde_json::from_str(block.get()).ok()?;
        match members.get("type")?.get() {
            "\"resource_link\"" => self.uri(block),
            "\"resource\"" => self.member(block, "resource", |resource| self.uri(resource)),
            _ => None,
        }
    }

    fn uri(&self, object: &RawValue) -> Option<Box<RawValue>> {
        self.member(object, "uri", |uri| {
            let uri: String = serde_json::from_str(uri.get()).ok()?;
            RawValue::from_string(message::string(&self.here(&uri))).ok()
        })
    }

    /// An object with one member changed; `None` if nothing is.
    fn member(
        &self,
        object: &RawValue,
        name: &str,
        change: impl Fn(&RawValue) -> Option<Box<RawValue>>,
    ) -> Option<Box<RawValue>> {
        if self.0.is_empty() {
            return None;
        }
        let mut members: Members = serde_json::from_str(object.get()).ok()?;
        let changed = change(members.get(name)?)?;
        members.insert(name.to_owned(), changed);
        let members = members
            .iter()
            .map(|(name, value)| (name.as_str(), value.get()));
        RawValue::from_string(message::object(members)).ok()
    }

    fn each(
        &self,
        result: &RawValue,
        name: &str,
        change: impl Fn(&RawValue) -> Option<Box<RawValue>>,
    ) -> Option<Box<RawValue>> {
        self.member(result, name, |list| {
            let list: Vec<Box<RawValue>> = serde_json::from_str(list.get()).ok()?;
            let list = list.into_iter().map(|item| change(&item).unwrap_or(item));
            let texts: Vec<String> = list.map(|item| item.get().to_owned()).collect();
            RawValue::from_string(format!("[{}]", texts.join(","))).ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn uris_get_their_prefix_wherever_they_link() {
        let links = Links("docs+");
        let tool = raw(
            r#"{"content":[{"type":"text","text":"file:///a"},{"type":"resource_link","uri":"file:///a","name":"a","n":1.50},{"type":"resource","resource":{"uri":"file:///b","text":"x"}}],"structuredContent":{"uri":"file:///a"}}"#,
        );
        let here = links.of_tool(&tool).unwrap();
        let here = here.get();
        assert!(
            here.contains(r#""n":1.50"#) && here.contains(r#""text":"file:///a""#),
            "{here}"
        );
        assert_eq!(here.matches("docs+file:///").count(), 2, "{here}");
        let read = raw(r#"{"contents":[{"uri":"file:///a","text":"x"}]}"#);
        assert!(
            links
                .of_resource(&read)
                .unwrap()
                .get()
                .contains("docs+file:///a")
        );
        let prompt = raw(
            r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"u:x"}}}]}"#,
        );
        assert!(links.of_prompt(&prompt).unwrap().get().contains("docs+u:x"));
        assert_eq!(links.there("docs+file:///a"), "file:///a");
    }

    #[test]
    fn without_one_nothing_is_touched() {
        let tool = raw(r#"{"content":[{"type":"resource_link","uri":"file:///a"}]}"#);
        assert!(Links("").of_tool(&tool).is_none());
        assert!(Links("docs+").of_tool(&raw("[]")).is_none());
        assert!(Links("docs+").of_tool(&raw(r#"{"content":3}"#)).is_none());
    }
}
