//! Questions of a running tool: answered from the journal or without asking, or the job ends to
//! wait.

use std::time::Duration;

use bytes::Bytes;
use protocol::ErrorObject;
use protocol::code;
use protocol::input::InputKind;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use store::{Form, JournalKind, ParkedFor};

use super::{Context, lost, unreachable};
use crate::error::{Ending, ToolError};
use crate::question::{Answers, Elicited, Question};

impl Context {
    /// Asks a form and waits for its answer: the job ends here, and starts again from the top
    /// when it is answered.
    ///
    /// # Errors
    /// As [`Context::ask`].
    pub async fn elicit<T: DeserializeOwned>(
        &mut self,
        key: &str,
        message: &str,
        schema: Value,
    ) -> Result<Elicited<T>, ToolError> {
        self.ask(vec![Question::elicit(key, message, schema)])
            .await?
            .elicited(key)
    }

    /// Asks several questions at once and waits until all are answered.
    ///
    /// # Errors
    /// That the job ended to wait (pass it on with `?`); that the work shall stop; `-32021` when
    /// the client cannot be asked and the question has no default; that the journal disagrees.
    pub async fn ask(&mut self, questions: Vec<Question>) -> Result<Answers, ToolError> {
        self.ask_for(ParkedFor::Task, questions).await
    }

    /// Asks before the task exists: the caller of `tools/call` is asked and repeats its call with
    /// the answers. The tool's policy must say `asks_first`.
    ///
    /// # Errors
    /// As [`Context::ask`].
    pub async fn ask_first(&mut self, questions: Vec<Question>) -> Result<Answers, ToolError> {
        self.ask_for(ParkedFor::Caller, questions).await
    }

    async fn ask_for(
        &mut self,
        parked_for: ParkedFor,
        questions: Vec<Question>,
    ) -> Result<Answers, ToolError> {
        let Some(first) = questions.first() else {
            return Ok(Answers::default());
        };
        let seq = self.next(JournalKind::Input, &first.key)?;
        for question in &questions[1..] {
            self.replay.take_key(JournalKind::Input, &question.key)?;
        }
        let mut answers = self.replay.answers(seq, &questions)?;
        let mut open = Vec::new();
        for question in &questions {
            if answers.contains_key(&question.key) {
                continue;
            }
            let stored = self.stored(seq, question)?;
            self.replay.check_question(&stored)?;
            let bytes = stored.key.len() + stored.request.len();
            self.replay.add(JournalKind::Input, &stored.key, bytes)?;
            match self.without_asking(parked_for, question, &stored)? {
                Some((response, answered_by)) => {
                    let bytes = response.get().len();
                    self.replay.grow(JournalKind::Input, &stored.key, bytes)?;
                    let recorded = self
                        .backend
                        .record_answer(&stored, response.get().as_bytes(), answered_by)
                        .await;
                    if !recorded.map_err(|e| unreachable(&e))? {
                        return Err(lost());
                    }
                    answers.insert(question.key.clone(), response);
                }
                None => open.push(stored),
            }
        }
        if open.is_empty() {
            return Ok(Answers(answers));
        }
        // The last word before the silence.
        let said = self.reporter.said();
        if !said.is_empty() {
            self.backend
                .status(&said)
                .await
                .map_err(|e| unreachable(&e))?;
        }
        if self
            .backend
            .park(parked_for, &open)
            .await
            .map_err(|e| unreachable(&e))?
        {
            Err(ToolError::parked())
        } else {
            Err(ToolError::stopped())
        }
    }

    /// An answer that needs no asking, and where it comes from.
    fn without_asking(
        &self,
        parked_for: ParkedFor,
        question: &Question,
        stored: &store::Question,
    ) -> Result<Option<(Box<RawValue>, &'static str)>, ToolError> {
        if parked_for == ParkedFor::Caller
            && let Some(offered) = self
                .about
                .offered
                .as_ref()
                .and_then(|o| o.get(&question.key))
        {
            let request = question.request.to_raw();
            if protocol::input::validate_response(&request, offered).is_ok() {
                return Ok(Some((offered.to_owned(), "offered")));
            }
        }
        let kind = question.kind();
        let supported = kind.is_some_and(|kind| self.can_ask(kind));
        if supported && (!question.task_only || self.may_be_a_task()) {
            return Ok(None);
        }
        match &stored.default_response {
            Some(default) => Ok(Some((raw(default)?, "default"))),
            None => Err(cannot_ask(&question.key, kind)),
        }
    }

    /// What stands for an answer if there is none: the policy's, which an operator has set, before
    /// the tool's own.
    fn default_of(&self, question: &Question) -> Result<Option<Bytes>, ToolError> {
        let form = match question.kind() {
            Some(InputKind::ElicitForm | InputKind::ElicitUrl) => Form::Elicited,
            Some(InputKind::Sampling | InputKind::Roots) | None => Form::Other,
        };
        let Some(default) = self.about.policy.default_answer(&question.key, form) else {
            let own = question.default.as_ref();
            return Ok(own.map(|default| Bytes::from(default.to_string())));
        };
        let default = Bytes::from(default.to_string());
        // Told now, and not when nobody has answered.
        let fits = protocol::input::validate_response(&question.request.to_raw(), &raw(&default)?);
        fits.map_err(|problem| {
            ToolError::refused(format!(
                "policy.default_answers does not fit question \"{}\": {problem}",
                question.key
            ))
        })?;
        Ok(Some(default))
    }

    fn stored(&self, seq: i32, question: &Question) -> Result<store::Question, ToolError> {
        question.request.check().map_err(|problem| {
            ToolError::refused(format!("question \"{}\": {problem}", question.key))
        })?;
        Ok(store::Question {
            key: question.key.clone(),
            seq,
            request: Bytes::from(question.request.to_raw().get().to_owned()),
            default_response: self.default_of(question)?,
            wait: question
                .wait
                .unwrap_or(self.about.policy.input_deadline)
                .max(Duration::from_millis(1)),
        })
    }
}

fn raw(json: &[u8]) -> Result<Box<RawValue>, ToolError> {
    let text = String::from_utf8_lossy(json).into_owned();
    RawValue::from_string(text).map_err(|error| ToolError::refused(error.to_string()))
}

fn cannot_ask(key: &str, kind: Option<InputKind>) -> ToolError {
    let required = kind.map(InputKind::required_capability).unwrap_or_default();
    let message =
        format!("question \"{key}\" cannot be asked: the client did not declare the capability");
    ToolError(Ending::Refused(ErrorObject {
        code: code::MISSING_CAPABILITY,
        message,
        data: Some(json!({
            "reason": code::reason::CANNOT_ASK,
            "requiredCapabilities": required,
        })),
    }))
}
