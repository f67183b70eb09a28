//! What the engine returns about changes of limits, and the limits concerned. The engine writes nothing itself: the
//! library makes log lines, events and metrics of notices.

use std::sync::Arc;

use compact_str::CompactString;

use super::endpoint::EndpointId;
use super::holder::SharedKey;
use super::plan::{Plan, SharedSpec};
use super::throttle::{Change, Notice};

/// The scope of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    Lane,
    Endpoint(EndpointId),
    Account,
    Vendor,
}

/// A notice, and what it is about.
#[derive(Clone, PartialEq, Debug)]
pub struct Noticed {
    pub notice: Notice,
    pub of: OfLimit,
}

impl Noticed {
    /// A notice about a whole lane, and no single limit.
    pub(super) fn of_whole_lane(notice: Notice) -> Noticed {
        Noticed { notice, of: OfLimit { limit: None, holder: Holder::Lane, endpoint: None } }
    }
}

/// The limit that a notice is about.
#[derive(Clone, PartialEq, Debug)]
pub struct OfLimit {
    /// The limit's name; `None` if no known limit was meant.
    pub limit: Option<Arc<str>>,
    pub holder: Holder,
    /// The endpoint, if the notice is about requests to it alone.
    pub endpoint: Option<Arc<str>>,
}

/// A pause that events reported and that the engine has dropped, because no request came for a minute or longer.
#[derive(Clone, PartialEq, Debug)]
pub struct Forgotten {
    pub vendor: Arc<str>,
    /// `None` if tenants share the limit.
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

/// Reports that events, logs and metrics have yet to get.
#[derive(Default)]
pub(super) struct Notices {
    /// Notices of the decision that is being made.
    notices: Vec<Noticed>,
    /// Pauses that were reported and then dropped.
    forgotten: Vec<Forgotten>,
}

impl Notices {
    pub(super) fn tell(&mut self, noticed: Noticed) {
        self.notices.push(noticed);
    }

    /// Takes the notices of a decision.
    pub(super) fn take(&mut self) -> Vec<Noticed> {
        std::mem::take(&mut self.notices)
    }

    pub(super) fn forget(&mut self, forgotten: Forgotten) {
        self.forgotten.push(forgotten);
    }

    /// Takes the pauses that were reported and then dropped.
    pub(super) fn take_forgotten(&mut self) -> Vec<Forgotten> {
        std::mem::take(&mut self.forgotten)
    }
}
