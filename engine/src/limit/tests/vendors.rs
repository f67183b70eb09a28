//! Every guard against the vendor that it mirrors, with requests that arrive at any moment between grant and answer: the
//! vendor refuses nothing, and nearly all that it would allow is used.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;
use crate::limit::free::Free;
use crate::limit::guard::{Guard, Taken};
use crate::testing::limit::{Limiter, Phase, Refill, Rule};

/// What happens to a request that was granted, in the order of time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives { units: u32 },
    Starts { granted: Time, units: u32, high: bool },
    Ends { granted: Time, units: u32, high: bool },
    NeverLeft { granted: Time, units: u32, high: bool },
}

struct Run {
    spec: GuardSpec,
    vendor: Limiter,
    random: fastrand::Rng,
    events: BinaryHeap<Reverse<(Time, Event)>>,
    /// Requests are under way for so long at most, less than the guard's transit time.
    delay: u64,
    /// Answers say when the window ends, give or take two milliseconds: one ends at this moment, and others.
    stated_phase: Option<u64>,
    used: u32,
}

impl Run {
    fn send(&mut self, at: Time, granted: Time, units: u32, high: bool) {
        let arrives = at.plus_nanos(self.random.u64(0..self.delay));
        let ends = arrives.plus_nanos(self.random.u64(0..self.delay));
        self.events.push(Reverse((arrives, Event::Arrives { units })));
        // One in ten is never heard of again.
        if self.random.u32(0..10) > 0 {
            self.events.push(Reverse((ends, Event::Ends { granted, units, high })));
        }
    }

    fn schedule_granted(&mut self, now: Time, units: u32, high: bool) {
        match self.random.u32(0..20) {
            0 => {
                self.events.push(Reverse((now.plus_nanos(self.delay), Event::NeverLeft { granted: now, units, high })))
            }
            1 => {
                self.events.push(Reverse((now.plus_nanos(self.delay / 2), Event::Starts { granted: now, units, high })))
            }
            _ => self.send(now, now, units, high),
        }
    }

    fn handle_event(&mut self, guard: &mut Guard, now: Time, event: Event) {
        let taken = |granted, units, high| Taken { granted, units, high };
        match event {
            Event::Arrives { units } => {
                self.used += units;
                assert!(self.vendor.arrive(now.as_nanos(), units), "{now:?} {:?}", self.vendor);
            }
            Event::Starts { granted, units, high } => {
                guard.restart(&self.spec, now, taken(granted, units, high));
                self.send(now, now, units, high);
            }
            Event::Ends { granted, units, high } => {
                if let Some(phase) = self.stated_phase {
                    let end = Time::from_nanos((now.as_nanos() - phase).next_multiple_of(SECOND) + phase);
                    guard.window_ends(&self.spec, now, end.minus_nanos(2 * MS), end.plus_nanos(2 * MS));
                }
                guard.end(&self.spec, now, taken(granted, units, high));
            }
            Event::NeverLeft { granted, units, high } => guard.give_back(&self.spec, now, taken(granted, units, high)),
        }
    }

    /// Grants as much as fits for 20 seconds; how much arrived in them.
    fn run(mut self) -> u32 {
        let mut guard = Guard::new(&self.spec).unwrap();
        let mut now = ms(0);
        let mut wanted = None;
        while now < ms(20_000) {
            while let Some(Reverse((at, event))) = self.events.peek().copied()
                && at <= now
            {
                self.events.pop();
                self.handle_event(&mut guard, at, event);
            }
            let (units, high) = *wanted.get_or_insert_with(|| (self.random.u32(1..4), self.random.bool()));
            let next = self.events.peek().map_or(Time::MAX, |Reverse((at, _))| *at);
            match guard.free(&self.spec, now, units, high) {
                Free::Now => {
                    guard.take(&self.spec, Taken { granted: now, units, high });
                    self.schedule_granted(now, units, high);
                    wanted = None;
                    now = now.plus_nanos(1);
                }
                Free::At(at) | Free::OnSettle(at) => {
                    assert!(at > now, "{at:?} is not later than {now:?}");
                    now = at.min(next);
                }
            }
        }
        self.used
    }
}

#[test]
fn guards_avoid_refusals_and_waste_little() {
    let (limit, window_ns, delay) = (100, SECOND, 10 * MS);
    let transit = 2 * delay + SECOND / 200;
    let log = LogSpec::new(limit, 10, SECOND, transit);
    let bucket = |capacity| GuardSpec::Bucket(VendorBucketSpec::new(capacity, 10, 100.0, SECOND, transit));
    let tokens = |refill| Rule::TokenBucket { capacity: limit, rate: limit, per_ns: window_ns, refill };
    let lumps = Refill::Lumps { interval_ns: SECOND / 10, phase_ns: 30 * MS };
    let counter = GuardSpec::Counter(CounterSpec::new(limit, limit, 10, SECOND, transit));
    let fixed = Rule::FixedWindow { limit, window_ns, phase: Phase::At(300 * MS) };
    let sliding = Rule::SlidingCounter { limit, window_ns, phase_ns: 300 * MS };
    for (spec, rule, stated_phase, least) in [
        (GuardSpec::Log(log), fixed, None, 1_970),
        (GuardSpec::Log(log.fixed()), fixed, Some(300 * MS), 2_065),
        (GuardSpec::Log(log), Rule::SlidingWindow { limit, window_ns, both_ends: true }, None, 1_970),
        (counter, sliding, None, 1_885),
        (counter, sliding, Some(300 * MS), 1_985),
        (bucket(limit), tokens(Refill::Steady), None, 2_085),
        (bucket(limit - 10), tokens(lumps), None, 2_075),
        (bucket(limit), Rule::LeakyBucket { capacity: limit, rate: limit, per_ns: window_ns }, None, 2_085),
    ] {
        for seed in 0..2 {
            let random = fastrand::Rng::with_seed(seed);
            let run = Run {
                spec,
                vendor: Limiter::new(rule),
                random,
                events: BinaryHeap::new(),
                delay,
                stated_phase,
                used: 0,
            };
            let used = run.run();
            assert!(used >= least, "{rule:?}: {used}");
        }
    }
}
