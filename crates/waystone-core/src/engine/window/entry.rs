//! The messages that a window is made of, at hand for the next one: what was said stays as it is, so only what is new must be read.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Prepared;
use crate::engine::Engine;
use crate::engine::secret::{cover_digest, cover_text};
use crate::error::Result;
use crate::id::{BranchName, SegmentId, SessionId};
use crate::offload::offload_unless;
use crate::recent::Most;
use crate::store::{AtHand, Scope, WindowPart, WindowRows};
use crate::window::Entry;

/// How much is kept, in all.
pub(in crate::engine) const MOST: Most = Most { bytes: 32 * 1024 * 1024, entries: 64 };

impl Engine {
    /// What a window is made from. This is the one place where secrets are taken out of it: whatever is cut, chosen or told afterwards has none.
    pub(in crate::engine) async fn load_window(
        &self,
        scope: &Scope,
        context: &SessionId,
        branch: Option<&BranchName>,
        part: WindowPart,
    ) -> Result<WindowRows> {
        let mut rows = self.store.load_window(scope, context, branch, part).await?;
        if self.secrets.shown().is_none() {
            return Ok(rows);
        }
        let secrets = Arc::clone(&self.secrets);
        let cover = move || {
            let Some(cover) = secrets.shown() else { return rows };
            rows.entries = rows.entries.into_iter().map(|entry| entry.covered(cover)).collect();
            for made in &mut rows.made {
                let cut = &mut made.manifest.cut;
                cover_text(cover, &mut cut.told);
                cut.digest = cover_digest(cover, &cut.digest);
            }
            rows
        };
        offload_unless(false, cover).await
    }

    /// What the window of the next call is made from, by a model that holds so many tokens.
    pub(super) async fn load_entries(
        &self,
        scope: &Scope,
        context: &SessionId,
        branch: Option<&BranchName>,
        limit: u64,
    ) -> Result<WindowRows> {
        let known = self.branches.find(&(scope.space, context.clone()));
        let at_hand = known.as_deref().and_then(|known| {
            let (first, last) = (known.first()?, known.last()?);
            Some(AtHand { from: first.position, last: last.message.id.clone() })
        });
        let rows = self.load_window(scope, context, branch, WindowPart::AfterCut { at_hand }).await?;
        let is_cut_so = rows.made.first().is_some_and(|last| last.manifest.limit == limit);
        match known {
            // It is cut from the beginning.
            _ if rows.passed_over > 0 && !is_cut_so => self.load_whole(scope, context, branch).await,
            Some(known) => Ok(with_known(rows, &known)),
            None => Ok(rows),
        }
    }

    /// All of a branch. What was found out about messages of it is not found out again.
    pub(super) async fn load_whole(
        &self,
        scope: &Scope,
        context: &SessionId,
        branch: Option<&BranchName>,
    ) -> Result<WindowRows> {
        let rows = self.load_window(scope, context, branch, WindowPart::Whole).await?;
        let Some(known) = self.branches.find(&(scope.space, context.clone())) else { return Ok(rows) };
        let known: HashMap<&SegmentId, &Entry> = known.iter().map(|entry| (&entry.message.id, entry)).collect();
        let as_known = |entry: Entry| match known.get(&entry.message.id) {
            Some(known) => entry.known_as(known),
            None => entry,
        };
        Ok(WindowRows { entries: rows.entries.into_iter().map(as_known).collect(), ..rows })
    }

    /// Keeps what may be in the next window too, as far as nothing is missing in it.
    pub(super) fn keep_entries(&self, scope: &Scope, context: &SessionId, prepared: &Prepared) {
        let entries = &prepared.entries;
        let behind_cut = entries.partition_point(|entry| entry.position <= prepared.manifest.cut.digested_to);
        let gap = entries.windows(2).rposition(|two| two[0].position + 1 != two[1].position);
        let kept = entries[behind_cut.max(gap.map_or(0, |gap| gap + 1))..].to_vec();
        let bytes = kept.iter().map(Entry::bytes).sum();
        self.branches.keep((scope.space, context.clone()), kept, bytes);
    }
}

/// Messages with the marks that they have, or had.
pub(super) fn marked<'a>(
    entries: impl Iterator<Item = &'a Entry>,
    pinned: &[SegmentId],
    stashed: &[SegmentId],
) -> Vec<Entry> {
    let (pinned, stashed): (HashSet<_>, HashSet<_>) = (pinned.iter().collect(), stashed.iter().collect());
    let marked = |entry: &Entry| {
        let id = &entry.message.id;
        entry.marked(pinned.contains(id), stashed.contains(id))
    };
    entries.map(marked).collect()
}

fn with_known(mut rows: WindowRows, known: &[Entry]) -> WindowRows {
    let known = known.iter().filter(|entry| rows.at_hand.contains(&entry.position));
    let known = marked(known, &rows.pinned, &rows.stashed);
    let at = rows.entries.partition_point(|entry| entry.position < rows.at_hand.start);
    rows.entries.splice(at..at, known);
    rows
}
