//! Which lanes have due jobs, and how many jobs of each are to be claimed. Pure.
//!
//! A lane is queued while it may have due jobs. It leaves the queue when a claim returns fewer jobs than were asked
//! for, and comes back when it gets a job: by an `enqueue` in this process, or by a look for jobs that have become due. A
//! queued lane without room is kept [aside](super::aside) from one look at it to the next.
//!
//! A claim searches a lane from the last job that was claimed. A job before that one (it was committed late, or was given
//! back) is found by a look, which moves the start of the search back.
//!
//! Claims are shared like grants: between tiers by their weights, within a tier between vendors in turn, and within a
//! vendor between its tenants. If a vendor's limit is scarce, the engine shares it; if the [pool](super::in_hand) is
//! scarce because vendors are slow, the claims must be shared.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

use super::aside::{AT_ONCE, Aside, Place};
use super::in_hand::{Amount, Pool};
use crate::clock::Time;
use crate::store::LaneTier;
use crate::store::jobs::Position;

/// Jobs of one lane before the next lane has its turn.
const CHUNK: u32 = 4;
/// The virtual time of one job, divided by the tier's weight (stride scheduling).
const STRIDE: u64 = 1 << 20;
/// The most lanes without room that one claim looks at in each tier: it takes milliseconds. They are more than are looked
/// at again before one claim, so that such lanes do not gather in the queue; a hundred thousand that lose their room
/// together leave the queue in some dozens of claims.
const BLOCKED: usize = 2 * AT_ONCE;

pub(super) struct Lanes {
    known: HashMap<LaneTier, Known>,
    tiers: [Tier; 3],
    /// The virtual time of the latest turn.
    turn: u64,
    /// The number of queued lanes, with those aside.
    in_line: usize,
    /// The number of the latest ticket.
    tickets: u64,
    aside: Aside,
    /// Whether the last claim looked at as many lanes without room as it may.
    is_cut: bool,
}

#[derive(Default)]
struct Known {
    in_line: bool,
    /// The ticket with which the lane is queued. A queue entry with another ticket is stale, and is dropped when its
    /// turn comes: removing it when the lane leaves would scan all lanes.
    ticket: u64,
    /// Whether the lane got a job since it was last asked for jobs.
    again: bool,
    gauge: Arc<Gauge>,
    /// No due job of the lane is before this position, as far as is known. When a claim begins to search the lane, this is
    /// set to the last position; looks lower it meanwhile, and the end of the claim lowers it to where the search ended.
    from: Position,
    /// Since when the lane has been missing in the configuration.
    unknown_since: Option<Time>,
}

/// The jobs of a lane that this process has claimed and that have no permit yet.
///
/// The worker writes `low` and then reads `waiting`; a job changes `waiting` and then reads `low`. All threads must
/// see these in one order (`SeqCst`): otherwise both could miss the other's write, and nobody would ask for more jobs.
#[derive(Default)]
pub(super) struct Gauge {
    waiting: AtomicU32,
    /// Jobs that have got a permit, or have ended without one, since the lane was last asked for jobs.
    drained: AtomicU32,
    /// The number of waiting jobs at which the worker should ask for more.
    low: AtomicU32,
}

impl Gauge {
    pub(super) fn begin(&self) {
        self.waiting.fetch_add(1, SeqCst);
    }

    /// Records that a job no longer waits. Returns whether the worker should ask for more jobs: once when half of the
    /// lane's allowance is left, and once when none is left, rather than for each job.
    pub(super) fn end(&self) -> bool {
        self.drained.fetch_add(1, Relaxed);
        let left = self.waiting.fetch_sub(1, SeqCst).saturating_sub(1);
        left == 0 || left == self.low.load(SeqCst)
    }
}

struct Tier {
    stride: u64,
    /// The tier's virtual time; the tier with the smallest one has the next turn.
    turn: u64,
    /// Whether the tier could take no job at its last turn.
    is_idle: bool,
    vendors: VecDeque<Vendor>,
}

/// A vendor's queued lanes of one tier.
struct Vendor {
    name: String,
    lanes: VecDeque<Place>,
}

