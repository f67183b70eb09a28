//! Groups of lanes that a pause of an account or a vendor applies to.

use std::hash::BuildHasher;

use hashbrown::HashMap;

use super::lane::hash_ids;
use crate::time::Time;

/// How long a witness is remembered after the pause, in nanoseconds: the next refusal comes only after the pause.
const WITNESS_MEMORY: u64 = 900_000_000_000;

/// The lanes that the vendor asks to wait: those of an account, or all that call the vendor.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    pub vendor: &'a str,
    pub environment: &'a str,
    /// `None` for all lanes that call the vendor.
    pub account: Option<&'a str>,
}

/// A group with a pause that is in force, or was until lately.
#[derive(Clone, Copy, Debug)]
struct Standing {
    until: Time,
    /// The tenant, as a hash, whose refusal asked for a longer pause than was believed.
    witness: Option<u64>,
}

impl Group<'_> {
    pub(super) fn hash(&self, hasher: &impl BuildHasher) -> u64 {
        let vendor = hash_ids(hasher, self.environment, self.vendor);
        match self.account {
            // A separator other than the one between ids, so that no account hashes to the same value as a whole
            // vendor.
            Some(account) => hasher.hash_one((vendor, account)),
            None => vendor,
        }
    }
}

/// Groups of lanes with a pause, by their hash.
#[derive(Default)]
pub(super) struct GroupPauses {
    standing: HashMap<u64, Standing>,
}

impl GroupPauses {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.standing.is_empty()
    }

    /// When the pause of a group ends, which may be in the past.
    pub(super) fn until(&self, group: u64) -> Time {
        self.standing.get(&group).map_or(Time::ZERO, |standing| standing.until)
    }

    /// Extends the pause of a group to `until` because `tenant` was refused, or only to `of_one_witness` unless the
    /// refusal of another tenant asked for a pause beyond that, too. Returns `false` if an equal or longer pause is in
    /// force.
    pub(super) fn extend(&mut self, group: u64, tenant: u64, until: Time, of_one_witness: Time) -> bool {
        let known = self.standing.entry(group).or_insert(Standing { until: Time::ZERO, witness: None });
        let until = match known.witness {
            _ if until <= of_one_witness => until,
            Some(witness) if witness != tenant => until,
            _ => {
                known.witness = Some(tenant);
                of_one_witness
            }
        };
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
