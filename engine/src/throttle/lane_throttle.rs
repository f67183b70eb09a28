//! State of a lane that belongs to no configured limit: an operator's pause, failures in a row, refusals that no limit
//! explains, and limits that only the vendor's responses mention.

use super::{
    About, Books, Change, FAILURES, Gate, Going, LONGEST_OPEN, Mode, Notice, Passed, Refused, Report, Says, Throttle,
};
use crate::cost::{Cost, PointKind};
use crate::keys::PermitKey;
use std::sync::Arc;

use crate::Whose;
use crate::endpoint::EndpointHash;
use crate::limit::free::BlockedBy;
use crate::limit::free::Free;
use crate::pace::LEAST_PAUSE;
use crate::pace::{Counting, Pace};
use crate::plan::Plan;
use crate::tier::Tier;
use crate::time::Time;

/// Number of limits per lane that only responses mention. Above it, the limit with the oldest report is dropped.
const MAX_DISCOVERED: usize = 8;
/// A limit that only responses mention is dropped if no response has mentioned it for this many of its windows and for
/// at least `SILENT` nanoseconds.
const SILENT_WINDOWS: u64 = 2;
const SILENT: u64 = 600_000_000_000;
/// Failures in a row are forgotten if no further one comes for this long, in nanoseconds: five minutes.
const FAILURE_MEMORY: u64 = 300_000_000_000;
/// How long an operator's pause outlasts the removal of its tenant, in nanoseconds: a day. A configuration that lacks a
/// tenant by mistake is corrected by then.
const HOLD_MEMORY: u64 = 86_400_000_000_000;

/// A limit that no configuration states: only responses mention it.
#[derive(Clone, Debug)]
pub(crate) struct Discovered {
    pub(crate) report: Report,
    heard: Time,
    pace: Pace,
    throttle: Throttle,
}

impl Discovered {
    fn is_forgotten(&self, now: Time) -> bool {
        let silent = self.pace.window_ns.saturating_mul(SILENT_WINDOWS).max(SILENT);
        self.heard.plus_nanos(silent) <= now
    }

    /// The units of this limit that a request takes.
    fn units(&self, cost: Cost, plan: &Plan) -> u32 {
        plan.measure_of(&self.report.about.name).units(cost)
    }

    /// The remaining units, as (remaining, limit). All units remain once the last report has expired.
    pub(crate) fn left(&self, now: Time) -> (u32, u32) {
        let limit = u32::try_from(self.report.limit).unwrap_or(u32::MAX);
        self.throttle.left(now, &self.pace).map_or((limit, limit), |(left, limit, _)| (left, limit))
    }

    /// When all units remain again if nothing else is granted.
    pub(crate) fn full_at(&self, now: Time) -> Time {
        self.throttle.left(now, &self.pace).map_or(now, |(.., until)| until)
    }

    /// For how long no units remain by the last report, in nanoseconds.
    fn used_up_for(&self, now: Time) -> u64 {
        let said = self.throttle.left(now, &self.pace).filter(|(left, ..)| *left == 0 && self.report.remaining == 0);
        said.map_or(0, |(.., until)| until.as_nanos().saturating_sub(now.as_nanos()))
    }

    pub(crate) fn name(&self) -> &str {
        self.report.about.title()
    }
}

/// The state of one lane that belongs to no configured limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaneThrottle {
    throttle: Throttle,
    /// An operator's pause, which only an operator ends while there is the tenant.
    held: bool,
    /// When the tenant was last removed.
    removed_at: Time,
    whose: Option<Whose>,
    /// Failures in a row, without a response of another kind in between.
    failures: u32,
    /// When the last of them came.
    last_failure: Time,
    /// When the vendor last closed a connection that carried requests which the vendor had not processed.
    disowned_at: Time,
    discovered: Vec<Discovered>,
}

impl LaneThrottle {
    /// Whether this state changes no decision from `now` on, so that it can be dropped. `is_gone`: the tenant is removed, and
    /// none of its requests is left.
    pub(crate) fn is_idle(&self, now: Time, pace: &Pace, is_gone: bool) -> bool {
        let held = self.held && !(is_gone && self.removed_at.plus_nanos(HOLD_MEMORY) <= now);
        let idle = |limit: &Discovered| limit.is_forgotten(now) && limit.throttle.is_idle(now, &limit.pace);
        let failing = self.failures > 0 && !self.has_forgotten_failures(now);
        !held && !failing && self.throttle.is_idle(now, pace) && self.discovered.iter().all(idle)
    }

