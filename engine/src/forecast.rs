//! Forecasts when a batch of requests would be done, by running a copy of the engine ahead of time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet, VecDeque};
use std::time::Duration;

use super::copy::{Ahead, Copy, Line};
use super::cost::{Cost, Total};
use super::endpoint::{EndpointId, NO_ENDPOINT};
use super::keys::{LaneKey, PermitKey, WaiterKey};
use super::pushback::Feedback;
use super::tier::Tier;
use super::{Answer, Ask, Attempt, Claim};
use crate::time::Time;

/// The number of grants that are simulated; the rest is extrapolated.
const MAX_GRANTS: usize = 4_000;
/// The same for a limit that has granted in few bursts by then: a window of thousands of units.
const MAX_GRANTS_IN_BURSTS: usize = 10 * MAX_GRANTS;
/// The simulation goes on until it has seen so many waits between bursts, if it can: the first burst may be smaller than
/// the others, because a part of its window was used before.
const BURSTS: usize = 3;
/// Thousands of requests that were done within this time may be one burst.
const ONE_BURST: Duration = Duration::from_secs(1);
/// A wait is one between bursts if it is this many times as long as the average one.
const LONG_WAIT: f64 = 20.0;
/// A batch that takes longer than this is reported as never done.
const NEVER: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Requests of competitors that never stop sending, in each tier and split among the lanes.
const ENDLESS: usize = 1_000;
/// Bounds on the work of a forecast, since its caller waits for it: competitors stop sending after this many grants.
const MAX_OF_OTHERS: usize = 10 * MAX_GRANTS;
const MAX_STEPS: usize = 50 * MAX_GRANTS;

/// Which other requests compete with the batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Others {
    /// None: no other tier of the lane and no other lane sends.
    Nobody,
    /// The requests that wait now, but none that come later.
    Waiting,
    /// All tiers of the lane, and each lane that waits now, send without end.
    Everybody,
}

/// The requests that a forecast is about.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    pub tier: Tier,
    pub requests: u64,
    /// Their total cost.
    pub total: Total,
    /// How long the vendor takes to answer, in nanoseconds.
    pub service_ns: u64,
}

/// How long until the last request of a batch has been answered; `None` if that never happens.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Forecast {
    pub earliest: Option<Duration>,
    pub expected: Option<Duration>,
    pub guaranteed: Option<Duration>,
}

/// Forecasts a batch with no competitors, with the requests that wait now, and with all lanes sending without end.
pub fn forecast(copy: &Copy, now: Time, batch: Batch) -> Forecast {
    let [earliest, expected, guaranteed] =
        [Others::Nobody, Others::Waiting, Others::Everybody].map(|others| run(copy, now, batch, others));
    // Beyond the simulated grants the figures are extrapolated, so they could be out of order: restore the order.
    Forecast {
        earliest: earliest.map(|earliest| expected.map_or(earliest, |expected| earliest.min(expected))),
        expected,
        guaranteed: guaranteed.and_then(|guaranteed| Some(guaranteed.max(expected?))),
    }
}

/// How long until the last request of `batch`, submitted now, has been answered; `None` if that never happens.
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
        if run.grants >= run.most && done.len() >= 2 && run.are_grants_answered() {
            if run.most == MAX_GRANTS_IN_BURSTS || !shows_few_bursts(&done) {
                return run.extrapolate(now, &done);
            }
            (run.most, run.reached) = (MAX_GRANTS_IN_BURSTS, None);
            run.refill();
        }
        run.step(&mut done)?;
        if run.now.since(now) > NEVER {
            return None;
        }
    }
    if run.grants >= MAX_GRANTS && done.len() >= 2 { run.extrapolate(now, &done) } else { None }
}

struct Run {
    ahead: Ahead,
    now: Time,
    batch: Batch,
    others: Others,
    submitted: u64,
    /// Waiting requests of the batch.
    ours: HashSet<WaiterKey>,
    /// Exchanges in flight: when each is answered, its permit, and whether it belongs to the batch.
    ends: BinaryHeap<Reverse<(Time, PermitKey, bool)>>,
    grants: usize,
    /// The number of grants that are simulated, and when it was reached.
    most: usize,
    reached: Option<Time>,
    spread: u32,
    /// Lane and tier of each competitor's request that was granted and is to be replaced by a new one.
    filled: VecDeque<(LaneKey, Tier)>,
}

