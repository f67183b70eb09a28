//! Claims: chooses how many jobs to claim of each lane, and starts the claimed jobs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::{AFTER_FAILURE, CLAIM_BYTES, Chore, Done, Worker};
use crate::BoxFuture;
use crate::clock::Time;
use crate::config::Tenant;
use crate::core::Core;
use crate::dead_letter::Reason;
use crate::dispatch::plan::pace;
use crate::outbox::in_hand::Amount;
use crate::outbox::job;
use crate::outbox::lanes::Lanes;
use crate::outbox::priority;
use crate::outbox::unwritten::HeldJob;
use crate::outbox::waits::Waits;
use crate::send::outlook::outlook;
use crate::send::unfit::MISSING;
use crate::store::claims_by_lane::Claims;
use crate::store::jobs::{self, Claimed, End, JobEnd, LaneClaim, Wanted};
use crate::store::{Id, LaneTier, millis_of};

/// The amount of work of one lane and tier that may be claimed without a permit yet.
const WORK: Duration = Duration::from_millis(250);
/// Jobs that count as [`WORK`] if no limit sets the rate. More if the lane is faster: twice the number it sent lately.
const UNLIMITED: u32 = 64;
/// The most jobs of one lane and tier that may wait for their permit, however fast the lane is. The next claim is made
/// when half of them are left, and takes one to two commits: with half this number, and commits of 22 ms while others
/// used the disk, the claims limited the throughput.
const MAX_JOBS: u32 = 2_048;
/// Jobs in one claim of a lane that has been missing from the configuration for [`UNKNOWN`].
const GIVEN_UP: u32 = 16;
/// Lanes and tiers in one claim.
const LANES: usize = 256;
/// After a look at all queued lanes that found none with room, the next look waits for this many times as long as the look
/// took.
const LOOKS_APART: u32 = 4;
/// Jobs of a lane that is missing in the configuration are given up after this: a reload may bring the lane back. The
/// time begins anew when a look at the lane finds it in the configuration, with room or without; while the configuration
/// has a problem, which may be why the lane is missing; and while other processes work on the store, whose configuration
/// may have the lane.
const UNKNOWN: Duration = MISSING;

impl Worker {
    /// Claims as many jobs as the pool has capacity for.
    pub(super) fn claim(&mut self, core: &Arc<Core>, now: Time) {
        if self.is_claiming() || now < self.claim_at {
            return;
        }
        let (outbox, owner) = (self.outbox.clone(), self.outbox.store.owner);
        if self.unclaim_at.is_some_and(|at| at <= now) {
            if self.ends.is_writing() || self.chores[Chore::Expire as usize].1 {
                // The ids of outcomes that are being written are in no list, and neither are those of expired jobs that
                // are being claimed, so `unclaim` would release these jobs.
                return;
            }
            self.unclaiming = true;
            let held: Vec<Id> = self.in_hand.ids().chain(self.ends.ids()).collect();
            self.tasks.spawn(async move { Done::Unclaimed(outbox.store.write((owner, held), jobs::unclaim).await) });
            return;
        }
        if self.outbox.own.is_some() {
            // A chore claims the jobs of this client, by their ids.
            return;
        }
        let free = self.pool.free();
        if free.jobs == 0 || free.bytes == 0 || self.lanes.len() == 0 {
            return;
        }
        self.is_look_due = now < self.look_at;
        if self.is_look_due {
            return;
        }
        let mut unknown = Vec::new();
        let blocked = &mut self.blocked;
        self.lanes.look_again(now);
        let mut wanted = self.lanes.wanted(&mut self.pool, LANES, |lane, sent| {
            let is_parked = outbox.store.problems.is_parked(lane);
            match core.registry.route(&lane.tenant, &lane.vendor) {
                Ok(_) if is_parked => Some(0),
                // The lane's earlier usage must be read before its jobs are claimed.
                Ok(tenant) if !outbox.is_recalled(&tenant) => Some(0),
                Ok(tenant) if is_paused(core, &tenant) => Some(0),
                Ok(tenant) => {
                    let outlook = || outlook(core, &tenant, priority(lane.tier));
                    let at_rate = || match pace(&tenant.vendor).unit_ns {
                        0 => sent.saturating_mul(2).clamp(UNLIMITED, MAX_JOBS),
                        unit => {
                            u32::try_from(WORK.as_nanos() / u128::from(unit)).unwrap_or(MAX_JOBS).clamp(1, MAX_JOBS)
                        }
                    };
                    Some(blocked.room(lane, now, outlook).unwrap_or_else(at_rate))
                }
                Err(_) => {
                    if !is_parked {
                        unknown.push(lane.clone());
                    }
                    None
                }
            }
        });
        let may_be_known = has_problem(core) || self.leases.others_work();
        for lane in unknown {
            let is_given_up = is_given_up(&mut self.lanes, &lane, may_be_known, now);
            if is_given_up && wanted.len() < LANES && self.pool.lane_room(&lane) > 0 {
                self.lanes.asked(&mut self.pool, &lane, GIVEN_UP);
                wanted.push((lane, GIVEN_UP));
            }
        }
        if wanted.is_empty() {
            // No lane has room. With thousands of lanes, looking at all of them whenever a job begins or ends would
            // take a processor. If the look was of a part of them, the next part follows.
            let (end, has_more) = (outbox.clock.now(), self.lanes.has_more());
            let apart = if has_more { 1 } else { LOOKS_APART };
            (self.look_at, self.is_look_due) = (end + end.since(now).saturating_mul(apart), has_more);
            return;
        }
        let most_bytes = free.bytes.min(CLAIM_BYTES);
        let with_start = |(lane, count)| LaneClaim { from: self.lanes.search(&lane), lane, count };
        let lanes: Vec<LaneClaim> = wanted.into_iter().map(with_start).collect();
        self.claiming = Some((lanes.clone(), most_bytes));
        let claim = Wanted { owner, lease_ms: millis_of(outbox.store.limits.lease), lanes, most_bytes };
        self.tasks.spawn(async move { Done::Claimed(outbox.store.claim(claim).await) });
    }

