//! What the ledger knows about one process.

use serde::{Deserialize, Serialize};

use super::call::{Caller, FLOOR_LEASE_US, Figures, Line};
use super::clock::{lease_slack, slack};
use super::shares::{Claim, sum};

/// The longest time for which a record without units outlives its lease, so that many short-lived processes do not make
/// the ledger large. No call is under way for longer.
const NOTHING_US: u64 = 60_000_000;

/// The last entry of a list of units whose lease has ended. No grant has an entry without units.
const ENDED: (u64, u32) = (0, 0);

/// A process that has called. Its record outlives its lease for a while, so that the ledger recognizes its next call as
/// that of a process that has lost all of its units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProcessRecord {
    #[serde(rename = "s")]
    pub(crate) seq: u64,
    #[serde(rename = "h")]
    pub(crate) held: u32,
    #[serde(rename = "w")]
    pub(crate) want: [u32; 3],
    #[serde(rename = "n")]
    pub(crate) need: u32,
    /// When the lease has surely ended. Its slack covers the lease itself, and of the time for which the process's last
    /// request occupies a unit afterwards all that is no longer than an hour or so.
    #[serde(rename = "e")]
    pub(crate) expires: u64,
    /// When the process called last.
    #[serde(rename = "c")]
    pub(crate) called: u64,
    /// When the process was last granted something.
    #[serde(rename = "g")]
    pub(crate) granted: u64,
    /// When this process's last turn for a big request began.
    #[serde(rename = "t")]
    pub(crate) turned: u64,
    /// The units granted by the last call, as (time from which they are free, units). From the end of the lease on: the
    /// units whose lease has ended, and then [`ENDED`]. The field serves both, because a process of an earlier version
    /// refuses a ledger with a field that it does not know. Such a process counts these units as missing, and so as
    /// used until then.
    #[serde(rename = "l")]
    pub(crate) last: Vec<(u64, u32)>,
    #[serde(rename = "f")]
    pub(crate) figures: Figures,
    /// Whether only calls that arrived late, or did not know the store's clock, have been recorded here: the process may
    /// have had an earlier record, which was forgotten.
    #[serde(rename = "b", default, skip_serializing_if = "is_false")]
    pub(crate) is_unconfirmed: bool,
    /// Whether all leases of the process have ended, that of its floor included.
    #[serde(rename = "x")]
    pub(crate) has_ended: bool,
    /// How many of the held units the process goes on using when it cannot reach the store.
    #[serde(rename = "k", default, skip_serializing_if = "is_none")]
    pub(crate) floor: u32,
    /// When the lease of the floor has surely ended; 0 without a floor.
    #[serde(rename = "u", default, skip_serializing_if = "is_never")]
    pub(crate) floor_until: u64,
}

pub(super) fn is_none(units: &u32) -> bool {
    *units == 0
}

fn is_false(value: &bool) -> bool {
    !*value
}

pub(super) fn is_never(time: &u64) -> bool {
    *time == 0
}

impl ProcessRecord {
    pub(crate) fn new(figures: Figures) -> ProcessRecord {
        ProcessRecord {
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
            is_unconfirmed: true,
            has_ended: false,
            floor: 0,
            floor_until: 0,
        }
    }

    /// Records a call whose claim has been settled already.
    pub(crate) fn note(&mut self, now: u64, caller: &Caller, line: &Line) {
        self.seq = caller.seq;
        self.want = line.want;
        self.need = line.need;
        let slack = lease_slack(caller.lease_us.saturating_add(line.figures.tail_us()));
        self.expires = now.saturating_add(caller.lease_us).saturating_add(slack);
        self.called = now;
        self.forget_grant();
        self.figures = line.figures;
        self.has_ended = false;
    }

    /// Records the last call of a process that ends. Its units have been taken back.
    pub(crate) fn leave(&mut self, now: u64, caller: &Caller) {
        *self = ProcessRecord {
            seq: caller.seq,
            expires: now,
            called: now,
            has_ended: true,
            ..ProcessRecord::new(self.figures)
        };
    }

    /// Until when the ledger keeps the record of a process whose leases have ended. `lapse_us`: how long after its end
    /// a request of a lease may occupy its unit.
    pub(crate) fn kept_until(&self, lapse_us: u64) -> u64 {
        let has_units = self.held > 0 || !self.lapsed().is_empty();
        let kept = self.ends().saturating_add(if has_units { lapse_us } else { record_of_nothing_us(lapse_us) });
        kept.max(latest(self.lapsed()))
    }

    /// Removes the units whose leases have ended. Returns them as (end of the lease, units), the floor's last. The
    /// floor ends too if `all` is set.
    pub(crate) fn end(&mut self, all: bool) -> [(u64, u32); 2] {
        self.forget_grant();
        let floor = self.floor.min(self.held);
        let ended = [(self.expires, self.held - floor), (self.ends(), if all { floor } else { 0 })];
        self.held = if all { 0 } else { floor };
        if all {
            self.floor = 0;
        }
        ended
    }

    /// Keeps units that [`ProcessRecord::end`] has removed. Nobody gets them before `free_at`, unless the process says
    /// that they are free earlier.
    pub(crate) fn lapse(&mut self, free_at: u64, units: u32) {
        if units == 0 {
            return;
        }
        if self.last.is_empty() {
            self.last.push(ENDED);
        }
        self.last.insert(0, (free_at, units));
    }

    /// The units whose lease has ended and that the pool does not have yet, as (time from which they are free, units).
    pub(crate) fn lapsed(&self) -> &[(u64, u32)] {
        match self.last.split_last() {
            Some(((_, 0), lapsed)) => lapsed,
            _ => &[],
        }
    }

    pub(crate) fn lapsed_units(&self) -> u32 {
        total(self.lapsed())
    }

