//! Decides what one process tells the store and what the answers mean. Pure.
//!
//! Units that a call returns have left the engine before the call is made. Every call names them again until one is
//! answered, because a process cannot know whether a failed call has reached the store.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::call::{Answer, Call, Entry};
use super::ledger::{FLOOR_LEASE_US, Figures, Floor, Got, Line, State};
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
    /// The store's clock in the last answer, and a moment no earlier than its reading: just after it, if the store said
    /// when that was, or the arrival of the answer.
    last: Option<(u64, Time)>,
    /// After this time the record no longer matters and is deleted.
    until: Time,
    /// What a call says of this limit while the process neither holds nor wants units of it.
    idle: Option<Line>,
    /// The most units that the process may hold, by its last call and the answer.
    holds: u32,
    /// Until when the vendor's responses pause the limit, by the last call.
    paused_until: Time,
    /// Whether the engine has not taken an answer, and no call has been answered since.
    is_untaken: bool,
    /// Whether an operator has ended all pauses, and no call that says so has been answered.
    ends_pause: bool,
    /// The end of the lease that the last answer renewed.
    lease_until: Time,
    /// By when the lease has ended at the store too, whether the last call has reached it or not.
    forgotten_at: Time,
}

impl Limit {
    /// Whether the store must still be told of units that the process has returned or not taken, or of the end of a
    /// pause, though the process holds none.
    fn owes(&self, now: Time) -> bool {
        let has_news = !self.unheard.is_empty() || self.is_untaken || self.ends_pause;
        self.holds == 0 && has_news && now < self.until
    }

    /// Whether a call must name the limit although there is no wish. A process that ends names all limits in which it
    /// may have a lease, also without units: until the lease ends, the store counts it among those that want some.
    fn is_due(&self, now: Time, leaves: bool) -> bool {
        self.owes(now) || (leaves && now < self.forgotten_at)
    }

    /// What a call says of the limit, which renews a lease of this length.
    fn entry(&mut self, now: Time, lease: Duration, limit: String, line: Line) -> Entry {
        // The store adds a second at most.
        self.forgotten_at = now + lease * 2;
        let left = |at: &Time| at.as_nanos().saturating_sub(now.as_nanos()).div_ceil(1_000);
        let returned = self.unheard.iter().map(|(at, units)| (left(at), *units)).collect();
        let expected_us = self.last.map(|(clock_us, at)| clock_us.saturating_add(nanos(now.since(at)) / 1_000));
        let line = Line { returned, paused_us: left(&self.paused_until), ends_pause: self.ends_pause, ..line };
        Entry { limit, known_seq: self.known_seq, expected_us, line }
    }

    /// Whether the store answered that the units claimed by a call begun at `began` are lost, and the lease under which
    /// the process claimed them has ended since the call began.
    fn lost_by_age(&self, began: Time, now: Time, entry: &Entry, got: &Got) -> bool {
        matches!(got.state, State::Lost) && entry.line.claim > 0 && began < self.lease_until && self.lease_until <= now
    }
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

    /// Makes the next call to the store. It also repeats what earlier calls said of limits without a wish.
    pub(crate) fn call(&mut self, now: Time, wishes: Vec<(String, Wish)>, leaves: bool) -> Call {
        self.seq += 1;
        let (process, seq, lease_us) = (self.id, self.seq, nanos(self.lease) / 1_000);
        let mut lines: Vec<Entry> = wishes.into_iter().map(|(name, wish)| self.entry(now, name, &wish)).collect();
        let idle = self.idle_lines(now, &lines, leaves);
        lines.extend(idle);
        Call { process, seq, lease_us, leaves, witness: None, lines }
    }

    /// The lines of limits that the call must name beside the `wishes`.
    fn idle_lines(&mut self, now: Time, wishes: &[Entry], leaves: bool) -> Vec<Entry> {
        let lease = self.lease;
        let told: HashSet<&str> = wishes.iter().map(|entry| entry.limit.as_str()).collect();
        let due = self.limits.iter_mut().filter(|(_, known)| known.is_due(now, leaves));
        let untold = due.filter(|(name, _)| !told.contains(name.as_str()));
        let line = |(name, known): (&String, &mut Limit)| {
            let idle = known.idle.clone()?;
            Some(known.entry(now, lease, name.clone(), idle))
        };
        untold.filter_map(line).collect()
    }