    pub(super) fn start(&mut self, jobs: Vec<Claimed>) {
        let Some(core) = self.core.upgrade() else {
            // The client was dropped in the meantime.
            let back = |job: &Claimed| JobEnd { id: job.id, fence: job.fence, known: None, end: End::Back };
            jobs.iter().for_each(|job| self.ends.add(back(job), None));
            return;
        };
        let now = self.outbox.clock.now();
        let may_be_known = has_problem(&core) || self.leases.others_work();
        for job in jobs {
            if !self.in_hand.add(job.id, job.fence) {
                continue;
            }
            let is_known = may_be_known || core.registry.route(&job.lane.tenant, &job.lane.vendor).is_ok();
            let unknown = (is_given_up(&mut self.lanes, &job.lane, is_known, now), may_be_known);
            let waits = Waits::new(self.lanes.gauge(&job.lane), self.outbox.clone());
            let amount = Amount { jobs: 1, bytes: job.bytes() };
            let (lane, position) = (job.lane.clone(), job.position);
            let hand = HeldJob { id: job.id, fence: job.fence, lane, position, amount };
            self.pool.add(&hand.lane, hand.amount);
            let (core, outbox, stop) = (core.clone(), self.outbox.clone(), self.outbox.stop.subscribe());
            // Boxed, because the future of a job takes kilobytes, and a task is moved several times on its way to the
            // runtime.
            let run: BoxFuture<'static, Done> =
                Box::pin(async move { Done::Job(job::run(core, outbox, job, waits, unknown, stop).await) });
            let task = self.tasks.spawn(run);
            self.running.insert(task.id(), hand);
        }
    }

    /// Frees the part of the pool that a job takes.
    pub(super) fn free(&mut self, hand: Option<HeldJob>) {
        if let Some(hand) = hand {
            self.pool.remove(&hand.lane, hand.amount);
        }
    }

    /// Forgets a claim whose outcome is written, or can never be.
    pub(super) fn forget(&mut self, finish: &JobEnd) {
        let later = self.in_hand.remove(finish.id, finish.fence);
        self.give_back(finish.id, later);
    }

    /// Forgets a claim that the store no longer has. The process may have claimed the job again without learning of it,
    /// where the reply to that claim was lost: `unclaim`, which left the job alone for as long as it was held, finds it.
    pub(super) fn lose(&mut self, id: Id, fence: i64) {
        let later = self.in_hand.remove(id, fence);
        if later.is_none() {
            self.unclaim_at = Some(Time::ZERO);
        }
        self.give_back(id, later);
    }

