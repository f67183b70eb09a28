//! Tells whether a request could be sent now, and what is left for it, without taking anything.

use std::sync::Arc;

use super::endpoint::EndpointId;
use super::keys::LaneKey;
use super::limit::{Cell, LimitSpec};
use super::need::Need;
use super::slab::Key;
use super::tier::Tier;
use super::{Engine, Until, WaitReason};
use crate::time::Time;

/// The answer to [`Engine::check`].
pub struct Check {
    /// Why a request would have to wait, and how long; `None` if it would be granted now.
    pub stop: Option<(WaitReason, Until)>,
    /// The limit that blocks the request, or else the limit with the smallest share left; `None` if there is no limit.
    pub left: Option<Left>,
    /// Waiting requests of the lane, in all tiers.
    pub pending: u32,
}

/// The remaining units of a limit.
pub struct Left {
    pub name: Arc<str>,
    pub limit: u32,
    pub remaining: u32,
    /// When the whole limit is available again if nothing else is sent; `None` if that depends on an exchange in
    /// flight.
    pub full: Option<Time>,
}

impl Left {
    fn share(&self) -> f64 {
        f64::from(self.remaining) / f64::from(self.limit.max(1))
    }
}

impl Engine {
    /// The answer that [`submit`](Self::submit) would give to an immediate request that states no cost, by the units of
    /// pooled limits that this process holds: a check has none wanted. `None` if the lane does not exist.
    pub fn check(&mut self, now: Time, lane: LaneKey, endpoint: EndpointId, tier: Tier) -> Option<Check> {
        self.tick(now);
        let pending = self.lanes.get(lane)?.waiting.as_ref().map_or(0, |waiting| waiting.total());
        let need = Need { lane, endpoint, tier, cost: self.lanes.get(lane)?.plan.usual };
        let (stop, until) = self.with_group_pauses(lane, |engine| {
            engine.without_notes(&need, |engine| {
                let stop = match engine.ask(&need, Key::NONE) {
                    Ok(()) if engine.is_behind(&need) => Some(WaitReason::turn()),
                    Ok(()) => None,
                    Err(stop) => Some(stop.reason()),
                };
                let until = stop.is_some().then(|| engine.until(&need));
                (stop, until)
            })
        });
        let mut lefts = self.lefts(&need);
        let of_stop = stop.as_ref().and_then(|reason| reason.limit.as_ref());
        let found = of_stop.and_then(|name| lefts.iter().position(|left| left.name == *name));
        let tightest = || {
            let shares = lefts.iter().map(Left::share).enumerate();
            shares.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(at, _)| at)
        };
        let left = found.or_else(tightest).map(|at| lefts.swap_remove(at));
        Some(Check { stop: stop.zip(until), left, pending })
    }

    /// Whether other requests are first although the limits have room: in the same queue, or parked above it.
    fn is_behind(&self, need: &Need) -> bool {
        let lane = &self.lanes[need.lane];
        let tier = need.tier.index();
        let mut node = Key::NONE;
        if let Some(waiting) = &lane.waiting {
            let mut queues = waiting.queues.iter().filter_map(|queue| self.waiters.queue(*queue));
            let same = queues.find(|queue| queue.tier == need.tier && queue.endpoint == need.endpoint);
            if same.is_some_and(|queue| queue.head().is_some()) {
                return true;
            }
            node = waiting.tiers[tier];
        }
        let [account, vendor] = lane.shared;
        for (holder, above) in [(account, vendor), (vendor, Key::NONE)] {
            if node == Key::NONE
                && let Some(branch) = self.lanes.holder(holder).and_then(|shared| shared.branch(above))
            {
                node = branch.tiers[tier];
            }
        }
        self.tree.is_stopped(node)
    }

    /// The remaining units of every limit that applies to a request.
    fn lefts(&mut self, need: &Need) -> Vec<Left> {
        let now = self.now;
        let left = |cell: &mut Cell, spec: &LimitSpec| {
            let own = cell.remaining(spec, now);
            let ((remaining, limit), said_until) = cell.as_said(spec, now, own);
            let full = cell.full_at(spec, now).map(|full| full.max(said_until.unwrap_or(full)));
            Left { name: spec.name.clone(), limit, remaining, full }
        };
        let Some(lane) = self.lanes.get_mut(need.lane) else { return Vec::new() };
        let (plan, shared) = (lane.plan.clone(), lane.shared);
        let endpoint = plan.endpoint_hash(need.endpoint);
        let cells = lane.own.as_mut();
        let own = (0..plan.whole).chain(plan.endpoint_own(need.endpoint));
        let mut lefts: Vec<Left> = own.map(|index| left(&mut cells[index], &plan.own[index])).collect();
        for holder in shared {
            let Some(holder) = self.lanes.holder_mut(holder) else { continue };
            let pairs = holder.cells.iter_mut().zip(holder.specs.iter()).filter(|(_, spec)| spec.applies(endpoint));
            lefts.extend(pairs.map(|(cell, spec)| left(cell, &spec.spec)));
        }
        let throttle = self.lanes.get(need.lane).and_then(|lane| lane.throttle.as_ref());
        for limit in throttle.into_iter().flat_map(|throttle| throttle.discovered(now)) {
            let (remaining, of) = limit.left(now);
            let full = Some(limit.full_at(now));
            lefts.push(Left { name: limit.name().into(), limit: of, remaining, full });
        }
        lefts
    }
}
