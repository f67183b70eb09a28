//! A recorder of the crate `metrics` that updates OpenTelemetry's instruments.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

pub(crate) struct OtelRecorder {
    meter: Meter,
}

impl OtelRecorder {
    pub(crate) fn new(meter: Meter) -> OtelRecorder {
        OtelRecorder { meter }
    }
}

/// One series: an instrument, and the labels that its values carry. Instruments of the same name are one instrument.
struct Series<I> {
    instrument: I,
    labels: Vec<KeyValue>,
    /// The last value of a counter or a gauge: a counter's total as a number, a gauge's level as the bits of a float.
    last: AtomicU64,
}

impl<I> Series<I> {
    fn new(instrument: I, key: &Key) -> Arc<Series<I>> {
        let labels = key.labels().map(|label| KeyValue::new(label.key().to_owned(), label.value().to_owned()));
        Arc::new(Series { instrument, labels: labels.collect(), last: AtomicU64::new(0) })
    }
}

impl CounterFn for Series<opentelemetry::metrics::Counter<u64>> {
    fn increment(&self, value: u64) {
        self.last.fetch_add(value, Relaxed);
        self.instrument.add(value, &self.labels);
    }

    fn absolute(&self, value: u64) {
        let before = self.last.fetch_max(value, Relaxed);
        self.instrument.add(value.saturating_sub(before), &self.labels);
    }
}

impl Series<opentelemetry::metrics::Gauge<f64>> {
    fn change(&self, by: f64) {
        let add = |bits| Some((f64::from_bits(bits) + by).to_bits());
        let before = self.last.fetch_update(Relaxed, Relaxed, add).unwrap_or_default();
        self.instrument.record(f64::from_bits(before) + by, &self.labels);
    }
}

impl GaugeFn for Series<opentelemetry::metrics::Gauge<f64>> {
    fn increment(&self, value: f64) {
        self.change(value);
    }

    fn decrement(&self, value: f64) {
        self.change(-value);
    }

    fn set(&self, value: f64) {
        self.last.store(value.to_bits(), Relaxed);
        self.instrument.record(value, &self.labels);
    }
}

impl HistogramFn for Series<opentelemetry::metrics::Histogram<f64>> {
    fn record(&self, value: f64) {
        self.instrument.record(value, &self.labels);
    }
}

impl Recorder for OtelRecorder {
    // Descriptions are not needed: the metrics' names state their units.
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Series::new(self.meter.u64_counter(key.name().to_owned()).build(), key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Series::new(self.meter.f64_gauge(key.name().to_owned()).build(), key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Series::new(self.meter.f64_histogram(key.name().to_owned()).build(), key))
    }
}
