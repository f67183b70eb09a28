//! Random calls of several processes: those that the library's processes make, and some that none of them would make.

use std::collections::HashMap;

use crate::capacity::call::{Answer, Call, Entry};
use crate::capacity::ledger::{Figures, Floor, Line, State};

const MS: u64 = 1_000;
const S: u64 = 1_000_000;
const PROCESSES: usize = 7;

/// What happens to the store before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Nothing,
    Loss,
    Backup,
    Restore,
}

/// A limit, with the figures that most processes have for it.
struct Limit {
    name: String,
    figures: Figures,
}

#[derive(Default)]
struct Member {
    process: u64,
    seq: u64,
    lease_us: u64,
    known: HashMap<String, Known>,
    /// The last call, which may be made again.
    last: Option<Call>,
    /// Whether this call repeats the last one, so that its answer means nothing new.
    repeats: bool,
}

/// What a process knows about a limit.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    held: u32,
    seq: u64,
    /// The store's clock in the last answer, and the true time at that moment.
    last: Option<(u64, u64)>,
}

pub(super) struct Callers {
    random: fastrand::Rng,
    limits: Vec<Limit>,
    members: Vec<Member>,
    caller: usize,
    widest: usize,
    /// The true time, and how far the store's clock is ahead of it.
    now_us: u64,
    step_us: u64,
    /// How often each of these happened: kept, lost, learning, units granted, call repeated, process ended.
    counts: [usize; 6],
}

impl Callers {
    pub(super) fn new(seed: u64, widest: usize) -> Callers {
        let mut random = fastrand::Rng::with_seed(seed);
        let limits = (0..widest).map(|number| limit(&mut random, number)).collect();
        let members = (0..PROCESSES).map(|_| member(&mut random)).collect();
        Callers { random, limits, members, caller: 0, widest, now_us: 1_000 * S, step_us: 100 * S, counts: [0; 6] }
    }

    /// Draws what happens to the store before a call: nothing in the first rounds, when there is nothing to lose.
    pub(super) fn draw_event(&mut self, round: usize) -> Event {
        match self.random.u32(0..1_000) {
            _ if round < 20 => Event::Nothing,
            0..20 => Event::Loss,
            20..90 => Event::Backup,
            90..120 => Event::Restore,
            _ => Event::Nothing,
        }
    }

    /// The next call, and the time of the store's clock at that moment. Stores count whole milliseconds.
    pub(super) fn next_call(&mut self) -> (u64, Call) {
        let random = &mut self.random;
        self.now_us += match random.u32(0..1_000) {
            0..700 => random.u64(0..300) * MS,
            700..950 => random.u64(0..3_000) * MS,
            950..995 => random.u64(0..40_000) * MS,
            _ => random.u64(0..7_200_000) * MS,
        };
        if random.u32(0..100) == 0 {
            self.step_us = 90 * S + random.u64(0..20_000) * MS;
        }
        let clock_us = self.now_us + self.step_us;
        self.caller = random.usize(0..self.members.len());
        let member = &mut self.members[self.caller];
        member.repeats = member.last.is_some() && random.u32(0..100) < 5;
        if member.repeats {
            self.counts[4] += 1;
            let mut call = member.last.clone().expect("it has called");
            // Sometimes the call before the last is repeated.
            call.seq -= u64::from(call.seq > 1 && random.u32(0..5) == 0);
            return (clock_us, call);
        }
        member.seq += 1;
        let leaves = random.u32(0..100) < 2;
        let count = random.usize(1..=self.widest);
        let first = random.usize(0..self.limits.len());
        let limits = self.limits.iter().cycle().skip(first).take(count);
        let lines = limits.map(|limit| entry(random, member, limit, self.now_us, leaves)).collect();
        let call =
            Call { process: member.process, seq: member.seq, lease_us: member.lease_us, leaves, witness: None, lines };
        member.last = Some(call.clone());
        (clock_us, call)
    }

