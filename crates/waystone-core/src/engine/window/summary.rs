//! Summaries in windows: what stands for what was left out is written by a model, where that is configured. It is written once, when the
//! window is cut, and kept with the cut; until the next one nothing changes.

use super::Prepared;
use crate::api::{ChatConfig, Origin, Tool};
use crate::engine::Engine;
use crate::engine::summary::{Spent, TIME_MAX, Text};
use crate::error::Result;
use crate::id::{BranchName, SessionId};
use crate::offload::offload_unless;
use crate::store::Scope;
use crate::window::{Assembled, Cut, Entry, assemble_again, retell, tell_summary};

/// Of what stands for what was left out so much is the summary; the rest is what was asked and decided, word for word.
const SUMMARY_PERCENT: u64 = 60;
const SUMMARY_TOKENS_MIN: u64 = 60;

impl Engine {
    /// The window of the next call, with a summary of what it leaves out where there is to be one.
    pub(in crate::engine) async fn prepare_call(
        &self,
        scope: &Scope,
        context: &SessionId,
        branch: Option<&BranchName>,
        config: &ChatConfig,
        tools: &[Tool],
    ) -> Result<Prepared> {
        let limit = self.chat.model.describe(&config.model_id).limit;
        let rows = self.load_entries(scope, context, branch, limit).await?;
        let prepared = self.prepare_window(rows, config, tools).await?;
        self.keep_entries(scope, context, &prepared);
        match self.summary_tokens(&prepared) {
            Some(tokens_max) => self.summarize_digest(prepared, tokens_max).await,
            None => Ok(prepared),
        }
    }

    /// How long a summary of what is left out may be, if one is wanted.
    fn summary_tokens(&self, prepared: &Prepared) -> Option<u64> {
        let new = prepared.assembled.new_digest.filter(|_| self.summaries.is_default)?;
        Some(new.tokens_max * SUMMARY_PERCENT / 100).filter(|tokens| *tokens >= SUMMARY_TOKENS_MIN)
    }

    /// What whoever looks at the next window is told: no model is asked for a look.
    pub(super) fn foretell_summary(&self, prepared: &Prepared) -> Option<String> {
        self.summary_tokens(prepared)?;
        let model = self.summarizer().ok()?;
        Some(format!("the digest is to be summed up by {model}; this shows what it is made of otherwise"))
    }

    async fn summarize_digest(&self, mut prepared: Prepared, tokens_max: u64) -> Result<Prepared> {
        let mut spent = Spent::default();
        let late = self.clock.sleep(TIME_MAX);
        let written = tokio::select! {
            written = self.write_digest(&prepared, tokens_max, &mut spent) => written,
            () = late => Err(format!("the summary took longer than {} s", TIME_MAX.as_secs())),
        };
        let told = match written {
            Ok(told) => told,
            Err(why) => {
                let warning = format!("{why}: what was asked and decided was chosen instead of a summary");
                prepared.warnings.push(warning);
                return Ok(prepared);
            }
        };
        let model = self.summarizer().unwrap_or_default().to_owned();
        let prices = self.summaries.model.describe(&model).prices;
        let render = move || {
            let cut = Cut { told, ..prepared.assembled.cut.clone() };
            let room = prepared.manifest.room;
            let again = assemble_again(&prepared.entries, cut.clone(), room);
            prepared.assembled = Assembled { new_digest: prepared.assembled.new_digest, ..again };
            prepared.manifest.cut = cut;
            prepared.written_by = Some((model, prices.map(|prices| prices.cost_usd(spent.usage))));
            prepared
        };
        offload_unless(false, render).await
    }

    /// What stands for what is left out: a summary, and what must not be lost beside it.
    async fn write_digest(&self, prepared: &Prepared, tokens_max: u64, spent: &mut Spent) -> Result<String, String> {
        let (cut, new) = (&prepared.assembled.cut, prepared.assembled.new_digest.unwrap_or_default());
        let digested = prepared.entries.iter().filter(|entry| entry.position <= cut.digested_to);
        let origin = digested.clone().map(|entry| entry.message.metadata.origin).max().unwrap_or(Origin::Agent);
        // What was digested before is not looked at again: tools may have said it.
        let origin = if new.after > 0 { origin.max(Origin::Tool) } else { origin };
        let more: Vec<Entry> = digested.filter(|entry| entry.position > new.after).cloned().collect();
        // What was summed up before is summed up once more.
        let before = if new.after > 0 { prepared.told_before.clone() } else { String::new() };
        let retell = move || format!("{before}\n{}", retell(&more));
        let text = offload_unless(false, retell).await.map_err(|error| error.to_string())?;
        let what = "The beginning of a conversation";
        let summary = self.summarize(Text { what, origin, text, goal: None, tokens_max }, spent).await?;
        let (digest, model) = (cut.digest.clone(), self.summarizer()?.to_owned());
        let tell = move || tell_summary(&digest, &summary, &model, origin, new.tokens_max);
        let told = offload_unless(false, tell).await.map_err(|error| error.to_string())?;
        told.ok_or_else(|| "the summary does not fit".to_owned())
    }
}