    fn has_forgotten_failures(&self, now: Time) -> bool {
        self.last_failure.plus_nanos(FAILURE_MEMORY) <= now
    }

    /// Whether the operator's pause, the throttle and the limits that only responses mention allow a grant to this
    /// tier and cost.
    pub(crate) fn gate(&self, now: Time, tier: Tier, cost: Cost, plan: &Plan) -> Gate {
        if self.held {
            return Gate::Shut(Free::OnSettle(Time::MAX), BlockedBy::Held);
        }
        let discovered = self.discovered.iter().filter(|limit| !limit.is_forgotten(now));
        let gates = discovered.map(|limit| limit.throttle.gate(now, tier, limit.units(cost, plan), &limit.pace));
        let shut = |gate: &Gate| *gate != Gate::Open;
        let own = self.throttle.gate(now, tier, cost.points(PointKind::POINTS), &plan.pace);
        [own].into_iter().chain(gates).find(shut).unwrap_or(Gate::Open)
    }

    pub(crate) fn endpoint_gate(&self, now: Time, endpoint: EndpointHash, others: bool) -> Gate {
        self.throttle.endpoint_gate(now, endpoint, others)
    }

    /// Counts a grant, which was due at `due`.
    pub(crate) fn take(&mut self, due: Time, now: Time, going: &Going, cost: Cost, plan: &Plan) {
        self.throttle.take(due, now, going, &plan.pace);
        for limit in &mut self.discovered {
            let going = Going { units: limit.units(cost, plan), ..*going };
            limit.throttle.take(due, now, &going, &limit.pace);
        }
    }

    /// Ends the pause that this permit probed, because the vendor accepted its request. Returns whether it probed one.
    pub(crate) fn passed(&mut self, now: Time, passed: &Passed, pace: &Pace) -> bool {
        self.failures = 0;
        self.throttle.passed(now, passed, pace)
    }

    /// Pauses the lane after a refusal that no known limit explains. Returns when to go on, and whether the refusal
    /// says something about the rate.
    pub(crate) fn refused(&mut self, now: Time, refused: &Refused, pace: &Pace) -> (Time, bool) {
        self.throttle.refused(now, refused, pace)
    }

    /// See [`Throttle::endpoint_refused`].
    pub(crate) fn endpoint_refused(&mut self, now: Time, refused: &Refused, wait: u64) -> bool {
        self.throttle.endpoint_refused(now, refused, wait)
    }

    /// Applies a report of a limit that the configuration does not state. `slowing` is the mode in which limits of this
    /// vendor slow down.
    pub(crate) fn discover(
        &mut self,
        now: Time,
        granted: Time,
        books: Books,
        report: &Report,
        slowing: Mode,
    ) -> [Option<Notice>; 2] {
        self.discovered.retain(|limit| !limit.is_forgotten(now));
        if report.limit == 0 || (slowing == Mode::Off && report.remaining > 0) {
            return [None; 2];
        }
        let same = |about: &About| about.name == report.about.name && about.window_ns == report.about.window_ns;
        let number = self.discovered.iter().position(|limit| same(&limit.report.about)).unwrap_or_else(|| {
            if self.discovered.len() >= MAX_DISCOVERED
                && let Some(oldest) = (0..self.discovered.len()).min_by_key(|number| self.discovered[*number].heard)
            {
                self.discovered.swap_remove(oldest);
            }
            let (pace, throttle) = (Pace::default(), Throttle::default());
            self.discovered.push(Discovered { report: *report, heard: now, pace, throttle });
            self.discovered.len() - 1
        });
        let Some(limit) = self.discovered.get_mut(number) else { return [None; 2] };
        let knows_what_is_left = limit.report.says != Says::Limit && limit.throttle.left(now, &limit.pace).is_some();
        if report.says == Says::Limit && knows_what_is_left {
            limit.heard = now;
            return [None; 2];
        }
        // A window of unknown length lasts at least until its reset.
        let window_ns = report.about.window_ns.or(report.reset_ns).unwrap_or(LEAST_PAUSE).max(limit.pace.window_ns);
        let window_ns = report.about.window_ns.unwrap_or(window_ns).max(1);
        // How fast the units were used before is unknown. If few remain, they are spread over the time until the reset.
        // If many remain, there is no reason to be slower than the configured limits.
        let mode = match slowing {
            Mode::Adaptive if report.is_comfortable(books.under_way) => Mode::Bands,
            Mode::Adaptive => Mode::Pace,
            slowing => slowing,
        };
        let unit_ns = (window_ns / report.limit).max(1);
        limit.pace = Pace { unit_ns, limit: report.limit, window_ns, counting: Counting::Unstated, mode };
        (limit.report, limit.heard) = (*report, now);
        let report = &Report { says: Says::Both, ..*report };
        let notices = limit.throttle.report(now, granted, books, report, &limit.pace);
        if report.reset_ns.is_none() {
            limit.throttle.doubt_report(now);
        }
        notices
    }

