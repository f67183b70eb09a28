//! How many units each process that wants some (a claimant) should have.
//!
//! First the tiers divide the limit by their weights (60 / 30 / 10), and the others get what a tier does not want. Then
//! the claimants divide the units of each tier: no claimant gets more than it wants, and none that lacks units gets
//! fewer than another.

use crate::engine::tier::Tier;

/// Sums of fractions differ from whole numbers by less than this.
const NEAR: f64 = 1e-6;

/// What one process holds and wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) process: u64,
    pub(crate) want: [u32; 3],
    pub(crate) held: u32,
    /// The most that one waiting request needs at once.
    pub(crate) need: u32,
    /// When the process was last granted something.
    pub(crate) granted: u64,
    /// Whether the process has called lately. One that has not keeps its share, but no units are reserved for it.
    pub(crate) is_heard: bool,
}

impl Claim {
    pub(crate) fn wanted(&self) -> u32 {
        sum(self.want)
    }
}

/// The share of one process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) claim: Claim,
    /// The share in each tier.
    pub(crate) terms: [f64; 3],
    /// The whole number of units up to which the process is granted units.
    pub(crate) target: u32,
    /// Whether the process has a turn for a big request.
    pub(crate) has_turn: bool,
}

impl Part {
    fn share(&self) -> f64 {
        self.terms.iter().sum()
    }

    /// The share without its fraction.
    pub(crate) fn floor(&self) -> u32 {
        (self.share() + NEAR).floor() as u32
    }

    /// The share, with its fraction counted as a whole unit.
    pub(crate) fn ceil(&self) -> u32 {
        (self.share() - NEAR).ceil() as u32
    }

    /// How many units the process holds less than its target.
    pub(crate) fn lack(&self) -> u32 {
        self.target.saturating_sub(self.claim.held)
    }

    /// The order in which processes are granted units: a process with a turn first, then by the oldest last grant.
    pub(crate) fn order(&self) -> (bool, u64, u64) {
        (!self.has_turn, self.claim.granted, self.claim.process)
    }
}

pub(crate) fn sum(units: [u32; 3]) -> u32 {
    units.iter().fold(0, |sum, n| sum.saturating_add(*n))
}

/// Divides `units` among the claimants.
pub(crate) fn divide(units: u32, claims: &[Claim]) -> Vec<Part> {
    let terms = divide_tiers(units, claims);
    let part = |(claim, terms): (&Claim, [f64; 3])| {
        let mut part = Part { claim: *claim, terms, target: 0, has_turn: false };
        part.target = part.floor();
        part
    };
    let mut parts: Vec<Part> = claims.iter().zip(terms).map(part).collect();
    rotate_rest(&mut parts);
    parts
}

/// Divides `units` while `process` has its turn: it gets `need`, and the other processes share the rest.
pub(crate) fn divide_turn(units: u32, claims: &[Claim], process: u64, need: u32) -> Vec<Part> {
    let (turn, others): (Vec<Claim>, Vec<Claim>) = claims.iter().partition(|c| c.process == process);
    let mut parts = divide(units.saturating_sub(need), &others);
    let own = divide(need, &turn);
    parts.extend(own.into_iter().map(|part| Part { target: need, has_turn: true, ..part }));
    parts
}

/// Gives whole units made up of the claimants' fractions, one each, to the claimants whose last grant is oldest.
fn rotate_rest(parts: &mut [Part]) {
    let whole = parts.iter().fold(0u32, |sum, p| sum.saturating_add(p.target));
    let all = parts.iter().map(Part::share).sum::<f64>() + NEAR;
    let rest = (all.floor() as u32).saturating_sub(whole) as usize;
    let mut waiting: Vec<&mut Part> = parts.iter_mut().filter(|p| p.ceil() > p.floor()).collect();
    waiting.sort_by_key(|p| (!p.claim.is_heard, p.order()));
    for part in waiting.into_iter().take(rest) {
        part.target = part.target.saturating_add(1);
    }
}

fn divide_tiers(units: u32, claims: &[Claim]) -> Vec<[f64; 3]> {
    let column = |tier: usize| -> Vec<u32> { claims.iter().map(|c| at(c.want, tier)).collect() };
    let columns = [column(0), column(1), column(2)];
    let demand = columns.each_ref().map(|c| c.iter().map(|n| f64::from(*n)).sum());
    let tiers = water_fill(f64::from(units), demand);
    let level = |tier: usize| level(columns.get(tier).map_or(&[], Vec::as_slice), pick(tiers, tier));
    let levels = [level(0), level(1), level(2)];
    let term = |want: [u32; 3], tier: usize| f64::from(at(want, tier)).min(pick(levels, tier));
    claims.iter().map(|c| [0, 1, 2].map(|tier| term(c.want, tier))).collect()
}

fn at(units: [u32; 3], tier: usize) -> u32 {
    units.get(tier).copied().unwrap_or(0)
}

fn pick(terms: [f64; 3], tier: usize) -> f64 {
    terms.get(tier).copied().unwrap_or(0.0)
}

/// The units of each tier: its weighted part, and a part of what other tiers do not want.
fn water_fill(units: f64, demand: [f64; 3]) -> [f64; 3] {
    let mut filled = [0.0; 3];
    let mut left = units;
    let mut open = [true; 3];
    for _ in 0..3 {
        let weights = Tier::WEIGHTS.iter().zip(open).filter(|(_, open)| *open);
        let weight = weights.map(|(w, _)| f64::from(*w)).sum::<f64>();
        if weight <= 0.0 {
            break;
        }
        let scale = left / weight;
        let tiers = filled.iter_mut().zip(&mut open).zip(Tier::WEIGHTS.iter().zip(demand));
        let mut is_settled = true;
        for ((filled, open), (weight, demand)) in tiers.filter(|((_, open), _)| **open) {
            *filled = (f64::from(*weight) * scale).min(demand);
            if *filled >= demand {
                *open = false;
                left -= demand;
                is_settled = false;
            }
        }
        if is_settled {
            break;
        }
    }
    filled
}

/// The most that one claimant gets if `units` are divided as equally as the wants allow; infinity if all wants are met.
fn level(wants: &[u32], units: f64) -> f64 {
    let mut wants: Vec<u32> = wants.iter().copied().filter(|n| *n > 0).collect();
    wants.sort_unstable();
    let mut left = units;
    let mut count = wants.len() as f64;
    for want in wants {
        let want = f64::from(want);
        if want * count > left {
            return (left / count).max(0.0);
        }
        left -= want;
        count -= 1.0;
    }
    f64::INFINITY
}

/// The shares in the tiers as whole-number weights for a scheduler. A tier in which nothing waits has its usual share beside
/// the others. It takes nothing, but a request of it may come before the next answer: with no weight, its turn would cost
/// as many turns of the others as they have weight.
pub(crate) fn weights(terms: [f64; 3]) -> [u32; 3] {
    let usual = Tier::WEIGHTS.map(f64::from);
    let scale = terms.iter().zip(usual).fold(0.0, |most: f64, (term, usual)| most.max(*term / usual));
    if scale <= 0.0 {
        return Tier::WEIGHTS;
    }
    let terms: [f64; 3] = std::array::from_fn(|tier| if terms[tier] > 0.0 { terms[tier] } else { usual[tier] * scale });
    let most = terms.iter().fold(0.0, |most: f64, term| most.max(*term));
    terms.map(|term| (term * 1_000.0 / most).ceil() as u32)
}

#[cfg(test)]
mod tests;
