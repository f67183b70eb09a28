//! What the tenants of the model are configured with.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;

use super::super::*;

pub(super) const ENDPOINTS: [&str; 3] = ["export", "read", "search"];

/// A limit by the names of its holder, of its endpoint and of itself. A holder is a tenant, `@` and an account, or `*`.
pub(super) type Limit = (String, Option<&'static str>, &'static str);

/// Whether there are limits that all tenants share.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Vendor {
    Nothing,
    Always,
    /// Of some tenants, as while a reload goes through them. One of an account that knows the vendor's limit then reserves
    /// the account's next slot before one that does not, and may have to wait for the vendor: the other waits with it.
    Sometimes,
}

/// What a tenant is configured with.
#[derive(Clone, Default)]
pub(super) struct Settings {
    pub(super) endpoints: Vec<&'static str>,
    /// How many slots, where there is such a limit: of the tenant, the account and the vendor.
    whole: [Option<u32>; 3],
    /// The same of each endpoint.
    of_endpoint: BTreeMap<&'static str, [Option<u32>; 3]>,
    /// Requests a second of the tenant.
    rate: Option<u32>,
}

impl Settings {
    pub(super) fn random(rng: &mut Rng, vendor: Vendor) -> Settings {
        let mut slots = |most: u32| rng.bool().then(|| rng.u32(1..=most));
        let has_vendor = vendor != Vendor::Nothing;
        let mut whole = [slots(4), slots(3), slots(5).filter(|_| has_vendor)];
        if vendor == Vendor::Always {
            whole[2] = whole[2].or(Some(5));
        }
        let mut settings = Settings { whole, rate: slots(20), ..Settings::default() };
        for name in ENDPOINTS {
            if rng.u8(..4) > 0 {
                let mut slots = |most: u32| (rng.u8(..3) == 0).then(|| rng.u32(1..=most));
                settings.endpoints.push(name);
                settings.of_endpoint.insert(name, [slots(2), slots(2), slots(3).filter(|_| has_vendor)]);
            }
        }
        settings
    }

    pub(super) fn plan(&self) -> Arc<Plan> {
        let mut own: Vec<LimitSpec> = self.whole[0].map(|most| slots("whole", most)).into_iter().collect();
        own.extend(self.rate.map(|rate| bucket("rate", 1, rate.into())));
        let mut plan = plan(own);
        for name in &self.endpoints {
            let from = plan.own.len();
            plan.own.extend(self.of_endpoint[name][0].map(|most| slots("single", most)));
            let hash = EndpointHash::of(name);
            plan.endpoints.push(EndpointPlan { name: (*name).into(), hash, own: from..plan.own.len() });
        }
        let shared = |level: usize| -> Arc<[SharedSpec]> {
            let whole = self.whole[level].map(|most| SharedSpec { spec: slots("whole", most), endpoint: None });
            let of_endpoint =
                |name: &&'static str| Some(endpoint_spec(name, slots("single", self.of_endpoint[name][level]?)));
            whole.into_iter().chain(self.endpoints.iter().filter_map(of_endpoint)).collect()
        };
        Arc::new(Plan { account: shared(1), vendor_wide: shared(2), ..plan })
    }

    /// The limits of a level that exist by these settings.
    pub(super) fn limits(&self, level: usize, holder: &str) -> BTreeSet<Limit> {
        let whole = self.whole[level].map(|_| (holder.to_owned(), None, "whole"));
        let of_endpoint =
            |name: &&'static str| self.of_endpoint[name][level].map(|_| (holder.to_owned(), Some(*name), "single"));
        whole.into_iter().chain(self.endpoints.iter().filter_map(of_endpoint)).collect()
    }
}
