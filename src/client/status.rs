//! Status queries: why requests wait, until when, and when they would be done.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::IntegrationClient;
use crate::capacity::status::{SharedLimit, SharingStatus};
use crate::clock::Time;
use crate::core::refusal;
use crate::core::status::survey;
use crate::core::status::types::{
    Check, ClientStatus, Estimate, LanePage, LaneQuery, TenantStatus, UnderWay, VendorStatus,
};
use crate::core::{Core, status_of};
use crate::engine::cost::Total;
use crate::engine::plan::{EndpointId, NO_ENDPOINT};
use crate::engine::{self, Batch, Engine, Sum, Until, forecast};
use crate::error::Error;
use crate::request::Target;
use crate::request::WaitReason;
use crate::telemetry::Entry;
use crate::{Priority, Request};

/// Lanes that are read under one hold of a lock.
const CHUNK: u32 = 256;

impl IntegrationClient {
    /// The status of a tenant at a vendor: waiting requests and the reason, remaining units of its limits, pauses,
    /// throttling.
    ///
    /// Takes one shard's lock for some microseconds.
    ///
    /// ```no_run
    /// # fn run(client: integration_client::IntegrationClient) -> Result<(), integration_client::Error> {
    /// let status = client.status("acme", "github")?;
    /// if let Some(wait) = &status.waits.high {
    ///     println!("waits because {}, not before {:?}", wait.reason, wait.not_before);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Unknown tenant or vendor.
    pub fn status(&self, tenant: &str, vendor: &str) -> Result<TenantStatus, Error> {
        status_of(&self.core, tenant, vendor)
    }

    /// How this process shares its limits with others; `None` if it does not
    /// ([`share_through`](crate::IntegrationClientBuilder::share_through)).
    pub fn sharing(&self) -> Option<SharingStatus> {
        self.sharing.as_ref().map(|sharing| sharing.status(self.core.clock.now()))
    }

    /// The limits that this process shares with others, by name: how many processes share each, and what they hold and
    /// want together. Empty if it shares none. The figures are the store's last report, at most a minute old.
    pub fn shared_limits(&self) -> Vec<SharedLimit> {
        self.sharing.as_ref().map(|sharing| sharing.limits(self.core.clock.now())).unwrap_or_default()
    }

    /// The status of the whole client, by vendor.
    ///
    /// Reads all tenants in memory, 256 under each hold of a lock, so that no sender waits longer than some tens of
    /// microseconds for it.
    pub fn overview(&self) -> ClientStatus {
        let core = &self.core;
        let mut sums: BTreeMap<Arc<str>, Sum> = BTreeMap::new();
        for shard in core.registry.dispatch.shards() {
            let mut from = Some(0);
            while let Some(at) = from {
                from = shard.look(|engine, now| engine.survey(now, at, CHUNK, &mut sums));
            }
        }
        let config = core.registry.config.load();
        ClientStatus {
            config_version: config.version(),
            config_hash: format!("{:016x}", config.hash()),
            config_problem: self.config().problem(),
            config_checked_ago: self.config().checked_ago(),
            config_sources: core.registry.source_statuses(),
            tenants: core.registry.routes.len(),
            vendors: sums.into_iter().map(|(vendor, sum)| of_the_vendor(core, vendor, sum)).collect(),
            dead_letters: self.dead_letter_counts(),
            failed: core.telemetry.failures.by_kind(),
            cleanup: core.cleanups.status(),
        }
    }

    /// A page of the list of all lanes, searched, filtered and sorted here: for lists of any length.
    ///
    /// Reads every configured tenant (those in memory at 128 under each hold of a lock), and then the lanes of the
    /// page as [`status`](Self::status) does. With 100,000 tenants that takes some tens of milliseconds: it is meant
    /// for one caller a second, and not for many.
    ///
    /// ```no_run
    /// # fn run(client: integration_client::IntegrationClient) {
    /// use integration_client::status::LaneQuery;
    ///
    /// for lane in client.lanes_page(&LaneQuery::default()).lanes {
    ///     println!("{} at {}: {}", lane.tenant, lane.vendor, lane.state.as_str());
    /// }
    /// # }
    /// ```
    pub fn lanes_page(&self, query: &LaneQuery) -> LanePage {
        let core = &self.core;
        survey::page(core, &survey::survey(core), query)
    }

