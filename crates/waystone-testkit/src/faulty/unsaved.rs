//! What a store would return if it had saved what it did not.

use waystone_core::api::Checkpoint;
use waystone_core::store::{NewCheckpoint, NewSegments, Put};

pub(super) fn checkpoint(new: NewCheckpoint) -> Checkpoint {
    Checkpoint {
        checkpoint_id: new.id,
        session_id: new.session,
        project_id: new.project,
        created_at: new.at,
        size_bytes: new.packed.map_or(0, |packed| packed.bytes.len() as u64),
        metadata: new.metadata,
        agent_id: new.agent,
        workflow_id: new.workflow,
        parent_checkpoint_id: new.parent,
        origin: new.origin,
        said_origin: new.origin,
        git: new.git,
        context_hash: new.context_hash,
        archived: false,
        hit: None,
    }
}

pub(super) fn put(new: &NewSegments) -> Put {
    Put::Done {
        ids: new.segments.iter().map(|segment| segment.id.clone()).collect(),
        added: new.segments.len() as u64,
        tokens_added: new.segments.iter().filter_map(|segment| segment.tokens).sum(),
        elsewhere: 0,
        operation: None,
        total_bytes: 0,
    }
}
