//! What the vendor's responses have changed about one limit: a throttle, stored beside the limit's own count, so that
//! all lanes that share the limit share the throttle.

use super::{Cell, LimitKind, LimitSpec, State, in_force};
use crate::cost::Cost;
use crate::keys::PermitKey;
use crate::limit::BlockedBy;
use crate::limit::free::Free;
use crate::pace::Counting;
use crate::throttle::{About, Books, Change, Gate, Notice, Report, Says, Throttle, ToldBy};
use crate::tier::Tier;
use crate::time::Time;

impl Cell {
    #[inline(always)]
    pub(crate) fn is_throttled(&self) -> bool {
        self.throttle().is_some()
    }

    #[inline]
    pub(crate) fn throttle(&self) -> Option<&Throttle> {
        self.beside.as_ref()?.throttle.as_deref()
    }

    pub(crate) fn throttle_mut(&mut self) -> Option<&mut Throttle> {
        self.beside.as_mut()?.throttle.as_deref_mut()
    }

    /// The throttle, made if there is none, and marked as one that may slow the limit down.
    pub(crate) fn throttle_or_new(&mut self) -> &mut Throttle {
        let throttle = self.throttle_made();
        throttle.acts = true;
        throttle
    }

    /// The throttle, made if there is none, without marking it as one that may slow the limit down.
    fn throttle_made(&mut self) -> &mut Throttle {
        self.beside.get_or_insert_default().throttle.get_or_insert_default()
    }

    /// Removes the throttle, and with it all that the vendor's responses have changed.
    pub(crate) fn take_throttle(&mut self) -> Option<Box<Throttle>> {
        self.beside.as_mut()?.throttle.take()
    }

    /// Whether no response has said anything about this limit but how many units remain.
    pub(crate) fn is_at_ease(&self) -> bool {
        self.throttle().is_none_or(|throttle| !throttle.acts)
    }

    /// The remaining units, as (remaining, limit): the lower of our own count and the vendor's last report.
    #[inline(always)]
    pub(crate) fn headroom(&mut self, spec: &LimitSpec, now: Time) -> (u32, u32) {
        let own = self.remaining(spec, now);
        if !self.is_throttled() { own } else { self.as_said(spec, now, own).0 }
    }

    /// The lower of our own count and the vendor's last report, and until when the report holds if the report is lower.
    pub(crate) fn as_said(&self, spec: &LimitSpec, now: Time, own: (u32, u32)) -> ((u32, u32), Option<Time>) {
        let said = self.throttle().filter(|_| spec.is_rate()).and_then(|it| it.left(now, &self.pace(spec)));
        match said {
            Some((left, limit, until)) if left < own.0 => ((left, limit.min(own.1)), Some(until)),
            _ => (own, None),
        }
    }

    /// Stores a report that gives no reason to slow down. It is kept only if it is lower than our own count: while both
    /// counts agree, our own is the lower one.
    pub(crate) fn note_figure(&mut self, spec: &LimitSpec, now: Time, granted: Time, units: u32, report: &Report) {
        let Some(report) = &self.as_held(spec, &spec.with_reset(report, now)) else { return };
        let pace = self.pace(spec);
        let under_way = self.books(spec, now).under_way.saturating_sub(units);
        let left = report.remaining.saturating_sub(u64::from(under_way));
        if self.is_throttled() || left < u64::from(self.remaining(spec, now).0) {
            self.throttle_made().note_figure(now, granted, under_way, report, &pace);
        }
    }

    /// The changes to announce if the throttle is about to be dropped: each announced pause is over.
    pub(crate) fn forgotten(&self, spec: &LimitSpec, now: Time) -> Vec<Change> {
        let idle = self.throttle().filter(|throttle| throttle.is_idle(now, &self.pace(spec)));
        idle.map_or_else(Vec::new, |throttle| throttle.forgotten())
    }

    /// Drops a throttle that changes nothing any more. Returns whether there is none.
    pub(super) fn forget_throttle(&mut self, spec: &LimitSpec, now: Time) -> bool {
        let pace = self.pace(spec);
        if self.throttle().is_some_and(|throttle| throttle.is_idle(now, &pace)) {
            self.take_throttle();
        }
        if self.beside.as_ref().is_some_and(|beside| beside.throttle.is_none() && beside.holding.is_none()) {
            self.beside = None;
        }
        !self.is_throttled()
    }

    /// Whether the limit's throttle allows a grant.
    #[inline(always)]
    pub(crate) fn gate(&mut self, spec: &LimitSpec, now: Time, tier: Tier, cost: Cost) -> Gate {
        if self.beside.is_none() { Gate::Open } else { self.ask_throttle(spec, now, tier, cost) }
    }

    #[cold]
    fn ask_throttle(&mut self, spec: &LimitSpec, now: Time, tier: Tier, cost: Cost) -> Gate {
        let spec = in_force(&self.beside, spec);
        let Some(throttle) = self.beside.as_ref().and_then(|beside| beside.throttle.as_ref()) else {
            return Gate::Open;
        };
        let units = spec.units(cost);
        let gate = throttle.gate(now, tier, units, &spec.pace);
        let (held, until) = throttle.held(now, &spec.pace);
        let (State::Rate { guard: Some(guard), .. }, LimitKind::Rate { guard: mirrored, .. }) =
            (&mut self.state, &spec.kind)
        else {
            return gate;
        };
        if gate != Gate::Open || held == 0 {
            return gate;
        }
        // At least one request fits beside the units of others, or no request could show that the others have stopped.
        // What stays free above the lower tiers' part leaves room for those of ours that still count.
        let most = mirrored.limit().saturating_sub(mirrored.reserve());
        let wanted = units.saturating_add(held).min(most.max(units));
        match guard.free(mirrored, now, wanted, true) {
            Free::Now => Gate::Open,
            free => Gate::Shut(free.no_later_than(until), BlockedBy::Reported),
        }
    }

