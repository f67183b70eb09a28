//! The ledger of one limit: which process holds each unit, or when it is free in the pool.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[cfg(test)]
use super::call::Standing;
use super::call::{All, Caller, Figures, Got, Line, State};
use super::clock::{Clock, slack};
use super::pool::Pool;
use super::process_record::{ProcessRecord, Released, is_never, is_none, record_of_nothing_us};
use super::shares::{Claim, Part, divide, divide_turn, weights};

/// How early a process that accepts used units may get a unit that is not free yet, if its window is not shorter.
pub(super) const AHEAD_US: u64 = 1_000_000;
/// Stands for no process in [`Ledger::turn`]: the usual division applies. Processes have numbers above it.
const NOBODY: u64 = 0;
/// How much longer than two windows a turn for a big request lasts: the other processes need this time to learn of the
/// turn.
const TURN_US: u64 = 2_000_000;
/// If there are fewer units than this per claimant, processes pass on used units at once instead of waiting until they
/// are free.
const FEW: u32 = 4;

/// The ledger of one limit, stored as a value.
///
/// Held units, units whose lease has ended and pooled units add up to the units of the limit; to fewer while the ledger
/// is learning; to more while holders have yet to return units of a limit that was reduced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ledger {
    #[serde(rename = "c")]
    pub(super) clock: Clock,
    /// The figures in force: the strictest of the live processes.
    #[serde(rename = "f")]
    pub(super) figures: Figures,
    /// When the last lease from before a loss ends; 0 if the ledger is not learning.
    #[serde(rename = "l")]
    pub(super) learning_until: u64,
    /// From this time on, a process without a record is known to hold nothing.
    #[serde(rename = "k")]
    pub(super) complete_from: u64,
    #[serde(rename = "p")]
    pub(super) pool: Pool,
    #[serde(rename = "h")]
    pub(super) holders: BTreeMap<u64, ProcessRecord>,
    /// The process that has a turn for a big request, or [`NOBODY`], and when the turn ends.
    #[serde(rename = "t")]
    pub(super) turn: Option<(u64, u64)>,
    /// The process that the vendor asked to wait, and until when.
    #[serde(rename = "z", default)]
    pub(super) paused: Option<(u64, u64)>,
    /// While the ledger is learning: when the floors from before the loss end, and the most units they can hold.
    #[serde(rename = "o", default, skip_serializing_if = "Option::is_none")]
    pub(super) lost_floors: Option<(u64, u32)>,
    /// Until when uses that are in no place of the ledger may still count: of units that a reduction of the limit
    /// dropped, of units above the limit that processes held before a loss, and earlier ones of units that were used
    /// several times within a window that has become longer. 0 if there are none.
    #[serde(rename = "u", default, skip_serializing_if = "is_never")]
    pub(super) uncounted_until: u64,
    /// Units that no process had declared when the learning ended. The ledger grants them from `uncounted_until` on.
    #[serde(rename = "w", default, skip_serializing_if = "is_none")]
    pub(super) withheld: u32,
}

impl Ledger {
    /// Renews the caller's lease, takes back the units that it returns, and grants the units that it should have.
    ///
    /// `clock_us` is the store's clock, read no earlier than the ledger was.
    pub(crate) fn exchange(&mut self, clock_us: u64, caller: &Caller, line: &Line) -> Got {
        if self.is_stale(clock_us, caller, line) {
            return Got { is_stale: true, ..self.same(caller, line) };
        }
        if let Some(holder) = self.seen(caller) {
            return self.again(holder, caller, line);
        }
        let is_current = caller.age_us(clock_us).is_some_and(|age| self.is_young(age));
        let now = self.pass_time(clock_us, caller);
        self.pause(now, caller.process, line);
        self.declare(caller, line);
        let holder = self.holders.get_mut(&caller.process);
        let is_late = holder.is_some_and(|holder| holder.refuse_late(now, caller, line));
        let is_kept = !is_late && self.settle(now, caller, line);
        if is_late || !(is_kept || self.holders.contains_key(&caller.process)) {
            self.bind(now);
            return Got { state: State::Lost, keep: 0, ..self.same(caller, line) };
        }
        let holder = self.holders.entry(caller.process).or_insert_with(|| ProcessRecord::new(line.figures));
        holder.note(now, caller, line);
        holder.is_unconfirmed &= !is_current;
        self.bind(now);
        let parts = self.divide(now);
        let units = match is_kept && !self.is_learning() {
            true => self.grant(now, caller.process, &line.figures, &parts),
            false => Vec::new(),
        };
        self.pool.compact(now);
        self.keep_floor(now, caller.process, line);
        let state = if is_kept { self.state() } else { State::Lost };
        Got { units, state, ..self.answer(now, caller.process, line, &parts) }
    }

