//! The client's own numbers, and the handles through which they are reported to the recorder.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, SharedString};

use super::metric::{Kind, Metric, Unit};
use super::table::METRICS;

const METADATA: Metadata<'static> = Metadata::new("integration_client", Level::INFO, Some(module_path!()));

/// The labels of a set of series.
pub(super) type Labels = [(&'static str, SharedString)];
/// Labels that differ between the series of a set.
pub(super) type More<'a> = &'a [(&'static str, &'static str)];

fn key(metric: &Metric, labels: &Labels, more: More<'_>) -> Key {
    let labels = labels.iter().map(|(name, value)| Label::new(*name, value.clone()));
    let more = more.iter().map(|(name, value)| Label::new(*name, *value));
    Key::from_parts(metric.name, labels.chain(more).collect::<Vec<_>>())
}

/// Gives the recorder the descriptions of all metrics.
pub(super) fn describe() {
    metrics::with_recorder(|recorder| {
        for metric in METRICS {
            let unit = match metric.unit {
                Unit::Count => Some(metrics::Unit::Count),
                Unit::Seconds => Some(metrics::Unit::Seconds),
                Unit::PerSecond => Some(metrics::Unit::CountPerSecond),
                Unit::Ratio => None,
            };
            let (name, about) = (metric.name.into(), metric.about.into());
            match metric.kind {
                Kind::Counter => recorder.describe_counter(name, unit, about),
                Kind::Gauge => recorder.describe_gauge(name, unit, about),
                Kind::Histogram => recorder.describe_histogram(name, unit, about),
            }
        }
    });
}

pub(super) fn histogram(metric: &Metric, labels: &Labels, more: More<'_>) -> Histogram {
    metrics::with_recorder(|recorder| recorder.register_histogram(&key(metric, labels, more), &METADATA))
}

fn gauge(metric: &Metric, labels: &Labels, more: More<'_>) -> Gauge {
    metrics::with_recorder(|recorder| recorder.register_gauge(&key(metric, labels, more), &METADATA))
}

/// A number that only grows. Its increase is reported by [`tell`](Self::tell). Its series is registered before
/// its first event, where there is time for that: a rate is a difference between two values.
#[derive(Default)]
pub(super) struct Count {
    value: AtomicU64,
    told: AtomicU64,
    handle: OnceLock<Counter>,
}

impl Count {
    #[inline]
    pub(super) fn add(&self, more: u64) {
        self.value.fetch_add(more, Relaxed);
    }

    pub(super) fn total(&self) -> u64 {
        self.value.load(Relaxed)
    }

    /// Sets the total of a number that is counted elsewhere.
    pub(super) fn set(&self, value: u64) {
        self.value.store(value, Relaxed);
    }

    pub(super) fn tell(&self, metric: &Metric, labels: &Labels, more: More<'_>) {
        let value = self.value.load(Relaxed);
        let new = value.saturating_sub(self.told.load(Relaxed));
        if new == 0 && self.handle.get().is_some() {
            return;
        }
        let register =
            || metrics::with_recorder(|recorder| recorder.register_counter(&key(metric, labels, more), &METADATA));
        self.handle.get_or_init(register).increment(new);
        self.told.store(value, Relaxed);
    }
}

/// A current number of things. Reported as a difference, so that the numbers of several clients of a process add up.
#[derive(Default)]
pub(super) struct Depth {
    told: AtomicI64,
    handle: OnceLock<Gauge>,
}

impl Depth {
    pub(super) fn tell(&self, now: i64, metric: &Metric, labels: &Labels, more: More<'_>) {
        let handle = self.handle.get_or_init(|| gauge(metric, labels, more));
        // The gauge is updated even by zero, because a recorder may drop a series that is not updated.
        handle.increment((now - self.told.load(Relaxed)) as f64);
        self.told.store(now, Relaxed);
    }
}

/// A gauge that is set to its value.
#[derive(Default)]
pub(super) struct Figure(OnceLock<Gauge>);

impl Figure {
    pub(super) fn tell(&self, now: f64, metric: &Metric, labels: &Labels) {
        self.0.get_or_init(|| gauge(metric, labels, &[])).set(now);
    }
}
