//! Pauses of a whole account, or of all that call a vendor from here, for which no limit is configured: a configured
//! limit is paused itself (`throttle/pause.rs`).
//!
//! Every lane of that scope gets a pause of its own: a lane with waiting requests gets it at once, any other when it is
//! asked for the next permit. Who only looks at a lane pauses nothing. After the pause each lane therefore sends one request first and ramps up from there. The
//! pauses do not end at the same moment: a lane waits up to a tenth longer than the vendor said, and at most 5 s, by a
//! hash of its tenant's id.

use std::hash::BuildHasher;

use super::Engine;
use super::endpoint::EndpointHash;
use super::group::Group;
use super::keys::LaneKey;
use super::lane::Lane;
use crate::time::Time;

/// The most by which the ends of the lanes' pauses are spread, in nanoseconds.
const MAX_SPREAD: u64 = 5_000_000_000;

impl Engine {
    /// Pauses a group until `until` because `tenant` was refused. As long as no other tenant's refusal asked for a longer
    /// pause too, it lasts at most `one_witness_ns`, so that one wrong response does not stop all who call a vendor for a
    /// month. The caller pauses the tenant's own lane separately, for as long as the vendor said.
    pub fn pause_group(&mut self, now: Time, group: Group<'_>, tenant: &str, until: Time, one_witness_ns: u64) {
        let now = self.tick(now);
        if until <= now {
            return;
        }
        let (hash, refused) = (group.hash(self.lanes.hasher()), self.lanes.hasher().hash_one(tenant));
        if !self.group_pauses.extend(hash, refused, until, now.plus_nanos(one_witness_ns)) {
            return;
        }
        let waiting = self.waiters.lanes();
        let granted = self.permits.unstarted().map(|(_, permit)| permit.lane());
        let mut lanes: Vec<LaneKey> = waiting.chain(granted).filter(|lane| self.is_in(*lane, hash)).collect();
        lanes.sort_unstable();
        lanes.dedup();
        lanes.retain(|lane| self.pause_groups(*lane));
        self.stop_lanes(&lanes);
        self.run_turns();
    }

    fn is_in(&self, lane: LaneKey, group: u64) -> bool {
        self.lanes.get(lane).is_some_and(|inside| self.groups_of(lane, inside).contains(&group))
    }

    pub(super) fn groups_of(&self, key: LaneKey, lane: &Lane) -> [u64; 2] {
        let whole = Group { vendor: &lane.plan.vendor, environment: &lane.plan.environment, account: None };
        let named_like_its_tenant = Group { account: Some(&lane.tenant), ..whole };
        let hash = |group: Group| group.hash(self.lanes.hasher());
        [self.lanes.account(key).unwrap_or_else(|| hash(named_like_its_tenant)), hash(whole)]
    }

    /// When the last pause of a lane's groups ends, which may be in the past.
    pub(super) fn groups_wait_until(&self, key: LaneKey, lane: &Lane) -> Time {
        if self.group_pauses.is_empty() {
            return Time::ZERO;
        }
        self.groups_of(key, lane).map(|group| self.group_pauses.until(group)).into_iter().max().unwrap_or(Time::ZERO)
    }

    /// Applies the pauses of a lane's groups to the lane before it is asked.
    #[inline]
    pub(super) fn apply_group_pauses(&mut self, lane: LaneKey) {
        if !self.group_pauses.is_empty() && self.pause_groups(lane) {
            self.paused(lane);
        }
    }

    /// Pauses a lane for as long as its groups. Returns whether it waits for longer than before: the caller stops it.
    #[cold]
    fn pause_groups(&mut self, key: LaneKey) -> bool {
        let now = self.now;
        let Some((until, later)) = self.pause_of_groups(key) else { return false };
        let Some(lane) = self.lanes.get_mut(key) else { return false };
        let throttle = lane.throttle.get_or_insert_default();
        let is_longer = throttle.wait_until(now, until, later);
        if is_longer {
            // The events name this pause once, for the lane that was refused.
            throttle.is_told_elsewhere(now);
        }
        is_longer
    }

    /// When the pause of a lane's groups ends, and when that lane is to go on; `None` without a pause.
    fn pause_of_groups(&self, key: LaneKey) -> Option<(Time, Time)> {
        let lane = self.lanes.get(key)?;
        let until = self.groups_wait_until(key, lane);
        if until <= self.now {
            return None;
        }
        let left = u64::try_from(until.since(self.now).as_nanos()).unwrap_or(u64::MAX);
        let spread = (left / 10).min(MAX_SPREAD);
        let later = self.lanes.hasher().hash_one(&lane.tenant) % spread.max(1);
        Some((until, until.plus_nanos(later)))
    }

    /// Until when the pause of a lane's groups would stop the lane if it was asked for a permit; in the past if the
    /// lane itself is paused for as long, or the groups are not paused.
    pub(super) fn groups_would_pause_until(&self, key: LaneKey) -> Time {
        let Some((until, later)) = self.pause_of_groups(key) else { return Time::ZERO };
        let throttle = self.lanes.get(key).and_then(|lane| lane.throttle.as_ref());
        let own = throttle.map_or(Time::ZERO, |throttle| throttle.paused_until(EndpointHash::NONE));
        if own < until { later } else { Time::ZERO }
    }

    /// Looks at a lane as if it was asked for a permit: with the pauses of its groups. Leaves the lane as it was.
    pub(super) fn with_group_pauses<T>(&mut self, key: LaneKey, look: impl FnOnce(&mut Engine) -> T) -> T {
        let Some(((until, later), lane)) = self.pause_of_groups(key).zip(self.lanes.get_mut(key)) else {
            return look(self);
        };
        let before = lane.throttle.clone();
        lane.throttle.get_or_insert_default().wait_until(self.now, until, later);
        let seen = look(self);
        if let Some(lane) = self.lanes.get_mut(key) {
            lane.throttle = before;
        }
        seen
    }

    /// Ends the pauses of a lane's groups because an operator resumed the lane.
    pub(super) fn forget_groups(&mut self, key: LaneKey) {
        if let Some(lane) = self.lanes.get(key) {
            for group in self.groups_of(key, lane) {
                self.group_pauses.forget(group);
            }
        }
    }

    /// Ends the pause of a group because an operator resumed one of its lanes in another engine. A lane that has a pause of
    /// its own from it keeps that.
    pub fn forget_group(&mut self, group: Group<'_>) {
        self.group_pauses.forget(group.hash(self.lanes.hasher()));
    }

    /// Drops the pauses of groups that are over and whose witness need not be remembered any more.
    pub(super) fn sweep_groups(&mut self) {
        self.group_pauses.sweep(self.now);
    }
}
