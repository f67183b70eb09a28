//! The metrics of one vendor, or of one tenant at a vendor if tenants have labels.
//!
//! Requests add to atomic numbers of the client, and one task reports these to the recorder once a second. So a
//! recorder that is slow or panics cannot affect requests. Histograms are the exception, because they need every value:
//! a panic of the recorder is caught there.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use hashbrown::HashMap;
use http::{Method, StatusCode};
use metrics::Histogram;
use parking_lot::Mutex;

use super::end::End;
use super::handle::{Count, Depth, Figure, Labels, More, histogram};
use super::rolling::Rolling;
use super::table::{
    ATTEMPTS, DEAD_LETTERS, DURATION, HEADROOM, HEADROOM_AVERAGE, IN_FLIGHT, MEAN, PAUSED, PAUSES, PERMITS, QUEUE,
    RATE, REFUSALS, REQUESTS, THROTTLE, WAIT,
};
use super::words::{CLASSES, KINDS, METHODS, REASONS, TIERS};
use crate::Priority;
use crate::clock::{Time, nanos};
use crate::dead_letter::Reason;
use crate::error::ErrorKind;
use crate::error::panic::catch_panic;

/// The value of `lowest` while no headroom was recorded in this second.
const UNHEARD: u32 = u32::MAX;

/// The series in which a request is counted; `None` if the request is not counted.
#[derive(Clone)]
pub(crate) struct Series(Option<Arc<Set>>);

/// One set of series.
pub(super) struct Set {
    labels: Box<Labels>,
    /// The ends of requests by tier and, within a tier, by outcome: completed, cancelled, and every kind of error.
    requests: [[Count; 2 + KINDS.len()]; 3],
    /// The ends of attempts by outcome: the classes of status, and every kind of error.
    attempts: [Count; CLASSES.len() + KINDS.len()],
    /// The durations of attempts by method and outcome. The map is read for every attempt, and changed for every new
    /// combination.
    durations: ArcSwap<HashMap<(u8, u16), Histogram>>,
    waits: [OnceLock<Histogram>; 3],
    queued: [AtomicI64; 3],
    queue_depth: [Depth; 3],
    busy: Mutex<Busy>,
    in_flight: Depth,
    permits: [Count; 4],
    /// The number of answers with a status below 400, and the sum of their times in nanoseconds.
    answers: AtomicU64,
    answers_ns: AtomicU64,
    /// The lowest headroom in this second, in thousandths.
    lowest: AtomicU32,
    refusals: Count,
    dead_letters: [Count; REASONS.len()],
    pauses: Count,
    lanes: Mutex<HashMap<Arc<str>, Slow>>,
    paused: Depth,
    headroom: Figure,
    headroom_average: Figure,
    rate: Figure,
    mean: Figure,
    throttle: Figure,
    rolling: Mutex<Rolling>,
}

/// Measures the time in which any exchange was in flight.
#[derive(Default)]
struct Busy {
    permits: u32,
    since: Time,
    ended_ns: u64,
}

impl Busy {
    fn nanos(&self, now: Time) -> u64 {
        let running = if self.permits > 0 { nanos(now.since(self.since)) } else { 0 };
        self.ended_ns.saturating_add(running)
    }
}

/// A lane that is paused or slowed down.
struct Slow {
    paused_until: Time,
    /// The fraction of its usual rate at which the lane sends, and until when that is assumed.
    share: f64,
    share_until: Time,
}

impl Default for Slow {
    fn default() -> Slow {
        Slow { paused_until: Time::ZERO, share: 1.0, share_until: Time::ZERO }
    }
}

/// A request that waits for a permit, until this is dropped.
pub(crate) struct Queued(Option<(Arc<Set>, usize)>);

impl Drop for Queued {
    fn drop(&mut self) {
        if let Some((set, tier)) = &self.0 {
            set.queued[*tier].fetch_sub(1, Relaxed);
        }
    }
}

/// A send in flight. If this is dropped before the send has ended, the send counts as cancelled.
pub(crate) struct Running {
    series: Series,
    priority: Priority,
    ended: bool,
}

impl Running {
    pub(crate) fn new(series: Series, priority: Priority) -> Running {
        Running { series, priority, ended: false }
    }

    pub(crate) fn series(&self) -> &Series {
        &self.series
    }

    /// Counts the end of the send, with an error or with an answer.
    pub(crate) fn ended(&mut self, error: Option<ErrorKind>) {
        self.ended = true;
        self.series.sent(self.priority, error.map_or(0, |kind| 2 + kind as usize));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.series.sent(self.priority, 1);
        }
    }
}

impl Series {
    /// The series of a request that is not counted.
    pub(crate) const fn none() -> Series {
        Series(None)
    }

    pub(super) fn of(set: Arc<Set>) -> Series {
        Series(Some(set))
    }

    fn sent(&self, priority: Priority, outcome: usize) {
        if let Some(set) = &self.0 {
            set.requests[priority.rank() as usize][outcome].add(1);
        }
    }