impl Run {
    fn new(copy: &Copy, now: Time, batch: Batch, others: Others) -> Run {
        let mut ahead = copy.unfold(now);
        let service = Duration::from_nanos(batch.service_ns);
        let ends = ahead.under_way.drain(..).map(|(key, since)| Reverse(((since + service).max(now), key, false)));
        let ends = ends.collect();
        let (ours, filled) = (HashSet::new(), VecDeque::new());
        let mut run = Run {
            ahead,
            now,
            batch,
            others,
            submitted: 0,
            ours,
            ends,
            grants: 0,
            most: MAX_GRANTS,
            reached: None,
            spread: 0,
            filled,
        };
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
            // A request that is refused can never be sent, so it holds up no other.
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

    /// How long the vendor takes for the next answer. With [`Others::Waiting`], half to one and a half of the usual
    /// time, evenly spread: with equal times, turns that lanes win by a hair would always be won by the same lane.
    fn service(&mut self) -> u64 {
        let usual = self.batch.service_ns;
        if self.others != Others::Waiting {
            return usual;
        }
        // The fractional parts of multiples of the golden ratio.
        self.spread = self.spread.wrapping_add(0x9e37_79b9);
        usual / 2 + ((u128::from(usual) * u128::from(self.spread)) >> 32) as u64
    }

    /// Submits the next requests of the batch, and new requests of competitors that send without end.
    fn refill(&mut self) {
        let first = self.ahead.lanes[0].0;
        while self.submitted < self.batch.requests.min(self.most as u64) {
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

    /// Whether the exchanges are answered that had begun when the last grant was simulated: they may be a burst of their
    /// own.
    fn are_grants_answered(&mut self) -> bool {
        let reached = *self.reached.get_or_insert(self.now);
        let longest = Duration::from_nanos(self.batch.service_ns.saturating_mul(2));
        self.ends.peek().is_none_or(|Reverse((at, ..))| at.since(reached) > longest)
    }

    /// Advances to the next event; `None` if there is none.
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
        let last = *done.last()?;
        let left = (self.batch.requests - done.len() as u64) as f64;
        let seconds = match between_bursts(done).as_slice() {
            [] => {
                let half = done[done.len() / 2];
                let between = (done.len() - 1 - done.len() / 2).max(1) as f64;
                last.since(now).as_secs_f64() + last.since(half).as_secs_f64() / between * left
            }
            // The last burst has begun at `to`, and each has as many requests as those between `from` and `to` on average.
            [first @ .., to] => {
                let (from, bursts) = first.first().map_or((0, 1), |from| (*from, first.len()));
                let each = (to - from) as f64 / bursts as f64;
                let period = done[*to].since(done[from]).as_secs_f64() / bursts as f64;
                let more = ((self.batch.requests - *to as u64) as f64 / each).ceil() - 1.0;
                done[*to].since(now).as_secs_f64() + more * period
            }
        };
        Duration::try_from_secs_f64(seconds).ok().filter(|after| *after < NEVER)
    }
}

/// The requests with which a burst begins after a long wait, if the requests are done in bursts.
fn between_bursts(done: &[Time]) -> Vec<usize> {
    let waits = || done.windows(2).map(|pair| pair[1].since(pair[0]));
    let longest = waits().max().unwrap_or_default();
    let average = waits().sum::<Duration>().as_secs_f64() / done.len() as f64;
    if longest.as_secs_f64() <= LONG_WAIT * average {
        return Vec::new();
    }
    waits().enumerate().filter(|(_, wait)| *wait >= longest / 2).map(|(number, _)| number + 1).collect()
}

/// Whether all requests were done in one burst, or in so few that their rate is unknown.
fn shows_few_bursts(done: &[Time]) -> bool {
    let bursts = between_bursts(done).len();
    let is_one = done.first().zip(done.last()).is_none_or(|(first, last)| last.since(*first) < ONE_BURST);
    is_one || (1..BURSTS).contains(&bursts)
}

fn ask(endpoint: EndpointId, tier: Tier, cost: impl Into<Cost>) -> Ask {
    // An exchange in flight ends when the simulation answers it, not by its deadline.
    let attempt = Attempt::within(NEVER.as_nanos() as u64);
    Ask::new(tier, endpoint, cost, attempt)
}