    /// Takes back all units of the caller: `line.claim` counts as 0, and `line.returned` says when each unit is free. Its
    /// record stays for a while, so that an earlier call that arrives later is recognized.
    pub(crate) fn leave(&mut self, clock_us: u64, caller: &Caller, line: &Line) {
        if self.is_stale(clock_us, caller, line) || self.seen(caller).is_some() {
            return;
        }
        let now = self.pass_time(clock_us, caller);
        self.end_pause(now, caller.process, line);
        self.declare(caller, line);
        self.settle(now, caller, &Line { claim: 0, ..line.clone() });
        self.holders.entry(caller.process).or_insert_with(|| ProcessRecord::new(line.figures)).leave(now, caller);
        self.bind(now);
        self.pool.compact(now);
    }

    /// How long after the last call, in microseconds, this ledger differs from a new one. The store may delete it
    /// afterwards.
    pub(crate) fn matters_for_us(&self) -> u64 {
        let tail = self.figures.tail_us();
        let learnt = self.learning_until.saturating_add(tail).saturating_add(slack(tail));
        let ends = self.holders.values().map(|holder| holder.kept_until(self.figures.lapse_us()));
        let paused = self.paused.map_or(0, |(_, until)| until);
        let floors = self.lost_floors.map_or(0, |(until, _)| until.saturating_add(tail).saturating_add(slack(tail)));
        let others = [learnt, floors, paused, self.complete_from, self.uncounted_until, self.pool.last_at()];
        ends.chain(others).max().unwrap_or_default().saturating_sub(self.clock.now())
    }

    /// A summary for tests.
    #[cfg(test)]
    pub(crate) fn standing(&self) -> Standing {
        let now = self.clock.now();
        let free = self.pool.until(now);
        let lapsed = self.holders.values().map(ProcessRecord::lapsed_units).fold(0, u32::saturating_add);
        let differs = |f: &Figures| self.differs(f);
        let live = || self.holders.iter().filter(|(_, h)| !h.has_ended);
        Standing {
            now,
            units: self.figures.units,
            free,
            occupied: self.pool.total().saturating_sub(free).saturating_add(lapsed),
            learning: self.is_learning(),
            holders: live().map(|(p, h)| (*p, h.held, h.wanted())).collect(),
            differing: live().map(|(p, h)| (*p, h.figures)).filter(|(_, f)| differs(f)).collect(),
        }
    }

    /// Totals over all processes with a lease.
    fn all(&self) -> All {
        let live = || self.holders.values().filter(|holder| !holder.has_ended);
        let sum = |of: fn(&ProcessRecord) -> u32| live().map(of).fold(0, u32::saturating_add);
        All {
            processes: u32::try_from(live().count()).unwrap_or(u32::MAX),
            units: self.figures.units,
            again_us: self.figures.again_us,
            transit_us: self.figures.transit_us,
            held: sum(|holder| holder.held),
            wanted: sum(ProcessRecord::wanted),
            withheld: self.withheld(),
            differs: live().any(|holder| self.differs(&holder.figures)),
        }
    }

