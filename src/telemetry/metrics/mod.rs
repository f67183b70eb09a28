//! The metrics that a client exports through the facade of the crate [`metrics`](https://docs.rs/metrics).
//!
//! The application chooses the recorder. Install it before the client is built: a series that is registered with one
//! recorder is not moved to another. Counters and gauges are updated once a second, and when the client is dropped;
//! histograms at once.
//!
//! [`METRICS`] lists every metric, and so does the page `docs/METRICS.md`; `docs/grafana-dashboard.json` shows them.
//! Labels name vendors; [`IntegrationClientBuilder::tenant_labels`](crate::IntegrationClientBuilder::tenant_labels)
//! adds the labels of a bounded number of tenants.
//!
//! A recorder that panics loses the values that it was given, and has no other effect on permits, requests and the
//! client.
//!
//! | file | what it holds |
//! |---|---|
//! | `table.rs`, `words.rs` | each metric with its description, and the values of labels: a new metric begins here |
//! | `metric.rs` | what the table says of a metric |
//! | `series.rs`, `outbox.rs`, `gateway.rs` | the series of vendors and tenants, of the outbox and shared limits, of gateways |
//! | `handle.rs`, `rolling.rs`, `end.rs` | counters and gauges that are told to the recorder, and when |
//! | `off.rs` | the same interface without the feature `metrics` |

mod end;
mod gateway;
mod handle;
mod metric;
mod outbox;
mod rolling;
mod series;
mod table;
mod words;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::MissedTickBehavior;

pub(crate) use self::end::End;
use crate::clock::Time;
use crate::error::panic::catch_panic;
pub(crate) use gateway::GatewayFigures;
use gateway::GatewaySeries;
use handle::{Count, Depth, Figure};
pub use metric::{Kind, Metric, Unit};
pub(crate) use outbox::{OutboxFigures, SharingFigures};
use outbox::{OutboxSeries, SharingSeries};
use series::Set;
pub(crate) use series::{Queued, Running, Series};
pub use table::METRICS;
use table::{CLEANUPS, CONFIG, CONFIG_AGE, CONFIG_PROBLEM, HOSTS, MISSED, OPENINGS, REJECTED, RETIRED};

/// The label of all tenants beyond the configured number.
const OTHER: &str = "other";
/// The vendor label of requests for an unknown tenant or vendor.
const UNKNOWN: &str = "unknown";

/// Whether metrics are compiled in. Measurements that cost something are made only then.
pub(crate) const IS_ON: bool = true;

/// Numbers that other parts of the client count.
pub(crate) struct Totals {
    pub(crate) config_version: u64,
    /// The time since the source of the configuration last answered; `None` if the client does not poll it.
    pub(crate) config_age: Option<Duration>,
    /// Whether a source of the configuration cannot be read now, and whether what a source holds is not valid.
    pub(crate) config_unreadable: bool,
    pub(crate) config_invalid: bool,
    pub(crate) hosts_open: usize,
    pub(crate) events_missed: u64,
    /// Scheduled cleanups that succeeded, that failed, and the tenants that they retired; `None` before the first.
    pub(crate) cleanups: Option<[u64; 3]>,
    /// `None` without a store.
    pub(crate) outbox: Option<OutboxFigures>,
    /// `None` if no limits are shared.
    pub(crate) sharing: Option<SharingFigures>,
    /// `None` without a gateway.
    pub(crate) gateway: Option<GatewayFigures>,
}

/// Series by vendor and tenant.
type Sets = HashMap<Arc<str>, HashMap<Arc<str>, Arc<Set>>>;

/// All metrics of a client.
pub(crate) struct Metrics {
    /// The most tenants that get a label of their own; 0 for no tenant labels.
    tenants: usize,
    /// The series by vendor, and by tenant if tenants have labels. The map is read for every request, and changed for
    /// every new vendor or tenant label.
    sets: ArcSwap<Sets>,
    named: Mutex<HashSet<Arc<str>>>,
    described: OnceLock<()>,
    hosts_open: Depth,
    openings: Count,
    config: Figure,
    config_age: Figure,
    /// `unreadable` and `invalid`.
    config_problems: [Depth; 2],
    rejected: Count,
    missed: Count,
    cleanups: [Count; 2],
    retired: Count,
    outbox: OutboxSeries,
    sharing: SharingSeries,
    gateway: GatewaySeries,
    complained: AtomicBool,
}

