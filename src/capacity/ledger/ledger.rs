//! The ledger itself: where each unit of a limit is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[cfg(test)]
use super::call::Standing;
use super::call::{Caller, Figures, Got, Line, State};
use super::clock::{Clock, slack};
use super::pool::Pool;
use super::shares::{Claim, Part, divide, divide_turn, sum, weights};

/// A process that has not called for so long waits for nothing, until it calls again.
const HEARD_US: u64 = 3_000_000;
/// A used unit may be granted so long before it is free.
const AHEAD_US: u64 = 1_000_000;
/// With fewer units per claimant than this, used units travel.
const FEW: usize = 4;
/// What a turn for a big request takes beside two windows.
const TURN_US: u64 = 2_000_000;

/// Where the units of one limit are. The sum of those that are held and those in the pool is never above the limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ledger {
    /// The strictest of the processes' figures.
    #[serde(rename = "f")]
    figures: Figures,
    #[serde(rename = "c")]
    clock: Clock,
    /// Until then nothing is granted, and whoever held units before the ledger was lost says so again; 0 where it was not.
    #[serde(rename = "l")]
    learning_until: u64,
    #[serde(rename = "p")]
    pool: Pool,
    #[serde(rename = "h")]
    holders: BTreeMap<u64, Holder>,
    /// The process that has its turn for a big request, and until when.
    #[serde(rename = "t")]
    turn: Option<(u64, u64)>,
}

/// What is known of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Holder {
    #[serde(rename = "s")]
    seq: u64,
    #[serde(rename = "u")]
    held: u32,
    #[serde(rename = "w")]
    want: [u32; 3],
    #[serde(rename = "n")]
    need: u32,
    /// The end of its lease, by the ledger's time.
    #[serde(rename = "e")]
    expires: u64,
    /// When it called last.
    #[serde(rename = "h")]
    heard: u64,
    /// When it was granted something last.
    #[serde(rename = "g")]
    granted: u64,
    /// When it had its last turn for a big request.
    #[serde(rename = "t")]
    turned: u64,
    /// Of the last grant, the units that were not free yet, by when they are.
    #[serde(rename = "o")]
    used: Vec<(u64, u32)>,
    #[serde(rename = "f")]
    figures: Figures,
}

impl Holder {
    fn new(figures: Figures) -> Holder {
        Holder {
            seq: 0,
            held: 0,
            want: [0; 3],
            need: 0,
            expires: u64::MAX,
            heard: 0,
            granted: 0,
            turned: 0,
            used: Vec::new(),
            figures,
        }
    }
}

impl Ledger {
    /// A ledger in which all units are free; or, while `learning_us` last, one whose units are held by nobody knows whom.
    pub(crate) fn new(figures: &Figures, clock_us: u64, learning_us: u64) -> Ledger {
        let clock = Clock::new(clock_us);
        let now = clock.now();
        let mut pool = Pool::default();
        let mut learning_until = 0;
        match learning_us {
            0 => pool.put(now, figures.units),
            _ => learning_until = now.saturating_add(learning_us),
        }
        Ledger { figures: *figures, clock, learning_until, pool, holders: BTreeMap::new(), turn: None }
    }

    /// Renews a process's lease, takes what it gives back, and gives it what it may have. A call that was answered before
    /// changes nothing.
    pub(crate) fn exchange(&mut self, clock_us: u64, caller: &Caller, line: &Line) -> Got {
        if self.holders.get(&caller.process).is_some_and(|holder| holder.seq < caller.known_seq) {
            return Got { is_stale: true, ..self.nothing(State::Lost) };
        }
        let now = self.pass(clock_us, caller);
        if self.holders.get(&caller.process).is_some_and(|holder| caller.seq <= holder.seq) {
            return self.nothing(State::Kept);
        }
        let is_lost = self.settle(now, caller, line);
        let claim = if is_lost { 0 } else { line.claim };
        let learning = self.is_learning();
        let holder = self.holders.entry(caller.process).or_insert_with(|| Holder::new(line.figures));
        holder.seq = caller.seq;
        holder.want = line.want;
        holder.need = line.need;
        holder.heard = now;
        holder.expires = now.saturating_add(caller.lease_us).saturating_add(slack(caller.lease_us));
        holder.figures = line.figures;
        self.bind(now);
        let got = self.share(now, caller.process);
        self.pool.compact(now);
        if claim == 0 && got.units.is_empty() && sum(line.want) == 0 {
            self.holders.remove(&caller.process);
        }
        let state = match (is_lost, learning) {
            (true, _) => State::Lost,
            (false, true) => State::Learning,
            (false, false) => State::Kept,
        };
        Got { state, ..got }
    }

