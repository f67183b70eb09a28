//! Pauses that the vendor's responses have set, for the process that comes next: which are in force, and how an earlier
//! process's are put back.
//!
//! The pause of a limit that lanes share is reported as it is in force, after the bound on what one tenant's responses stop
//! (`max_shared_pause`): put back, it stops the others no longer than that. The same holds where a report is not bounded
//! yet, because no other tenant's lane is in memory: the lane itself has the whole wait. Where tenants chose the host, the
//! pause is reported as the lane's alone, and none is put back: the next process may meet a tenant at another host first.

use std::sync::Arc;

use super::Engine;
use super::endpoint::{EndpointHash, EndpointId, NO_ENDPOINT};
use super::group::Group;
use super::holder::Hosts;
use super::keys::LaneKey;
use super::notices::Noticed;
use super::origin::{Origin, Target};
use super::plan::Plan;
use crate::time::Time;

/// Who waits: one lane, or all that share a limit of this scope.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Waits {
    Lane,
    Account,
    Vendor,
}

/// The endpoint that something is about: `None` for all requests, an empty name for requests to no endpoint.
pub type Only = Option<Arc<str>>;

/// A pause that the vendor asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatedPause {
    pub who: Waits,
    /// The limit's name, and the endpoint that the limit is for; `None` if the pause is of no configured limit.
    pub limit: Option<(Arc<str>, Only)>,
    /// The endpoint that is paused.
    pub endpoint: Only,
    pub until: Time,
}

/// The name of what `hash` is about; `None` if the plan does not know it.
fn name_of(plan: &Plan, hash: Option<EndpointHash>) -> Option<Only> {
    match hash {
        None => Some(None),
        Some(EndpointHash::NONE) => Some(Some("".into())),
        Some(hash) => plan.endpoints.iter().find(|it| it.hash == hash).map(|it| Some(it.name.clone())),
    }
}

/// The endpoint of this name, by its hash and by its number; `None` if the plan does not know it.
fn endpoint_of(plan: &Plan, name: &Only) -> Option<(Option<EndpointHash>, EndpointId)> {
    match name.as_deref() {
        None => Some((None, NO_ENDPOINT)),
        Some("") => Some((Some(EndpointHash::NONE), NO_ENDPOINT)),
        Some(name) => {
            let at = plan.endpoints.iter().position(|it| *it.name == *name)?;
            Some((Some(plan.endpoints[at].hash), EndpointId::at(at)))
        }
    }
}

impl Engine {
    /// The pauses in force that the vendor asked for, of a lane and of the limits that it counts in. Pauses after failures
    /// and operators' pauses are left out. `None` if there is no such lane.
    pub fn stated_pauses(&self, now: Time, key: LaneKey) -> Option<Vec<StatedPause>> {
        let lane = self.lanes.get(key)?;
        let plan = &*lane.plan;
        let mut pauses = Vec::new();
        let mut add = |who: Waits, limit: Option<(Arc<str>, Only)>, (hash, until): (Option<EndpointHash>, Time)| {
            if let Some(endpoint) = name_of(plan, hash) {
                pauses.push(StatedPause { who, limit, endpoint, until });
            }
        };
        if let Some(throttle) = &lane.throttle {
            throttle.stated(now, &plan.pace).into_iter().for_each(|pause| add(Waits::Lane, None, pause));
        }
        for (number, (cell, spec)) in lane.own.as_slice().iter().zip(&plan.own).enumerate() {
            let Some(throttle) = cell.throttle() else { continue };
            let of: Only = plan.own_name(number).0.map(Arc::from);
            for pause in throttle.stated(now, &cell.pace(spec)) {
                add(Waits::Lane, Some((spec.name.clone(), of.clone())), pause);
            }
        }
        for (holder, who) in lane.shared.into_iter().zip([Waits::Account, Waits::Vendor]) {
            let Some(shared) = self.lanes.holder(holder) else { continue };
            for (cell, spec) in shared.cells.iter().zip(shared.specs.iter()) {
                let (Some(throttle), Some(of)) = (cell.throttle(), name_of(plan, spec.endpoint)) else { continue };
                let pace = cell.pace(&spec.spec);
                let alone = throttle.stops_alone(now, &pace);
                if let Some((_, until)) = alone.filter(|(tenant, _)| *tenant == self.lanes.tenant_hash(lane)) {
                    add(Waits::Lane, None, (spec.endpoint, until));
                }
                for (hash, until) in throttle.stated(now, &pace) {
                    if shared.hosts == Hosts::OfVendor {
                        add(who, Some((spec.spec.name.clone(), of.clone())), (hash, until));
                    } else {
                        add(Waits::Lane, None, (hash.or(spec.endpoint), until));
                    }
                }
            }
        }
        for (group, who) in self.groups_of(key, lane).into_iter().zip([Waits::Account, Waits::Vendor]) {
            let until = self.group_pauses.until(group);
            if until > now {
                add(who, None, (None, until));
            }
        }
        Some(pauses)
    }

