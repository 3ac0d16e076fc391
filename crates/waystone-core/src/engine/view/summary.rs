//! Summaries in views: where lines of a value were chosen, a model writes what all of it says. Where it does not, they stay.

use std::pin::pin;

use super::Shortened;
use crate::api::ViewSummary;
use crate::compress::Fate;
use crate::engine::Engine;
use crate::engine::summary::{Spent, TIME_MAX, Text};
use crate::error::Result;
use crate::offload::offload_unless;
use crate::prose::quoted;
use crate::summary::{is_worth, put_in, text_of};
use crate::tokens;

/// As many keys are named in a warning.
const NAMED_MAX: usize = 5;

impl Engine {
    /// The same view with summaries in it, as far as there are some; and what a client should know where there are none.
    pub(super) async fn summarize_keys(
        &self,
        shortened: Shortened,
        goal: Option<&str>,
    ) -> Result<(Shortened, Option<String>)> {
        let wanted: Vec<(String, usize)> = shortened
            .compressed
            .fates
            .iter()
            .filter_map(|(key, _, fate)| match fate {
                Fate::Shortened { before, after } if is_worth(*before, *after) => Some((key.clone(), *after)),
                _ => None,
            })
            .collect();
        let (mut spent, mut values, mut missing, mut why) = (Spent::default(), Vec::new(), Vec::new(), None);
        let mut late = pin!(self.clock.sleep(TIME_MAX));
        for (key, after) in wanted {
            if why.is_some() {
                missing.push(key);
                continue;
            }
            let value = shortened.source.context.get(&key).cloned().unwrap_or_default();
            let room = after.saturating_sub(tokens::count(&format!("{}:,", serde_json::Value::from(key.as_str()))));
            let text = Text {
                what: &format!("Value of {}", quoted(&key)),
                origin: shortened.source.origin,
                text: text_of(&value),
                goal,
                tokens_max: room as u64,
            };
            let written = tokio::select! {
                written = self.summarize(text, &mut spent) => written,
                () = &mut late => Err(format!("summaries took longer than {} s", TIME_MAX.as_secs())),
            };
            match written {
                Ok(summary) => match offload_unless(false, move || put_in(&value, &summary, room)).await? {
                    Some(shown) => values.push((key, shown)),
                    None => missing.push(key),
                },
                Err(reason) => {
                    why = Some(reason);
                    missing.push(key);
                }
            }
        }
        let shortened = self.put_summaries(shortened, values, spent).await?;
        Ok((shortened, warning(why, &missing)))
    }

    /// Puts in as many as fit together.
    async fn put_summaries(
        &self,
        shortened: Shortened,
        mut values: Vec<(String, serde_json::Value)>,
        spent: Spent,
    ) -> Result<Shortened> {
        if spent.calls == 0 {
            return Ok(shortened);
        }
        let model = self.summarizer().unwrap_or_default().to_owned();
        let prices = self.summaries.model.describe(&model).prices;
        let put = move || {
            let mut compressed = shortened.compressed.clone().with(values.clone());
            while compressed.tokens_after > compressed.tokens_max && values.pop().is_some() {
                compressed = shortened.compressed.clone().with(values.clone());
            }
            let summary = ViewSummary {
                keys: values.into_iter().map(|(key, _)| key).collect(),
                calls: spent.calls,
                prompt_tokens: spent.usage.prompt,
                completion_tokens: spent.usage.completion,
                cost_usd: prices.map(|prices| prices.cost_usd(spent.usage)),
                model,
            };
            Shortened { compressed, summary: Some(summary), ..shortened }
        };
        offload_unless(false, put).await
    }
}

fn warning(why: Option<String>, missing: &[String]) -> Option<String> {
    let named = missing.iter().take(NAMED_MAX).map(|key| quoted(key)).collect::<Vec<_>>().join(", ");
    let more = if missing.len() > NAMED_MAX { " and others" } else { "" };
    let why = why.unwrap_or_else(|| "there is too little room for a summary".to_owned());
    (!missing.is_empty()).then(|| format!("{why}: of {named}{more} lines were chosen instead"))
}
