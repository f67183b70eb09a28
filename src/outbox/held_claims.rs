//! The claims of this process that may still send, or whose outcomes are not written yet. Pure.
//!
//! After a failover of the store, or after another process released a claim, this process may claim a job that it
//! still has in hand. A second task could send the job while the first one does, or after the first one has ended and
//! before the store knows its outcome. So a claim is held until its outcome is written, whether or not its task still
//! runs, and a later claim of the same job only stays claimed until then.

use std::collections::HashMap;

use crate::store::Id;

/// A claim, by which this process holds its job.
struct HeldClaim {
    fence: i64,
    /// Whether the outcome was handed over, so that the claim does not end with its task.
    has_outcome: bool,
    /// The fence of the latest claim of the same job that this process has made since.
    later: Option<i64>,
}

/// The claims that are held, by their jobs.
#[derive(Default)]
pub(super) struct HeldClaims {
    claims: HashMap<Id, HeldClaim>,
}

impl HeldClaims {
    /// Adds a claim. Returns whether its job may be sent: not while an earlier claim of the job is held.
    pub(super) fn add(&mut self, id: Id, fence: i64) -> bool {
        if let Some(held) = self.claims.get_mut(&id) {
            held.later = Some(fence);
            return false;
        }
        self.claims.insert(id, HeldClaim { fence, has_outcome: false, later: None });
        true
    }

    fn get(&mut self, id: Id, fence: i64) -> Option<&mut HeldClaim> {
        self.claims.get_mut(&id).filter(|held| held.fence == fence)
    }

    /// The outcome of a claim was handed over to be written before its task ended.
    pub(super) fn has_outcome(&mut self, id: Id, fence: i64) {
        if let Some(held) = self.get(id, fence) {
            held.has_outcome = true;
        }
    }

    /// Whether a claim is held that ends with its task.
    pub(super) fn ends_with_task(&mut self, id: Id, fence: i64) -> bool {
        self.get(id, fence).is_some_and(|held| !held.has_outcome)
    }

    /// The outcome of a claim is written, or can never be. Returns the fence of the later claim if the job is no longer
    /// held.
    pub(super) fn remove(&mut self, id: Id, fence: i64) -> Option<i64> {
        self.get(id, fence)?;
        self.claims.remove(&id)?.later
    }

    /// Holds the later claim in place of one that the store has lost, whose outcome becomes that of the later one.
    /// Returns the fence of the later claim.
    pub(super) fn hand_on(&mut self, id: Id, fence: i64) -> Option<i64> {
        let held = self.get(id, fence)?;
        let later = held.later.take()?;
        (held.fence, held.has_outcome) = (later, true);
        Some(later)
    }

    pub(super) fn contains(&self, id: &Id) -> bool {
        self.claims.contains_key(id)
    }

    /// The jobs of the claims.
    pub(super) fn ids(&self) -> impl Iterator<Item = Id> {
        self.claims.keys().copied()
    }
}

#[cfg(test)]
mod tests;
