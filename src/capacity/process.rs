//! What one process says to the store, and what it makes of the answers. Pure.
//!
//! What a call gives back has left the engine before the call is made, and is named again in every call until one is answered:
//! whether a call that failed has reached the store cannot be known.

use std::collections::HashMap;
use std::time::Duration;

use super::call::{Answer, Call, Entry};
use super::ledger::{FLOOR_LEASE_US, Figures, Floor, Line, State};
use crate::clock::{Time, nanos};
use crate::engine::limit::{self, Wish};

/// One process's side of the calls.
pub(crate) struct Process {
    /// Of all processes that ever shared the store, this one.
    id: u64,
    seq: u64,
    lease: Duration,
    limits: HashMap<String, Limit>,
}

/// What is known of one limit.
#[derive(Default)]
struct Limit {
    /// The last call about it that was answered.
    known_seq: u64,
    /// What was given back in calls that were not answered: until when each counts.
    unheard: Vec<(Time, u32)>,
    /// The store's clock in the last answer, and when that came.
    last: Option<(u64, Time)>,
    /// Nothing is known of it that matters after this.
    until: Time,
}

impl Process {
    pub(crate) fn new(id: u64, lease: Duration) -> Process {
        Process { id, seq: 0, lease, limits: HashMap::new() }
    }

    /// The end of the lease that a call renews which began at `began`: nothing is sent from then on, but for what goes by the floor.
    pub(crate) fn until(&self, began: Time) -> Time {
        began + less_a_hundredth(self.lease)
    }

    /// The same of the floor.
    pub(crate) fn floor_until(&self, began: Time) -> Time {
        began + less_a_hundredth(Duration::from_micros(FLOOR_LEASE_US))
    }

    /// The next call.
    pub(crate) fn call(&mut self, now: Time, wishes: Vec<(String, Wish)>, leaves: bool) -> Call {
        self.seq += 1;
        let (process, seq, lease_us) = (self.id, self.seq, nanos(self.lease) / 1_000);
        let lines = wishes.into_iter().map(|(name, wish)| self.entry(now, name, &wish)).collect();
        Call { process, seq, lease_us, leaves, lines }
    }

    fn entry(&mut self, now: Time, name: String, wish: &Wish) -> Entry {
        let kept = self.lease * 2 + Duration::from_nanos(wish.figures.again_ns);
        let known = self.limits.entry(name.clone()).or_default();
        known.until = now + kept;
        known.unheard.extend(wish.returned.iter().map(|(free_in, units)| (now.plus_nanos(*free_in), *units)));
        let left = |at: &Time| at.as_nanos().saturating_sub(now.as_nanos()).div_ceil(1_000);
        let line = Line {
            figures: figures(&wish.figures),
            claim: wish.claim,
            returned: known.unheard.iter().map(|(at, units)| (left(at), *units)).collect(),
            want: wish.want,
            need: wish.need,
            paused_us: wish.paused_ns.div_ceil(1_000),
            floor: Floor { each: wish.floor.each, all: wish.floor.all },
        };
        let expected_us = known.last.map(|(clock_us, at)| clock_us.saturating_add(nanos(now.since(at)) / 1_000));
        Entry { limit: name, known_seq: known.known_seq, expected_us, line }
    }

    /// The answer to a call that began at `began` has come. Returns what it gives of each limit, in the order of the call.
    pub(crate) fn answered(&mut self, began: Time, now: Time, call: &Call, answer: &Answer) -> Vec<limit::Got> {
        let floor_until = self.floor_until(began);
        let mut all = Vec::with_capacity(call.lines.len());
        for (entry, got) in call.lines.iter().zip(&answer.got) {
            let known = self.limits.entry(entry.limit.clone()).or_default();
            known.known_seq = call.seq;
            known.unheard.clear();
            known.last = Some((answer.clock_us, now));
            let Some(got) = got else { continue };
            all.push(limit::Got {
                units: got.units.iter().map(|(free_in, units)| (free_in.saturating_mul(1_000), *units)).collect(),
                keep: got.keep,
                travels: got.travels,
                is_lost: matches!(got.state, State::Lost),
                weights: got.weights,
                paused_ns: got.paused_us.saturating_mul(1_000),
                floor: got.floor,
                floor_until,
            });
        }
        self.limits.retain(|_, known| known.until > now);
        all
    }
}

/// A hundredth is left to clocks that do not run alike.
fn less_a_hundredth(lease: Duration) -> Duration {
    lease - lease / 100
}

fn figures(figures: &limit::Figures) -> Figures {
    Figures {
        units: figures.units,
        again_us: figures.again_ns.div_ceil(1_000),
        transit_us: figures.transit_ns.div_ceil(1_000),
        takes_used: figures.travels,
    }
}
