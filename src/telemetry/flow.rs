//! Measures the rate and the mean latency of a vendor's responses, smoothed, and what they leave of its limits. Works
//! without the feature `metrics`.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::Serialize;

use super::headroom::{Advice, RecentHeadroom};
use crate::clock::{Time, as_some_seconds};

/// The time constant of the smoothing, in seconds: a response this long ago counts a third (1/e) of one now.
const MEMORY: f64 = 10.0;

/// The rate and the latency of a vendor's responses, smoothed over about ten seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Flow {
    /// Responses per second, of any status.
    pub per_second: f64,
    /// The mean time from the start of an exchange to the headers of its response, in seconds; `None` before the first
    /// response.
    #[serde(rename = "mean_s", serialize_with = "as_some_seconds")]
    pub mean: Option<Duration>,
}

/// Sums over responses, in which older responses count less.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meter {
    /// The time of the first response; `at` is that of the last one.
    first: Option<Time>,
    at: Time,
    count: f64,
    seconds: f64,
}

impl Meter {
    /// Counts a response that arrived at `now`, after `took`.
    pub(crate) fn answered(&mut self, now: Time, took: Duration) {
        let fades = self.fades(now);
        self.first.get_or_insert(now);
        self.at = self.at.max(now);
        self.count = self.count * fades + 1.0;
        self.seconds = self.seconds * fades + took.as_secs_f64();
    }

    /// The rate and the mean latency at `now`.
    pub(crate) fn flow(&self, now: Time) -> Flow {
        let Some(first) = self.first else { return Flow::default() };
        // Soon after the first response, only this part of the averaging period is covered.
        let known = 1.0 - (-now.since(first).as_secs_f64().max(1.0) / MEMORY).exp();
        let per_second = self.count * self.fades(now) / (MEMORY * known);
        let mean = Duration::try_from_secs_f64(self.seconds / self.count).ok().filter(|_| self.count > 0.0);
        Flow { per_second, mean }
    }

    fn fades(&self, now: Time) -> f64 {
        match now.since(self.at).as_nanos() {
            0 => 1.0,
            _ => (-now.since(self.at).as_secs_f64() / MEMORY).exp(),
        }
    }
}

/// What is measured of one vendor's responses.
#[derive(Default)]
struct OfVendor {
    meter: Mutex<Meter>,
    headroom: Mutex<RecentHeadroom>,
}

/// The meters of all vendors.
#[derive(Default)]
pub(crate) struct Meters {
    /// Read for every response, and replaced for every new vendor.
    by_vendor: ArcSwap<HashMap<Arc<str>, Arc<OfVendor>>>,
}

impl Meters {
    pub(crate) fn answered(&self, vendor: &Arc<str>, now: Time, took: Duration) {
        match self.by_vendor.load().get(vendor) {
            Some(of) => of.meter.lock().answered(now, took),
            None => self.begin(vendor).meter.lock().answered(now, took),
        }
    }

    /// Counts what a response leaves of the tenant's tightest limit, as (left, limit). Returns the advice that is due.
    pub(crate) fn headroom(
        &self,
        vendor: &Arc<str>,
        tenant: &Arc<str>,
        now: Time,
        headroom: (u32, u32),
    ) -> Option<Advice> {
        match self.by_vendor.load().get(vendor) {
            Some(of) => of.headroom.lock().seen(now, tenant, headroom),
            None => self.begin(vendor).headroom.lock().seen(now, tenant, headroom),
        }
    }

    pub(crate) fn flow(&self, vendor: &str, now: Time) -> Flow {
        self.by_vendor.load().get(vendor).map(|of| of.meter.lock().flow(now)).unwrap_or_default()
    }

    #[cold]
    fn begin(&self, vendor: &Arc<str>) -> Arc<OfVendor> {
        let new: Arc<OfVendor> = Arc::default();
        // If two threads add the same vendor at once, the second one uses what the first one added.
        self.by_vendor.rcu(|known| {
            let mut known = HashMap::clone(known);
            known.entry(vendor.clone()).or_insert_with(|| new.clone());
            known
        });
        self.by_vendor.load().get(vendor).cloned().unwrap_or(new)
    }
}

#[cfg(test)]
mod tests;