    /// A process ends, and gives everything back.
    pub(crate) fn leave(&mut self, clock_us: u64, caller: &Caller, line: &Line) {
        let now = self.pass(clock_us, caller);
        if self.holders.get(&caller.process).is_some_and(|holder| caller.seq <= holder.seq) {
            return;
        }
        self.settle(now, caller, &Line { claim: 0, ..line.clone() });
        self.holders.remove(&caller.process);
        self.bind(now);
        self.pool.compact(now);
    }

    /// Who holds and wants what.
    #[cfg(test)]
    pub(crate) fn standing(&self) -> Standing {
        let free = self.pool.until(self.clock.now());
        let differs =
            |(process, holder): (&u64, &Holder)| (holder.figures != self.figures).then_some((*process, holder.figures));
        Standing {
            units: self.figures.units,
            free,
            occupied: self.pool.total().saturating_sub(free),
            learning: self.is_learning(),
            holders: self.holders.iter().map(|(process, it)| (*process, it.held, sum(it.want))).collect(),
            differing: self.holders.iter().filter_map(differs).collect(),
        }
    }

    fn nothing(&self, state: State) -> Got {
        Got { units: Vec::new(), keep: 0, weights: [0; 3], travels: false, free: 0, state, is_stale: false }
    }

    fn is_learning(&self) -> bool {
        self.learning_until > 0
    }

    fn held(&self) -> u32 {
        self.holders.values().fold(0, |sum, holder| sum.saturating_add(holder.held))
    }

    /// Lets time pass: leases end, and so does learning.
    fn pass(&mut self, clock_us: u64, caller: &Caller) -> u64 {
        let now = self.clock.advance(clock_us, caller.expected_us);
        if self.is_learning() && now >= self.learning_until {
            // Whatever nobody declared may have been used by somebody until his lease had ended.
            let missing = self.figures.units.saturating_sub(self.held().saturating_add(self.pool.total()));
            self.pool.put(self.learning_until.saturating_add(self.figures.tail_us()), missing);
            self.learning_until = 0;
        }
        let tail = self.figures.tail_us();
        let pool = &mut self.pool;
        self.holders.retain(|_, holder| {
            let has_ended = holder.expires <= now;
            if has_ended {
                pool.put(holder.expires.saturating_add(tail.max(holder.figures.tail_us())), holder.held);
            }
            !has_ended
        });
        now
    }

    /// Takes what the process gives back, and what of the last grant has not reached it. Returns whether all that it claims is
    /// lost.
    fn settle(&mut self, now: u64, caller: &Caller, line: &Line) -> bool {
        let held = self.holders.get(&caller.process).map_or(0, |holder| holder.held);
        if line.claim > held {
            return self.declare(now, caller, line, held);
        }
        let Some(holder) = self.holders.get_mut(&caller.process) else { return false };
        let mut left = held - line.claim;
        holder.held = line.claim;
        // The latest first: of what is named twice, since its call may not have been heard, the later time counts.
        let mut returned = line.returned.clone();
        returned.sort_unstable_by_key(|(free_in, _)| std::cmp::Reverse(*free_in));
        for (free_in, units) in returned {
            let units = units.min(left);
            let late = if free_in > 0 { free_in.saturating_add(slack(free_in)) } else { 0 };
            self.pool.put(now.saturating_add(late), units);
            left -= units;
        }
        // A grant whose answer was lost: free as it was granted.
        let mut used = std::mem::take(&mut holder.used);
        used.sort_unstable_by_key(|(at, _)| std::cmp::Reverse(*at));
        for (at, units) in used {
            let units = units.min(left);
            self.pool.put(at.max(now), units);
            left -= units;
        }
        self.pool.put(now, left);
        false
    }

    /// A process claims more than is known. While the ledger learns, it is believed, as far as there are so many units.
    fn declare(&mut self, now: u64, caller: &Caller, line: &Line, held: u32) -> bool {
        let others = self.held().saturating_sub(held).saturating_add(self.pool.total());
        let most = self.figures.units.saturating_sub(others);
        let believed = self.is_learning() && line.claim <= most;
        let tail = self.figures.tail_us().max(line.figures.tail_us());
        let holder = self.holders.entry(caller.process).or_insert_with(|| Holder::new(line.figures));
        holder.used.clear();
        holder.held = if believed { line.claim } else { 0 };
        if !believed {
            self.pool.put(now.saturating_add(tail), held);
            return true;
        }
        let mut left = most - line.claim;
        for (free_in, units) in &line.returned {
            let units = (*units).min(left);
            self.pool.put(now.saturating_add(*free_in).saturating_add(slack(*free_in)).max(self.learning_until), units);
            left -= units;
        }
        false
    }

