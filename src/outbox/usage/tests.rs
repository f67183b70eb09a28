use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;

use super::*;
use crate::config::{Config, Sources, TenantEntry};
use crate::engine::plan::NO_ENDPOINT;

const SECOND: Duration = Duration::from_secs(1);
const BEGIN: Time = Time::from_nanos(3_600 * 1_000_000_000);

/// A tenant at a vendor with a limit of this window.
fn route(window: &str) -> Arc<Route> {
    let text = format!(
        "[vendors.v]\nbase_url = \"https://v.example\"\n[[vendors.v.limits]]\nname = \"limit\"\nlimit = 100\n\
         window = \"{window}\"\n"
    );
    let sources = Sources::new().without_catalogue().file("f.toml", text).tenant(TenantEntry::new("t", "v"));
    let config = Config::load(&sources, 1).unwrap();
    Route::alone(Arc::unwrap_or_clone(config.tenant("t", "v").unwrap()))
}

fn add_one_request(usage: &NewUsage, route: &Arc<Route>, endpoints: usize) {
    for endpoint in (0..endpoints).map(EndpointId::at) {
        usage.add(route, endpoint, false, &Used::in_the_record(1));
    }
}

/// Tries in vain to write what is there at `now`.
fn fail(usage: &NewUsage, now: Time) {
    let taken = usage.take(now);
    usage.take_back(&taken);
}

/// How many entries there are of each age in seconds.
fn ages(usage: &NewUsage, now: Time) -> BTreeMap<u64, usize> {
    let mut ages = BTreeMap::new();
    for one in usage.take(now) {
        *ages.entry(now.since(one.taken_at).as_secs()).or_insert(0) += 1;
    }
    ages
}

#[test]
fn recorded_units_return_in_their_slot() {
    let (route, usage, recorded) = (route("1h"), NewUsage::default(), Used::in_the_record(3));
    usage.take_out(&route, (NO_ENDPOINT, false), &recorded, BEGIN, 2 * SECOND);
    usage.add(&route, NO_ENDPOINT, false, &recorded);
    // The exchange took a minute not to leave, which is more than a slot of an hour's 64th.
    let now = BEGIN + 60 * SECOND;
    let rows: Vec<Taken> = usage.take(now).iter().map(|one| one.row(now)).collect();
    let rows: Vec<_> = rows.iter().map(|row| (row.requests, row.points, row.age_ms)).collect();
    assert_eq!(rows, [(-1, -3, 60_000), (1, 3, 0)]);
}

#[test]
fn long_outage_loses_no_usage() {
    let (route, usage) = (route("24h"), NewUsage::default());
    let mut now = BEGIN;
    for _ in 0..200 {
        now = now + SECOND;
        add_one_request(&usage, &route, 1_000);
        fail(&usage, now);
    }
    let taken = usage.take(now);
    assert_eq!(taken.iter().map(|one| one.row(now).requests).sum::<i64>(), 200_000);
    assert!(taken.len() <= 2_000, "{}: 200 s are in two slots of a day's 64th", taken.len());
}

#[test]
fn unwritten_usage_is_added_up_by_slot() {
    let route = route("1h");
    let (slot_ms, counts_ms) = kept_for(&route, Duration::ZERO);
    // A slot begins a second after the first usage.
    let epoch = u64::try_from(1_000 * slot_ms).unwrap() - 3_600_000 - 1_000;
    let usage = NewUsage::new(UNIX_EPOCH + Duration::from_millis(epoch));
    for seconds in [0_u32, 2, 3] {
        add_one_request(&usage, &route, 1);
        fail(&usage, BEGIN + seconds * SECOND);
    }
    // The other tier has rows of its own.
    usage.add(&route, EndpointId::at(0), true, &Used::in_the_record(1));
    for seconds in [1_u32, 2] {
        let at = BEGIN + seconds * SECOND;
        usage.take_out(&route, (EndpointId::at(0), false), &Used::in_the_record(5), at, 2 * SECOND);
    }
    let now = BEGIN + 4 * SECOND;
    fail(&usage, now);
    let mut rows: Vec<_> = usage.take(now).iter().map(|one| one.row(now)).collect();
    rows.sort_by_key(|row| row.age_ms);
    let rows: Vec<_> = rows.iter().map(|row| (row.age_ms, row.requests, row.points, row.counts_ms)).collect();
    let expected =
        [(0, 1, 1, counts_ms), (1_000, 2, 2, counts_ms), (2_000, -2, -10, counts_ms + 2_000), (4_000, 1, 1, counts_ms)];
    assert_eq!(rows, expected);
    assert!(usage.take(now).is_empty());
}

#[test]
fn oldest_usage_beyond_the_bound_is_dropped() {
    let (route, usage) = (route("24h"), NewUsage::default());
    let later = BEGIN + 3_600 * SECOND;
    for now in [BEGIN, later] {
        add_one_request(&usage, &route, 60_000);
        fail(&usage, now);
    }
    assert_eq!(ages(&usage, later), BTreeMap::from([(0, 60_000), (3_600, 40_000)]));
}

#[test]
fn usage_that_counts_longest_is_kept() {
    let (day, minute, usage) = (route("24h"), route("1m"), NewUsage::default());
    let later = BEGIN + 30 * SECOND;
    for (route, now) in [(day, BEGIN), (minute, later)] {
        add_one_request(&usage, &route, 60_000);
        fail(&usage, now);
    }
    assert_eq!(ages(&usage, later), BTreeMap::from([(0, 40_000), (30, 60_000)]));
}

/// Counts the warnings of this module.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN && metadata.target() == "integration_client::outbox::usage"
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Relaxed);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn dropped_usage_is_logged_once_per_outage() {
    let (route, usage, warnings) = (route("24h"), NewUsage::default(), Warnings::default());
    let _guard = tracing::subscriber::set_default(warnings.clone());
    for logged in [1, 2] {
        for hour in 0..3_u32 {
            add_one_request(&usage, &route, 60_000);
            fail(&usage, BEGIN + hour * 3_600 * SECOND);
        }
        assert_eq!(warnings.0.load(Relaxed), logged);
        usage.all_is_written();
    }
}