    /// Whether a call is to be made although no limit has a wish.
    pub(crate) fn owes(&self, now: Time) -> bool {
        self.limits.values().any(|known| known.owes(now))
    }

    fn entry(&mut self, now: Time, name: String, wish: &Wish) -> Entry {
        // The ledger keeps the units of a lease that has ended for as long as a request may occupy them: its way to the
        // vendor and the window, or, for a slot, the longest attempt, which is all in the transit.
        let occupied = Duration::from_nanos(wish.figures.again_ns.saturating_add(wish.figures.transit_ns));
        let kept = self.lease * 2 + occupied;
        let known = self.limits.entry(name.clone()).or_default();
        known.until = now + kept;
        known.ends_pause |= wish.ends_pause;
        known.unheard.extend(wish.returned.iter().map(|(free_in, units)| (now.plus_nanos(*free_in), *units)));
        (known.holds, known.paused_until) = (wish.claim, now.plus_nanos(wish.paused_ns));
        let idle = Line {
            figures: figures(&wish.figures),
            claim: 0,
            returned: Vec::new(),
            want: [0; 3],
            need: 0,
            paused_us: 0,
            ends_pause: false,
            floor: Floor { each: wish.floor.each, all: wish.floor.all },
        };
        let line = Line { claim: wish.claim, want: wish.want, need: wish.need, ..idle.clone() };
        known.idle = Some(idle);
        known.entry(now, self.lease, name, line)
    }

    /// Applies the answer to a call that began at `began`. Returns the units and rules for each limit, in the order of
    /// the call; `None` for a limit about which the store has said nothing.
    pub(crate) fn answered(&mut self, began: Time, now: Time, call: &Call, answer: &Answer) -> Vec<Option<limit::Got>> {
        let (until, floor_until) = (self.until(began), self.floor_until(began));
        let mut all = Vec::with_capacity(call.lines.len());
        for (entry, got) in call.lines.iter().zip(&answer.got) {
            // For a line that failed, the call counts as unanswered: the next call repeats what this one returned.
            let Ok(Some(got)) = got else {
                all.push(None);
                continue;
            };
            let known = self.limits.entry(entry.limit.clone()).or_default();
            if known.lost_by_age(began, now, entry, got) {
                // The engine returns all of these units with its next wish, and can say when each of them is free. If
                // it forgot them, the ledger would have to assume that all were in use to the end of the lease.
                all.push(None);
                continue;
            }
            known.known_seq = call.seq;
            known.unheard.clear();
            (known.is_untaken, known.ends_pause) = (false, false);
            known.last = Some((answer.clock_us, answer.read_at.unwrap_or(now)));
            known.lease_until = until;
            let granted = got.units.iter().fold(0, |sum: u32, (_, units)| sum.saturating_add(*units));
            known.holds = known.holds.saturating_add(granted);
            all.push(Some(limit::Got {
                units: got.units.iter().map(|(free_in, units)| (free_in.saturating_mul(1_000), *units)).collect(),
                keep: got.keep,
                travels: got.travels,
                is_lost: matches!(got.state, State::Lost),
                is_scarce: got.all.wanted > got.all.units,
                weights: got.weights,
                paused_ns: got.paused_us.saturating_mul(1_000),
                floor: got.floor,
                floor_until,
                out_of_reach: entry.line.figures.units.saturating_sub(got.reach),
            }));
        }
        self.limits.retain(|_, known| known.until > now);
        all
    }

    /// The engine did not take the answer to this line, because meanwhile the configuration had changed, or the lane
    /// was gone or had moved to another shard. Its units count as never received, so that the ledger frees them at
    /// their own times: the next call says so even without a wish. Otherwise the ledger would have to assume that they
    /// were in use until the next call.
    pub(crate) fn not_held(&mut self, entry: &Entry) {
        if let Some(known) = self.limits.get_mut(&entry.limit) {
            known.known_seq = entry.known_seq;
            (known.holds, known.is_untaken) = (entry.line.claim, true);
        }
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