    pub(crate) fn queued(&self, rank: u8) -> Queued {
        Queued(self.0.as_ref().map(|set| {
            set.queued[rank as usize].fetch_add(1, Relaxed);
            (set.clone(), rank as usize)
        }))
    }

    pub(crate) fn permit_started(&self, now: impl FnOnce() -> Time) {
        let Some(set) = &self.0 else { return };
        set.permits[0].add(1);
        let mut busy = set.busy.lock();
        if busy.permits == 0 {
            busy.since = now();
        }
        busy.permits += 1;
    }

    pub(crate) fn permit_ended(&self, now: Time, end: End) {
        let Some(set) = &self.0 else { return };
        set.permits[1 + end as usize].add(1);
        let mut busy = set.busy.lock();
        busy.ended_ns = busy.nanos(now).max(busy.ended_ns);
        busy.since = now;
        busy.permits = busy.permits.saturating_sub(1);
    }

    pub(crate) fn waited(&self, rank: u8, wait: Duration) {
        let Some(set) = &self.0 else { return };
        let tier = rank as usize;
        catch_panic(|| {
            let handle = || histogram(&WAIT, &set.labels, &[("priority", TIERS[tier])]);
            set.waits[tier].get_or_init(handle).record(wait.as_secs_f64());
        });
    }

    /// Counts an exchange that ended, with or without a status.
    pub(crate) fn attempt(&self, method: &Method, end: Result<StatusCode, ErrorKind>, took: Duration) {
        let Some(set) = &self.0 else { return };
        let outcome = match end {
            Ok(status) => usize::from(status.as_u16() / 100).clamp(1, CLASSES.len()) - 1,
            Err(kind) => CLASSES.len() + kind as usize,
        };
        set.attempts[outcome].add(1);
        if end.is_ok_and(|status| status.as_u16() < 400) {
            set.answers.fetch_add(1, Relaxed);
            set.answers_ns.fetch_add(nanos(took), Relaxed);
        }
        let method = METHODS.iter().position(|known| *known == method.as_str()).unwrap_or(METHODS.len() - 1) as u8;
        let code = end.map_or_else(|kind| 1_000 + kind as u16, |status| status.as_u16());
        catch_panic(|| match set.durations.load().get(&(method, code)) {
            Some(known) => known.record(took.as_secs_f64()),
            None => set.duration((method, code), end).record(took.as_secs_f64()),
        });
    }

    pub(crate) fn refused(&self) {
        if let Some(set) = &self.0 {
            set.refusals.add(1);
        }
    }

    pub(crate) fn dead_lettered(&self, reason: Reason) {
        if let Some(set) = &self.0 {
            set.dead_letters[reason as usize].add(1);
        }
    }

    /// Records how much is left of a tenant's tightest limit.
    #[inline]
    pub(crate) fn headroom(&self, (left, limit): (u32, u32)) {
        let Some(set) = &self.0 else { return };
        let left = (u64::from(left) * 1_000 / u64::from(limit.max(1))).min(1_000) as u32;
        set.lowest.fetch_min(left, Relaxed);
    }

    /// Records that the tenant is paused until `until`.
    pub(crate) fn paused(&self, tenant: &Arc<str>, until: Time) {
        let Some(set) = &self.0 else { return };
        set.pauses.add(1);
        set.lanes.lock().entry(tenant.clone()).or_default().paused_until = until;
    }

    /// Records that a pause that was already counted lasts until `until`.
    pub(crate) fn paused_longer(&self, tenant: &Arc<str>, until: Time) {
        let Some(set) = &self.0 else { return };
        set.lanes.lock().entry(tenant.clone()).or_default().paused_until = until;
    }

    /// Records that the tenant sends at `share` of its usual rate, which is assumed to last until `until`.
    pub(crate) fn slowed(&self, tenant: &Arc<str>, share: f64, until: Time) {
        let Some(set) = &self.0 else { return };
        let mut lanes = set.lanes.lock();
        let lane = lanes.entry(tenant.clone()).or_default();
        (lane.share, lane.share_until) = (share.clamp(0.0, 1.0), until);
    }

    /// Records that the tenant is not paused any more.
    pub(crate) fn resumed(&self, tenant: &Arc<str>) {
        if let Some(set) = &self.0 {
            set.lanes.lock().remove(tenant);
        }
    }
}

impl Set {
    pub(super) fn new(labels: Box<Labels>) -> Set {
        Set {
            labels,
            requests: Default::default(),
            attempts: std::array::from_fn(|_| Count::default()),
            durations: ArcSwap::default(),
            waits: Default::default(),
            queued: Default::default(),
            queue_depth: Default::default(),
            busy: Mutex::default(),
            in_flight: Depth::default(),
            permits: Default::default(),
            answers: AtomicU64::new(0),
            answers_ns: AtomicU64::new(0),
            lowest: AtomicU32::new(UNHEARD),
            refusals: Count::default(),
            dead_letters: Default::default(),
            pauses: Count::default(),
            lanes: Mutex::default(),
            paused: Depth::default(),
            headroom: Figure::default(),
            headroom_average: Figure::default(),
            rate: Figure::default(),
            mean: Figure::default(),
            throttle: Figure::default(),
            rolling: Mutex::default(),
        }
    }

