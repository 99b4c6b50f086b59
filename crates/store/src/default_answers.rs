//! Answers that a policy has for questions that nobody answers.

use serde_json::{Value, json};

use crate::ToolPolicy;

/// The key of `default_answers` that stands for all forms.
const ANY_QUESTION: &str = "*";

/// Who is asked by a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A person, who may decline (`elicitation/create`).
    Elicited,
    /// A model, or the client itself.
    Other,
}

impl ToolPolicy {
    /// The response that the policy has for a question: what is set for its key, else for every
    /// other form (`*`). A table is the content that an absent person is taken to have accepted,
    /// or, where no person is asked, the whole response.
    #[must_use]
    pub fn default_answer(&self, key: &str, form: Form) -> Option<Value> {
        let any = || self.default_answers.get(ANY_QUESTION);
        let set = self.default_answers.get(key).or_else(any)?;
        match (set, form) {
            (Value::String(action), Form::Elicited) => Some(json!({ "action": action })),
            (content, Form::Elicited) => Some(json!({ "action": "accept", "content": content })),
            (Value::Object(_), Form::Other) => Some(set.clone()),
            // Models and roots do not decline.
            (_, Form::Other) => None,
        }
    }

    pub(crate) fn validate_answers(&self) -> Result<(), String> {
        for (key, answer) in &self.default_answers {
            let refused = answer == "decline" || answer == "cancel";
            if key == ANY_QUESTION && !refused {
                return Err(format!(
                    "default_answers.\"*\" is {answer}; what fits every form is \"decline\" or \"cancel\""
                ));
            }
            if !refused && !answer.is_object() {
                return Err(format!(
                    "default_answers.{key} is {answer}; allowed: the content of the form as a table, \
                     \"decline\" or \"cancel\""
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_answers_are_contents_or_refusals() {
        let policy = |answers: Value| ToolPolicy {
            default_answers: serde_json::from_value(answers).unwrap(),
            ..ToolPolicy::default()
        };
        let good = policy(json!({"deploy": {"yes": true}, "model": "cancel", "*": "decline"}));
        good.validate("deploy").unwrap();
        let accepted = json!({"action": "accept", "content": {"yes": true}});
        let elicited = |key: &str| good.default_answer(key, Form::Elicited);
        assert_eq!(elicited("deploy"), Some(accepted));
        assert_eq!(elicited("other"), Some(json!({"action": "decline"})));
        let other = |key: &str| good.default_answer(key, Form::Other);
        assert_eq!(other("deploy"), Some(json!({"yes": true})));
        assert_eq!((other("model"), other("else")), (None, None));
        for bad in [
            json!({"*": {"yes": true}}),
            json!({"a": 3}),
            json!({"a": "accept"}),
        ] {
            let said = policy(bad).validate("deploy").unwrap_err().to_string();
            assert!(said.starts_with("tool deploy: default_answers."), "{said}");
        }
        assert_eq!(
            ToolPolicy::default().default_answer("a", Form::Elicited),
            None
        );
    }
}