    /// Whether these figures of a process differ from those in force.
    fn differs(&self, figures: &Figures) -> bool {
        let ours = self.figures;
        (figures.units, figures.again_us, figures.transit_us) != (ours.units, ours.again_us, ours.transit_us)
    }

    /// Whether the ledger is older than an answer that the caller has received, as after a restored backup.
    ///
    /// A process without a record has been forgotten, or has called a newer ledger than this one. A claim is made while
    /// the lease lasts, and a record outlives its lease, so a process whose claim [is young](Self::is_young) cannot
    /// have been forgotten. For transit and window after learning, a process may have no record because it did not call
    /// in time. While the ledger is learning, an old record does no harm, because processes declare their claims again.
    fn is_stale(&self, clock_us: u64, caller: &Caller, line: &Line) -> bool {
        if self.is_learning() {
            return false;
        }
        let age = caller.age_us(clock_us);
        let is_young = |age| self.is_young(age);
        if let Some(holder) = self.holders.get(&caller.process) {
            // Calls that arrive late make the record anew of a process that had been forgotten. Such a process holds
            // nothing, and nothing that it used counts any more.
            let has_units = (line.claim > 0 && age.is_none_or(is_young))
                || line.returned.iter().any(|(free_in, _)| *free_in > age.unwrap_or(0));
            return holder.seq < caller.known_seq && (!holder.is_unconfirmed || has_units);
        }
        let is_complete = self.complete_from <= self.clock.now();
        line.claim > 0 && caller.known_seq > 0 && is_complete && age.is_some_and(is_young)
    }

    /// Whether a call has been under way for less time than the shortest for which a record outlives its lease.
    fn is_young(&self, age_us: u64) -> bool {
        age_us < record_of_nothing_us(self.figures.tail_us())
    }

    /// The caller's record, if this call or a later one is in it already.
    fn seen(&self, caller: &Caller) -> Option<&ProcessRecord> {
        self.holders.get(&caller.process).filter(|holder| caller.seq <= holder.seq)
    }

    /// The answer to a repeated call. The last call gets the same units again, because its first answer may not have
    /// arrived; an older call gets nothing.
    fn again(&self, holder: &ProcessRecord, caller: &Caller, line: &Line) -> Got {
        let mut got = self.same(caller, line);
        if caller.seq < holder.seq {
            return got;
        }
        if line.claim.saturating_add(holder.last_units()) != holder.held {
            return Got { state: State::Lost, ..got };
        }
        got.units = ahead(self.clock.now(), holder.last_grant());
        got.keep = holder.held;
        got.floor = holder.floor;
        got
    }

    /// An answer that changes nothing.
    fn same(&self, caller: &Caller, line: &Line) -> Got {
        Got {
            units: Vec::new(),
            keep: line.claim,
            weights: weights([0.0; 3]),
            travels: false,
            floor: 0,
            reach: self.reach(caller.process),
            free: self.pool.until(self.clock.now()),
            state: self.state(),
            paused_us: self.paused_for(caller.process),
            all: self.all(),
            is_stale: false,
        }
    }

    pub(super) fn is_learning(&self) -> bool {
        self.learning_until != 0
    }

    fn state(&self) -> State {
        if self.is_learning() { State::Learning } else { State::Kept }
    }

    /// The number of units that are held, in the pool, or neither since their lease has ended.
    pub(super) fn known_units(&self) -> u32 {
        let held = self.holders.values().map(|h| h.held.saturating_add(h.lapsed_units()));
        held.fold(self.pool.total(), u32::saturating_add)
    }

    /// Advances the ledger's time, and ends the learning and the leases whose time has come.
    fn pass_time(&mut self, clock_us: u64, caller: &Caller) -> u64 {
        let now = self.clock.advance(clock_us, caller.expected_when_read_us());
        if self.is_learning() && self.learning_until <= now {
            self.has_learnt(self.learning_until);
        }
        self.allow_for_shorter_windows(now);
        self.end_leases(now);
        now
    }

