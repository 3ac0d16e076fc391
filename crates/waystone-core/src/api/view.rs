//! Views: a context made to fit into a budget, with a report of what became of each key.

use std::collections::BTreeMap;

use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{NextCall, Origin};
use crate::id::{CheckpointId, SessionId};
use crate::json;

/// The largest budget that can be given: what every client's numbers hold.
pub const TOKENS_MAX: u64 = (1 << 53) - 1;

/// How a top-level key of a context is treated in views.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schemars(inline)]
pub enum Class {
    Critical,
    Important,
    Useful,
    Ephemeral,
}

impl Class {
    pub const ALL: [Self; 4] = [Self::Critical, Self::Important, Self::Useful, Self::Ephemeral];
}

/// Which class keys of a certain form have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(inline)]
pub struct ContextRule {
    /// A regular expression that the key must match somewhere.
    #[schemars(length(min = 1, max = ContextRule::PATTERN_MAX))]
    pub pattern: String,
    pub class: Class,
    /// Why, for people; shown where the class is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub reason: Option<String>,
}

impl ContextRule {
    pub const PATTERN_MAX: usize = 256;
    /// As many rules may stand side by side.
    pub const RULES_MAX: usize = 64;
    /// How large one may become in memory, in bytes.
    const COMPILED_MAX: usize = 256 * 1024;

    /// A pattern that is no regular expression, or too large a one, is an error that names it.
    pub fn compile(&self) -> Result<Regex, String> {
        if !(1..=Self::PATTERN_MAX).contains(&self.pattern.chars().count()) {
            return Err(format!("contextRules: a pattern has 1 to {} characters", Self::PATTERN_MAX));
        }
        let compiled = regex::RegexBuilder::new(&self.pattern).size_limit(Self::COMPILED_MAX).build();
        compiled.map_err(|error| format!("contextRules: `{}` is no regular expression: {error}", self.pattern))
    }

    pub fn check_all(rules: &[Self]) -> Result<(), String> {
        if rules.len() > Self::RULES_MAX {
            return Err(format!("contextRules has {} rules, at most {} are taken", rules.len(), Self::RULES_MAX));
        }
        let long = |rule: &Self| rule.reason.as_ref().is_some_and(|reason| reason.chars().count() > 256);
        if rules.iter().any(long) {
            return Err("contextRules: a reason has at most 256 characters".to_owned());
        }
        rules.iter().try_for_each(|rule| rule.compile().map(drop))
    }
}

/// How a value is made smaller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Strategy {
    /// What suits the value.
    #[default]
    Auto,
    /// Items, members and texts stay or go whole.
    Structural,
    /// Lines inside of texts are chosen.
    Extractive,
    /// A model writes what the value says.
    Summary,
}

/// Makes a view of a context that fits into a budget of tokens: CRITICAL keys as they are, of the others the lines that matter most,
/// in their order, with marks such as `⋯14` where so many lines, items or members were left out. Nothing stored changes, and every
/// shortened or dropped key has a handle that context_expand turns into the original. The budget is for `context`; the report comes on
/// top. Give a context, or the session or checkpoint that has it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CompressContext {
    /// The context to make a view of; left out, a saved one is used.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_object")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub context: Option<Map<String, Value>>,
    /// The session whose latest checkpoint to view, or whose marks and rules count for `context`. Left out with everything else, the
    /// session that you last saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The checkpoint to view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<CheckpointId>,
    /// How many tokens the view may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = TOKENS_MAX))]
    pub target_tokens: Option<u64>,
    /// How many times smaller it shall be, if targetTokens is not given; 2 when both are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub ratio: Option<f64>,
    /// auto: what suits each value, as configured. structural: items and texts stay or go whole. extractive: lines inside of texts are
    /// chosen. summary: a model writes what long values say.
    #[serde(default)]
    pub strategy: Strategy,
    /// What the view is for: what it names is kept first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
}

