//! The vendors that `vendors` shows, each with all its environments.

use std::sync::Arc;

use integration_client::config::{Config, Limit, Vendor};

use crate::text;

/// A vendor in its environment `live` and in its other environments.
pub(super) struct Entry {
    pub(super) live: Arc<Vendor>,
    pub(super) others: Vec<Arc<Vendor>>,
}

impl Entry {
    /// Every vendor of a configuration, by name.
    pub(super) fn all(config: &Config) -> Vec<Entry> {
        let of = |name: &str| {
            let (live, others): (Vec<Arc<Vendor>>, Vec<Arc<Vendor>>) = config
                .vendors()
                .iter()
                .filter(|vendor| &*vendor.name == name)
                .cloned()
                .partition(|vendor| &*vendor.environment == "live");
            Some(Entry { live: live.into_iter().next()?, others })
        };
        config.vendors().names().filter_map(of).collect()
    }

    /// The limits of an environment that differ from those of `live`, with their names.
    pub(super) fn differing<'e>(&'e self, other: &'e Vendor) -> impl Iterator<Item = (String, &'e Limit)> {
        let named =
            |vendor: &'e Vendor| text::limits(vendor).map(|(endpoint, limit)| (text::name(endpoint, limit), limit));
        named(other).filter(move |(name, limit)| {
            named(&self.live).find(|(other, _)| other == name).is_none_or(|(_, of_live)| of_live != *limit)
        })
    }
}