    /// Makes the caller's record agree with its claim. Returns whether the caller holds what it claims.
    fn settle(&mut self, now: u64, caller: &Caller, line: &Line) -> bool {
        let (tail_us, is_learning) = (self.figures.tail_us(), self.is_learning());
        let Some(holder) = self.holders.get_mut(&caller.process) else {
            return line.claim == 0;
        };
        if line.claim > holder.held {
            for (ended, units) in holder.end(true) {
                self.pool.put(ended.saturating_add(self.figures.lapse_us()), units);
            }
            return false;
        }
        // A process whose lease has ended claims nothing here, because its record holds nothing.
        let is_lost = holder.has_ended && !line.returned.is_empty();
        if self.complete_from > now {
            // The process may have returned units before the ledger was lost, and others may have used them since.
            for (free_at, units) in holder.take_lapsed(u64::MAX) {
                self.pool.put(free_at, units);
            }
        }
        // What a call repeats may have been returned under the figures of an earlier one.
        let own_us = line.figures.again_us.min(holder.figures.again_us);
        let lag_us = self.figures.again_us.saturating_sub(own_us);
        let released = Released { now, caller, line, lag_us, tail_us, is_learning };
        let diff = holder.held.saturating_sub(line.claim);
        for (free_at, units) in holder.released(diff, &released) {
            self.pool.put(free_at, units);
        }
        holder.held = line.claim;
        !is_lost
    }

    /// While the ledger is learning, believes what a caller says it holds, as long as the limit has that many units.
    fn declare(&mut self, caller: &Caller, line: &Line) {
        if !self.is_learning() || line.claim == 0 {
            return;
        }
        let room = self.figures.units.saturating_sub(self.known_units());
        let holder = self.holders.entry(caller.process).or_insert_with(|| ProcessRecord::new(line.figures));
        let is_news = holder.seq == 0 || line.claim > holder.held;
        let more = line.claim.saturating_sub(holder.held);
        if is_news && !holder.has_ended && more <= room {
            holder.held = holder.held.saturating_add(more);
        }
    }

    /// Divides the limit among the processes that want units.
    fn divide(&mut self, now: u64) -> Vec<Part> {
        let live = self.holders.iter().filter(|(_, h)| !h.has_ended);
        // Processes that go on with their floor alone do not call, so they cannot be granted anything.
        let (away, here): (Vec<_>, Vec<_>) = live.partition(|(_, h)| h.is_away(now));
        let kept = away.iter().fold(0, |sum: u32, (_, h)| sum.saturating_add(h.held));
        let units = self.figures.units.saturating_sub(kept);
        let claims = here.iter().map(|(process, h)| h.claim(**process, now));
        let claims: Vec<Claim> = claims.filter(|c| c.wanted() > 0).collect();
        let usual = divide(units, &claims);
        match self.pass_turn(now, &usual) {
            Some((process, need)) => divide_turn(units, &claims, process, need),
            None => usual,
        }
    }

