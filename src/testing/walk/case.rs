//! A case of the walk: a limit of a vendor in an environment, at a load that virtual time can afford.

use std::sync::Arc;

use super::entry::{SMALL_COST, scale, small_figure, with_small_cost, without_calendars, without_long_quotas};
use super::moment;
use crate::clock::nanos;
use crate::config::{Algorithm, Config, Limit, LimitKind, Rate, Scope, Sources, Throttle, Unit, Vendor};
use crate::signals::POINTS;
use crate::testing::limit::{Phase, Refill, Rule};
use crate::testing::{Call, VendorLimit};
use crate::{Delivery, Error, ErrorKind};

/// How the simulated vendor counts if the real vendor's algorithm is unknown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stranger {
    /// Fixed windows with an odd phase.
    Fixed,
    /// A sliding log: every request counts for one window.
    Log,
    /// A sliding counter: two windows, the older one weighted.
    Counter,
}

impl Stranger {
    const ALL: [Stranger; 3] = [Stranger::Fixed, Stranger::Log, Stranger::Counter];

    fn name(self) -> &'static str {
        match self {
            Stranger::Fixed => "unknown(fixed)",
            Stranger::Log => "unknown(log)",
            Stranger::Counter => "unknown(counter)",
        }
    }
}

/// The position of a limit in an entry: the index of its endpoint, or `None` for the vendor's own limits, and its index
/// there.
pub(super) type Place = (Option<usize>, usize);

/// The extent of a walk.
#[derive(Clone, Copy, Debug)]
pub struct Depth {
    /// The most units of the walked limit: a larger one is scaled down, and the vendor's other limits in proportion.
    pub most_units: u32,
    /// Requests for each of the eight spans of a case.
    pub span_requests: u32,
    /// The shortest span, as a multiple of the longest pause.
    pub span_pauses: u64,
    /// Whether a limit with an unknown algorithm is walked once for each [`Stranger`], or with one of them in turn.
    pub all_strangers: bool,
    /// How limits slow down when few units remain; `None` for what each entry says.
    pub throttle: Option<Throttle>,
}

impl Depth {
    /// The whole walk, which takes about a minute.
    pub const WHOLE: Depth =
        Depth { most_units: 200, span_requests: 100, span_pauses: 4, all_strangers: true, throttle: None };
    /// The shorter walk for tests.
    pub const SHORT: Depth =
        Depth { most_units: 24, span_requests: 20, span_pauses: 2, all_strangers: false, throttle: None };
}

/// One limit of one vendor in one environment; for a vendor without figures, the vendor itself.
#[derive(Clone, Debug)]
pub struct Case {
    pub(super) vendor: Arc<Vendor>,
    /// The entry with the figures of this case.
    pub(super) toml: String,
    /// The walked limit; `None` for a vendor without figures.
    pub(super) of: Option<Place>,
    pub(super) stranger: Stranger,
    pub(super) depth: Depth,
}

/// The shipped catalogue.
const CATALOGUE: &str = include_str!("../../../vendors.toml");

/// Every case of the catalogue, or only those of one vendor.
///
/// # Errors
/// The catalogue is invalid.
pub fn cases(depth: Depth, only: Option<&str>) -> Result<Vec<Case>, Error> {
    let config = Config::load(&Sources::new(), 1)?;
    let whole: toml::Table = toml::from_str(CATALOGUE).map_err(|why| invalid(&why.to_string()))?;
    let vendors = whole.get("vendors").and_then(toml::Value::as_table).ok_or_else(|| invalid("no vendors"))?;
    let mut cases = Vec::new();
    for (name, entry) in vendors.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        let environments = entry.get("environments").and_then(toml::Value::as_table);
        let others = environments.into_iter().flatten().map(|(name, _)| name.as_str());
        let live = config.vendor(name, "live")?;
        for environment in std::iter::once("live").chain(others) {
            let vendor = config.vendor(name, environment)?;
            if environment != "live" && says_the_same(&live, &vendor) {
                continue;
            }
            let places = places(&vendor);
            for place in &places {
                let strangers: &[Stranger] = match rate(limit_at(&vendor, *place)) {
                    Some(rate) if rate.algorithm == Algorithm::Unknown => &Stranger::ALL,
                    _ => &Stranger::ALL[..1],
                };
                let turn = turn(name, environment, &limit_at(&vendor, *place).name) % strangers.len();
                let strangers = if depth.all_strangers { strangers } else { &strangers[turn..=turn] };
                for stranger in strangers {
                    cases.push(Case::new(name, environment, entry, &vendor, Some(*place), *stranger, depth)?);
                }
            }
            if places.is_empty() {
                cases.push(Case::new(name, environment, entry, &vendor, None, Stranger::Fixed, depth)?);
            }
        }
    }
    Ok(cases)
}

