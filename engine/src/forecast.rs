//! When requests would be done: the engine itself, on a copy, ahead of time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet, VecDeque};
use std::time::Duration;

use super::copy::{Ahead, Copy, Line};
use super::cost::{Cost, Total};
use super::endpoint::{EndpointId, NO_ENDPOINT};
use super::keys::{LaneKey, PermitKey, WaiterKey};
use super::pushback::Feedback;
use super::tier::Tier;
use super::{Answer, Ask, Claim};
use crate::time::Time;

/// Grants that are worked out one by one; what comes after them goes on at the rate of the latter half.
const MAX_GRANTS: usize = 4_000;
/// Ever so much later is never.
const NEVER: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Requests of others who never stop, in each tier: as many as may go at once in a window.
const ENDLESS: usize = 1_000;
/// Others stop after so many grants, and the forecast gives up after so many steps: its caller waits for it.
const MAX_OF_OTHERS: usize = 10 * MAX_GRANTS;
const MAX_STEPS: usize = 50 * MAX_GRANTS;

/// Who else sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Others {
    /// Alone: no other tier of the lane, no other lane.
    Nobody,
    /// With the requests that wait now, and no later ones.
    Waiting,
    /// Everybody, without end: all tiers of the lane, and each lane that waits now.
    Everybody,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    pub tier: Tier,
    pub requests: u64,
    /// What they take together.
    pub total: Total,
    /// How long the vendor takes to answer, in nanoseconds.
    pub service_ns: u64,
}

/// How long until the last of a batch has been answered; none where that never comes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Forecast {
    pub earliest: Option<Duration>,
    pub expected: Option<Duration>,
    pub guaranteed: Option<Duration>,
}

/// Looks ahead: alone, with the requests that wait now, and with all lanes sending without end.
pub fn forecast(copy: &Copy, now: Time, batch: Batch) -> Forecast {
    let [earliest, expected, guaranteed] =
        [Others::Nobody, Others::Waiting, Others::Everybody].map(|others| run(copy, now, batch, others));
    // What comes after the grants that are worked out is an extrapolation: the order holds all the same.
    Forecast {
        earliest: earliest.map(|earliest| expected.map_or(earliest, |expected| earliest.min(expected))),
        expected,
        guaranteed: guaranteed.and_then(|guaranteed| Some(guaranteed.max(expected?))),
    }
}

/// How long until the last of `batch`, submitted now, has been answered; none where that never comes.
fn run(copy: &Copy, now: Time, batch: Batch, others: Others) -> Option<Duration> {
    if copy.is_held() {
        return None;
    }
    let mut run = Run::new(copy, now, batch, others);
    let mut done: Vec<Time> = Vec::new();
    if batch.requests == 0 {
        return Some(Duration::ZERO);
    }
    for _ in 0..MAX_STEPS {
        if done.len() as u64 >= batch.requests {
            return done.last().map(|last| last.since(now));
        }
        if run.grants >= MAX_GRANTS && done.len() >= 2 {
            return run.extrapolate(now, &done);
        }
        run.step(&mut done)?;
        if run.now.since(now) > NEVER {
            return None;
        }
    }
    None
}

struct Run {
    ahead: Ahead,
    now: Time,
    batch: Batch,
    others: Others,
    submitted: u64,
    /// Those of the batch that wait.
    ours: HashSet<WaiterKey>,
    /// What is in flight: its answer, and whether it is of the batch.
    ends: BinaryHeap<Reverse<(Time, PermitKey, bool)>>,
    grants: usize,
    spread: u32,
    /// By lane and tier: how many others wait.
    filled: VecDeque<(LaneKey, Tier)>,
}

impl Run {
    fn new(copy: &Copy, now: Time, batch: Batch, others: Others) -> Run {
        let mut ahead = copy.unfold(now);
        let service = Duration::from_nanos(batch.service_ns);
        let ends = ahead.under_way.drain(..).map(|(key, since)| Reverse(((since + service).max(now), key, false)));
        let ends = ends.collect();
        let (ours, filled) = (HashSet::new(), VecDeque::new());
        let mut run = Run { ahead, now, batch, others, submitted: 0, ours, ends, grants: 0, spread: 0, filled };
        let lanes = std::mem::take(&mut run.ahead.lanes);
        let of_lane = |(number, (lane, lines)): (usize, &'_ (LaneKey, Vec<Line>))| {
            let counts = |line: &Line| others != Others::Nobody || (number == 0 && line.tier == batch.tier);
            lines.iter().filter(|line| counts(line)).map(|line| (*lane, line.clone())).collect::<Vec<_>>()
        };
        let mut lines: Vec<(LaneKey, Line)> = lanes.iter().enumerate().flat_map(of_lane).collect();
        lines.sort_by_key(|(_, line)| line.since);
        for (lane, line) in lines {
            for cost in line.costs.into_iter().chain(std::iter::repeat_n(Cost::from(1), line.more.min(MAX_GRANTS))) {
                run.submit(lane, ask(line.endpoint, line.tier, cost), false);
            }
        }
        for (number, (lane, _)) in lanes.iter().enumerate() {
            for tier in
                Tier::ALL.into_iter().filter(|tier| others == Others::Everybody && (number > 0 || *tier != batch.tier))
            {
                (0..(ENDLESS / lanes.len()).max(8)).for_each(|_| run.submit(*lane, ask(NO_ENDPOINT, tier, 1), false));
            }
        }
        run.ahead.lanes = lanes;
        run.refill();
        run
    }