    /// Ends the turn for a big request if it is over, and begins the next one. Returns the process that has the turn
    /// and the units that its request needs.
    fn pass_turn(&mut self, now: u64, usual: &[Part]) -> Option<(u64, u32)> {
        // Units that do not travel go round one by one, without turns of this kind (`keep.rs`).
        let least = u32::from(!self.figures.takes_used);
        let is_big = |p: &&Part| {
            let need = p.claim.need;
            // A unit that rotates comes too rarely to a process whose request needs it beside others.
            let own = if need > 1 { p.floor() } else { p.target };
            need > own.max(least) && need <= self.reach(p.claim.process) && p.claim.is_heard
        };
        let big: Vec<&Part> = usual.iter().filter(is_big).collect();
        let need = |process| big.iter().find(|p| p.claim.process == process).map(|p| p.claim.need);
        let lasts = self.figures.again_us.saturating_mul(2).saturating_add(TURN_US);
        match self.turn {
            Some((NOBODY, until)) if now < until => return None,
            Some((process, until)) if now < until && need(process).is_some() => {
                return need(process).map(|units| (process, units));
            }
            // Turns of big requests that follow each other would leave nothing to a process with smaller ones. A turn
            // that has ended early is followed by a time of the others too.
            Some((process, _)) if process != NOBODY => {
                let has_too_few = |p: &Part| p.claim.held == 0 || p.claim.held < p.claim.need;
                let is_left_out = |p: &Part| p.claim.is_heard && has_too_few(p) && need(p.claim.process).is_none();
                if usual.iter().any(is_left_out) {
                    let lasted = self.holders.get(&process).map_or(0, |holder| now.saturating_sub(holder.turned));
                    let shortest = lasts.min(self.figures.again_us.saturating_add(TURN_US));
                    self.turn = Some((NOBODY, now.saturating_add(lasted.clamp(shortest, lasts))));
                    return None;
                }
            }
            _ => {}
        }
        let turned = |p: &&&Part| (self.holders.get(&p.claim.process).map(|h| h.turned), p.order());
        let next = big.iter().min_by_key(turned).map(|p| (p.claim.process, p.claim.need));
        self.turn = next.map(|(process, _)| (process, now.saturating_add(lasts)));
        if let Some(holder) = next.and_then(|(process, _)| self.holders.get_mut(&process)) {
            holder.turned = now;
        }
        next
    }

    /// Moves units from the pool to the caller, up to its target. Leaves in the pool what processes with an older last
    /// grant still lack.
    fn grant(&mut self, now: u64, process: u64, figures: &Figures, parts: &[Part]) -> Vec<(u64, u32)> {
        let Some(own) = parts.iter().find(|p| p.claim.process == process) else {
            return Vec::new();
        };
        // The process counts a unit for one window of its own, so it could not count a unit that is free later.
        let ahead_us = if figures.takes_used { AHEAD_US.min(figures.again_us) } else { 0 };
        let until = now.saturating_add(ahead_us);
        let before = parts.iter().filter(|p| p.claim.is_heard && p.order() < own.order());
        let reserved = before.map(Part::lack).fold(0, u32::saturating_add);
        let usable = self.pool.until(until).saturating_sub(reserved);
        let wanted = own.claim.wanted().max(own.claim.need).saturating_sub(own.claim.held);
        let taken = self.pool.take(own.lack().min(wanted).min(usable), until);
        if let Some(holder) = self.holders.get_mut(&process).filter(|_| !taken.is_empty()) {
            holder.granted = now;
            holder.last = taken.clone();
            holder.held = holder.held.saturating_add(holder.last_units());
        }
        ahead(now, &taken)
    }

    /// The answer to the caller: how many units it may keep, and the weights for its scheduler.
    fn answer(&self, now: u64, process: u64, line: &Line, parts: &[Part]) -> Got {
        let own = parts.iter().find(|p| p.claim.process == process);
        let claimants = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        let holder = self.holders.get(&process);
        // Nobody could use what is given up before the learning has ended.
        let holds_still = self.is_learning() && self.known_units() <= self.figures.units;
        let keep = match own {
            _ if holds_still => holder.map_or(0, |holder| holder.held),
            Some(own) => self.keep(now, line, own, parts),
            None => 0,
        };
        Got {
            units: Vec::new(),
            keep,
            weights: weights(own.map_or([0.0; 3], |p| p.terms)),
            travels: !holds_still && claimants > 1 && self.figures.units < FEW.saturating_mul(claimants),
            floor: holder.map_or(0, |holder| holder.floor),
            reach: self.reach(process),
            free: self.pool.until(now),
            state: self.state(),
            paused_us: self.paused_for(process),
            all: self.all(),
            is_stale: false,
        }
    }
}

/// Converts times of the ledger into the time left from `now`.
fn ahead(now: u64, units: &[(u64, u32)]) -> Vec<(u64, u32)> {
    units.iter().map(|(free_at, units)| (free_at.saturating_sub(now), *units)).collect()
}
