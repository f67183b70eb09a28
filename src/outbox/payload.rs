//! What the row of a job holds, while the job is in memory.

use super::OutboxState;
use super::stored::Stored;
use crate::store::Id;

/// What a row holds, once in memory.
pub(super) enum Payload {
    /// The row as it is, where it cannot be read.
    Row(Vec<u8>),
    /// The request of the row. Its body shares its memory with the request that is sent.
    Read { stored: Box<Stored>, was_sealed: bool },
}

impl Payload {
    pub(super) fn stored(&self) -> Option<&Stored> {
        match self {
            Payload::Row(_) => None,
            Payload::Read { stored, .. } => Some(stored),
        }
    }

    pub(super) fn is_sealed(&self, outbox: &OutboxState) -> bool {
        match self {
            Payload::Row(row) => outbox.store.is_sealed(row),
            Payload::Read { was_sealed, .. } => *was_sealed,
        }
    }

    /// What the row of the job's dead letter holds.
    pub(super) fn row(&self, outbox: &OutboxState, id: &Id) -> Option<Vec<u8>> {
        match self {
            Payload::Row(row) => Some(row.clone()),
            Payload::Read { stored, was_sealed } => {
                // Serialization cannot fail: all map keys are strings.
                let text = serde_json::to_vec(stored).ok()?;
                if *was_sealed { outbox.store.seal(id, text) } else { Some(text) }
            }
        }
    }
}
