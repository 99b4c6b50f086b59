//! Questions of a program: one, or several that are asked together.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use worker::{Context, Question, ToolError};

use super::message::{Asked, Said, Told};
use super::script::broken;

/// Questions that are asked together.
#[derive(Debug)]
pub(super) struct Asks {
    questions: Vec<Asked>,
    first: bool,
    /// They came as one, so one is what is answered.
    single: bool,
}

impl Asks {
    /// Reads `ask`.
    pub(super) fn read(said: Said) -> Result<Self, ToolError> {
        let Said::Ask {
            key,
            message,
            schema,
            default,
            questions,
            first,
        } = said
        else {
            return Err(broken("it asked, and did not"));
        };
        let single = questions.is_none();
        let questions = match (key, message, schema, questions) {
            (Some(key), Some(message), Some(schema), None) => vec![Asked {
                key,
                message,
                schema,
                default,
            }],
            (None, None, None, Some(questions)) if default.is_none() => questions,
            _ => {
                let why = "\"ask\" needs key, message and schema, or questions, each with these";
                return Err(broken(why));
            }
        };
        if questions.is_empty() {
            return Err(broken("\"ask\" has no questions"));
        }
        Ok(Self {
            questions,
            first,
            single,
        })
    }

    /// Those that are not answered; `None` if all are.
    pub(super) fn open(&self, answers: &Map<String, Value>) -> Option<Self> {
        let open = self.questions.iter();
        let open = open.filter(|one| !answers.contains_key(&one.key));
        let questions: Vec<Asked> = open.cloned().collect();
        (!questions.is_empty()).then_some(Self { questions, ..*self })
    }

    /// Before there is a task.
    pub(super) fn is_first(&self) -> bool {
        self.first
    }

    /// What is told of answered ones.
    pub(super) fn told<'a>(&'a self, answers: &'a Map<String, Value>) -> Told<'a> {
        let known = |one: &'a Asked| Some((one.key.as_str(), answers.get(&one.key)?));
        let mut responses: BTreeMap<&str, &Value> =
            self.questions.iter().filter_map(known).collect();
        if self.single
            && let Some((key, response)) = responses.pop_first()
        {
            return Told::Answer { key, response };
        }
        Told::Answers { responses }
    }

    /// Asks them. What comes back needed no asking: else the job ends here.
    pub(super) async fn put(
        self,
        context: &mut Context,
    ) -> Result<Vec<(String, Value)>, ToolError> {
        let keys: Vec<String> = self.questions.iter().map(|one| one.key.clone()).collect();
        let questions = self.questions.into_iter().map(question).collect();
        let answers = if self.first {
            context.ask_first(questions).await?
        } else {
            context.ask(questions).await?
        };
        let answer = |key: String| Ok((key.clone(), answers.result(&key)?));
        keys.into_iter().map(answer).collect()
    }
}

fn question(asked: Asked) -> Question {
    let question = Question::elicit(asked.key, asked.message, asked.schema);
    match asked.default {
        Some(content) => question.default_content(content),
        None => question,
    }
}