    /// Delivers the answer to the last call, except for some that are lost.
    pub(super) fn deliver_answer(&mut self, clock_us: u64, call: &Call, answer: &Answer) {
        for got in answer.got.iter().flatten().flatten() {
            let state = match got.state {
                State::Kept => 0,
                State::Lost => 1,
                State::Learning => 2,
            };
            self.counts[state] += 1;
            self.counts[3] += usize::from(!got.units.is_empty());
        }
        let member = &mut self.members[self.caller];
        if call.leaves || self.random.u32(0..100) == 0 {
            self.counts[5] += 1;
            *member = self::member(&mut self.random);
            return;
        }
        if member.repeats || self.random.u32(0..10) == 0 {
            return;
        }
        for (entry, got) in call.lines.iter().zip(&answer.got) {
            let Ok(Some(got)) = got else { continue };
            let came = got.units.iter().map(|(_, units)| units).sum::<u32>();
            let held = if got.state == State::Lost { 0 } else { entry.line.claim.saturating_add(came) };
            let known = Known { held, seq: call.seq, last: Some((clock_us, self.now_us)) };
            member.known.insert(entry.limit.clone(), known);
        }
    }

    /// Counts of what happened in the run: a run in which something never happens has compared little.
    pub(super) fn summary(&self) -> String {
        let [kept, lost, learning, granted, repeated, ended] = self.counts;
        format!(
            "differential: kept={kept} lost={lost} learning={learning} granted={granted} repeated={repeated} ended={ended}"
        )
    }
}

fn limit(random: &mut fastrand::Rng, number: usize) -> Limit {
    let again_us = [S, S, 10 * S, 60 * S, 1_800 * S, 3_600 * S, 86_400 * S][random.usize(0..7)];
    let figures = Figures {
        units: [1, 2, 7, 10, 100, 100, 1_000, 60_000][random.usize(0..8)],
        again_us: again_us + random.u64(0..500) * MS,
        transit_us: random.u64(300..11_000) * MS,
        takes_used: random.bool(),
    };
    Limit { name: format!("v/é'{number}"), figures }
}

fn member(random: &mut fastrand::Rng) -> Member {
    Member { process: random.u64(1..), lease_us: random.u64(2_000..60_000) * MS, ..Member::default() }
}

fn entry(random: &mut fastrand::Rng, member: &mut Member, limit: &Limit, now_us: u64, leaves: bool) -> Entry {
    let known = member.known.get(&limit.name).copied().unwrap_or_default();
    let mut figures = limit.figures;
    if random.u32(0..100) < 4 {
        figures.units = random.u32(1..=figures.units * 2);
        figures.again_us += random.u64(0..1_000) * MS;
        figures.transit_us += random.u64(0..1_000) * MS;
    }
    // Half an hour becomes two hours: a store may keep ledgers of windows on both sides of an hour in different places.
    if (1_800 * S..3_600 * S).contains(&figures.again_us) && random.u32(0..30) == 0 {
        figures.again_us *= 4;
    }
    let mut back = if random.bool() { random.u32(0..=known.held) } else { 0 };
    if leaves {
        back = known.held;
    }
    let mut claim = known.held - back;
    if random.u32(0..100) < 3 && !leaves {
        claim = random.u32(0..=figures.units * 2);
    }
    let mut returned = Vec::new();
    while back > 0 && returned.len() < 4 {
        let some = random.u32(1..=back);
        back -= some;
        let free_in = if random.bool() { 0 } else { random.u64(0..=figures.again_us) };
        returned.push((free_in, some));
    }
    let mut wants = |most: u32| if random.u32(0..3) == 0 { random.u32(0..=most) } else { 0 };
    let want = [wants(figures.units), wants(figures.units), wants(figures.units * 2)];
    let need = if random.bool() { 1 } else { random.u32(0..=figures.units) };
    let paused_us = if random.u32(0..50) == 0 { random.u64(0..5 * S) } else { 0 };
    let expected_us = known.last.map(|(clock_us, then_us)| clock_us + now_us - then_us);
    let expected_us = expected_us.filter(|_| random.u32(0..10) > 0);
    let each = [0, 1, 3][random.usize(0..3)];
    let floor = Floor { each, all: each.min(figures.units) * random.u32(1..4) };
    let ends_pause = random.u32(0..100) == 0;
    let line = Line { figures, claim, returned, want, need, paused_us, ends_pause, floor };
    Entry { limit: limit.name.clone(), known_seq: known.seq, expected_us, line }
}
