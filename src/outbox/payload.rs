//! The content of a job's row while the job is in memory.

use super::OutboxState;
use super::stored::Stored;
use crate::store::Id;

/// The content of a job's row.
pub(super) enum Payload {
    /// The row's bytes, if they cannot be read.
    Row(Vec<u8>),
    /// The row's request. Its body shares its memory with the request that is sent.
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

    /// Returns the bytes for the row of the job's dead letter.
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