/// What a lane can take at its turn.
enum Left {
    Jobs(u32),
    /// It has no room, whatever the pool has.
    Nothing,
    /// The queue entry is stale.
    Stale,
}

/// The vendors and lanes of a tier that can take no more in this claim.
#[derive(Default)]
struct Resting {
    vendors: Vec<Vendor>,
    /// The lanes, by vendor.
    lanes: HashMap<String, Vec<Place>>,
    /// Lanes that go aside.
    blocked: Vec<Place>,
}

/// A row may state any number; a number that is no tier counts as the lowest tier.
fn tier_of(lane: &LaneTier) -> usize {
    usize::try_from(lane.tier).unwrap_or(2).min(2)
}

impl Lanes {
    pub(super) fn new(weights: [u32; 3]) -> Lanes {
        let tier = |weight: u32| Tier {
            stride: STRIDE / u64::from(weight.max(1)),
            turn: 0,
            is_idle: true,
            vendors: VecDeque::new(),
        };
        Lanes {
            known: HashMap::new(),
            tiers: weights.map(tier),
            turn: 0,
            in_line: 0,
            tickets: 0,
            aside: Aside::default(),
            is_cut: false,
        }
    }

    /// Queues the lane: it may have due jobs, the first of them at `from` or later.
    pub(super) fn due(&mut self, lane: LaneTier, from: Position) {
        let known = self.known.entry(lane.clone()).or_default();
        known.from = known.from.min(from);
        known.again = true;
        if !known.in_line {
            self.tickets += 1;
            (known.in_line, known.ticket) = (true, self.tickets);
            self.in_line += 1;
            self.tiers[tier_of(&lane)].queue_lane((lane, self.tickets), false);
        }
    }

    /// Queues lanes again that are aside and are to be looked at, before a claim.
    pub(super) fn look_again(&mut self, now: Time) {
        for place in self.aside.take_due(now) {
            self.tiers[tier_of(&place.0)].queue_lane(place, false);
        }
    }

    /// Has the lanes aside looked at soon: some of them may have got room.
    pub(super) fn look_early(&mut self) {
        self.aside.look_early();
    }

    /// When lanes that are aside are to be looked at.
    pub(super) fn look_at(&self) -> Time {
        self.aside.look_at()
    }

    /// Whether the last claim has left out lanes that are to be looked at now.
    pub(super) fn has_more(&self) -> bool {
        self.is_cut || self.aside.has_due()
    }

