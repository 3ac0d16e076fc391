//! Language models that conversations can name.

use serde_json::{Map, Value};

use super::Engine;
use crate::api::{ModelInfo, ModelList, TurnError};
use crate::store::MessageFacts;
use crate::tokens::has_vocabulary;

/// So much of a model's window is kept for its answer, if the conversation does not say how long that may be.
const ANSWER_TOKENS: u64 = 4096;
const ANSWER_PERCENT_MAX: u64 = 25;
/// By what conversations say it.
const ANSWER_PARAMETERS: [&str; 3] = ["max_tokens", "max_completion_tokens", "max_output_tokens"];

/// How many tokens an answer may have of a model whose window holds `limit`.
pub(crate) fn answer_tokens(parameters: &Map<String, Value>, limit: u64) -> u64 {
    let asked = ANSWER_PARAMETERS.iter().find_map(|name| parameters.get(*name)?.as_u64());
    let usual = ANSWER_TOKENS.min(limit * ANSWER_PERCENT_MAX / 100);
    // What a conversation asks for its provider gets too, and refuses what does not fit beside it.
    asked.unwrap_or(usual).min(limit.saturating_sub(1))
}

impl Engine {
    /// Those that are known, and the one that answers where none is named.
    pub async fn list_models(&self) -> ModelList {
        let (model, default_model) = (&self.chat.model, self.chat.model_id.clone());
        let mut models = model.list().await;
        if models.iter().all(|model| model.id != default_model) {
            models.insert(0, model.describe(&default_model));
        }
        ModelList { models, default_model, warnings: self.warnings() }
    }

    /// Whether a model can be asked, the default where none is named: a turn says the same, once something was said. What runs on this
    /// machine is looked for.
    pub async fn check_model(&self, id: Option<&str>) -> Result<(), TurnError> {
        let (model, id) = (&self.chat.model, id.unwrap_or(&self.chat.model_id));
        if model.describe(id).ready {
            return Ok(());
        }
        model.list().await;
        let Some(needed) = model.describe(id).hint else { return Ok(()) };
        Err(TurnError {
            code: "MODEL_NOT_CONFIGURED".to_owned(),
            message: format!("no provider is configured for model `{id}`"),
            hint: format!("{needed}, or use model `demo`"),
        })
    }

    /// Whether our counts are a model's own: they need not be set right, and are no estimates.
    pub(super) fn counts_as_we_do(&self, model: &str) -> bool {
        let ModelInfo { provider, name, .. } = self.chat.model.describe(model);
        provider == "demo" || has_vocabulary(&name)
    }

    /// What a model's provider is expected to count where we count so many.
    pub(super) fn expect_tokens(&self, model: &str, tokens: u64) -> u64 {
        match self.counts_as_we_do(model) {
            true => tokens,
            false => self.calibration.adjust(&self.chat.model.describe(model).name, tokens),
        }
    }

    /// The same of a message that no provider has counted.
    pub(super) fn expect_facts(&self, model: &str, facts: MessageFacts) -> MessageFacts {
        MessageFacts {
            prompt_tokens: self.expect_tokens(model, facts.prompt_tokens),
            completion_tokens: self.expect_tokens(model, facts.completion_tokens),
            is_estimate: facts.is_estimate || !self.counts_as_we_do(model),
            ..facts
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_has_what_is_asked_for_or_a_share_of_the_window() {
        let check = |parameters: Value, limit: u64, expected: u64| {
            assert_eq!(answer_tokens(parameters.as_object().unwrap(), limit), expected, "{parameters} of {limit}");
        };
        check(json!({}), 200_000, 4096);
        check(json!({}), 8192, 2048);
        check(json!({ "max_tokens": null, "temperature": 1 }), 8192, 2048);
        check(json!({ "max_tokens": 6000 }), 8192, 6000);
        check(json!({ "max_completion_tokens": 6000 }), 8192, 6000);
        check(json!({ "max_output_tokens": 10_000 }), 8192, 8191);
        check(json!({}), 0, 0);
    }
}