    /// At most `most` attempts in flight, the longest-running first.
    ///
    /// An attempt is listed from the moment at which it is sent until the headers of its response arrive. With more
    /// than 65,536 in flight some are left out; [`in_flight`](Self::in_flight) counts them all, and those that are
    /// made with a [`Permit`](crate::Permit) too.
    ///
    /// ```no_run
    /// # fn run(client: integration_client::IntegrationClient) {
    /// for one in client.under_way(10) {
    ///     println!("{} at {} for {:?}, attempt {}", one.tenant, one.vendor, one.since, one.attempt);
    /// }
    /// # }
    /// ```
    pub fn under_way(&self, most: usize) -> Vec<UnderWay> {
        let core = &self.core;
        let entries = core.telemetry.under_way.oldest(most);
        let now = core.clock.now();
        let of_entry = |entry: Entry| UnderWay {
            request_id: entry.request,
            tenant: (&*entry.tenant.id).into(),
            vendor: entry.tenant.vendor.name.clone(),
            endpoint: entry.tenant.vendor.endpoints.get(entry.endpoint.place()).map(|endpoint| endpoint.name.clone()),
            priority: entry.priority,
            attempt: entry.attempt,
            since: now.since(entry.since),
        };
        entries.into_iter().map(of_entry).collect()
    }

    /// Whether a request that states no cost could be sent now, the remaining units for it, and until when it would
    /// wait: one answer for all kinds of limits, pauses and queues. No units are taken, and no caller is delayed.
    ///
    /// `endpoint` is the name of one of the vendor's endpoints; `None` for requests to no endpoint. The answer is that
    /// of [`try_send`](Self::try_send) at this moment, as far as limits, pauses and turns are concerned; it does not
    /// say whether the vendor's host is reachable. It is no promise, because others may take the same units. On a limit
    /// that processes share, it speaks of the units that this process holds, so it may be no until a request
    /// ([`send`](Self::send), [`try_send`](Self::try_send)) has had the process ask for units.
    ///
    /// ```
    /// # use integration_client::config::TenantEntry;
    /// # use integration_client::{IntegrationClient, Priority};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let tenant = TenantEntry::new("acme", "github").credential("env:ACME_GITHUB_TOKEN");
    /// let client = IntegrationClient::builder().tenant(tenant).build().await?;
    /// let check = client.check("acme", "github", None, Priority::Low)?;
    /// assert!(check.allowed && check.remaining == check.limit);
    /// # Ok::<(), integration_client::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// Unknown tenant, vendor or endpoint; a tenant that was removed a moment ago.
    pub fn check(
        &self,
        tenant: &str,
        vendor: &str,
        endpoint: Option<&str>,
        priority: Priority,
    ) -> Result<Check, Error> {
        let core = &self.core;
        let tenant = core.registry.route(tenant, vendor)?;
        let endpoint = match endpoint {
            Some(name) => EndpointId::at(tenant.vendor.endpoint(name)?.0),
            None => NO_ENDPOINT,
        };
        let refused = |why| refusal::error(&tenant, priority, core.clock.now(), why);
        loop {
            let place = core.registry.place(&tenant).map_err(refused)?;
            let check =
                |engine: &mut Engine, now| Some((engine.check(now, place.lane, endpoint, priority.into())?, now));
            // `None` if the lane was dropped or moved between the two lines above.
            if let Some((check, now)) = place.shard.look(check) {
                return Ok(of_the_check(check, now));
            }
        }
    }

    /// When `requests` more requests of a tenant would be answered if they were sent now: at the earliest, as expected,
    /// and at the latest while everybody else sends without end.
    ///
    /// Simulates the grants on a copy of the tenant's limits and queues, with the same code that grants permits; after
    /// some thousands of grants it extrapolates the rate that it has seen, and after ten times as many if a window of
    /// a limit has thousands of units. It takes up to some tens of milliseconds for large numbers, or in that case some
    /// hundred, and holds the lock only for the copy. Each request has the cost of one that states nothing,
    /// and goes to no endpoint; see [`estimate_points`](Self::estimate_points).
    ///
    /// # Errors
    /// Unknown tenant or vendor.
    pub fn estimate(&self, tenant: &str, vendor: &str, priority: Priority, requests: u64) -> Result<Estimate, Error> {
        self.estimate_points(tenant, vendor, priority, requests, &[])
    }

