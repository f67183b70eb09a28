//! What the ledger knows about one process.

use serde::{Deserialize, Serialize};

use super::call::{Caller, Figures, Line};
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
    /// The lease has ended.
    #[serde(rename = "x")]
    pub(crate) has_ended: bool,
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

    /// Takes the held units of a lease that is over.
    pub(crate) fn end(&mut self) -> u32 {
        self.last = Vec::new();
        std::mem::take(&mut self.held)
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