    /// The limits that only responses mention, without those that have been silent for too long.
    pub(crate) fn discovered(&self, now: Time) -> impl Iterator<Item = &Discovered> {
        self.discovered.iter().filter(move |limit| !limit.is_forgotten(now))
    }

    /// The vendor closed a connection before it processed a request granted at `granted`. Returns whether that counts
    /// as a new failure: one closed connection ends many exchanges at once, and all of them count once.
    pub(crate) fn is_disowned_anew(&mut self, now: Time, granted: Time) -> bool {
        let is_new = granted >= self.disowned_at;
        self.disowned_at = if is_new { now } else { self.disowned_at };
        is_new
    }

    /// Counts a failed exchange, which was granted at `granted`. After `FAILURES` in a row the lane is paused, longer each
    /// time, and then probed by one request. Returns the end of the pause that this failure begins, if any.
    pub(crate) fn failed(
        &mut self,
        now: Time,
        permit: PermitKey,
        granted: Time,
        endpoint: EndpointHash,
    ) -> Option<Time> {
        let probed = self.throttle.is_probed_by(permit, granted);
        // Requests that were in flight when the pause began failed for the same reason. If they counted, a hundred of
        // them would extend the next pause to its maximum.
        if !probed && self.throttle.is_paused() {
            return None;
        }
        let before = if self.has_forgotten_failures(now) { 0 } else { self.failures };
        (self.failures, self.last_failure) = (before.saturating_add(1), now);
        if !probed && self.failures < FAILURES {
            return None;
        }
        let wait = (LEAST_PAUSE << self.failures.saturating_sub(FAILURES).min(5)).min(LONGEST_OPEN);
        self.throttle.leave_alone(now, endpoint, wait);
        Some(now.plus_nanos(wait))
    }

    /// See [`Throttle::window_changed`].
    pub(crate) fn window_changed(&mut self, now: Time, pace: &Pace) {
        self.throttle.window_changed(now, pace);
    }

    /// See [`Throttle::wait_until`].
    pub(crate) fn wait_until(&mut self, now: Time, until: Time, later: Time) -> bool {
        self.throttle.wait_until(now, until, later)
    }

    /// See [`Throttle::pay_back`].
    pub(crate) fn pay_back(&mut self, until: Time) {
        self.throttle.pay_back(until);
    }

    /// Begins an operator's pause. Returns whether there was none.
    pub(crate) fn hold(&mut self) -> bool {
        !std::mem::replace(&mut self.held, true)
    }

    /// The tenant is removed.
    pub(crate) fn removed(&mut self, now: Time) {
        self.removed_at = now;
    }

    /// Ends an operator's pause alone. Returns whether there was one.
    pub(crate) fn unpause(&mut self) -> bool {
        std::mem::take(&mut self.held)
    }

    /// Whose limit the vendor's refusal named, if the limit itself is unknown.
    pub(crate) fn whose(&self) -> Option<Whose> {
        self.whose
    }

    pub(crate) fn set_whose(&mut self, whose: Option<Whose>) {
        self.whose = whose;
    }

    /// See [`Throttle::is_told_elsewhere`].
    pub(crate) fn is_told_elsewhere(&mut self, now: Time) {
        self.throttle.is_told_elsewhere(now);
    }