    /// Ends a later claim of a job untried, once the earlier one is no longer held: if the job still exists, the next
    /// claim reads what has become of it.
    fn give_back(&mut self, id: Id, later: Option<i64>) {
        if let Some(fence) = later {
            self.ends.add(JobEnd { id, fence, known: None, end: End::Back }, None);
        }
    }

    /// Gives the letter of a claim that the store has lost to the later claim of this process, if it is unknown whether
    /// the vendor acted: after an untried end of that claim, the job would be sent once more.
    pub(super) fn bury_later(&mut self, lost: &JobEnd) {
        if let End::Dead(letter) = &lost.end
            && letter.reason == Reason::Ambiguous.as_str()
            && let Some(fence) = self.in_hand.hand_on(lost.id, lost.fence)
        {
            self.ends.add(JobEnd { fence, known: None, ..lost.clone() }, None);
        }
    }

    pub(super) fn is_claiming(&self) -> bool {
        let claims_own = self.outbox.own.is_some() && self.chores[Chore::Expire as usize].1;
        self.claiming.is_some() || self.unclaiming || claims_own
    }

    /// A claim has failed, and it is unknown whether it was committed.
    pub(super) fn not_claimed(&mut self) {
        for LaneClaim { lane, count, from } in self.claiming.take().unwrap_or_default().0 {
            self.lanes.searched(&lane, from);
            self.lanes.not_claimed(&mut self.pool, &lane, count);
        }
        self.unclaim_at = Some(Time::ZERO);
    }

    /// Starts the jobs of a claim.
    pub(super) fn claimed(&mut self, Claims { jobs, skipped, error }: Claims) {
        let (asked, most_bytes) = self.claiming.take().unwrap_or_default();
        let bytes: usize = jobs.iter().map(Claimed::bytes).sum();
        let cut = is_cut(jobs.len(), bytes, self.outbox.store.limits.max_payload, most_bytes);
        let (mut came, skipped) = (HashMap::<&LaneTier, _>::new(), HashSet::<LaneTier>::from_iter(skipped));
        for job in &jobs {
            let (count, last) = came.entry(&job.lane).or_insert((0, job.position));
            (*count, *last) = (*count + 1, job.position.max(*last));
        }
        for LaneClaim { lane, count, from } in &asked {
            let (came, last) = came.get(lane).copied().unwrap_or((0, *from));
            self.lanes.searched(lane, last);
            if skipped.contains(lane) {
                self.lanes.not_claimed(&mut self.pool, lane, *count);
                continue;
            }
            self.lanes.claimed(&mut self.pool, lane, *count, came, cut);
        }
        self.start(jobs);
        if error.is_some() {
            (self.unclaim_at, self.claim_at) = (Some(Time::ZERO), self.outbox.clock.now() + AFTER_FAILURE);
        }
    }
}

/// Whether an operator has paused a tenant. Jobs that were claimed in this time would only take places in the pool that
/// other lanes can use.
fn is_paused(core: &Core, tenant: &Tenant) -> bool {
    let place = core.registry.dispatch.find(tenant);
    place.is_some_and(|place| place.shard.look(|engine, _| engine.is_held(place.lane)))
}

/// Whether a part of the configuration is not in use: it may state lanes that are missing.
fn has_problem(core: &Core) -> bool {
    core.registry.problem.lock().is_some()
}

/// Whether a lane has been missing in the configuration for so long that its jobs are given up.
fn is_given_up(lanes: &mut Lanes, lane: &LaneTier, is_known: bool, now: Time) -> bool {
    lanes.is_known(lane, is_known, now).is_some_and(|since| now.since(since) >= UNKNOWN)
}

/// Whether a claim of at most `most_bytes` may have left a due job out because it did not fit. The claim returned `jobs`
/// jobs with `bytes` bytes in total, and no job is larger than `largest`. A claim returns one job whatever its size, so a
/// claim without jobs has left none out.
fn is_cut(jobs: usize, bytes: usize, largest: usize, most_bytes: usize) -> bool {
    jobs > 0 && bytes.saturating_add(largest) > most_bytes
}

#[cfg(test)]
mod tests;
