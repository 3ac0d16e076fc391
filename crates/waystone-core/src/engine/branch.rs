//! Branches of conversations. How one is told what another came to is in [`merge`].

mod merge;

use super::Engine;
use super::conversation::retry_of;
use crate::api::{
    Branch, BranchDiff, BranchList, BranchMessage, BranchSide, CreateBranch, DiffBranches, SwitchedBranch,
};
use crate::error::{Error, Result};
use crate::id::{BranchName, IdempotencyKey, SessionId};
use crate::offload::offload_unless;
use crate::store::{Fork, NewBranch, Scope, WindowPart};
use crate::window::Entry;

/// How much of a message a comparison shows.
const PREVIEW_CHARS: usize = 120;

impl Engine {
    /// Begins a branch. It is not active before someone switches to it.
    pub async fn create_branch(&self, scope: &Scope, id: &SessionId, request: CreateBranch) -> Result<Branch> {
        self.check_writable()?;
        let place = format!("contexts/{id}/branches");
        let idempotency = request.idempotency_key.clone().map(|key| retry_of(key, &place, &request));
        let fork = match (request.parent_message_id, request.before_message_id, request.checkpoint_id) {
            (None, None, None) => Fork::Active,
            (Some(parent), None, None) => Fork::After(parent),
            (None, Some(message), None) => Fork::InPlaceOf(message),
            (None, None, Some(checkpoint)) => Fork::After(self.find_reference(scope, id, &checkpoint).await?.head),
            _ => {
                let why = "parent_message_id, before_message_id and checkpoint_id: at most one can be given";
                return Err(Error::InvalidInput(why.to_owned()));
            }
        };
        let mut scan = self.scan();
        scan.text("/name", request.name.as_str());
        scan.end()?;
        let new = NewBranch { name: request.name.clone(), fork };
        self.store.add_branch(scope, id, new, self.clock.now(), idempotency).await
    }

    /// Makes a branch the active one.
    pub async fn switch_branch(&self, scope: &Scope, id: &SessionId, name: &BranchName) -> Result<SwitchedBranch> {
        self.check_writable()?;
        let switched = self.store.switch_branch(scope, id, name, self.clock.now()).await?;
        Ok(SwitchedBranch { warnings: self.warnings(), ..switched })
    }

    pub async fn list_branches(&self, scope: &Scope, id: &SessionId) -> Result<BranchList> {
        Ok(BranchList { warnings: self.warnings(), ..self.store.list_branches(scope, id).await? })
    }

    /// Hides a branch. Its messages stay: others may continue them.
    pub async fn delete_branch(&self, scope: &Scope, id: &SessionId, name: &BranchName) -> Result<()> {
        self.check_writable()?;
        self.store.archive_branch(scope, id, name, self.clock.now()).await
    }

    /// Shows a branch again that was deleted.
    pub async fn restore_branch(
        &self,
        scope: &Scope,
        id: &SessionId,
        name: &BranchName,
        key: Option<IdempotencyKey>,
    ) -> Result<Branch> {
        self.check_writable()?;
        let idempotency = key.map(|key| retry_of(key, &format!("contexts/{id}/branches/restore"), name));
        self.store.restore_branch(scope, id, name, self.clock.now(), idempotency).await
    }

    /// Where two branches part, and what each has since.
    pub async fn diff_branches(
        &self,
        scope: &Scope,
        id: &SessionId,
        a: &BranchName,
        b: &BranchName,
        request: DiffBranches,
    ) -> Result<BranchDiff> {
        request.check()?;
        let first = self.store.load_window(scope, id, Some(a), WindowPart::Whole).await?.entries;
        let second = self.store.load_window(scope, id, Some(b), WindowPart::Whole).await?.entries;
        let (a, b, warnings) = (a.clone(), b.clone(), self.warnings());
        let compare = move || {
            let common = common(&first, &second);
            BranchDiff {
                common_message_id: common.checked_sub(1).map(|last| first[last].message.id.clone()),
                common_messages: common as u64,
                a: side(&a, &first[common..], request.limit),
                b: side(&b, &second[common..], request.limit),
                warnings,
            }
        };
        offload_unless(false, compare).await
    }
}

/// How many messages two branches have in common.
fn common(first: &[Entry], second: &[Entry]) -> usize {
    first.iter().zip(second).take_while(|(first, second)| first.message.id == second.message.id).count()
}

fn side(name: &BranchName, own: &[Entry], limit: u32) -> BranchSide {
    let message = |entry: &Entry| BranchMessage {
        message_id: entry.message.id.clone(),
        role: entry.message.role,
        message_type: entry.message.message_type,
        tokens: entry.tokens,
        preview: entry.message.text().chars().take(PREVIEW_CHARS).collect(),
    };
    let limit = limit as usize;
    BranchSide {
        name: name.to_string(),
        messages: own.iter().take(limit).map(message).collect(),
        total: own.len() as u64,
        tokens: own.iter().map(|entry| entry.tokens).sum(),
        has_more: own.len() > limit,
    }
}