impl Metrics {
    pub(crate) fn new(tenants: usize) -> Metrics {
        Metrics {
            tenants,
            sets: ArcSwap::default(),
            named: Mutex::default(),
            described: OnceLock::new(),
            hosts_open: Depth::default(),
            openings: Count::default(),
            config: Figure::default(),
            config_age: Figure::default(),
            config_problems: Default::default(),
            rejected: Count::default(),
            missed: Count::default(),
            cleanups: Default::default(),
            retired: Count::default(),
            outbox: OutboxSeries::default(),
            sharing: SharingSeries::default(),
            gateway: GatewaySeries::default(),
            complained: AtomicBool::new(false),
        }
    }

    /// The series of a tenant at a vendor.
    pub(crate) fn series(&self, tenant: &str, vendor: &str) -> Series {
        let known = |tenant: &str| self.sets.load().get(vendor)?.get(tenant).cloned();
        if self.tenants == 0 {
            return Series::of(known("").unwrap_or_else(|| self.add("", vendor)));
        }
        Series::of(known(tenant).unwrap_or_else(|| {
            let mut named = self.named.lock();
            let label = match named.get(tenant) {
                Some(_) => tenant,
                None if named.len() < self.tenants => {
                    named.insert(tenant.into());
                    tenant
                }
                None => OTHER,
            };
            drop(named);
            known(label).unwrap_or_else(|| self.add(label, vendor))
        }))
    }

    /// The series of requests for an unknown tenant or vendor.
    pub(crate) fn unknown(&self) -> Series {
        let known = self.sets.load().get(UNKNOWN).and_then(|tenants| tenants.get("").cloned());
        Series::of(known.unwrap_or_else(|| self.add("", UNKNOWN)))
    }

    fn add(&self, tenant: &str, vendor: &str) -> Arc<Set> {
        // Only one caller at a time adds a set: otherwise one of two callers could count into a set that is not kept.
        let _adding = self.named.lock();
        let sets = self.sets.load_full();
        if let Some(known) = sets.get(vendor).and_then(|tenants| tenants.get(tenant)) {
            return known.clone();
        }
        let mut labels = vec![("vendor", vendor.to_owned().into())];
        if !tenant.is_empty() {
            labels.push(("tenant", tenant.to_owned().into()));
        }
        let set = Arc::new(Set::new(labels.into()));
        let mut sets = HashMap::clone(&sets);
        sets.entry(vendor.into()).or_default().insert(tenant.into(), set.clone());
        self.sets.store(Arc::new(sets));
        set
    }

    pub(crate) fn host_opened(&self) {
        self.openings.add(1);
    }

    pub(crate) fn config_rejected(&self) {
        self.rejected.add(1);
    }

    /// Reports everything to the recorder. `last` says that the client is being dropped.
    pub(crate) fn tell(&self, now: Time, totals: impl FnOnce() -> Totals, last: bool) {
        let totals = totals();
        let own = catch_panic(|| {
            self.described.get_or_init(handle::describe);
            self.hosts_open.tell(if last { 0 } else { totals.hosts_open as i64 }, &HOSTS, &[], &[]);
            self.openings.tell(&OPENINGS, &[], &[]);
            self.config.tell(totals.config_version as f64, &CONFIG, &[]);
            if let Some(age) = totals.config_age {
                self.config_age.tell(age.as_secs_f64(), &CONFIG_AGE, &[]);
            }
            let problems = [("unreadable", totals.config_unreadable), ("invalid", totals.config_invalid)];
            for (depth, (kind, is_present)) in self.config_problems.iter().zip(problems) {
                depth.tell(i64::from(is_present && !last), &CONFIG_PROBLEM, &[], &[("kind", kind)]);
            }
            self.rejected.tell(&REJECTED, &[], &[]);
            self.missed.set(totals.events_missed);
            self.missed.tell(&MISSED, &[], &[]);
            if let Some([done, failed, retired]) = totals.cleanups {
                for (count, (outcome, total)) in self.cleanups.iter().zip([("done", done), ("failed", failed)]) {
                    count.set(total);
                    count.tell(&CLEANUPS, &[], &[("outcome", outcome)]);
                }
                self.retired.set(retired);
                self.retired.tell(&RETIRED, &[], &[]);
            }
            if let Some(figures) = &totals.outbox {
                self.outbox.tell(figures, last);
            }
            if let Some(figures) = &totals.sharing {
                self.sharing.tell(figures);
            }
            if let Some(figures) = &totals.gateway {
                self.gateway.tell(figures, last);
            }
        });
        let mut well = own.is_some();
        for set in self.sets.load().values().flat_map(HashMap::values) {
            well &= catch_panic(|| set.tell(now, last)).is_some();
        }
        if !well && !self.complained.swap(true, Relaxed) {
            tracing::error!("the metrics recorder panicked; metrics may be lost, requests are not affected");
        }
    }
}

/// Calls `tell` once a second, until it returns false.
pub(crate) async fn every_second(tell: impl Fn() -> bool) {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if !tell() {
            return;
        }
    }
}
