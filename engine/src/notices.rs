//! What is told of a pause, and of which limit.

use std::sync::Arc;

use compact_str::CompactString;

use super::endpoint::EndpointId;
use super::holder::SharedKey;
use super::plan::{Plan, SharedSpec};
use super::throttle::{Change, Notice};

/// Whose a limit is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    Lane,
    Endpoint(EndpointId),
    Account,
    Vendor,
}

/// Something to tell, and of what.
#[derive(Clone, PartialEq, Debug)]
pub struct Noticed {
    pub notice: Notice,
    pub of: OfLimit,
}

impl Noticed {
    /// Of a lane, and no limit.
    pub(super) fn of_whole_lane(notice: Notice) -> Noticed {
        Noticed { notice, of: OfLimit { limit: None, holder: Holder::Lane, endpoint: None } }
    }
}

/// Of which limit something is told.
#[derive(Clone, PartialEq, Debug)]
pub struct OfLimit {
    /// Its name; none where no limit that is known was meant.
    pub limit: Option<Arc<str>>,
    pub holder: Holder,
    /// It is about requests to this endpoint alone.
    pub endpoint: Option<Arc<str>>,
}

/// A pause that the events told of, and that the engine has forgotten: no request came for a minute or longer.
#[derive(Clone, PartialEq, Debug)]
pub struct Forgotten {
    pub vendor: Arc<str>,
    /// None where tenants share the limit.
    pub tenant: Option<CompactString>,
    pub of: OfLimit,
}

impl Forgotten {
    pub(super) fn of_tenant(plan: &Plan, tenant: &CompactString, noticed: Noticed) -> Forgotten {
        Forgotten { vendor: plan.vendor.clone(), tenant: Some(tenant.clone()), of: noticed.of }
    }

    pub(super) fn of_shared(key: &SharedKey, spec: &SharedSpec, change: &Change) -> Forgotten {
        let holder = if key.account.is_some() { Holder::Account } else { Holder::Vendor };
        let limit = change.named.then(|| spec.spec.name.clone());
        Forgotten { vendor: key.vendor.clone(), tenant: None, of: OfLimit { limit, holder, endpoint: None } }
    }
}

/// What events, logs and metrics are to tell.
#[derive(Default)]
pub(super) struct Notices {
    /// Of the decision that is being made.
    notices: Vec<Noticed>,
    /// Pauses that were told of and are forgotten.
    forgotten: Vec<Forgotten>,
}

impl Notices {
    pub(super) fn tell(&mut self, noticed: Noticed) {
        self.notices.push(noticed);
    }

    /// Takes out what is to be told of a decision.
    pub(super) fn take(&mut self) -> Vec<Noticed> {
        std::mem::take(&mut self.notices)
    }

    pub(super) fn forget(&mut self, forgotten: Forgotten) {
        self.forgotten.push(forgotten);
    }

    /// Takes out the pauses that were told of and are forgotten.
    pub(super) fn take_forgotten(&mut self) -> Vec<Forgotten> {
        std::mem::take(&mut self.forgotten)
    }
}
