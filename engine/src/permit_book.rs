//! All permits of an engine: which have not been started, and when the next of the others is overdue.

use std::collections::VecDeque;

use super::cost::{Cost, Kinds};
use super::keys::{LaneKey, OfPermit, PermitKey};
use super::limit::{Take, one_less};
use super::origin::{Origin, Witness};
use super::permit::Permit;
use super::slab::{Slab, excess};
use crate::time::Time;

/// A permit that was not started for this long after its grant is taken back and offered to the next request, in
/// nanoseconds. One that is held for longer is looked at again as often.
pub(crate) const UNSTARTED_NS: u64 = 100_000_000;

/// The permits of an engine.
pub(super) struct Permits {
    all: Slab<OfPermit, Permit>,
    /// Permits that may not have been started, each with the moment at which it is taken back or looked at again, the
    /// earliest first.
    unstarted: VecDeque<(Time, PermitKey)>,
    /// No started permit is overdue before this moment.
    due: Time,
    /// Permits of lanes that have moved to another engine, which counts them too.
    departed: u32,
}

impl Permits {
    pub(super) fn new() -> Permits {
        Permits { all: Slab::new(), unstarted: VecDeque::new(), due: Time::MAX, departed: 0 }
    }

    #[inline(always)]
    pub(super) fn insert(&mut self, permit: Permit) -> PermitKey {
        let (is_granted, granted, deadline) = (permit.is_granted(), permit.granted(), permit.deadline());
        let key = self.all.insert(permit);
        if is_granted {
            self.unstarted.push_back((granted.plus_nanos(UNSTARTED_NS), key));
        } else {
            self.due = self.due.min(deadline);
        }
        key
    }

    #[inline]
    pub(super) fn get(&self, key: PermitKey) -> Option<&Permit> {
        self.all.get(key)
    }

    /// The limits that a permit counts in, for a change.
    pub(super) fn origin_mut(&mut self, key: PermitKey) -> Option<&mut Origin> {
        self.all.get_mut(key).map(|permit| &mut permit.origin)
    }

    /// Sets the kinds of points whose cost a response has stated.
    pub(super) fn set_settled(&mut self, key: PermitKey, settled: Kinds) {
        if let Some(permit) = self.all.get_mut(key) {
            permit.set_settled(settled);
        }
    }

    /// Replaces a permit's cost.
    pub(super) fn set_cost(&mut self, key: PermitKey, cost: Cost) {
        if let Some(permit) = self.all.get_mut(key) {
            permit.set_cost(cost);
        }
    }

    /// Notes the response of a permit's exchange. Returns what the permit took, and from where.
    #[inline]
    pub(super) fn answer(&mut self, key: PermitKey) -> Option<(Take, Origin)> {
        self.all.get_mut(key)?.answer()
    }

    #[inline]
    pub(super) fn remove(&mut self, key: PermitKey) -> Option<Permit> {
        self.all.remove(key)
    }

    /// Removes a permit after `read` has read it in place, without a copy.
    #[inline(always)]
    pub(super) fn discard<R>(&mut self, key: PermitKey, read: impl FnOnce(&Permit, &mut u32) -> R) -> Option<R> {
        let departed = &mut self.departed;
        self.all.discard(key, |permit| read(permit, departed))
    }