/// A number that depends on the names of the limit alone, and not on other entries of the catalogue. A walk with one
/// [`Stranger`] per limit selects by this number, so it selects the same one each time.
fn turn(vendor: &str, environment: &str, limit: &str) -> usize {
    let bytes = [vendor, environment, limit].into_iter().flat_map(str::bytes);
    bytes.fold(0_usize, |turn, byte| turn.wrapping_mul(31).wrapping_add(byte.into()))
}

/// Whether two environments have the same limits and dialect, so that the walk of one covers the other.
fn says_the_same(live: &Vendor, other: &Vendor) -> bool {
    (&live.limits, &live.endpoints, &live.dialect) == (&other.limits, &other.endpoints, &other.dialect)
}

fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::Config, Delivery::NotSent, format!("the catalogue cannot be walked: {why}"))
}

fn places(vendor: &Vendor) -> Vec<Place> {
    let whole = (0..vendor.limits.len()).map(|at| (None, at));
    let endpoints = vendor.endpoints.iter().enumerate();
    whole.chain(endpoints.flat_map(|(at, endpoint)| (0..endpoint.limits.len()).map(move |l| (Some(at), l)))).collect()
}

fn limit_at(vendor: &Vendor, (endpoint, at): Place) -> &Limit {
    match endpoint {
        None => &vendor.limits[at],
        Some(endpoint) => &vendor.endpoints[endpoint].limits[at],
    }
}

pub(super) fn rate(limit: &Limit) -> Option<&Rate> {
    match &limit.kind {
        LimitKind::Rate(rate) => Some(rate),
        LimitKind::Concurrency { .. } => None,
    }
}

impl Case {
    fn new(
        name: &str,
        environment: &str,
        entry: &toml::Value,
        vendor: &Arc<Vendor>,
        of: Option<Place>,
        stranger: Stranger,
        depth: Depth,
    ) -> Result<Case, Error> {
        let mut entry = entry.clone();
        let walked = of.map(|place| limit_at(vendor, place).name.clone());
        without_calendars(&mut entry, walked.as_deref());
        let window = of.and_then(|place| Some(rate(limit_at(vendor, place))?.window));
        if let (Some(walked), Some(window)) = (&walked, window) {
            without_long_quotas(&mut entry, walked, window);
        }
        for (kind, cost) in vendor.costs.iter().filter(|(kind, cost)| *kind != POINTS && *cost > SMALL_COST) {
            with_small_cost(&mut entry, kind, cost);
        }
        let figure = of.map_or(1, |place| match &limit_at(vendor, place).kind {
            LimitKind::Rate(rate) => small(vendor, rate),
            LimitKind::Concurrency { limit } => *limit,
        });
        if figure > depth.most_units {
            // The cost of a request in points is unknown, so limits of requests are not scaled along with limits of
            // points.
            let of_points = |limit: &Limit| rate(limit).is_some_and(|rate| rate.unit == Unit::cost(POINTS));
            let is_points = of.is_some_and(|place| of_points(limit_at(vendor, place)));
            let named = |name: &str| {
                let mut limits = places(vendor).into_iter().map(|place| limit_at(vendor, place));
                limits.any(|limit| *limit.name == *name && of_points(limit))
            };
            let is_meant =
                |table: &toml::Table| !is_points || table.get("name").and_then(toml::Value::as_str).is_some_and(named);
            scale(&mut entry, u64::from(depth.most_units), u64::from(figure), &is_meant);
        }
        if let (Some(throttle), Some(entry)) = (depth.throttle, entry.as_table_mut()) {
            entry.insert("throttle".to_owned(), throttle.name().into());
        }
        let table = toml::Table::from_iter([(name.to_owned(), entry)]);
        let toml = toml::to_string(&toml::Table::from_iter([("vendors".to_owned(), toml::Value::Table(table))]))
            .map_err(|why| invalid(&why.to_string()))?;
        let config = Config::load(&Sources::new().without_catalogue().file("walk", toml.as_str()), 1)?;
        Ok(Case { vendor: config.vendor(name, environment)?, toml, of, stranger, depth })
    }

