//! Which scopes a method needs beyond those of its tool.

use std::collections::BTreeMap;

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
            let wrong = list.iter().filter_map(|scope| problem(scope));
            wrong.map(move |problem| format!("auth.scopes.{name}: {problem}"))
        });
        wrong.collect()
    }
}

/// What is wrong with a scope that a method needs.
fn problem(scope: &str) -> Option<String> {
    if !is_scope(scope) {
        return Some(format!("{scope:?} is no scope: one word without quotes"));
    }
    // MCP 2026-07-28 §Refresh Tokens: no resource needs them.
    (scope == "offline_access").then(|| {
        format!("{scope:?} is between a client and its authorization server: no method may need it")
    })
}

/// What is wrong with `auth.implied_scopes`.
pub(super) fn implied_problems(implied: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let all = implied
        .iter()
        .flat_map(|(broad, narrow)| narrow.iter().chain([broad]));
    let wrong = all.filter(|scope| !is_scope(scope));
    wrong
        .map(|scope| format!("auth.implied_scopes: {scope:?} is no scope: one word without quotes"))
        .collect()
}

/// Adds what scopes imply, and what those imply in turn, each once (MCP 2026-07-28 §Scope Challenge
/// Handling: hierarchies of scopes count).
pub(super) fn imply(scopes: &mut Vec<String>, implied: &BTreeMap<String, Vec<String>>) {
    if implied.is_empty() {
        return;
    }
    let mut at = 0;
    while let Some(scope) = scopes.get(at) {
        let narrower = implied.get(scope).map_or(&[][..], Vec::as_slice);
        for narrow in narrower {
            if !scopes.contains(narrow) {
                scopes.push(narrow.clone());
            }
        }
        at += 1;
    }
    scopes.sort();
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
    fn broad_scopes_imply_narrower_ones() {
        let list = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let implied = BTreeMap::from([
            ("admin".to_owned(), list("write read")),
            ("write".to_owned(), list("read append")),
            // Round in a circle.
            ("append".to_owned(), list("write")),
        ]);
        for (held, worth) in [
            ("admin", "admin append read write"),
            ("append x", "append read write x"),
            ("read", "read"),
            ("administrator", "administrator"),
        ] {
            let mut scopes = list(held);
            imply(&mut scopes, &implied);
            assert_eq!(scopes, list(worth), "{held}");
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