    /// Keys of all permits, in the order of their slots.
    #[cfg(test)]
    pub(super) fn keys(&self) -> impl Iterator<Item = PermitKey> + '_ {
        self.all.keys()
    }

    /// All permits, in the order of their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Permit> + '_ {
        self.all.keys().filter_map(|key| self.all.get(key))
    }

    /// Keys of the permits of a lane.
    pub(super) fn of(&self, lane: LaneKey) -> Vec<PermitKey> {
        self.all.keys().filter(|key| self.all[*key].lane() == lane).collect()
    }

    /// The number of permits whose lanes are in this engine.
    pub(super) fn in_flight(&self) -> usize {
        self.all.len().saturating_sub(self.departed as usize)
    }

    #[cfg(test)]
    pub(super) fn set_deadline(&mut self, key: PermitKey, deadline: Time) {
        self.all[key].set_deadline(deadline);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Starts the exchange of a granted permit. Returns what the permit took at its grant, and from where.
    pub(super) fn start(&mut self, now: Time, key: PermitKey) -> Option<(Take, Origin)> {
        let started = self.all.get_mut(key)?.start(now)?;
        self.note_deadline(key);
        self.drop_started();
        Some(started)
    }

    /// Notes that the holder of a permit ends it, however late that is.
    #[inline]
    pub(super) fn outlast(&mut self, key: PermitKey) {
        if let Some(permit) = self.all.get_mut(key) {
            permit.outlast();
        }
    }

    /// Removes the deadline of a permit whose holder ends it.
    pub(super) fn go_on(&mut self, key: PermitKey) {
        if let Some(permit) = self.all.get_mut(key) {
            permit.go_on();
        }
    }

    /// Notes that a permit's caller does not wait any more. The permit ends at `deadline`.
    pub(super) fn abandon(&mut self, key: PermitKey, deadline: Time) {
        if let Some(permit) = self.all.get_mut(key) {
            permit.abandon(deadline);
        }
        self.note_deadline(key);
    }

    fn note_deadline(&mut self, key: PermitKey) {
        if let Some(permit) = self.all.get(key) {
            self.due = self.due.min(permit.deadline());
        }
    }

    /// Notes that a permit's lane has moved to another engine, which counts it too. It stays here for `closing_ns`
    /// longer.
    pub(super) fn depart(&mut self, key: PermitKey, closing_ns: u64, witness: Witness) {
        if let Some(permit) = self.all.get_mut(key) {
            permit.depart(closing_ns, witness);
            self.departed += 1;
        }
    }

    /// Notes that a permit of a lane in another engine has ended.
    #[inline]
    pub(super) fn departed_ended(&mut self) {
        one_less(&mut self.departed);
    }

    /// Counts a permit whose lane is in no engine, for a forecast.
    pub(super) fn count_departed(&mut self) {
        self.departed += 1;
    }

    /// Makes the next call of [`overdue`](Self::overdue) look at all permits.
    pub(super) fn look_at_all(&mut self) {
        self.due = Time::ZERO;
    }

    /// Whether no granted permit waits to be started.
    #[inline]
    pub(super) fn has_no_unstarted(&self) -> bool {
        self.unstarted.is_empty()
    }

    /// The earliest moment at which a started permit may be overdue.
    #[inline]
    pub(super) fn due(&self) -> Time {
        self.due
    }

    /// When the next permit that was not started is taken back or looked at again.
    pub(super) fn next_unstarted(&mut self) -> Time {
        self.drop_started();
        self.unstarted.front().map_or(Time::MAX, |(due, _)| *due)
    }

    /// Takes the next permit off the list of unstarted permits if it is due by `now`. It may have been started
    /// meanwhile.
    pub(super) fn pop_unstarted(&mut self, now: Time) -> Option<PermitKey> {
        self.unstarted.front().filter(|(due, _)| *due <= now)?;
        self.unstarted.pop_front().map(|(_, key)| key)
    }

    /// Puts a permit that is held for longer back on the list of unstarted permits.
    pub(super) fn look_again(&mut self, now: Time, key: PermitKey) {
        self.unstarted.push_back((now.plus_nanos(UNSTARTED_NS), key));
    }

    /// The permits that were granted and may not have been started.
    pub(super) fn unstarted(&self) -> impl Iterator<Item = (PermitKey, &Permit)> + '_ {
        self.unstarted.iter().filter_map(|(_, key)| Some((*key, self.all.get(*key)?)))
    }

    fn drop_started(&mut self) {
        while let Some((_, key)) = self.unstarted.front() {
            if self.all.get(*key).is_some_and(Permit::is_granted) {
                break;
            }
            self.unstarted.pop_front();
        }
    }

    /// The started permits whose deadline has passed.
    pub(super) fn overdue(&mut self, now: Time) -> Vec<PermitKey> {
        let mut overdue = Vec::new();
        if self.due > now {
            return overdue;
        }
        let mut next = Time::MAX;
        for key in self.all.keys() {
            let permit = &self.all[key];
            if permit.is_granted() {
                continue;
            }
            if permit.deadline() <= now {
                overdue.push(key);
            } else {
                next = next.min(permit.deadline());
            }
        }
        self.due = next;
        overdue
    }

    /// Frees unused memory, at most `chunks` chunks of each slab. Returns whether there may be more to free.
    pub(super) fn shrink(&mut self, chunks: usize) -> bool {
        if let Some(room) = excess(self.unstarted.capacity(), self.unstarted.len()) {
            self.unstarted.shrink_to(room);
        }
        self.all.shrink(chunks)
    }
}

impl std::ops::Index<PermitKey> for Permits {
    type Output = Permit;

    #[inline]
    fn index(&self, key: PermitKey) -> &Permit {
        &self.all[key]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask::Attempt;
    use crate::endpoint::{EndpointHash, NO_ENDPOINT};
    use crate::need::Need;
    use crate::slab::Key;
    use crate::tier::Tier;

    fn permit(at: u64, waits: bool) -> Permit {
        let need = Need { lane: Key::NONE, endpoint: NO_ENDPOINT, tier: Tier::High, cost: 1.into() };
        let origin = Origin {
            lane: Key::NONE,
            holders: [Key::NONE; 2],
            endpoint_hash: EndpointHash::NONE,
            versions: [0; 3],
            endpoint: NO_ENDPOINT,
            only_slots: false,
        };
        Permit::new(origin, &need, Time::ZERO.plus_nanos(at), Attempt::within(1_000), waits.then_some(Key::NONE))
    }

    #[test]
    fn unstarted_permits_return_in_grant_order() {
        let mut permits = Permits::new();
        let [first, second] = [1, 2].map(|at| permits.insert(permit(at, true)));
        let back = |at: u64| Time::ZERO.plus_nanos(UNSTARTED_NS + at);
        assert_eq!(permits.next_unstarted(), back(1));
        assert!(permits.start(back(0), first).is_some());
        assert!(permits.start(back(0), first).is_none(), "a permit starts once");
        assert_eq!(permits.next_unstarted(), back(2));
        assert_eq!(permits.pop_unstarted(back(1)), None);
        assert_eq!(permits.pop_unstarted(back(2)), Some(second));
    }

    #[test]
    fn started_permits_are_overdue_at_their_deadline() {
        let mut permits = Permits::new();
        let [first, second] = [0, 5].map(|at| permits.insert(permit(at, false)));
        let at = |nanos: u64| Time::ZERO.plus_nanos(nanos);
        assert_eq!(permits.due(), at(1_000));
        assert_eq!(permits.overdue(at(999)), []);
        assert_eq!(permits.overdue(at(1_000)), [first]);
        permits.abandon(second, at(3_000));
        assert_eq!(permits.due(), at(1_005), "a deadline that moves later is found when the earlier one comes");
        assert_eq!(permits.overdue(at(2_000)), [first]);
    }
}