    /// See [`Throttle::rename_permits`].
    pub(crate) fn rename_permits(&mut self, now: Time, keys: &[(PermitKey, PermitKey)]) {
        if let Some(throttle) = self.throttle_mut() {
            throttle.rename_permits(now, keys);
        }
    }

    /// Nanoseconds between grants of one unit, and those at the full rate; `None` if the count alone decides.
    pub(crate) fn spacing(&mut self, spec: &LimitSpec, now: Time) -> Option<(u64, u64)> {
        let pace = self.pace(spec);
        Some((self.throttle_mut()?.spacing(now, &pace)?, pace.unit_ns))
    }

    /// Our own count of this limit.
    pub(crate) fn books(&mut self, spec: &LimitSpec, now: Time) -> Books {
        let spec = in_force(&self.beside, spec);
        match (&mut self.state, &spec.kind) {
            (State::Rate { guard: Some(guard), .. }, LimitKind::Rate { guard: mirrored, .. }) => {
                let units = guard.units(mirrored, now);
                // The guard of a bucket that refills in lumps is smaller than the vendor's figure by this much.
                let smaller = spec.pace.limit.saturating_sub(mirrored.limit().into());
                let behind = if spec.pace.counting == Counting::Bucket { smaller as u32 } else { 0 };
                Books { units, under_way: guard.under_way(), behind }
            }
            (State::Slots { used, .. }, _) => Books { units: *used, under_way: *used, behind: 0 },
            _ => Books::default(),
        }
    }

    /// Applies a report in the response to a request granted at `granted`, which has not been counted as ended yet.
    pub(crate) fn report(
        &mut self,
        spec: &LimitSpec,
        now: Time,
        granted: Time,
        units: u32,
        report: &Report,
    ) -> [Option<Notice>; 2] {
        let Some(report) = &self.as_held(spec, &spec.with_reset(report, now)) else { return [None; 2] };
        let pace = self.pace(spec);
        let mut books = self.books(spec, now);
        books.under_way = books.under_way.saturating_sub(units);
        let throttle = self.throttle_or_new();
        let notice = throttle.report(now, granted, books, report, &pace);
        if pace.counting == Counting::Bucket && report.says != Says::Limit {
            let more = throttle.unexplained();
            self.owe(spec, now, more);
        }
        notice
    }

    /// Applies a change of the limit to its throttle. See [`Throttle::window_changed`].
    pub(super) fn change_throttle(&mut self, old: &LimitSpec, new: &LimitSpec, now: Time) {
        if old.pace.window_ns != new.pace.window_ns
            && let Some(throttle) = self.throttle_mut()
        {
            throttle.window_changed(now, &new.pace);
        }
    }

    /// See [`Throttle::learn_name`].
    pub(crate) fn learn_name(&mut self, about: &About) {
        self.throttle_made().learn_name(about);
    }

    /// See [`Throttle::is_called`].
    pub(crate) fn is_called(&self, about: &About) -> bool {
        self.throttle().is_some_and(|throttle| throttle.is_called(about))
    }

    /// See [`Throttle::bound_report`].
    pub(crate) fn bound_report(
        &mut self,
        spec: &LimitSpec,
        by: ToldBy,
        has_others: bool,
        report: &Report,
    ) -> Option<Time> {
        let report = self.as_held(spec, &spec.with_reset(report, by.at))?;
        let pace = self.pace(spec);
        self.throttle_mut()?.bound_report(by, has_others, &report, &pace)
    }

    /// See [`Throttle::joined`].
    pub(crate) fn joined(&mut self, spec: &LimitSpec, now: Time, tenant: u64) -> Option<(ToldBy, Option<Time>)> {
        let pace = self.pace(spec);
        self.throttle_mut()?.joined(now, tenant, &pace)
    }

    /// Counts `units` that other clients took from the vendor's bucket.
    fn owe(&mut self, spec: &LimitSpec, now: Time, units: u32) {
        let spec = in_force(&self.beside, spec);
        if let (State::Rate { guard: Some(guard), .. }, LimitKind::Rate { guard: mirrored, .. }) =
            (&mut self.state, &spec.kind)
            && units > 0
        {
            guard.owe(mirrored, now, units.min(mirrored.limit()));
        }
    }

    /// The used share of the limit, by our own count.
    pub(crate) fn fullness(&mut self, spec: &LimitSpec, now: Time) -> f64 {
        let (left, limit) = self.remaining(spec, now);
        1.0 - f64::from(left) / f64::from(limit.max(1))
    }

    /// Whether the vendor's count may be full by our own count: at least half of the limit is used.
    pub(crate) fn may_be_full(&mut self, spec: &LimitSpec, now: Time) -> bool {
        let (left, limit) = self.remaining(spec, now);
        limit > 0 && left <= limit / 2
    }
}