    /// Chooses the jobs to claim, of `most` lanes at most and no more than the pool has room for. A lane gets as many
    /// jobs as `room` allows, less those that already wait for a permit, and none while more than half of them wait; a
    /// lane without any room goes aside. `room` is given the number of the lane's jobs that got a permit since the lane
    /// was last asked, and returns `None` if the lane is not in the configuration. Each other answer, also that there is
    /// no room, ends the time for which the lane has been missing. The jobs are counted in the pool until
    /// [`claimed`](Self::claimed) or [`not_claimed`](Self::not_claimed) is called.
    pub(super) fn wanted(
        &mut self,
        pool: &mut Pool,
        most: usize,
        mut room: impl FnMut(&LaneTier, u32) -> Option<u32>,
    ) -> Vec<(LaneTier, u32)> {
        let mut wanted: HashMap<LaneTier, u32> = HashMap::new();
        let mut order = Vec::new();
        let mut rooms: HashMap<LaneTier, u32> = HashMap::new();
        let mut resting: [Resting; 3] = Default::default();
        let mut can_take = [true; 3];
        let known = &mut self.known;
        while wanted.len() < most && pool.free().jobs > 0 {
            let next = (0..3).filter(|tier| can_take[*tier]).min_by_key(|tier| self.tiers[*tier].turn_from(self.turn));
            let Some(tier) = next else { break };
            let mut left = |(lane, ticket): &Place| {
                let is_valid = |known: &&mut Known| known.in_line && known.ticket == *ticket;
                let Some(known) = known.get_mut(lane).filter(is_valid) else { return Left::Stale };
                if let Some(left) = rooms.get(lane) {
                    return Left::Jobs(*left);
                }
                let gauge = &known.gauge;
                let room = room(lane, gauge.drained.load(Relaxed));
                if room.is_some() {
                    known.unknown_since = None;
                }
                let room = room.unwrap_or(0);
                gauge.low.store(room / 2, SeqCst);
                if room == 0 {
                    return Left::Nothing;
                }
                let waiting = gauge.waiting.load(SeqCst);
                let left = if waiting > room / 2 { 0 } else { room - waiting };
                // A lane that takes nothing is asked only once.
                if left > 0 {
                    rooms.insert(lane.clone(), left);
                }
                Left::Jobs(left)
            };
            let turn = self.tiers[tier].turn_from(self.turn);
            let Some((lane, count)) = self.tiers[tier].take(pool, &mut resting[tier], &mut left) else {
                can_take[tier] = false;
                continue;
            };
            self.turn = turn;
            let inside = &mut self.tiers[tier];
            (inside.turn, inside.is_idle) = (turn + u64::from(count) * inside.stride, false);
            pool.add(&lane, Amount { jobs: count as usize, bytes: 0 });
            if let Some(left) = rooms.get_mut(&lane) {
                *left -= count;
            }
            if let Some(known) = known.get_mut(&lane) {
                known.again = false;
            }
            let asked = wanted.entry(lane.clone()).or_insert_with(|| {
                if let Some(known) = known.get(&lane) {
                    known.gauge.drained.store(0, Relaxed);
                }
                order.push(lane);
                0
            });
            *asked += count;
        }
        self.is_cut = resting.iter().any(|resting| resting.blocked.len() >= BLOCKED);
        for (tier, mut resting) in resting.into_iter().enumerate() {
            self.aside.add(std::mem::take(&mut resting.blocked));
            // A tier that can take nothing now must not save up turns.
            self.tiers[tier].is_idle |= !can_take[tier];
            self.tiers[tier].rest_is_over(resting);
        }
        order.into_iter().map(|lane| (lane.clone(), wanted.get(&lane).copied().unwrap_or(0))).collect()
    }

    /// Records that the lane is asked for jobs although [`wanted`](Self::wanted) has put it aside. It returns to the queue.
    pub(super) fn asked(&mut self, pool: &mut Pool, lane: &LaneTier, count: u32) {
        pool.add(lane, Amount { jobs: count as usize, bytes: 0 });
        if let Some(known) = self.known.get_mut(lane) {
            self.tickets += 1;
            (known.again, known.ticket) = (false, self.tickets);
            self.tiers[tier_of(lane)].queue_lane((lane.clone(), self.tickets), false);
        }
    }

    /// A claim asked for `asked` jobs of the lane, and `came` were returned. `cut` says that the claim had no room for
    /// more.
    pub(super) fn claimed(&mut self, pool: &mut Pool, lane: &LaneTier, asked: u32, came: u32, cut: bool) {
        self.not_claimed(pool, lane, asked);
        let inside = &mut self.tiers[tier_of(lane)];
        inside.turn = inside.turn.saturating_sub(u64::from(asked.saturating_sub(came)) * inside.stride);
        let Some(known) = self.known.get_mut(lane) else { return };
        if came >= asked || !known.in_line {
            return;
        }
        if cut {
            // The lane goes to the front of its vendor's queue, so that the first lane does not get all of one claim
            // after another.
            self.tickets += 1;
            known.ticket = self.tickets;
            inside.queue_lane((lane.clone(), self.tickets), came == 0);
        } else if !known.again {
            known.in_line = false;
            self.in_line -= 1;
        }
    }

    /// A claim returned nothing of what was asked for.
    pub(super) fn not_claimed(&mut self, pool: &mut Pool, lane: &LaneTier, asked: u32) {
        pool.remove(lane, Amount { jobs: asked as usize, bytes: 0 });
    }

    /// Begins a search of the lane. Returns the position from which to search.
    pub(super) fn search(&mut self, lane: &LaneTier) -> Position {
        self.known.get_mut(lane).map(|known| std::mem::replace(&mut known.from, Position::LAST)).unwrap_or_default()
    }

    /// Notes that the lane may have due jobs from this position on: a search has left none before it, or the job that was
    /// there is given back.
    pub(super) fn searched(&mut self, lane: &LaneTier, from: Position) {
        if let Some(known) = self.known.get_mut(lane) {
            known.from = known.from.min(from);
        }
    }

