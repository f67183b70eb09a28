//! The lanes that a wait of an account or a vendor concerns.

use std::hash::BuildHasher;

use super::lane::hash_ids;
use crate::clock::Time;

/// Whom the vendor asks to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group<'a> {
    pub(crate) vendor: &'a str,
    pub(crate) environment: &'a str,
    /// None for all who call the vendor.
    pub(crate) account: Option<&'a str>,
}

/// A group that waits, or did until lately.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) until: Time,
    /// The tenant that was refused first, as a hash.
    pub(super) witness: u64,
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