    /// Removes the units whose lease has ended and that are free at `time`, and returns them.
    pub(crate) fn take_lapsed(&mut self, time: u64) -> Vec<(u64, u32)> {
        if self.lapsed().is_empty() {
            return Vec::new();
        }
        let is_free = |(at, units): &(u64, u32)| *units > 0 && *at <= time;
        let (free, rest): (Vec<_>, Vec<_>) = self.last.drain(..).partition(is_free);
        if rest.len() > 1 {
            self.last = rest;
        }
        free
    }

    /// The units granted by the last call, while their lease lasts.
    pub(crate) fn last_grant(&self) -> &[(u64, u32)] {
        if self.lapsed().is_empty() { &self.last } else { &[] }
    }

    fn forget_grant(&mut self) {
        if self.lapsed().is_empty() {
            self.last = Vec::new();
        }
    }

    /// Whether the lease has ended and the process goes on with its floor alone.
    pub(crate) fn is_away(&self, now: u64) -> bool {
        self.expires <= now && !self.has_ended
    }

    /// Records a call that the process made before its lease ended and that arrives after that, as after a stall of the
    /// store; returns whether this is one. The floor is all that the process has left. Such a call does not renew the
    /// lease: the next one like it would look like the claim of a process that has lost count, and would end the floor.
    pub(crate) fn refuse_late(&mut self, now: u64, caller: &Caller, line: &Line) -> bool {
        let is_late = self.floor > 0 && line.claim > self.held && self.is_away(now);
        if is_late {
            self.seq = caller.seq;
        }
        is_late
    }

    /// When the last of the leases ends.
    pub(crate) fn ends(&self) -> u64 {
        self.expires.max(self.floor_until)
    }

    /// Renews the longer lease of the floor and sets its size. `others` is the sum of the floors of all other
    /// processes. The floor shrinks only to what this process itself states: it may not have received an answer with a
    /// smaller floor, and would go on using the larger one.
    pub(crate) fn keep_floor(&mut self, now: u64, line: &Line, others: u32) {
        let before = self.floor;
        let most = line.floor.all.saturating_sub(others).max(before);
        self.floor = line.floor.each.min(most).min(self.held);
        if self.floor > 0 {
            let span = FLOOR_LEASE_US.saturating_add(line.figures.tail_us());
            let lasts = FLOOR_LEASE_US.saturating_add(lease_slack(span));
            self.floor_until = self.floor_until.max(now.saturating_add(lasts));
        } else if before == 0 {
            self.floor_until = 0;
        }
    }

    /// Whether the last call was at most a third of a lease ago.
    pub(super) fn is_heard(&self, now: u64) -> bool {
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

    /// The number of units in the last grant.
    pub(crate) fn last_units(&self) -> u32 {
        total(self.last_grant())
    }

    pub(crate) fn wanted(&self) -> u32 {
        sum(self.want)
    }

    /// When the `diff` units are free that the process held and no longer claims, as (time, units); also those whose
    /// lease has ended, because nobody has got them since, and a call repeats all that was returned since the last
    /// answered one.
    ///
    /// The process has returned these units, or they belong to a grant whose answer it never received. The ledger
    /// cannot tell which of the reported times it has recorded already, so it assumes the latest. Units that neither
    /// explains may have been in use until this call, or until the end of their lease.
    pub(crate) fn released(&mut self, diff: u32, released: &Released<'_>) -> Vec<(u64, u32)> {
        let lapsed = self.take_lapsed(u64::MAX);
        let mut times: Vec<(u64, u32)> = released.returned();
        if released.caller.known_seq < self.seq {
            times.extend(&self.last);
        }
        times.sort_unstable_by(|a, b| b.cmp(a));
        let mut left = diff.saturating_add(total(&lapsed));
        for (_, units) in &mut times {
            *units = left.min(*units);
            left = left.saturating_sub(*units);
        }
        let last = released.tail_us.saturating_add(slack(released.tail_us));
        let in_use = left.min(diff);
        times.push((released.now.saturating_add(last), in_use));
        times.push((latest(&lapsed), left.saturating_sub(in_use)));
        times
    }
}

/// How long a record without units outlives its lease. `tail_us`: how long after its start a request may occupy its
/// unit.
pub(super) fn record_of_nothing_us(tail_us: u64) -> u64 {
    tail_us.min(NOTHING_US)
}

fn total(units: &[(u64, u32)]) -> u32 {
    units.iter().fold(0, |sum, (_, units)| sum.saturating_add(*units))
}

/// When the last of the units is free; 0 if there are none.
fn latest(units: &[(u64, u32)]) -> u64 {
    units.iter().map(|(free_at, _)| *free_at).max().unwrap_or_default()
}

/// A call that gives units back.
pub(crate) struct Released<'a> {
    pub(crate) now: u64,
    pub(crate) caller: &'a Caller,
    pub(crate) line: &'a Line,
    /// By how much the window in force is longer than the caller's own window. Returned units are free this much later
    /// than the caller says.
    pub(crate) lag_us: u64,
    /// How long after its start a request may occupy its unit.
    pub(crate) tail_us: u64,
    /// Whether the ledger is learning. An earlier call may have returned the same units to the lost ledger, which may
    /// have granted them to another process, so when they are free is not known.
    pub(crate) is_learning: bool,
}

impl Released<'_> {
    fn returned(&self) -> Vec<(u64, u32)> {
        if self.is_learning {
            return Vec::new();
        }
        let free_at = |us: u64| {
            let slack = if us == 0 { 0 } else { slack(us) };
            let after = us.saturating_add(slack).saturating_add(self.lag_us);
            self.now.saturating_add(after)
        };
        self.line.returned.iter().map(|(us, units)| (free_at(*us), *units)).collect()
    }
}