    /// Has all lanes searched from their first jobs on.
    pub(super) fn search_all_anew(&mut self) {
        self.known.values_mut().for_each(|known| known.from = Position::default());
    }

    /// The gauge of the lane's jobs that wait for their permit.
    pub(super) fn gauge(&mut self, lane: &LaneTier) -> Arc<Gauge> {
        self.known.entry(lane.clone()).or_default().gauge.clone()
    }

    /// Records whether the lane is in the configuration, as of `now`. Returns since when it is missing.
    pub(super) fn is_known(&mut self, lane: &LaneTier, is: bool, now: Time) -> Option<Time> {
        let known = self.known.get_mut(lane)?;
        known.unknown_since = if is { None } else { Some(known.unknown_since.unwrap_or(now)) };
        known.unknown_since
    }

    /// Forgets lanes that are neither queued nor have jobs in this process.
    pub(super) fn forget(&mut self) {
        self.known.retain(|_, known| known.in_line || Arc::strong_count(&known.gauge) > 1);
    }

    /// All known lanes.
    pub(super) fn all(&self) -> impl Iterator<Item = LaneTier> {
        self.known.keys().cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.in_line
    }
}

impl Tier {
    /// The tier's virtual time. A tier that was idle does not catch up on the turns that it missed.
    fn turn_from(&self, turn: u64) -> u64 {
        if self.is_idle { self.turn.max(turn) } else { self.turn }
    }

    /// Queues a lane at the end, or at the front, of its vendor's lanes.
    fn queue_lane(&mut self, lane: Place, first: bool) {
        let name = &lane.0.vendor;
        let at = self.vendors.iter().position(|vendor| vendor.name == *name).unwrap_or_else(|| {
            self.vendors.push_back(Vendor { name: name.clone(), lanes: VecDeque::new() });
            self.vendors.len() - 1
        });
        match (self.vendors.get_mut(at), first) {
            (Some(vendor), true) => vendor.lanes.push_front(lane),
            (Some(vendor), false) => vendor.lanes.push_back(lane),
            (None, _) => {}
        }
    }

    /// Takes the next jobs of the vendor and tenant whose turn it is. `None` if no lane can take any, or if the claim has
    /// looked at as many lanes without room as it may.
    fn take(
        &mut self,
        pool: &Pool,
        resting: &mut Resting,
        left: &mut impl FnMut(&Place) -> Left,
    ) -> Option<(LaneTier, u32)> {
        while let Some(mut vendor) = self.vendors.pop_front() {
            if pool.vendor_room(&vendor.name) > 0 {
                while resting.blocked.len() < BLOCKED
                    && let Some(lane) = vendor.lanes.pop_front()
                {
                    let room = u32::try_from(pool.lane_room(&lane.0)).unwrap_or(u32::MAX);
                    let count = match room {
                        0 => 0,
                        _ => match left(&lane) {
                            Left::Jobs(left) => room.min(left).min(CHUNK),
                            Left::Nothing => {
                                resting.blocked.push(lane);
                                continue;
                            }
                            Left::Stale => continue,
                        },
                    };
                    if count > 0 {
                        vendor.lanes.push_back(lane.clone());
                        self.vendors.push_back(vendor);
                        return Some((lane.0, count));
                    }
                    match resting.lanes.get_mut(&lane.0.vendor) {
                        Some(lanes) => lanes.push(lane),
                        None => drop(resting.lanes.insert(lane.0.vendor.clone(), vec![lane])),
                    }
                }
            }
            if resting.blocked.len() >= BLOCKED {
                // The next claim begins with the next vendor.
                self.vendors.push_back(vendor);
                return None;
            }
            resting.vendors.push(vendor);
        }
        None
    }

    fn rest_is_over(&mut self, resting: Resting) {
        self.vendors.extend(resting.vendors);
        let mut lanes = resting.lanes;
        for vendor in &mut self.vendors {
            if let Some(rested) = lanes.remove(&vendor.name) {
                vendor.lanes.extend(rested);
            }
        }
        self.vendors.retain(|vendor| !vendor.lanes.is_empty());
    }
}

#[cfg(test)]
mod tests;