    /// Changes of pauses to announce, with the name of the limit if only responses mention it.
    pub(crate) fn changes(&mut self, now: Time, pace: &Pace) -> Vec<(Option<Arc<str>>, Change)> {
        let mut changes: Vec<_> = self.throttle.changes(now, pace).into_iter().map(|change| (None, change)).collect();
        for limit in &mut self.discovered {
            let of_limit = limit.throttle.changes(now, &limit.pace);
            changes.extend(of_limit.into_iter().map(|change| (Some(limit.name().into()), change)));
        }
        changes
    }

    /// The changes to announce when this state is dropped: each announced pause is over.
    pub(crate) fn forgotten(&self) -> Vec<(Option<Arc<str>>, Change)> {
        let own = self.throttle.forgotten().into_iter().map(|change| (None, change));
        let discovered = self
            .discovered
            .iter()
            .flat_map(|limit| limit.throttle.forgotten().into_iter().map(|change| (Some(limit.name().into()), change)));
        own.chain(discovered).collect()
    }

    /// Failures in a row; 0 if fewer than pause the lane.
    pub(crate) fn failures(&self) -> u32 {
        if self.failures < FAILURES { 0 } else { self.failures }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// Ends every pause, including an operator's.
    pub(crate) fn resume(&mut self) {
        self.held = false;
        self.throttle.resume();
        self.discovered.iter_mut().for_each(|limit| limit.throttle.resume());
    }

    /// For how long other processes must send nothing, in nanoseconds. This includes a limit that no configuration
    /// states and of which no units remain: other processes would learn of that limit only by their own requests.
    /// Pauses after failures are left out: the requests of other processes may pass.
    pub(crate) fn paused_for(&self, now: Time) -> u64 {
        let discovered = self.discovered.iter().filter(|limit| !limit.is_forgotten(now));
        let used_up = discovered.map(|limit| limit.used_up_for(now)).max().unwrap_or(0);
        self.throttle.paused_for(now, EndpointHash::NONE).max(used_up)
    }

    /// See [`Throttle::stated`]. A limit that no configuration states, and of which no units remain, stops the whole lane.
    pub(crate) fn stated(&self, now: Time, pace: &Pace) -> Vec<(Option<EndpointHash>, Time)> {
        let mut stated = self.throttle.stated(now, pace);
        let used_up = self.discovered(now).map(|limit| now.plus_nanos(limit.used_up_for(now))).max();
        stated.extend(used_up.filter(|until| *until > now).map(|until| (None, until)));
        stated
    }

    /// See [`Throttle::restore`].
    pub(crate) fn restore(&mut self, now: Time, endpoint: Option<EndpointHash>, until: Time) -> bool {
        self.throttle.restore(now, endpoint, until)
    }

    /// Until when the vendor's responses pause this endpoint.
    pub(crate) fn paused_until(&self, endpoint: EndpointHash) -> Time {
        self.throttle.paused_until(endpoint)
    }

    /// The larger of the spacings between grants of one unit, with the spacing at that limit's full rate, in
    /// nanoseconds; `None` if the limits alone decide.
    pub(crate) fn spacing(&mut self, now: Time, pace: &Pace) -> Option<(u64, u64)> {
        let discovered = self.discovered.iter_mut().filter(|limit| !limit.is_forgotten(now));
        let of_discovered =
            discovered.filter_map(|limit| Some((limit.throttle.spacing(now, &limit.pace)?, limit.pace.unit_ns)));
        let own = self.throttle.spacing(now, pace).map(|spacing| (spacing, pace.unit_ns));
        of_discovered.chain(own).max()
    }

    /// The permit has ended without a response. If it was a probe, the next request is the probe instead. Returns
    /// whether it was one.
    pub(crate) fn ended(&mut self, now: Time, permit: PermitKey) -> bool {
        let mut was = self.throttle.ended(now, permit);
        for limit in &mut self.discovered {
            was |= limit.throttle.ended(now, permit);
        }
        was
    }

    /// See [`Throttle::rename_permits`].
    pub(crate) fn rename_permits(&mut self, now: Time, keys: &[(PermitKey, PermitKey)]) {
        self.throttle.rename_permits(now, keys);
        self.discovered.iter_mut().for_each(|limit| limit.throttle.rename_permits(now, keys));
    }
}
