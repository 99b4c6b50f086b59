//! `requestState`: what a caller carries from one round of questions to the next.
//!
//! It comes back from the client, so it is attacker-controlled (MCP 2026-07-28 §Multi Round-Trip
//! Requests): sealed by authenticated encryption, and bound to the method, the principal, the
//! tool, the arguments and a time at which it is over: by Postgres' clock, the same for every
//! replica, and never by the clock of whoever opens it.

use protocol::TaskId;
use serde::{Deserialize, Serialize};
use store::Principal;

use crate::method::Method;
use crate::sealed::{Keys, owner};

const TEXT_BYTES_MAX: usize = 4096;

/// Names the use, the format and the method, so that nothing sealed elsewhere with the same key
/// opens here.
fn purpose(method: Method) -> Vec<u8> {
    format!("mcp-tasks/requestState/1/{}", method.as_str()).into_bytes()
}

/// What a state says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The parked task; its id never leaves readable.
    #[serde(rename = "i")]
    pub(crate) id: TaskId,
    /// Which round of questions it was handed out for.
    #[serde(rename = "r")]
    pub(crate) round: i32,
    #[serde(rename = "p")]
    principal: (String, String),
    #[serde(rename = "t")]
    tool: String,
    #[serde(rename = "d")]
    digest: [u8; 32],
    /// When it is over, in ms since 1970; none in what earlier releases sealed.
    #[serde(rename = "e", default, skip_serializing_if = "Option::is_none")]
    until_ms: Option<i64>,
}

impl State {
    /// Whether its time is over. One without a time ends with its task's hold.
    pub(crate) fn is_over(&self, now_ms: i64) -> bool {
        self.until_ms.is_some_and(|until_ms| now_ms >= until_ms)
    }
}

/// What a state must fit: the call it comes with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding<'a> {
    pub(crate) method: Method,
    pub(crate) principal: &'a Principal,
    pub(crate) tool: &'a str,
    /// SHA-256 of the arguments' canonical JSON.
    pub(crate) digest: &'a [u8; 32],
}

/// Why a state is not accepted. One answer for all reasons but the harmless one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Not sealed by us, damaged, or of another caller.
    Invalid,
    /// Ours, for the same caller, but for another call.
    OtherCall,
}

impl Keys {
    /// Seals a state; `None` when no key is configured.
    pub(crate) fn seal(
        &self,
        (id, round): (TaskId, i32),
        until_ms: i64,
        binding: Binding<'_>,
    ) -> Option<String> {
        let state = State {
            id,
            round,
            until_ms: Some(until_ms),
            principal: owner(binding.principal),
            tool: binding.tool.to_owned(),
            digest: *binding.digest,
        };
        let plain = serde_json::to_vec(&state).expect("strings and numbers always print");
        self.encrypt(&purpose(binding.method), &plain)
    }

    /// Opens a state that came with a call.
    pub(crate) fn open(&self, text: &str, binding: Binding<'_>) -> Result<State, Refused> {
        let purpose = purpose(binding.method);
        let plain = self.decrypt(&purpose, text, TEXT_BYTES_MAX);
        let plain = plain.ok_or(Refused::Invalid)?;
        let state: State = serde_json::from_slice(&plain).map_err(|_| Refused::Invalid)?;
        if state.principal != owner(binding.principal) {
            return Err(Refused::Invalid);
        }
        if state.tool != binding.tool || state.digest != *binding.digest {
            return Err(Refused::OtherCall);
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    fn principal(subject: &str) -> Principal {
        Principal::verified("dev".to_owned(), subject.to_owned(), None)
    }

    fn keys(bytes: &[u8]) -> Keys {
        let texts: Vec<String> = bytes
            .iter()
            .map(|byte| BASE64_STANDARD.encode([*byte; 32]))
            .collect();
        Keys::new(&texts).unwrap()
    }

    #[test]
    fn what_was_sealed_opens_for_the_same_call_only() {
        let keys = keys(&[1]);
        let (alice, bob, id) = (principal("alice"), principal("bob"), TaskId::new(0));
        let binding = Binding {
            method: Method::ToolsCall,
            principal: &alice,
            tool: "deploy",
            digest: &[7; 32],
        };
        let text = keys.seal((id, 2), 1_000, binding).unwrap();
        let state = keys.open(&text, binding).unwrap();
        assert_eq!((state.id, state.round), (id, 2));
        assert!(!state.is_over(999) && state.is_over(1_000));
        assert_ne!(
            text,
            keys.seal((id, 2), 1_000, binding).unwrap(),
            "states never repeat"
        );
        for (other, refused) in [
            (
                Binding {
                    principal: &bob,
                    ..binding
                },
                Refused::Invalid,
            ),
            (
                Binding {
                    method: Method::PromptsGet,
                    ..binding
                },
                Refused::Invalid,
            ),
            (
                Binding {
                    tool: "destroy",
                    ..binding
                },
                Refused::OtherCall,
            ),
            (
                Binding {
                    digest: &[8; 32],
                    ..binding
                },
                Refused::OtherCall,
            ),
        ] {
            assert_eq!(keys.open(&text, other), Err(refused));
        }
    }

    #[test]
    fn every_damage_is_noticed() {
        let keys = keys(&[1]);
        let alice = principal("alice");
        let binding = Binding {
            method: Method::ToolsCall,
            principal: &alice,
            tool: "deploy",
            digest: &[7; 32],
        };
        let text = keys.seal((TaskId::new(0), 0), 1_000, binding).unwrap();
        assert_eq!(
            keys.open(&format!("{text}-TAMPERED"), binding),
            Err(Refused::Invalid)
        );
        for at in 0..text.len() {
            let mut damaged = text.clone().into_bytes();
            damaged[at] = if damaged[at] == b'A' { b'B' } else { b'A' };
            let damaged = String::from_utf8(damaged).unwrap();
            assert!(keys.open(&damaged, binding).is_err(), "at {at}");
        }
        for junk in ["", "A", "=", "☃", &"A".repeat(10_000), &text[..40]] {
            assert_eq!(keys.open(junk, binding), Err(Refused::Invalid));
        }
    }

    #[test]
    fn keys_rotate() {
        let alice = principal("alice");
        let binding = Binding {
            method: Method::ToolsCall,
            principal: &alice,
            tool: "deploy",
            digest: &[7; 32],
        };
        let text = keys(&[1])
            .seal((TaskId::new(0), 0), 1_000, binding)
            .unwrap();
        assert!(keys(&[2, 1]).open(&text, binding).is_ok());
        assert!(keys(&[2]).open(&text, binding).is_err());
        assert!(
            keys(&[])
                .seal((TaskId::new(0), 0), 1_000, binding)
                .is_none()
        );
        assert!(keys(&[]).open(&text, binding).is_err());
    }

    /// Sealed before there was a time in it: a rolling upgrade breaks no question.
    #[test]
    fn a_state_of_an_earlier_release_opens() {
        let text = r#"{"i":"0195c1a0-0000-7000-8000-000000000000","r":1,"p":["dev","alice"],"t":"deploy","d":[7"#;
        let text = format!("{text}{}]}}", ",7".repeat(31));
        let state: State = serde_json::from_str(&text).unwrap();
        assert!(!state.is_over(i64::MAX));
    }
}
