//! The session to go on with, for who has no id. Nothing is loaded, and no use of a session is recorded: it was only looked at.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::Engine;
use super::checkpoint::parse_context;
use super::secret::cover_text;
use crate::api::{
    Class, ListSessions, LoadCheckpoint, NextCall, Origin, Preview, ResumeSessions, Resumed, ResumedSession,
};
use crate::classify::{Rules, classify_all};
use crate::error::{Error, Result};
use crate::offload::offload;
use crate::resume::{Asked, Ranked, is_clear, rank};
use crate::store::{FindResumable, Scope};

const KEYS_MAX: usize = 12;
const KEY_CHARS: usize = 60;
const TAGS_MAX: usize = 12;
const TEXT_CHARS: usize = 200;
/// A longer context is not read for a glance.
const PREVIEW_BYTES_MAX: usize = 4 * 1024 * 1024;

const NONE_SAVED: &str = "nothing was saved yet";
const NONE_FITS: &str = "no session of this project fits; try other words, or look at the list of all";
const NONE_ASKED: &str = "none is what was asked for; these were used here last";
const NOT_CLEAR: &str = "it is not clear which one is meant; look at them, or ask, before one is loaded";

impl Engine {
    /// The sessions most likely meant, each with what speaks for it.
    pub async fn resume_sessions(&self, scope: &Scope, request: ResumeSessions) -> Result<Resumed> {
        request.check()?;
        let (now, git) = (self.clock.now(), (self.git)());
        let query = request.query.as_deref().map(str::trim).filter(|query| !query.is_empty());
        let (project, workflow) = (Some(self.project.clone()), request.workflow_id.clone());
        let wanted = FindResumable { project, workflow, query: query.map(str::to_owned) };
        let found = self.store.list_resumable(scope, &wanted, now).await?;
        let (workflow, git) = (wanted.workflow.as_ref(), git.as_ref());
        let asked = Asked { project: &self.project, workflow, query, git, now };
        let ranked = rank(found, &asked);
        let confident = is_clear(&ranked, &asked);
        let hint = match ranked.first() {
            None if self.is_empty(scope).await? => Some(NONE_SAVED),
            None => Some(NONE_FITS),
            Some(first) if !first.is_answer(&asked) => Some(NONE_ASKED),
            Some(_) => (!confident).then_some(NOT_CLEAR),
        };
        let mut sessions = Vec::new();
        for one in ranked.into_iter().take(request.limit as usize) {
            sessions.push(self.describe(scope, one).await?);
        }
        // What is not clear is not loaded on a guess.
        let next = sessions.first().filter(|_| confident).map(|first| NextCall {
            tool: "workflow_checkpoint_load",
            arguments: Map::from_iter([("sessionId".to_owned(), first.session_id.as_str().into())]),
        });
        Ok(Resumed { sessions, confident, hint, warnings: self.warnings(), next })
    }

    async fn is_empty(&self, scope: &Scope) -> Result<bool> {
        let any = ListSessions { limit: 1, ..ListSessions::default() };
        Ok(self.store.list_sessions(scope, &any).await?.sessions.is_empty())
    }

    async fn describe(&self, scope: &Scope, ranked: Ranked) -> Result<ResumedSession> {
        let preview = self.preview(scope, &ranked).await?;
        let is_named = preview.name.is_some() || !preview.tags.is_empty();
        let of_name = if is_named { ranked.found.session.origin } else { Origin::User };
        let origin = ranked.found.newest_origin.lowest(of_name);
        let session = ranked.found.session;
        Ok(ResumedSession {
            session_id: session.id,
            project_id: session.project_id,
            workflow_id: session.workflow_id,
            last_accessed_at: session.last_accessed_at,
            checkpoint_count: session.checkpoint_count,
            checkpoint_id: ranked.found.newest,
            git: ranked.found.git,
            why: ranked.why,
            origin,
            preview,
            started_alike: ranked.started_alike,
        })
    }

    async fn preview(&self, scope: &Scope, ranked: &Ranked) -> Result<Preview> {
        let found = &ranked.found;
        let mut preview = Preview {
            name: found.session.name.clone(),
            tags: found.session.tags.iter().take(TAGS_MAX).cloned().collect(),
            checkpoint_name: found.newest_name.clone(),
            ..Preview::default()
        };
        if let Some(cover) = self.secrets.shown() {
            let said = preview.name.iter_mut().chain(&mut preview.tags).chain(&mut preview.checkpoint_name);
            said.for_each(|text| {
                cover_text(cover, text);
            });
        }
        if found.newest_bytes <= PREVIEW_BYTES_MAX {
            let request = LoadCheckpoint { checkpoint_id: Some(found.newest.clone()), ..LoadCheckpoint::default() };
            match self.read_checkpoint(scope, request).await {
                Ok(loaded) => {
                    let rules = self.rules(&found.session.critical_keys, &found.session.context_rules)?;
                    let secrets = Arc::clone(&self.secrets);
                    let glance = move || {
                        let mut context = parse_context(&loaded.context)?;
                        if let Some(cover) = secrets.shown() {
                            cover.object(&mut context);
                        }
                        Ok(glance(&context, &rules))
                    };
                    (preview.keys, preview.text) = offload(found.newest_bytes, glance).await??;
                }
                // It was removed a moment ago, or is damaged: it is named all the same, and a load says so.
                Err(Error::CheckpointNotFound(_) | Error::CheckpointCorrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(hit) = found.hit.as_ref().filter(|hit| !hit.snippet.is_empty()) {
            let covered = self.secrets.shown().and_then(|cover| cover.text(&hit.snippet));
            preview.text = cut(covered.as_ref().unwrap_or(&hit.snippet), TEXT_CHARS);
        }
        Ok(preview)
    }
}

/// The keys of a context, those that matter most first, and what stands under the first of them.
fn glance(context: &Map<String, Value>, rules: &Rules) -> (Vec<String>, String) {
    let mut keys: Vec<(&str, Class)> =
        classify_all(context, rules).into_iter().map(|(key, verdict)| (key, verdict.class)).collect();
    keys.sort_by_key(|(_, class)| *class);
    let say = |words_min: usize| {
        keys.iter().find_map(|(key, _)| match &context[*key] {
            Value::String(text) if text.split_whitespace().nth(words_min - 1).is_some() => {
                Some(format!("{}: {text}", cut(key, KEY_CHARS)))
            }
            _ => None,
        })
    };
    // A single word is a name or an id more often than what it is about.
    let said = say(2).or_else(|| say(1));
    let keys = keys.iter().take(KEYS_MAX).map(|(key, _)| cut(key, KEY_CHARS)).collect();
    (keys, cut(&said.unwrap_or_default(), TEXT_CHARS))
}

/// As much of a text on one line.
fn cut(text: &str, chars: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
