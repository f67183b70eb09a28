//! Bounds for how long one tenant's response stops the other tenants of a limit (`max_shared_pause`), until another
//! tenant's response confirms it.

use super::pause::Pause;
use super::{Report, Throttle, WITNESS_MEMORY};
use crate::keys::LaneKey;
use crate::pace::Pace;
use crate::time::Time;

/// Little is left if the rest is less than the limit divided by this.
const LITTLE: u64 = 3;

/// Whose report it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToldBy {
    /// When the report came.
    pub(crate) at: Time,
    /// The tenant, as a hash.
    pub(crate) tenant: u64,
    /// The longest that the report stops other tenants, in nanoseconds.
    pub(crate) most: u64,
    pub(crate) lane: LaneKey,
}

impl Throttle {
    /// How long a refusal of `tenant` that asks to wait `wait` nanoseconds pauses this limit: at most `most`, unless
    /// another tenant's refusal asked for a longer wait too. One wrong response must not stop all tenants of a limit
    /// for a month.
    pub(crate) fn believed_wait(&mut self, now: Time, tenant: u64, wait: u64, most: u64) -> u64 {
        if wait <= most {
            return wait;
        }
        match self.witness.filter(|(_, until)| until.plus_nanos(WITNESS_MEMORY) > now) {
            Some((witness, _)) if witness != tenant => wait,
            _ => {
                self.witness = Some((tenant, now.plus_nanos(most)));
                most
            }
        }
    }

    /// Bounds what a report has just established for the other tenants of the limit. If no lane of another tenant shares
    /// the limit now, the report holds in full until one joins ([`joined`](Self::joined)). Returns until when the report
    /// itself stops the limit, if that was shortened.
    pub(crate) fn bound_report(&mut self, by: ToldBy, has_others: bool, report: &Report, pace: &Pace) -> Option<Time> {
        let confirmed = self.is_confirmed(by.at, by.tenant);
        if report.remaining.saturating_mul(LITTLE) < report.limit {
            // However far away a wrong reset is, the statement is about this window.
            let until = by.at.plus_nanos(report.reset_ns.unwrap_or(u64::MAX).min(pace.window_ns));
            let of_another = self.told_little.into_iter().flatten().find(|(other, _)| *other != by.tenant);
            self.told_little = [Some((by.tenant, until)), of_another];
        }
        self.unbounded = (!has_others).then_some(by);
        if !has_others {
            return None;
        }
        self.doubted = None;
        if confirmed { None } else { self.bound(by.at, by, pace) }
    }

    /// Whether the vendor has told another tenant in this window that little is left.
    fn is_confirmed(&self, now: Time, tenant: u64) -> bool {
        self.told_little.iter().flatten().any(|(other, until)| *other != tenant && *until > now)
    }

    /// A lane of `tenant` joins those that share the limit. Bounds the last report, if it came while another tenant's lane
    /// was alone, from the moment at which it came. Returns whose report that was, and until when it stops the limit, if
    /// that was shortened.
    pub(crate) fn joined(&mut self, now: Time, tenant: u64, pace: &Pace) -> Option<(ToldBy, Option<Time>)> {
        let by = self.unbounded.take_if(|by| by.tenant != tenant)?;
        let stated = if self.is_confirmed(now, by.tenant) { None } else { self.bound(now, by, pace) };
        self.space_anew(now, pace);
        Some((by, stated))
    }

    /// The lane whose report holds in full is in another engine now.
    pub(crate) fn moved_to(&mut self, lane: LaneKey) {
        if let Some(by) = &mut self.unbounded {
            by.lane = lane;
        }
    }

    /// Whose report holds in full only as long as no lane of another tenant joins.
    pub(super) fn to_be_bounded(&self, now: Time) -> Option<ToldBy> {
        self.unbounded.filter(|by| !self.is_confirmed(now, by.tenant))
    }

    /// The tenant, as a hash, whose report will be bounded for other tenants, and until when it stops the limit.
    pub(crate) fn stops_alone(&self, now: Time, pace: &Pace) -> Option<(u64, Time)> {
        let by = self.to_be_bounded(now).filter(|_| self.announced.empty_until > now)?;
        Some((by.tenant, self.quota.told?.free(now, 1, pace))).filter(|(_, until)| *until > now)
    }

    /// Shortens a stop that a report has begun to the longest that one tenant's report stops others; then one request
    /// finds out whether units are back. The report is believed in full if another tenant's response asked for a longer
    /// wait too. A report that only slows the limit down is corrected by the next response; until then, it stops the limit
    /// no longer either, and so long does a grant delay the next one.
    fn bound(&mut self, now: Time, by: ToldBy, pace: &Pace) -> Option<Time> {
        let ToldBy { at, tenant, most, .. } = by;
        self.doubted = Some((at.plus_nanos(most), most));
        // Also while some units are left, if requests in flight may take them all: their own responses may be out of date
        // by then, and nothing would correct a wrong report.
        let stops = |free: Time, until: Time, percent: u64| free > now && (percent == 0 || free >= until);
        let told = self.quota.told.filter(|told| stops(told.free(now, 1, pace), told.until, told.percent))?;
        let stated = u64::try_from(told.until.since(at).as_nanos()).unwrap_or(u64::MAX);
        if stated <= most {
            return None;
        }
        let until = at.plus_nanos(self.believed_wait(now, tenant, stated, most));
        if until >= told.until {
            return None;
        }
        if let Some(told) = &mut self.quota.told {
            told.until = until;
        }
        self.announced.empty_until = self.announced.empty_until.min(until);
        if told.percent > 0 {
            // A response to a request that was granted later may find units left, so nothing is paused.
            return None;
        }
        if !matches!(self.pause, Pause::Probing(_)) {
            self.pause = Pause::Until(self.pause.until().max(until));
            (self.failed_at, self.paused_at) = (None, now);
        }
        Some(told.until)
    }
}