    /// As [`estimate`](Self::estimate), for requests whose costs add up to `points`: the sum for each kind, such as
    /// `("input_tokens", 90_000)`. [`costs`](Self::costs) says what each request costs. Of kinds that are not named,
    /// each request takes what a request does that states nothing.
    ///
    /// # Errors
    /// Unknown tenant or vendor; a kind that the vendor's entry does not declare.
    pub fn estimate_points(
        &self,
        tenant: &str,
        vendor: &str,
        priority: Priority,
        requests: u64,
        points: &[(&str, u64)],
    ) -> Result<Estimate, Error> {
        let core = &self.core;
        let tenant = core.registry.route(tenant, vendor)?;
        let mut total = tenant.vendor.costs.usual().map(|each| requests.saturating_mul(each.into()));
        for (kind, sum) in points {
            let own = tenant.vendor.costs.place(kind).and_then(|place| total.get_mut(place));
            *own.ok_or_else(|| refusal::unknown_kind(&tenant.vendor, kind))? = *sum;
        }
        let refused = |why| refusal::error(&tenant, priority, core.clock.now(), why);
        let (copy, now) = loop {
            let place = core.registry.place(&tenant).map_err(refused)?;
            let copied = place.shard.look(|engine, now| Some((engine.copy(place.lane)?, now)));
            // The lane was dropped or moved between the two lines above.
            if let Some(copied) = copied {
                break copied;
            }
        };
        let service_ns = tenant.service_ns();
        let batch = Batch { tier: priority.into(), requests, total: Total::of(total), service_ns };
        let hash = core.registry.dispatch.hash(&tenant.id, &tenant.vendor.name);
        let again = core.egress.budgets.share_of_retries(hash, now);
        let ahead = forecast(&copy, now, batch);
        let with_retries = |after: std::time::Duration| after.mul_f64(1.0 + again);
        Ok(Estimate {
            earliest: ahead.earliest,
            expected: ahead.expected.map(with_retries),
            guaranteed: ahead.guaranteed.map(with_retries),
        })
    }

    /// The cost of a request of `tenant` in each kind of points that its vendor counts: what it states
    /// ([`Request::cost`](crate::Request::cost)), and otherwise the cost in the entry of its endpoint or of the
    /// vendor.
    ///
    /// # Errors
    /// Unknown tenant, vendor or endpoint, or a path that is none; and a stated kind that the vendor's entry does not declare, which
    /// [`send`](Self::send) ignores with a warning.
    pub fn costs(&self, tenant: &str, request: &Request) -> Result<Vec<(Arc<str>, u32)>, Error> {
        let registry = &self.core.registry;
        let parts = &request.parts;
        let tenant = match &parts.target {
            Target::Path { vendor, .. } => registry.route(tenant, vendor)?,
            Target::Url(url) => registry.route_for_url(tenant, url)?,
        };
        let vendor = &tenant.vendor;
        let stated = || parts.costs.iter().map(|(kind, units)| (&**kind, *units));
        if let Some((kind, _)) = stated().find(|(kind, _)| vendor.costs.place(kind).is_none()) {
            return Err(refusal::unknown_kind(vendor, kind));
        }
        let endpoint = match &parts.endpoint {
            Some(name) => Some(vendor.endpoint(name)?),
            None if vendor.endpoints.is_empty() => None,
            None => vendor.match_endpoint(parts.method.as_str(), request.path_below(&*tenant.base()?)?),
        };
        let costs = endpoint.map_or(&vendor.costs, |(_, endpoint)| &endpoint.costs);
        Ok(costs.iter().map(|(kind, _)| kind.into()).zip(costs.of(stated())).collect())
    }
}

fn of_the_check(check: engine::Check, now: Time) -> Check {
    let (reason, until) = check.stop.unzip();
    let until = until.and_then(|until| match until {
        Until::At(at) | Until::Turn(at) => Some(at.since(now)),
        Until::OnSettle(_) => None,
    });
    let left = check.left.as_ref();
    Check {
        allowed: reason.is_none(),
        name: left.map(|left| left.name.clone()),
        limit: left.map(|left| left.limit),
        remaining: left.map(|left| left.remaining),
        reset: left.and_then(|left| left.full).map(|full| full.since(now)),
        pending: check.pending,
        reason: reason.map(|reason| WaitReason::new(reason).to_string()),
        until,
    }
}

fn of_the_vendor(core: &Core, vendor: Arc<str>, sum: Sum) -> VendorStatus {
    VendorStatus {
        flow: core.telemetry.meters.flow(&vendor, core.clock.now()),
        vendor,
        lanes: sum.lanes,
        waiting: sum.waiting.into(),
        in_flight: sum.in_flight,
        paused: sum.paused,
        throttled: sum.slowed,
        headroom: sum.tightest.map(|(left, limit)| f64::from(left) / f64::from(limit.max(1))),
    }
}