/// Makes a view of a context in order of importance, within a budget of tokens: CRITICAL keys first and as they are, then IMPORTANT and
/// USEFUL ones shortened to their shares, EPHEMERAL ones left out. Nothing stored changes; every shortened or dropped key has a handle
/// for context_expand. Give a context, or the session or checkpoint that has it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PrioritizeContext {
    /// The context to make a view of; left out, a saved one is used.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_object")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub context: Option<Map<String, Value>>,
    /// The session whose latest checkpoint to view, or whose marks and rules count for `context`. Left out with everything else, the
    /// session that you last saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The checkpoint to view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<CheckpointId>,
    /// How many tokens the view may have.
    #[schemars(range(min = 1, max = TOKENS_MAX))]
    pub token_budget: u64,
    /// How the budget is shared where not everything fits; what a class does not need goes to the next.
    #[serde(default)]
    pub weights: Weights,
}

fn some_object<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Map<String, Value>>, D::Error> {
    json::object(deserializer).map(Some)
}

/// The share of each class in a budget.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE", deny_unknown_fields, default)]
#[schemars(inline)]
pub struct Weights {
    #[schemars(range(min = 0))]
    pub critical: f64,
    #[schemars(range(min = 0))]
    pub important: f64,
    #[schemars(range(min = 0))]
    pub useful: f64,
    #[schemars(range(min = 0))]
    pub ephemeral: f64,
}

impl Default for Weights {
    fn default() -> Self {
        Self { critical: 30.0, important: 40.0, useful: 20.0, ephemeral: 10.0 }
    }
}

impl Weights {
    pub(crate) fn check(self) -> Result<(), String> {
        let all = [self.critical, self.important, self.useful, self.ephemeral];
        let good = all.iter().all(|weight| (0.0..=1e6).contains(weight)) && self.important + self.useful > 0.0;
        good.then_some(())
            .ok_or_else(|| "weights must not be negative, and IMPORTANT or USEFUL must have one".to_owned())
    }
}

/// A context within a budget.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// What fits, under the same keys.
    pub context: Map<String, Value>,
    /// Where the text in it came from: user, agent, tool or import.
    pub origin: Origin,
    /// The checkpoint it is a view of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<CheckpointId>,
    /// The session it is from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    #[serde(flatten)]
    pub report: ViewReport,
    /// How to get the first of what was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<NextCall>,
    /// What a client should know, such as that the budget was too small.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What a view cost, and what became of each key.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ViewReport {
    /// Tokens of the whole context, as compact JSON.
    pub tokens_before: u64,
    /// Tokens of the view.
    pub tokens_after: u64,
    /// Every key of the context, by its class.
    pub classes: BTreeMap<Class, Vec<String>>,
    /// The rule that gave each key its class.
    pub rules: BTreeMap<String, String>,
    pub survival: Survival,
    /// Who wrote summaries, and of which keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<ViewSummary>,
    /// What is CRITICAL, and what was asked last, is more than the budget: the view holds exactly that.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub over_budget: bool,
}

/// Summaries in a view: who wrote them, and what that took.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ViewSummary {
    pub model: String,
    pub keys: Vec<String>,
    /// How often the model was asked.
    pub calls: u64,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// Left out where no prices are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

/// What of a context is in the view, and what is one call away.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Survival {
    /// Keys that are in the view as they are.
    pub kept: Vec<String>,
    /// Keys of which a part is in the view.
    pub shortened: Vec<ShortenedKey>,
    /// Keys that are not in the view.
    pub dropped: Vec<DroppedKey>,
    pub anchors: AnchorCount,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ShortenedKey {
    pub key: String,
    pub tokens_before: u64,
    pub tokens_after: u64,
    /// context_expand turns it into the whole value; `?lines=1-50` or `?bytes=0-1000` behind it into a part.
    pub handle: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct DroppedKey {
    pub key: String,
    pub class: Class,
    pub tokens: u64,
    /// context_expand turns it into the whole value; `?lines=1-50` or `?bytes=0-1000` behind it into a part.
    pub handle: String,
}

/// Lines that must not be lost: the user's last request, constraints, decisions, open tasks, the newest error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct AnchorCount {
    pub total: u64,
    pub in_view: u64,
    /// One call away, by the handle of their key.
    pub by_handle: u64,
    pub lost: u64,
}