    /// Registers the histogram of a new combination of method and outcome.
    #[cold]
    fn duration(&self, key: (u8, u16), end: Result<StatusCode, ErrorKind>) -> Histogram {
        let (status, error) = match end {
            Ok(status) if status.as_u16() < 400 => (Some(status), None),
            Ok(status) => (Some(status), Some(status.as_str().to_owned())),
            Err(kind) => (None, Some(kind.as_str().to_owned())),
        };
        let mut labels = self.labels.to_vec();
        labels.extend(status.map(|status| ("http_response_status_code", status.as_str().to_owned().into())));
        labels.extend(error.map(|error| ("error_type", error.into())));
        let made = histogram(&DURATION, &labels, &[("http_request_method", METHODS[key.0 as usize])]);
        // Two concurrent callers register the same series, and the recorder gives both the same histogram.
        self.durations.rcu(|known| {
            let mut known = HashMap::clone(known);
            known.insert(key, made.clone());
            known
        });
        made
    }

    /// Reports to the recorder. `last` sets all gauges of current numbers to zero.
    pub(super) fn tell(&self, now: Time, last: bool) {
        let counter = |count: &Count, metric, more: More<'_>| count.tell(metric, &self.labels, more);
        for (requests, tier) in self.requests.iter().zip(TIERS) {
            let kinds = KINDS.iter().map(|kind| kind.as_str());
            let outcomes = ["completed", "cancelled"].into_iter().chain(kinds);
            for (count, outcome) in requests.iter().zip(outcomes) {
                counter(count, &REQUESTS, &[("priority", tier), ("outcome", outcome)]);
            }
        }
        let outcomes = CLASSES.into_iter().chain(KINDS.iter().map(|kind| kind.as_str()));
        for (count, outcome) in self.attempts.iter().zip(outcomes) {
            counter(count, &ATTEMPTS, &[("outcome", outcome)]);
        }
        for (count, outcome) in self.permits.iter().zip(["started", "finished", "not_sent", "abandoned"]) {
            counter(count, &PERMITS, &[("outcome", outcome)]);
        }
        for (count, reason) in self.dead_letters.iter().zip(REASONS.map(Reason::as_str)) {
            counter(count, &DEAD_LETTERS, &[("reason", reason)]);
        }
        counter(&self.refusals, &REFUSALS, &[]);
        counter(&self.pauses, &PAUSES, &[]);

        let there = |count: i64| if last { 0 } else { count };
        for ((depth, queued), tier) in self.queue_depth.iter().zip(&self.queued).zip(TIERS) {
            depth.tell(there(queued.load(Relaxed)), &QUEUE, &self.labels, &[("priority", tier)]);
        }
        let (permits, busy_ns) = {
            let busy = self.busy.lock();
            (busy.permits, busy.nanos(now))
        };
        self.in_flight.tell(there(permits.into()), &IN_FLIGHT, &self.labels, &[]);
        self.tell_lanes(now, last);

        let mut rolling = self.rolling.lock();
        let (answers, answers_ns) = (self.answers.load(Relaxed), self.answers_ns.load(Relaxed));
        let (rate, mean) = rolling.rate(answers, answers_ns, busy_ns);
        self.rate.tell(rate, &RATE, &self.labels);
        self.mean.tell(mean, &MEAN, &self.labels);
        let lowest = Some(self.lowest.swap(UNHEARD, Relaxed)).filter(|lowest| *lowest != UNHEARD);
        if let Some(lowest) = lowest {
            self.headroom.tell(f64::from(lowest) / 1_000.0, &HEADROOM, &self.labels);
        }
        // A request that is turned away ends without a permit, and a permit may be for no request.
        let ended = self.requests.iter().flatten().map(Count::total);
        let asked = ended.chain([self.permits[0].total()]).fold(0, u64::wrapping_add);
        let waits = self.queued.iter().any(|queued| queued.load(Relaxed) > 0);
        if let Some(average) = rolling.headroom(lowest, waits, asked) {
            self.headroom_average.tell(average, &HEADROOM_AVERAGE, &self.labels);
        }
    }

    fn tell_lanes(&self, now: Time, last: bool) {
        let (mut paused, mut slowest) = (0, 1.0_f64);
        self.lanes.lock().retain(|_, lane| {
            paused += i64::from(lane.paused_until > now);
            if lane.share_until > now {
                slowest = slowest.min(lane.share);
            }
            lane.paused_until > now || lane.share_until > now
        });
        self.paused.tell(if last { 0 } else { paused }, &PAUSED, &self.labels, &[]);
        self.throttle.tell(slowest, &THROTTLE, &self.labels);
    }
}
