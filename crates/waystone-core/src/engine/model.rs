//! Language models that conversations can name.

use super::Engine;
use crate::api::ModelList;

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
}
