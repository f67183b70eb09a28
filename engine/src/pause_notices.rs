//! Notices of pauses for events, logs and metrics, and the limits that they name.

use std::sync::Arc;

use super::Engine;
use super::endpoint::{EndpointHash, EndpointId};
use super::keys::LaneKey;
use super::lane::Lane;
use super::notices::{Forgotten, Holder, Noticed, OfLimit};
use super::origin::Origin;
use super::origin::{Target, Whose};
use super::plan::Plan;
use super::throttle::{Change, Notice};
use crate::time::Time;

fn endpoint_name(plan: &Plan, hash: EndpointHash) -> Option<Arc<str>> {
    plan.endpoints.iter().find(|endpoint| endpoint.hash == hash).map(|endpoint| endpoint.name.clone())
}

impl Engine {
    /// Records a notice about a limit.
    pub(super) fn note(&mut self, origin: &Origin, target: Target, notice: Notice) {
        let change = Change { notice, named: true, endpoint: None };
        if let Some(noticed) = self.noticed(origin, target, &change) {
            self.notices.tell(noticed);
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

    /// Records what has changed for the limits of a request, and for its lane.
    pub(super) fn note_changes(&mut self, now: Time, origin: &Origin) {
        for target in self.targets_of(origin) {
            let Some((cell, spec)) = self.limit_at(origin, target) else { continue };
            let pace = cell.pace(spec);
            let Some(throttle) = cell.throttle_mut() else { continue };
            for change in throttle.changes(now, &pace) {
                if let Some(noticed) = self.noticed(origin, target, &change) {
                    self.notices.tell(noticed);
                }
            }
        }
        self.note_changes_of_lane(now, origin.lane);
    }

    pub(super) fn note_changes_of_lane(&mut self, now: Time, lane: LaneKey) {
        if let Some(Lane { plan, throttle: Some(throttle), .. }) = self.lanes.get_mut(lane) {
            let whose = throttle.whose();
            for (limit, change) in throttle.changes(now, &plan.pace) {
                self.notices.tell(of_lane(plan, whose, limit, &change));
            }
        }
    }

    /// Records the end of pauses that an operator has ended, in the limits that a lane counts in.
    pub(super) fn note_resumed(&mut self, now: Time, key: LaneKey) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        let (plan, holders) = (lane.plan.clone(), lane.shared);
        for (number, cell) in lane.own.as_mut().iter_mut().enumerate() {
            let Some(spec) = plan.own.get(number) else { continue };
            let pace = cell.pace(spec);
            let Some(throttle) = cell.throttle_mut() else { continue };
            let changes = throttle.changes(now, &pace);
            changes.iter().for_each(|change| self.notices.tell(of_own_limit(&plan, number, change)));
        }
        for (holder, scope) in holders.into_iter().zip([Holder::Account, Holder::Vendor]) {
            let Some(shared) = self.lanes.holder_mut(holder) else { continue };
            for (cell, spec) in shared.cells.iter_mut().zip(shared.specs.iter()) {
                let pace = cell.pace(&spec.spec);
                let Some(throttle) = cell.throttle_mut() else { continue };
                for change in throttle.changes(now, &pace) {
                    let endpoint = change.endpoint.or(spec.endpoint).and_then(|hash| endpoint_name(&plan, hash));
                    let limit = change.named.then(|| spec.spec.name.clone());
                    self.notices
                        .tell(Noticed { notice: change.notice, of: OfLimit { limit, holder: scope, endpoint } });
                }
            }
        }
        self.note_changes_of_lane(now, key);
    }

    /// Pauses that events reported and that were dropped since the last call.
    pub fn forgotten(&mut self) -> Vec<Forgotten> {
        self.notices.take_forgotten()
    }
}

/// A notice about the lane's own limit with this number.
pub(super) fn of_own_limit(plan: &Plan, number: usize, change: &Change) -> Noticed {
    let of = plan.endpoints.iter().position(|endpoint| endpoint.own.contains(&number));
    let holder = of.map_or(Holder::Lane, |number| Holder::Endpoint(EndpointId::at(number)));
    let hash = change.endpoint.or(of.map(|number| plan.endpoints[number].hash));
    let limit = plan.own.get(number).filter(|_| change.named).map(|spec| spec.name.clone());
    let endpoint = hash.and_then(|hash| endpoint_name(plan, hash));
    Noticed { notice: change.notice, of: OfLimit { limit, holder, endpoint } }
}

/// A notice about a lane as a whole, or about a limit that only responses mention.
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
