//! Decides what one process tells the store and what the answers mean. Pure.
//!
//! Units that a call returns have left the engine before the call is made. Every call names them again until one is
//! answered, because a process cannot know whether a failed call has reached the store.

use std::collections::HashMap;
use std::time::Duration;

use super::call::{Answer, Call, Entry};
use super::ledger::{FLOOR_LEASE_US, Figures, Floor, Line, State};
use crate::clock::{Time, nanos};
use crate::engine::limit::{self, Wish};

/// The state that one process keeps for its calls to the store.
pub(crate) struct Process {
    /// Differs from the id of every process that ever shared the store.
    id: u64,
    seq: u64,
    lease: Duration,
    limits: HashMap<String, Limit>,
}

/// What the process remembers about one limit.
#[derive(Default)]
struct Limit {
    /// The number of the last answered call about this limit.
    known_seq: u64,
    /// The units returned in calls that were not answered, as (time until which they count, units).
    unheard: Vec<(Time, u32)>,
    /// The store's clock in the last answer, and when that answer came.
    last: Option<(u64, Time)>,
    /// After this time the record no longer matters and is deleted.
    until: Time,
}

impl Process {
    pub(crate) fn new(id: u64, lease: Duration) -> Process {
        Process { id, seq: 0, lease, limits: HashMap::new() }
    }

    /// The end of the lease that a call begun at `began` renews. From then on the process sends only by its floor.
    pub(crate) fn until(&self, began: Time) -> Time {
        began + less_a_hundredth(self.lease)
    }

    /// The end of the floor's lease that a call begun at `began` renews.
    pub(crate) fn floor_until(&self, began: Time) -> Time {
        began + less_a_hundredth(Duration::from_micros(FLOOR_LEASE_US))
    }

    /// Makes the next call to the store.
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

    /// Applies the answer to a call that began at `began`. Returns the units and rules for each limit, in the order of
    /// the call; `None` for a limit about which the store has said nothing.
    pub(crate) fn answered(&mut self, began: Time, now: Time, call: &Call, answer: &Answer) -> Vec<Option<limit::Got>> {
        let floor_until = self.floor_until(began);
        let mut all = Vec::with_capacity(call.lines.len());
        for (entry, got) in call.lines.iter().zip(&answer.got) {
            // For a line that failed, the call counts as unanswered: the next call repeats what this one returned.
            let Ok(Some(got)) = got else {
                all.push(None);
                continue;
            };
            let known = self.limits.entry(entry.limit.clone()).or_default();
            known.known_seq = call.seq;
            known.unheard.clear();
            known.last = Some((answer.clock_us, now));
            all.push(Some(limit::Got {
                units: got.units.iter().map(|(free_in, units)| (free_in.saturating_mul(1_000), *units)).collect(),
                keep: got.keep,
                travels: got.travels,
                is_lost: matches!(got.state, State::Lost),
                weights: got.weights,
                paused_ns: got.paused_us.saturating_mul(1_000),
                floor: got.floor,
                floor_until,
            }));
        }
        self.limits.retain(|_, known| known.until > now);
        all
    }
}

/// Ends a lease a hundredth early, because this process's clock and the store's run at slightly different rates.
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
