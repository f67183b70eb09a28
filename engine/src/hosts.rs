//! Decides whose limits a response may change, by the hosts of the lanes that share them.
//!
//! If a tenant's variables choose the host (`https://{host}`), a response is evidence about that host only. As long as
//! all lanes that share a limit use the same host, its responses apply to all of them: every tenant that they could
//! harm chose that host. As soon as one of the lanes has another host, a response changes only its own lane, and
//! everything that earlier responses changed in the shared limit is discarded.
//!
//! A report that is believed stops the other lanes of a shared limit for a bounded time, as refusals do, also those that
//! join later.

use super::Engine;
use super::holder::Hosts;
use super::keys::{HolderKey, LaneKey, PermitKey};
use super::lane::Lane;
use super::notices::Forgotten;
use super::origin::{Origin, Target, Witness};
use super::throttle::{Report, Says, ToldBy};
use crate::time::Time;

impl Engine {
    /// Notes the host that a tenant's variables chose for a lane of these holders; `None` stands for the vendor's own
    /// host.
    pub(super) fn answered_by(&mut self, holders: [HolderKey; 2], host: Option<&str>) {
        let Some(host) = host else { return };
        for holder in holders {
            let Some(shared) = self.lanes.holder_mut(holder) else { continue };
            match &shared.hosts {
                Hosts::OfVendor => shared.hosts = Hosts::One(host.into()),
                Hosts::One(known) if **known == *host => {}
                Hosts::One(_) | Hosts::Several => self.doubt(holder),
            }
        }
    }

    /// Notes that the lanes of a holder have several hosts, and discards what responses have changed in its limits.
    fn doubt(&mut self, holder: HolderKey) {
        let Some(shared) = self.lanes.holder_mut(holder) else { return };
        shared.hosts = Hosts::Several;
        for (cell, spec) in shared.cells.iter_mut().zip(shared.specs.iter()) {
            let changes = cell.take_throttle().map_or_else(Vec::new, |throttle| throttle.forgotten());
            let forgotten = changes.iter().map(|change| Forgotten::of_shared(&shared.key, spec, change));
            forgotten.for_each(|forgotten| self.notices.forget(forgotten));
        }
        self.wake_holder(holder);
    }

    /// Whether a response may change the limit: always if the lane owns it, otherwise unless its lanes have several
    /// hosts.
    pub(super) fn is_believed(&self, origin: &Origin, target: Target) -> bool {
        match target {
            Target::Own(_) => true,
            Target::Shared(place, _) => {
                origin.holders.get(place).is_some_and(|holder| self.has_one_voice(origin.lane, *holder))
            }
        }
    }

    /// Whether the limit counts requests to all endpoints of tenants whose variables have chosen one host. What responses
    /// change in it is discarded when a tenant at another host joins.
    pub(super) fn is_of_a_chosen_host(&self, origin: &Origin, target: Target) -> bool {
        let Target::Shared(place, _) = target else { return false };
        let holder = origin.holders.get(place).and_then(|holder| self.lanes.holder(*holder));
        !self.is_of_endpoint(origin, target) && holder.is_some_and(|shared| matches!(shared.hosts, Hosts::One(_)))
    }

    /// Whether the vendor's own host answers all requests that the limit counts, or the limit is the lane's own.
    pub(super) fn is_of_the_vendors_host(&self, origin: &Origin, target: Target) -> bool {
        let Target::Shared(place, _) = target else { return true };
        let holder = origin.holders.get(place).and_then(|holder| self.lanes.holder(*holder));
        holder.is_some_and(|shared| shared.hosts == Hosts::OfVendor)
    }

    /// Bounds what a report in a response to this permit has just established for the other lanes of the limit. The
    /// permit's own lane waits for as long as the report says.
    pub(super) fn bound_report(
        &mut self,
        now: Time,
        permit: PermitKey,
        origin: &Origin,
        target: Target,
        report: &Report,
    ) {
        let Target::Shared(place, _) = target else { return };
        if report.says == Says::Limit {
            return;
        }
        let has_others = origin.holders.get(place).is_some_and(|holder| self.has_others(origin.lane, *holder));
        let Some(Witness { tenant, most_ns }) = self.witness(permit) else { return };
        let by = ToldBy { at: now, tenant, most: most_ns, lane: origin.lane };
        let stated =
            self.limit_at(origin, target).and_then(|(cell, spec)| cell.bound_report(spec, by, has_others, report));
        if let (Some(until), Some(throttle)) = (stated, self.lane_throttle(origin.lane)) {
            throttle.wait_until(now, until, until);
            self.paused(origin.lane);
        }
    }

    /// A lane joins these holders. What responses have said while another tenant's lane was alone is bounded for the
    /// others from now on; that lane waits for as long as its report says.
    pub(super) fn joined(&mut self, key: LaneKey, holders: impl IntoIterator<Item = HolderKey>) {
        let now = self.now;
        let Some(tenant) = self.lanes.get(key).map(|lane| self.lanes.tenant_hash(lane)) else { return };
        for holder in holders {
            let Some(shared) = self.lanes.holder_mut(holder) else { continue };
            let cells = shared.cells.iter_mut().zip(shared.specs.iter());
            let bounded: Vec<_> = cells.filter_map(|(cell, spec)| cell.joined(&spec.spec, now, tenant)).collect();
            for (by, stated) in &bounded {
                let Some(until) = *stated else { continue };
                let told = self.lanes.get(by.lane);
                let is_told = |lane: &Lane| self.lanes.tenant_hash(lane) == by.tenant && lane.shared.contains(&holder);
                if told.is_some_and(is_told)
                    && let Some(throttle) = self.lane_throttle(by.lane)
                {
                    throttle.wait_until(now, until, until);
                    // An event has announced the stop of the limit.
                    throttle.is_told_elsewhere(now);
                    self.paused(by.lane);
                }
            }
            if !bounded.is_empty() {
                self.wake_holder(holder);
            }
        }
    }

    /// Whose word the response to a permit is, also after the permit's lane has moved to another engine. `None` if
    /// there is no such permit.
    pub(super) fn witness(&self, permit: PermitKey) -> Option<Witness> {
        let permit = self.permits.get(permit)?;
        self.witness_of(permit.lane()).or_else(|| permit.departed())
    }

    /// Whose word the responses to a lane are; `None` if there is no such lane.
    pub(super) fn witness_of(&self, lane: LaneKey) -> Option<Witness> {
        let lane = self.lanes.get(lane)?;
        Some(Witness { tenant: self.lanes.tenant_hash(lane), most_ns: lane.plan.one_witness_ns })
    }

    /// Whether all lanes of the holder have one host, or a response to this lane concerns no other lane.
    fn has_one_voice(&self, lane: LaneKey, holder: HolderKey) -> bool {
        let shared = self.lanes.holder(holder);
        shared.is_some_and(|shared| shared.hosts != Hosts::Several || !self.has_others(lane, holder))
    }

    /// Whether lanes other than this one, which may have left the holder, share its limits.
    fn has_others(&self, lane: LaneKey, holder: HolderKey) -> bool {
        let is_of_holder = self.lanes.get(lane).is_some_and(|lane| lane.shared.contains(&holder));
        self.lanes.holder(holder).is_some_and(|shared| shared.lanes > u32::from(is_of_holder))
    }
}
