//! What events, logs and metrics are to tell of pauses, and of which limit.

use std::sync::Arc;

use compact_str::CompactString;

use super::endpoint::{EndpointHash, EndpointId};
use super::keys::LaneKey;
use super::lane::{Lane, SharedKey};
use super::origin::Origin;
use super::origin::{Target, Whose};
use super::plan::{Plan, SharedSpec};
use super::throttle::{Change, Notice};
use super::{Engine, Holder};
use crate::clock::Time;

/// Something to tell, and of what.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Noticed {
    pub(crate) notice: Notice,
    pub(crate) of: OfLimit,
}

impl Noticed {
    /// Of a lane, and no limit.
    pub(super) fn of_whole_lane(notice: Notice) -> Noticed {
        Noticed { notice, of: OfLimit { limit: None, holder: Holder::Lane, endpoint: None } }
    }
}

/// Of which limit something is told.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct OfLimit {
    /// Its name; none where no limit that is known was meant.
    pub(crate) limit: Option<Arc<str>>,
    pub(crate) holder: Holder,
    /// It is about requests to this endpoint alone.
    pub(crate) endpoint: Option<Arc<str>>,
}

/// A pause that the events told of, and that the engine has forgotten: no request came for a minute or longer.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Forgotten {
    pub(crate) vendor: Arc<str>,
    /// None where tenants share the limit.
    pub(crate) tenant: Option<CompactString>,
    pub(crate) of: OfLimit,
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
pub(super) struct News {
    /// Of the decision that is being made.
    notices: Vec<Noticed>,
    /// Pauses that were told of and are forgotten.
    forgotten: Vec<Forgotten>,
}

impl News {
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
}

fn endpoint_name(plan: &Plan, hash: EndpointHash) -> Option<Arc<str>> {
    plan.endpoints.iter().find(|endpoint| endpoint.hash == hash).map(|endpoint| endpoint.name.clone())
}

impl Engine {
    /// Notes something about a limit.
    pub(super) fn note(&mut self, origin: &Origin, target: Target, notice: Notice) {
        let change = Change { notice, named: true, endpoint: None };
        if let Some(noticed) = self.noticed(origin, target, &change) {
            self.news.tell(noticed);
        }
    }

    fn noticed(&self, origin: &Origin, target: Target, change: &Change) -> Option<Noticed> {
        let plan = self.lanes.get(origin.lane).map(|lane| &lane.plan);
        let is_of_endpoint = self.is_of_endpoint(origin, target);
        let holder = match target {
            Target::Own(_) if is_of_endpoint => Holder::Endpoint(origin.endpoint),
            Target::Own(_) if change.endpoint.is_some() => Holder::Endpoint(origin.endpoint),
            Target::Own(_) => Holder::Lane,
            Target::Shared(0, _) => Holder::Account,
            Target::Shared(..) => Holder::Vendor,
        };
        let limit = self.spec_at(origin, target)?.name.clone();
        let hash = change.endpoint.or(is_of_endpoint.then_some(origin.endpoint_hash));
        let endpoint = hash.and_then(|hash| endpoint_name(plan?, hash));
        let limit = change.named.then_some(limit);
        Some(Noticed { notice: change.notice, of: OfLimit { limit, holder, endpoint } })
    }

    /// Notes what has changed for the limits of a request, and for its lane.
    pub(super) fn note_changes(&mut self, now: Time, origin: &Origin) {
        for target in self.targets_of(origin) {
            let Some((cell, spec)) = self.limit_at(origin, target) else { continue };
            let Some(throttle) = cell.throttle_mut() else { continue };
            for change in throttle.changes(now, &spec.pace) {
                if let Some(noticed) = self.noticed(origin, target, &change) {
                    self.news.tell(noticed);
                }
            }
        }
        self.note_changes_of_lane(now, origin.lane);
    }

    pub(super) fn note_changes_of_lane(&mut self, now: Time, lane: LaneKey) {
        if let Some(Lane { plan, credential: Some(credential), .. }) = self.lanes.get_mut(lane) {
            let whose = credential.whose();
            for (limit, change) in credential.changes(now, &plan.pace) {
                self.news.tell(of_lane(plan, whose, limit, &change));
            }
        }
    }

    /// Notes the end of pauses that an operator has ended, in limits that a lane counts in.
    pub(super) fn note_resumed(&mut self, now: Time, key: LaneKey) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        let (plan, holders) = (lane.plan.clone(), lane.shared);
        for (number, cell) in lane.own.as_mut().iter_mut().enumerate() {
            let (Some(spec), Some(throttle)) = (plan.own.get(number), cell.throttle_mut()) else { continue };
            let changes = throttle.changes(now, &spec.pace);
            changes.iter().for_each(|change| self.news.tell(of_own_limit(&plan, number, change)));
        }
        for (holder, scope) in holders.into_iter().zip([Holder::Account, Holder::Vendor]) {
            let Some(shared) = self.lanes.holder_mut(holder) else { continue };
            for (cell, spec) in shared.cells.iter_mut().zip(shared.specs.iter()) {
                let Some(throttle) = cell.throttle_mut() else { continue };
                for change in throttle.changes(now, &spec.spec.pace) {
                    let endpoint = change.endpoint.or(spec.endpoint).and_then(|hash| endpoint_name(&plan, hash));
                    let limit = change.named.then(|| spec.spec.name.clone());
                    self.news.tell(Noticed { notice: change.notice, of: OfLimit { limit, holder: scope, endpoint } });
                }
            }
        }
        self.note_changes_of_lane(now, key);
    }

    /// Pauses that were told of and are forgotten, since the last call.
    pub(crate) fn forgotten(&mut self) -> Vec<Forgotten> {
        std::mem::take(&mut self.news.forgotten)
    }
}

/// Something of the lane's own limit of this number.
pub(super) fn of_own_limit(plan: &Plan, number: usize, change: &Change) -> Noticed {
    let of = plan.endpoints.iter().position(|endpoint| endpoint.own.contains(&number));
    let holder = of.map_or(Holder::Lane, |number| Holder::Endpoint(EndpointId::at(number)));
    let hash = change.endpoint.or(of.map(|number| plan.endpoints[number].hash));
    let limit = plan.own.get(number).filter(|_| change.named).map(|spec| spec.name.clone());
    let endpoint = hash.and_then(|hash| endpoint_name(plan, hash));
    Noticed { notice: change.notice, of: OfLimit { limit, holder, endpoint } }
}

/// Something of a lane as a whole, or of a limit that only answers speak of.
pub(super) fn of_lane(plan: &Plan, whose: Option<Whose>, limit: Option<Arc<str>>, change: &Change) -> Noticed {
    let holder = match whose {
        _ if limit.is_some() => Holder::Lane,
        Some(Whose::Account) => Holder::Account,
        Some(Whose::Vendor) => Holder::Vendor,
        _ => match change.endpoint.and_then(|hash| plan.endpoints.iter().position(|it| it.hash == hash)) {
            Some(number) => Holder::Endpoint(EndpointId::at(number)),
            None => Holder::Lane,
        },
    };
    let endpoint = change.endpoint.and_then(|hash| endpoint_name(plan, hash));
    Noticed { notice: change.notice, of: OfLimit { limit, holder, endpoint } }
}