    fn submit(&mut self, lane: LaneKey, ask: Ask, ours: bool) {
        match self.ahead.engine.submit(self.now, lane, &ask) {
            Answer::Granted(permit) => self.started(permit, ours, (lane, ask.tier)),
            Answer::Wait { waiter, .. } if ours => {
                self.ours.insert(waiter);
            }
            // Refused, because it can never go: no other stands behind it.
            Answer::Wait { .. } | Answer::Refused(_) => {}
        }
    }

    fn started(&mut self, permit: PermitKey, ours: bool, (lane, tier): (LaneKey, Tier)) {
        self.grants += 1;
        let answered = self.now.plus_nanos(self.service());
        self.ends.push(Reverse((answered, permit, ours)));
        if !ours && self.others == Others::Everybody {
            self.filled.push_back((lane, tier));
        }
    }

    /// How long the next answer takes. With those who wait now, half to one and a half of what is usual, spread evenly: if
    /// all took the same, turns that lanes win by a hair would always go the same way.
    fn service(&mut self) -> u64 {
        let usual = self.batch.service_ns;
        if self.others != Others::Waiting {
            return usual;
        }
        // Fractions of multiples of the golden ratio.
        self.spread = self.spread.wrapping_add(0x9e37_79b9);
        usual / 2 + ((u128::from(usual) * u128::from(self.spread)) >> 32) as u64
    }

    /// Those who always wait, wait again.
    fn refill(&mut self) {
        let first = self.ahead.lanes[0].0;
        while self.submitted < self.batch.requests.min(MAX_GRANTS as u64) {
            let cost = self.batch.total.share(self.submitted, self.batch.requests);
            self.submitted += 1;
            self.submit(first, ask(NO_ENDPOINT, self.batch.tier, cost), true);
        }
        for _ in 0..if self.grants < MAX_OF_OTHERS { self.filled.len() } else { 0 } {
            if let Some((lane, tier)) = self.filled.pop_front() {
                self.submit(lane, ask(NO_ENDPOINT, tier, 1), false);
            }
        }
    }

    /// The next thing that happens; none where nothing ever does.
    fn step(&mut self, done: &mut Vec<Time>) -> Option<()> {
        let engine = &mut self.ahead.engine;
        let due = engine.poll_timeout().unwrap_or(Time::MAX);
        let answer = self.ends.peek().map_or(Time::MAX, |Reverse((at, ..))| *at);
        let next = due.min(answer);
        if next == Time::MAX {
            return None;
        }
        self.now = self.now.max(next);
        if answer <= due {
            if let Some(Reverse((at, permit, ours))) = self.ends.pop() {
                engine.on_response(self.now, permit, Feedback::Passed(None), &[]);
                engine.answered(self.now, permit);
                engine.finished(self.now, permit);
                if ours {
                    done.push(at);
                }
            }
        } else {
            engine.poll(self.now);
        }
        let woken: Vec<WaiterKey> = self.ahead.engine.woken().collect();
        for waiter in woken {
            let Some(of) = self.ahead.engine.waiters.get(waiter).map(|waiter| (waiter.lane, waiter.tier)) else {
                continue;
            };
            if let Claim::Started(permit, _) = self.ahead.engine.claim(self.now, waiter) {
                let ours = self.ours.remove(&waiter);
                self.started(permit, ours, of);
            }
        }
        self.refill();
        Some(())
    }

    fn extrapolate(&self, now: Time, done: &[Time]) -> Option<Duration> {
        let (half, last) = (done[done.len() / 2], *done.last()?);
        let between = (done.len() - 1 - done.len() / 2).max(1) as f64;
        let left = (self.batch.requests - done.len() as u64) as f64;
        let seconds = last.since(now).as_secs_f64() + last.since(half).as_secs_f64() / between * left;
        Duration::try_from_secs_f64(seconds).ok().filter(|after| *after < NEVER)
    }
}

fn ask(endpoint: EndpointId, tier: Tier, cost: impl Into<Cost>) -> Ask {
    // Whatever is in flight ends when it is answered, not by its time.
    let attempt_ns = NEVER.as_nanos() as u64;
    Ask {
        tier,
        endpoint,
        cost: cost.into(),
        retry: false,
        immediate: false,
        give_up: Time::MAX,
        patience_ns: 0,
        attempt_ns,
    }
}