    /// The name of the vendor.
    pub fn vendor(&self) -> &str {
        &self.vendor.name
    }

    /// Vendor, environment, limit and algorithm.
    pub fn title(&self) -> String {
        let Vendor { name, environment, .. } = &*self.vendor;
        let Some(place) = self.of else { return format!("{name} {environment} (no figures)") };
        let (limit, title) = (self.limit(), self.limit_name(place));
        let text = match limit.and_then(rate) {
            Some(rate) => {
                let algorithm = match rate.algorithm {
                    Algorithm::Unknown => self.stranger.name(),
                    algorithm => algorithm.name(),
                };
                format!("{}/{} {algorithm}", rate.limit, span(nanos(rate.window)))
            }
            None => "at once".to_owned(),
        };
        let scope = limit.map_or("", |limit| limit.scope.name());
        format!("{name} {environment} {title} ({text}, {scope})")
    }

    /// The name of the limit, the same for all cases that walk it.
    pub fn limit_key(&self) -> Option<String> {
        let place = self.of?;
        Some(format!("{} {} {}", self.vendor.name, self.vendor.environment, self.limit_name(place)))
    }

    pub(super) fn limit(&self) -> Option<&Limit> {
        self.of.map(|place| limit_at(&self.vendor, place))
    }

    /// The name of the limit in the announcements.
    pub(super) fn limit_name(&self, place: Place) -> String {
        let limit = limit_at(&self.vendor, place);
        match place.0 {
            None => limit.name.to_string(),
            Some(at) => format!("{}/{}", self.vendor.endpoints[at].name, limit.name),
        }
    }

    /// All limits, each with the index of its endpoint.
    pub(super) fn limits(&self) -> impl Iterator<Item = (Option<usize>, &Limit)> {
        let endpoints = self.vendor.endpoints.iter().enumerate();
        let of_endpoints = endpoints.flat_map(|(at, endpoint)| endpoint.limits.iter().map(move |l| (Some(at), l)));
        self.vendor.limits.iter().map(|limit| (None, limit)).chain(of_endpoints)
    }

    /// The index of the walked limit in [`limits`](Case::limits).
    pub(super) fn number(&self) -> Option<usize> {
        let place = self.of?;
        places(&self.vendor).iter().position(|other| *other == place)
    }

    /// The limits as the simulated vendor enforces them, in the order of [`limits`](Case::limits).
    pub(super) fn enforced(&self) -> Vec<VendorLimit> {
        let of_each = places(&self.vendor).into_iter().zip(self.limits());
        let limit = |(place, (endpoint, limit)): (Place, (Option<usize>, &Limit))| {
            let mut enforced = VendorLimit::new(self.rule(limit)).scope(limit.scope).named(&self.limit_name(place));
            if let Some(endpoint) = endpoint {
                enforced = enforced.endpoint(&self.vendor.endpoints[endpoint].name);
            }
            match self.units_each(limit) {
                Some(units) => enforced.count_each_as(units),
                None => enforced,
            }
        };
        of_each.map(limit).collect()
    }

    /// The units that every request takes of a limit; `None` if a request takes its cost in points.
    fn units_each(&self, limit: &Limit) -> Option<u32> {
        match rate(limit).map(|rate| &rate.unit) {
            Some(Unit::Cost(kind)) if **kind != *POINTS => self.vendor.costs.get(kind),
            Some(Unit::Cost(_)) => None,
            Some(_) | None => Some(1),
        }
    }

    /// The units that a call takes of a limit.
    pub(super) fn units(&self, limit: &Limit, call: &Call) -> u32 {
        self.units_each(limit).unwrap_or(call.cost)
    }

