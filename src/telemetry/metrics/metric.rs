//! What the table says of each metric.

/// A metric as it is exported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Metric {
    /// The name, which is valid in Prometheus.
    pub name: &'static str,
    /// The kind of the metric.
    pub kind: Kind,
    /// The unit of its values.
    pub unit: Unit,
    /// The labels. If `vendor` is among them,
    /// [`IntegrationClientBuilder::tenant_labels`](crate::IntegrationClientBuilder::tenant_labels) adds `tenant`.
    pub labels: &'static [&'static str],
    /// The description.
    pub about: &'static str,
}

/// The kind of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// A number that only grows.
    Counter,
    /// A number that goes up and down; set once a second.
    Gauge,
    /// A distribution of values.
    Histogram,
}

/// The unit of a metric's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Unit {
    /// A number of things.
    Count,
    /// Seconds.
    Seconds,
    /// A fraction: 0.2 is 20 %.
    Ratio,
    /// A number of things per second.
    PerSecond,
}

impl Kind {
    /// The name of the kind, in lower case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

impl Unit {
    /// The name of the unit.
    pub const fn as_str(self) -> &'static str {
        match self {
            Unit::Count => "count",
            Unit::Seconds => "seconds",
            Unit::Ratio => "ratio",
            Unit::PerSecond => "per second",
        }
    }
}

pub(super) const fn metric(
    name: &'static str,
    kind: Kind,
    unit: Unit,
    labels: &'static [&'static str],
    about: &'static str,
) -> Metric {
    Metric { name, kind, unit, labels, about }
}