    /// Puts the strictest of the figures in force.
    fn bind(&mut self, now: u64) {
        let before = self.figures;
        let all = self.holders.values().map(|holder| holder.figures).reduce(|a, b| Figures {
            units: a.units.min(b.units),
            again_us: a.again_us.max(b.again_us),
            transit_us: a.transit_us.max(b.transit_us),
            takes_used: a.takes_used && b.takes_used,
        });
        self.figures = all.unwrap_or(before);
        self.pool.delay(self.figures.tail_us().saturating_sub(before.tail_us()), now);
        let there = self.held().saturating_add(self.pool.total());
        self.pool.drop_last(there.saturating_sub(self.figures.units));
        if !self.is_learning() {
            let missing = self.figures.units.saturating_sub(there);
            self.pool.put(now.saturating_add(self.figures.tail_us()), missing);
        }
    }

    /// What the process may keep, and what it is given.
    fn share(&mut self, now: u64, process: u64) -> Got {
        let claims: Vec<Claim> = self.holders.iter().map(|(process, holder)| holder.claim(*process, now)).collect();
        let claimants = claims.iter().filter(|claim| claim.wanted() > 0).count();
        let parts = self.parts(now, &claims);
        let Some(mine) = parts.iter().find(|part| part.claim.process == process) else {
            return self.nothing(State::Kept);
        };
        let units = self.figures.units as usize;
        let travels = self.figures.takes_used && claimants > 1 && units < FEW * claimants;
        let horizon = if self.figures.takes_used { now.saturating_add(AHEAD_US) } else { now };
        let before_me = |part: &&Part| part.claim.is_heard && part.order() < mine.order();
        let reserved = parts.iter().filter(before_me).fold(0u32, |sum, part| sum.saturating_add(part.lack()));
        let most = if self.is_learning() { 0 } else { self.pool.until(horizon).saturating_sub(reserved) };
        let taken = self.pool.take(mine.lack().min(most), horizon);
        let keep = mine.ceil().max(mine.target).max(mine.claim.wanted().min(1));
        if let Some(holder) = self.holders.get_mut(&process).filter(|_| !taken.is_empty()) {
            holder.granted = now;
            holder.held = taken.iter().fold(holder.held, |sum, (_, units)| sum.saturating_add(*units));
            holder.used = taken.iter().copied().filter(|(at, _)| *at > now).collect();
        }
        Got {
            units: taken.into_iter().map(|(at, units)| (at.saturating_sub(now), units)).collect(),
            keep,
            weights: weights(mine.terms),
            travels,
            free: self.pool.until(now),
            state: State::Kept,
            is_stale: false,
        }
    }

    /// The shares of all, while one of them may have its turn for a big request.
    fn parts(&mut self, now: u64, claims: &[Claim]) -> Vec<Part> {
        let units = self.figures.units;
        let parts = divide(units, claims);
        let is_big = |part: &&Part| part.claim.is_heard && part.claim.need > part.target && part.claim.need <= units;
        let big: Vec<&Part> = parts.iter().filter(is_big).collect();
        let goes_on =
            self.turn.filter(|(process, until)| now < *until && big.iter().any(|part| part.claim.process == *process));
        let turned = |part: &&&Part| self.holders.get(&part.claim.process).map_or(0, |holder| holder.turned);
        let next = || big.iter().min_by_key(|part| (turned(part), part.claim.process)).map(|part| part.claim.process);
        let length = self.figures.again_us.saturating_mul(2).saturating_add(TURN_US);
        let Some((process, until)) = goes_on.or_else(|| next().map(|process| (process, now.saturating_add(length))))
        else {
            self.turn = None;
            return parts;
        };
        if goes_on.is_none()
            && let Some(holder) = self.holders.get_mut(&process)
        {
            holder.turned = now.max(1);
        }
        self.turn = Some((process, until));
        let need = claims.iter().find(|claim| claim.process == process).map_or(0, |claim| claim.need);
        divide_turn(units, claims, process, need)
    }
}

impl Holder {
    fn claim(&self, process: u64, now: u64) -> Claim {
        Claim {
            process,
            want: self.want,
            held: self.held,
            need: self.need,
            granted: self.granted,
            is_heard: self.heard.saturating_add(HEARD_US) > now,
        }
    }
}
