//! The lanes that a wait of an account or a vendor concerns.

use std::hash::BuildHasher;

use hashbrown::HashMap;

use super::lane::hash_ids;
use crate::time::Time;

/// A witness is remembered so long after the pause, in nanoseconds: the next refusal comes only after it.
const WITNESS_MEMORY: u64 = 900_000_000_000;

/// Whom the vendor asks to wait.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    pub vendor: &'a str,
    pub environment: &'a str,
    /// None for all who call the vendor.
    pub account: Option<&'a str>,
}

/// A group that waits, or did until lately.
#[derive(Clone, Copy, Debug)]
struct Standing {
    until: Time,
    /// The tenant that was refused first, as a hash.
    witness: u64,
}

impl Group<'_> {
    pub(super) fn hash(&self, hasher: &impl BuildHasher) -> u64 {
        let vendor = hash_ids(hasher, self.environment, self.vendor);
        match self.account {
            // Another separator than between ids: no account is named like a vendor's whole.
            Some(account) => hasher.hash_one((vendor, account)),
            None => vendor,
        }
    }
}

/// Groups of lanes that wait, by their hash.
#[derive(Default)]
pub(super) struct GroupPauses {
    standing: HashMap<u64, Standing>,
}

impl GroupPauses {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.standing.is_empty()
    }

    /// Until when a group waits; it may be over.
    pub(super) fn until(&self, group: u64) -> Time {
        self.standing.get(&group).map_or(Time::ZERO, |standing| standing.until)
    }

    /// A group waits until `until` because `witness` was refused, or until `of_one_witness` as long as no other tenant was.
    /// Returns whether that is longer than it waits anyhow.
    pub(super) fn extend(&mut self, group: u64, witness: u64, until: Time, of_one_witness: Time) -> bool {
        let known = self.standing.entry(group).or_insert(Standing { until: Time::ZERO, witness });
        let until = if known.witness == witness { until.min(of_one_witness) } else { until };
        let is_longer = until > known.until;
        known.until = known.until.max(until);
        is_longer
    }

    pub(super) fn forget(&mut self, group: u64) {
        self.standing.remove(&group);
    }

    pub(super) fn sweep(&mut self, now: Time) {
        self.standing.retain(|_, standing| standing.until.plus_nanos(WITNESS_MEMORY) > now);
    }
}