    /// The units that a call of the other user takes of a limit. The call costs one point.
    pub(super) fn units_of_the_other(&self, limit: &Limit) -> u32 {
        self.units_each(limit).unwrap_or(1)
    }

    /// The first start of a window of the walked limit at or after `at`, if the limit resets by a calendar: such a
    /// limit is not paced, so its requests leave when a window starts. `at` itself for other limits.
    pub(super) fn begins_after(&self, at: u64) -> u64 {
        let Some(rate) = self.limit().and_then(rate) else { return at };
        let Some(first) = first_end(rate) else { return at };
        first + at.saturating_sub(first).div_ceil(nanos(rate.window)) * nanos(rate.window)
    }

    /// When a window of the limit begins, if the vendor counts the limit in fixed windows.
    pub(super) fn fixed_phase(&self, limit: &Limit) -> Option<u64> {
        match self.rule(limit) {
            Rule::FixedWindow { phase: Phase::At(at), .. } => Some(at),
            _ => None,
        }
    }

    fn rule(&self, limit: &Limit) -> Rule {
        let Some(rate) = rate(limit) else {
            let LimitKind::Concurrency { limit } = limit.kind else { return Rule::Concurrency { limit: 1 } };
            return Rule::Concurrency { limit };
        };
        let (limit, window_ns) = (rate.limit, nanos(rate.window));
        let odd = window_ns / 1_000 * 371 + 1_234_567;
        let phase = first_end(rate).unwrap_or(odd) % window_ns;
        let fixed = Rule::FixedWindow { limit, window_ns, phase: Phase::At(phase) };
        let counter = Rule::SlidingCounter { limit, window_ns, phase_ns: odd % window_ns };
        let log = Rule::SlidingWindow { limit, window_ns, both_ends: true };
        match (rate.algorithm, self.stranger) {
            (Algorithm::FixedWindow | Algorithm::Quota, _) | (Algorithm::Unknown, Stranger::Fixed) => fixed,
            (Algorithm::SlidingCounter, _) | (Algorithm::Unknown, Stranger::Counter) => counter,
            (Algorithm::TokenBucket, _) => {
                let refill = rate.refill_interval.map_or(Refill::Steady, |interval| {
                    let interval_ns = nanos(interval);
                    Refill::Lumps { interval_ns, phase_ns: odd % interval_ns.max(1) }
                });
                Rule::TokenBucket { capacity: limit, rate: limit, per_ns: window_ns, refill }
            }
            (Algorithm::LeakyBucket, _) => Rule::LeakyBucket { capacity: limit, rate: limit, per_ns: window_ns },
            _ => log,
        }
    }
}

/// The first reset of a limit that resets by a calendar, in nanoseconds since the start of the walk. The walk takes
/// place in winter, so that all days have 24 hours.
fn first_end(rate: &Rate) -> Option<u64> {
    let (ends, _) = rate.resets.as_ref()?.ends(moment::began());
    ends.get(1)?.duration_since(moment::began()).ok().map(nanos)
}

/// The figure of a limit after [`with_small_cost`] has lowered the cost of its requests.
fn small(vendor: &Vendor, rate: &Rate) -> u32 {
    match &rate.unit {
        Unit::Cost(kind) if **kind != *POINTS => {
            let cost = vendor.costs.get(kind).unwrap_or(1).max(SMALL_COST);
            small_figure(rate.limit.into(), cost).try_into().unwrap_or(u32::MAX)
        }
        _ => rate.limit,
    }
}

fn span(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        _ if seconds >= 86_400 && seconds.is_multiple_of(86_400) => format!("{}d", seconds / 86_400),
        _ if seconds >= 3_600 && seconds.is_multiple_of(3_600) => format!("{}h", seconds / 3_600),
        _ if seconds >= 60 && seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

/// Whether calls of these tenants and accounts share a limit of this scope.
pub(super) fn shares(scope: Scope, one: (u32, u32), other: (u32, u32)) -> bool {
    match scope {
        Scope::Vendor => true,
        Scope::Account => one.1 == other.1,
        Scope::Tenant | Scope::Endpoint => one.0 == other.0,
    }
}
