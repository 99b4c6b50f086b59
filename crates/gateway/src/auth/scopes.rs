//! Which scopes a method needs beyond those of its tool.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[auth.scopes]`: scopes that methods need, all of each list. Empty: any caller may. Discovery
/// needs none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Scopes {
    /// For `tools/list`, and the lists of resources, templates and prompts.
    pub list: Vec<String>,
    /// For `tools/call`, beside those that the tool's policy names.
    pub call: Vec<String>,
    /// For `resources/read`, beside those that the provider's policy names.
    pub resources: Vec<String>,
    /// For `prompts/get` and `completion/complete`, beside those of the provider.
    pub prompts: Vec<String>,
    /// For `tasks/get` and `subscriptions/listen`.
    pub read: Vec<String>,
    /// For `tasks/update`.
    pub update: Vec<String>,
    /// For `tasks/cancel`.
    pub cancel: Vec<String>,
    /// For `tasks/update` of a task that another principal of the same tenant owns, beside those of
    /// `update`; who does it is in the audit trail. Empty: nobody may.
    pub delegate: Vec<String>,
}

impl Scopes {
    /// All that a client may ask for at once to use everything but single tools.
    pub(crate) fn all(&self) -> Vec<String> {
        // Few shall answer for others: nobody is told to ask for that.
        let lists = self.lists().into_iter();
        let asked = lists.filter(|(name, _)| *name != "delegate");
        let mut all: Vec<String> = asked.flat_map(|(_, list)| list.clone()).collect();
        all.sort();
        all.dedup();
        all
    }

    fn lists(&self) -> [(&'static str, &Vec<String>); 8] {
        [
            ("list", &self.list),
            ("call", &self.call),
            ("resources", &self.resources),
            ("prompts", &self.prompts),
            ("read", &self.read),
            ("update", &self.update),
            ("cancel", &self.cancel),
            ("delegate", &self.delegate),
        ]
    }

    /// Scopes that are none.
    pub(crate) fn problems(&self) -> Vec<String> {
        let lists = self.lists().into_iter();
        let wrong = lists.flat_map(|(name, list)| {
            let wrong = list.iter().filter(|scope| !is_scope(scope));
            wrong.map(move |scope| {
                format!("auth.scopes.{name}: {scope:?} is no scope: one word without quotes")
            })
        });
        wrong.collect()
    }
}

/// All that a call needs, each once, so that a client asks for all of it at once.
pub(crate) fn together<'a>(lists: impl IntoIterator<Item = &'a [String]>) -> Vec<String> {
    let mut needed: Vec<String> = Vec::new();
    for scope in lists.into_iter().flatten() {
        if !needed.contains(scope) {
            needed.push(scope.clone());
        }
    }
    needed
}

/// `scope-token` (RFC 6749 §3.3). Nothing else may stand in a challenge.
pub(crate) fn is_scope(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_words() {
        for good in ["a", "tasks:read", "https://example.com/auth/x.y", "!"] {
            assert!(is_scope(good), "{good}");
        }
        for bad in ["", "a b", "a\"b", "a\\b", "\u{e9}", "a\n"] {
            assert!(!is_scope(bad), "{bad:?}");
        }
    }

    #[test]
    fn all_are_named_once() {
        let scopes = Scopes {
            read: vec!["b".to_owned(), "a".to_owned()],
            call: vec!["a".to_owned()],
            ..Scopes::default()
        };
        assert_eq!(scopes.all(), ["a", "b"]);
    }
}
