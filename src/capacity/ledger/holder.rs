//! What the ledger knows about one process.

use serde::{Deserialize, Serialize};

use super::call::{Caller, FLOOR_LEASE_US, Figures, Line};
use super::clock::slack;
use super::shares::{Claim, sum};

/// One process that has called. A process whose lease has ended stays for a while, so that its
/// next call is recognized as the call of somebody who has lost everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Holder {
    #[serde(rename = "s")]
    pub(crate) seq: u64,
    #[serde(rename = "h")]
    pub(crate) held: u32,
    #[serde(rename = "w")]
    pub(crate) want: [u32; 3],
    #[serde(rename = "n")]
    pub(crate) need: u32,
    /// When the lease has surely ended. The slack covers the lease and what its last request
    /// occupies after it.
    #[serde(rename = "e")]
    pub(crate) expires: u64,
    /// When the process called last.
    #[serde(rename = "c")]
    pub(crate) called: u64,
    /// When the process was last granted something.
    #[serde(rename = "g")]
    pub(crate) granted: u64,
    /// When the last turn for a big request began.
    #[serde(rename = "t")]
    pub(crate) turned: u64,
    /// The units of the last call's grant, by the time they are free.
    #[serde(rename = "l")]
    pub(crate) last: Vec<(u64, u32)>,
    #[serde(rename = "f")]
    pub(crate) figures: Figures,
    /// All of the leases have ended.
    #[serde(rename = "x")]
    pub(crate) has_ended: bool,
    /// Of the units held: those that the process goes on with when it cannot call.
    #[serde(rename = "k", default, skip_serializing_if = "is_none")]
    pub(crate) floor: u32,
    /// When the lease of these has surely ended; 0 without any.
    #[serde(rename = "u", default, skip_serializing_if = "is_never")]
    pub(crate) floor_until: u64,
}

fn is_none(units: &u32) -> bool {
    *units == 0
}

fn is_never(time: &u64) -> bool {
    *time == 0
}

impl Holder {
    pub(crate) fn new(figures: Figures) -> Holder {
        Holder {
            seq: 0,
            held: 0,
            want: [0; 3],
            need: 0,
            expires: 0,
            called: 0,
            granted: 0,
            turned: 0,
            last: Vec::new(),
            figures,
            has_ended: false,
            floor: 0,
            floor_until: 0,
        }
    }

    /// Notes a call. The claim has been dealt with.
    pub(crate) fn note(&mut self, now: u64, caller: &Caller, line: &Line) {
        self.seq = caller.seq;
        self.want = line.want;
        self.need = line.need;
        let slack = slack(caller.lease_us.saturating_add(line.figures.tail_us()));
        self.expires = now.saturating_add(caller.lease_us).saturating_add(slack);
        self.called = now;
        self.last = Vec::new();
        self.figures = line.figures;
        self.has_ended = false;
    }

    /// Takes the units of leases that are over: each with the time at which its lease ended. `all`: the floor's too.
    pub(crate) fn end(&mut self, all: bool) -> [(u64, u32); 2] {
        self.last = Vec::new();
        let floor = self.floor.min(self.held);
        let ended = [(self.expires, self.held - floor), (self.ends(), if all { floor } else { 0 })];
        self.held = if all { 0 } else { floor };
        if all {
            self.floor = 0;
        }
        ended
    }

    /// The process goes on with its floor alone.
    pub(crate) fn is_away(&self, now: u64) -> bool {
        self.expires <= now && !self.has_ended
    }

    /// When the last of the leases ends.
    pub(crate) fn ends(&self) -> u64 {
        self.expires.max(self.floor_until)
    }

    /// Goes on with a part of what is held for longer. `others`: what other processes keep. A process may not have heard of it that
    /// its floor is smaller, so only what it says itself makes it smaller.
    pub(crate) fn keep_floor(&mut self, now: u64, line: &Line, others: u32) {
        let before = self.floor;
        let most = line.floor.all.saturating_sub(others).max(before);
        self.floor = line.floor.each.min(most).min(self.held);
        if self.floor > 0 {
            let lasts = FLOOR_LEASE_US.saturating_add(slack(FLOOR_LEASE_US.saturating_add(line.figures.tail_us())));
            self.floor_until = self.floor_until.max(now.saturating_add(lasts));
        } else if before == 0 {
            self.floor_until = 0;
        }
    }

    /// The process has called within a third of its lease.
    fn is_heard(&self, now: u64) -> bool {
        let lease = self.expires.saturating_sub(self.called);
        now.saturating_sub(self.called) <= lease / 3
    }

    pub(crate) fn claim(&self, process: u64, now: u64) -> Claim {
        Claim {
            process,
            want: self.want,
            held: self.held,
            need: self.need,
            granted: self.granted,
            is_heard: self.is_heard(now),
        }
    }

    /// The units of the last grant.
    pub(crate) fn last_units(&self) -> u32 {
        self.last.iter().fold(0, |sum, (_, units)| sum.saturating_add(*units))
    }

    pub(crate) fn wanted(&self) -> u32 {
        sum(self.want)
    }

    /// When `diff` units are free that the process held and does not claim any more.
    ///
    /// They are units it has returned and units of a grant whose reply it never saw. Which of
    /// them the ledger has seen already is unknown, so the latest times count. Units that
    /// nothing explains may have been in use until this call.
    pub(crate) fn released(&self, diff: u32, released: &Released<'_>) -> Vec<(u64, u32)> {
        let mut times: Vec<(u64, u32)> = released.returned();
        if released.caller.known_seq < self.seq {
            times.extend(&self.last);
        }
        times.sort_unstable_by(|a, b| b.cmp(a));
        let mut left = diff;
        for (_, units) in &mut times {
            *units = left.min(*units);
            left = left.saturating_sub(*units);
        }
        let last = released.tail_us.saturating_add(slack(released.tail_us));
        times.push((released.now.saturating_add(last), left));
        times
    }
}

/// A call that gives units back.
pub(crate) struct Released<'a> {
    pub(crate) now: u64,
    pub(crate) caller: &'a Caller,
    pub(crate) line: &'a Line,
    /// How much longer than the process the ledger takes a unit to be occupied.
    pub(crate) lag_us: u64,
    /// How long after its start a request may occupy its unit.
    pub(crate) tail_us: u64,
}

impl Released<'_> {
    fn returned(&self) -> Vec<(u64, u32)> {
        let free_at = |us: u64| {
            let slack = if us == 0 { 0 } else { slack(us) };
            let after = us.saturating_add(slack).saturating_add(self.lag_us);
            self.now.saturating_add(after)
        };
        self.line.returned.iter().map(|(us, units)| (free_at(*us), *units)).collect()
    }
}