    /// Whether a lane counts in the limits of this account, or of this vendor if no account is named. During a reload a
    /// lane is of the earlier configuration until its turn comes.
    pub fn counts_in(&self, key: LaneKey, group: Group<'_>) -> bool {
        let Some(lane) = self.lanes.get(key) else { return false };
        let is_of = |account: &str| self.lanes.account_name(key).is_some_and(|name| name.as_str() == account);
        let is_of_vendor = *lane.plan.vendor == *group.vendor && *lane.plan.environment == *group.environment;
        is_of_vendor && group.account.is_none_or(is_of)
    }

    /// Puts back a pause of a lane, or of a limit that the lane counts in, that the vendor asked an earlier process for.
    /// What follows is what follows a pause that the vendor asks for now. The pause of a whole account or vendor is put
    /// back by [`pause_group`](Self::pause_group). `None`, and nothing changes, if there is no such limit.
    pub fn restore_pause(&mut self, now: Time, key: LaneKey, pause: &StatedPause) -> Option<Vec<Noticed>> {
        let now = self.tick(now);
        if pause.until <= now {
            return Some(Vec::new());
        }
        let plan = self.lanes.get(key)?.plan.clone();
        let (paused, endpoint) = endpoint_of(&plan, &pause.endpoint)?;
        let (origin, targets, is_longer) = match &pause.limit {
            None if pause.who != Waits::Lane => return None,
            None => {
                let is_longer = self.lane_throttle(key)?.restore(now, paused, pause.until);
                (self.limits_of(key, endpoint), Vec::new(), is_longer)
            }
            Some((name, of)) => {
                let (hash, of_limit) = endpoint_of(&plan, of)?;
                let origin = self.limits_of(key, if endpoint == NO_ENDPOINT { of_limit } else { endpoint });
                let target = self.limit_named(&plan, &origin, pause.who, (&**name, of, hash))?;
                // A host that a tenant chose says nothing about the others.
                let believed = self.is_of_the_vendors_host(&origin, target);
                let (cell, _) = self.limit_at(&origin, target).filter(|_| believed)?;
                let is_longer = cell.throttle_or_new().restore(now, paused, pause.until);
                (origin, vec![target], is_longer)
            }
        };
        if !is_longer {
            return Some(Vec::new());
        }
        self.stopped(&origin, &targets);
        self.note_changes(now, &origin);
        self.run_turns();
        Some(self.notices.take())
    }

    /// The limit of this name, for this endpoint, that the lane has or shares.
    fn limit_named(
        &self,
        plan: &Plan,
        origin: &Origin,
        who: Waits,
        (name, of, hash): (&str, &Only, Option<EndpointHash>),
    ) -> Option<Target> {
        let place = match who {
            Waits::Lane => {
                let is_meant = |number: &usize| plan.own_name(*number) == (of.as_deref(), name);
                return (0..plan.own.len()).find(is_meant).map(Target::Own);
            }
            Waits::Account => 0,
            Waits::Vendor => 1,
        };
        let shared = self.lanes.holder(*origin.holders.get(place)?)?;
        let number = shared.specs.iter().position(|spec| *spec.spec.name == *name && spec.endpoint == hash)?;
        Some(Target::Shared(place, number))
    }
}
