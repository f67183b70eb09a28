//! Handles for hot paths: a [`Lane`] is one tenant at one vendor, looked up once; a [`Permit`] is the right to one
//! exchange that the program makes by means other than [`IntegrationClient::send`].

mod renewed;
mod requests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use smallvec::SmallVec;

use super::IntegrationClient;
use crate::Priority;
use crate::clock::Time;
use crate::core::refusal;
use crate::core::status::types::ByPriority;
use crate::core::{Core, Egress};
use crate::dispatch::{LaneRef, PermitGuard, try_acquire};
use crate::engine::cost::{Cost, PointKind};
use crate::engine::plan::{EndpointId, NO_ENDPOINT};
use crate::engine::{Ask, Attempt, Feedback, Refusal};
use crate::error::Error;
use crate::request::{Headroom, Request};
use crate::route::Route;
use crate::send::response::Response;
use crate::send::{Caller, Outgoing, PermitFeedback, PermitUsage, permit_answered, send};
use crate::telemetry::metrics::Series;

/// The units of kinds of points that each permit takes.
type StatedCosts = SmallVec<[(PointKind, u32); 1]>;

/// One tenant at one vendor. While a handle exists, the lane is kept in memory. After a reload the handle follows the
/// present configuration, which costs a look-up in each call; a new handle has that done.
///
/// ```
/// use integration_client::config::TenantEntry;
/// use integration_client::{IntegrationClient, Priority};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let tenant = TenantEntry::new("acme", "github").credential("env:ACME_GITHUB_TOKEN");
/// let client = IntegrationClient::builder().tenant(tenant).build().await?;
/// let lane = client.lane("acme", "github")?;
///
/// let permit = lane.acquire(Priority::Normal, 1).await?;
/// // … the exchange, by whatever means …
/// permit.finish();
/// # Ok::<(), integration_client::Error>(()) }).unwrap();
/// ```
pub struct Lane {
    client: IntegrationClient,
    route: Arc<Route>,
    place: LaneRef,
    endpoint: EndpointId,
    /// What [`Lane::costing`] stated.
    stated: StatedCosts,
    /// The cost of a permit: what was stated, and otherwise what a request costs that states nothing.
    usual: Cost,
    /// The vendor's attempt timeout for an exchange that the program makes itself: only the program knows its end.
    /// Copied here because reading it through the tenant would touch two otherwise unused cache lines.
    attempt: Attempt,
    /// Whether the client's store remembers what permits take.
    is_remembered: bool,
    series: Series,
}

impl IntegrationClient {
    /// Returns a handle to one tenant at one vendor, for hot paths and for exchanges made by other means.
    ///
    /// # Errors
    /// Unknown tenant or vendor.
    pub fn lane(&self, tenant: &str, vendor: &str) -> Result<Lane, Error> {
        let tenant = self.core.registry.route(tenant, vendor)?;
        Lane::new(self.clone(), tenant)
    }

    /// Takes a permit for one request of `cost` units, without waiting, for an exchange made by other means.
    ///
    /// # Errors
    /// As [`try_send`](Self::try_send), before the exchange.
    pub fn try_acquire(&self, tenant: &str, vendor: &str, priority: Priority, cost: u32) -> Result<Permit, Error> {
        let core = &*self.core;
        let wait = core.egress.default_deadline;
        let ask = |now: Time, attempt: Duration, usual: Cost| {
            Egress::ask(priority, NO_ENDPOINT, usual.with_points(cost.max(1)), now + wait, attempt)
        };
        let usage = |route: &Arc<Route>| {
            let cost = Cost::of(route.vendor.costs.usual()).with_points(cost.max(1));
            PermitUsage::begin(core, route, NO_ENDPOINT, priority, cost)
        };
        // The fast path, with one hash and one lock: the lane was used before and shares no limit.
        if let Some(Ok(held)) = core.registry.dispatch.try_acquire(tenant, vendor, ask) {
            let series = core.telemetry.metrics.series(tenant, vendor);
            // Only a store needs the route.
            let route = self.outbox.as_ref().and_then(|_| core.registry.route(tenant, vendor).ok());
            let usage = route.as_ref().and_then(usage);
            return Ok(Permit::new(held.counted(&series), Duration::ZERO, usage));
        }
        let tenant = core.registry.route(tenant, vendor)?;
        // Look the tenant up first, so that only configured names create a series: callers' strings must not fill the
        // metrics.
        let series = core.telemetry.metrics.series(&tenant.id, vendor);
        let refused = |why| refusal::error(&tenant, priority, core.clock.now(), why);
        loop {
            let place = core.registry.place(&tenant).map_err(refused)?;
            let usual = Cost::of(tenant.vendor.costs.usual());
            let ask = ask(core.clock.now(), tenant.vendor.attempt_timeout, usual);
            let ask = Ask { immediate: true, attempt: ask.attempt.open_ended(), ..ask };
            match try_acquire(&place.shard, place.lane, &ask) {
                Ok(held) => return Ok(Permit::new(held.counted(&series), Duration::ZERO, usage(&tenant))),
                // Dropped or moved between the two lines above.
                Err(why) if *why == Refusal::NoLane => {}
                Err(why) => return Err(refused(*why)),
            }
        }
    }
}

impl Lane {
    fn new(client: IntegrationClient, route: Arc<Route>) -> Result<Lane, Error> {
        match client.core().registry.place(&route) {
            Ok(place) => Ok(Lane::at(client, route, place, NO_ENDPOINT, SmallVec::new())),
            // The tenant was removed a moment ago; the message does not show the priority.
            Err(why) => Err(refusal::error(&route, Priority::Normal, Time::ZERO, why)),
        }
    }

    fn at(
        client: IntegrationClient,
        route: Arc<Route>,
        place: LaneRef,
        endpoint: EndpointId,
        stated: StatedCosts,
    ) -> Lane {
        place.shard.look(|engine, _| engine.pin(place.lane));
        let attempt = Attempt::within(crate::clock::nanos(route.vendor.attempt_timeout)).open_ended();
        let series = client.core().telemetry.metrics.series(&route.id, &route.vendor.name);
        let costs =
            route.vendor.endpoints.get(endpoint.place()).map_or(&route.vendor.costs, |endpoint| &endpoint.costs);
        let usual = stated.iter().fold(Cost::of(costs.usual()), |cost, &(kind, units)| cost.with(kind, units));
        let is_remembered = client.core().registry.remembers(&route, endpoint, false).is_some();
        Lane { client, route, place, endpoint, stated, usual, attempt, is_remembered, series }
    }

    /// The same lane, for requests to one of the vendor's endpoints.
    ///
    /// # Errors
    /// [`ErrorKind::UnknownEndpoint`](crate::ErrorKind::UnknownEndpoint).
    pub fn endpoint(&self, name: &str) -> Result<Lane, Error> {
        let (number, _) = self.route.vendor.endpoint(name)?;
        Ok(self.with(EndpointId::at(number), self.stated.clone()))
    }

    /// The same lane, whose permits each take `units` of the kind of points `kind`, such as `input_tokens`; 0 counts
    /// as 1. Of other kinds a permit takes what a request does that states nothing, and of plain points the `cost`
    /// that is passed when the permit is asked for. If a reload removes the kind, the permits take what a request does
    /// that states nothing.
    ///
    /// # Errors
    /// The vendor's entry declares no such kind.
    pub fn costing(&self, kind: &str, units: u32) -> Result<Lane, Error> {
        let place = self.route.vendor.costs.place(kind).and_then(PointKind::at);
        let place = place.ok_or_else(|| refusal::unknown_kind(&self.route.vendor, kind))?;
        let mut stated = self.stated.clone();
        stated.push((place, units.max(1)));
        Ok(self.with(self.endpoint, stated))
    }

    /// The same lane with another endpoint or other stated costs.
    fn with(&self, endpoint: EndpointId, stated: StatedCosts) -> Lane {
        Lane::at(self.client.clone(), self.route.clone(), self.place.clone(), endpoint, stated)
    }

    /// The client that the lane belongs to.
    pub fn client(&self) -> &IntegrationClient {
        &self.client
    }

    /// The tenant's id.
    pub fn tenant(&self) -> &str {
        &self.route.id
    }

    /// The vendor's name.
    pub fn vendor(&self) -> &str {
        &self.route.vendor.name
    }

    /// The endpoint in whose limits the lane's permits count, if it was [named](Lane::endpoint).
    pub fn endpoint_name(&self) -> Option<&str> {
        self.route.vendor.endpoint_name(self.endpoint.place())
    }

    fn ask(&self, priority: Priority, cost: u32, max_wait: Option<Duration>) -> Ask {
        let cost = self.usual.with_points(cost.max(1));
        let ask =
            self.client.core().egress.attempt_ask(self.place.shard.clock.now(), &self.route, priority, cost, max_wait);
        Ask { endpoint: self.endpoint, attempt: self.attempt, ..ask }
    }

    /// Finds the lane's current shard: the lane moves when its limits do.
    fn place_now(&self) -> LaneRef {
        match self.place.shard.look(|engine, _| engine.has(self.place.lane)) {
            true => self.place.clone(),
            false => self.client.core().registry.place(&self.route).unwrap_or_else(|_| self.place.clone()),
        }
    }

    #[inline]
    fn permit(&self, held: PermitGuard, priority: Priority, cost: Cost) -> Permit {
        Permit::new(held.counted(&self.series), Duration::ZERO, self.usage(priority, cost))
    }

    /// Records the units of a permit that has started, if the client's store remembers them.
    #[inline]
    fn usage(&self, priority: Priority, cost: Cost) -> Option<Box<PermitUsage>> {
        let usage = || PermitUsage::begin(self.client.core(), &self.route, self.endpoint, priority, cost);
        if self.is_remembered { usage() } else { None }
    }

    fn refused(&self, priority: Priority, why: Refusal) -> Error {
        refusal::error(&self.route, priority, self.place.shard.clock.now(), why)
    }

    /// Waits for a permit for `cost` points (0 counts as 1), at most as long as the client's default deadline. Of
    /// other kinds of points the permit takes the vendor's configured cost.
    ///
    /// # Errors
    /// A full queue, a deadline that cannot be met, a cost above the limit, shutdown, a tenant that was removed.
    pub async fn acquire(&self, priority: Priority, cost: u32) -> Result<Permit, Error> {
        let refused = |why| self.refused(priority, why);
        let renewed = self.renewed().map_err(refused)?;
        let lane = renewed.as_deref().unwrap_or(self);
        let ask = lane.ask(priority, cost, None);
        let cost = ask.cost;
        let now = lane.place.shard.clock.now();
        let acquire =
            lane.client.core().registry.acquire(&lane.route, Some(lane.place.clone()), ask, now, &lane.series);
        let grant = acquire.await.map_err(refused)?;
        Ok(Permit::new(grant.held, grant.waited, lane.usage(priority, cost)))
    }

    /// Takes a permit without waiting.
    ///
    /// # Errors
    /// As [`acquire`](Lane::acquire), and [`ErrorKind::NotNow`](crate::ErrorKind::NotNow) when the limits have no room
    /// or others wait.
    #[inline]
    pub fn try_acquire(&self, priority: Priority, cost: u32) -> Result<Permit, Error> {
        match self.renewed() {
            Ok(None) => self.try_now(priority, cost),
            Ok(Some(renewed)) => renewed.try_now(priority, cost),
            Err(why) => Err(self.refused(priority, why)),
        }
    }

    #[inline]
    fn try_now(&self, priority: Priority, cost: u32) -> Result<Permit, Error> {
        // An immediate request never waits, so the deadline does not matter.
        let ask = Ask {
            tier: priority.into(),
            endpoint: self.endpoint,
            cost: self.usual.with_points(cost.max(1)),
            retry: false,
            immediate: true,
            admitted: false,
            give_up: Time::MAX,
            patience_ns: 0,
            attempt: self.attempt,
        };
        match try_acquire(&self.place.shard, self.place.lane, &ask) {
            Ok(held) => Ok(self.permit(held, priority, ask.cost)),
            // The lane has moved to the shard of its new limits.
            Err(why) if *why == Refusal::NoLane => {
                let place =
                    self.client.core().registry.place(&self.route).map_err(|why| self.refused(priority, why))?;
                let held = try_acquire(&place.shard, place.lane, &ask);
                held.map(|held| self.permit(held, priority, ask.cost)).map_err(|why| self.refused(priority, *why))
            }
            Err(why) => Err(self.refused(priority, *why)),
        }
    }

    /// [`IntegrationClient::send`] for this tenant. The vendor and endpoint are those of the request, not of the lane.
    ///
    /// # Errors
    /// As for [`IntegrationClient::send`].
    pub async fn send(&self, priority: Priority, request: impl Into<Request>) -> Result<Response, Error> {
        let core = self.client.core();
        send(core, Outgoing::new(core, Caller::Lane(&self.route), priority, request.into(), false)).await
    }

    /// The remaining units of the lane's tightest limit: the client's own count, or the vendor's last report if that
    /// is lower.
    pub fn headroom(&self) -> Option<Headroom> {
        let renewed = self.renewed().ok()?;
        let (place, endpoint) = (self.place_now(), renewed.as_deref().unwrap_or(self).endpoint);
        place.shard.look(|engine, now| engine.headroom(now, place.lane, endpoint)).map(Headroom::of)
    }

    /// The numbers of waiting requests.
    pub fn waiting(&self) -> ByPriority<u32> {
        let place = self.place_now();
        place.shard.look(|engine, _| engine.waiting_in(place.lane)).into()
    }
}

impl Clone for Lane {
    fn clone(&self) -> Lane {
        self.with(self.endpoint, self.stated.clone())
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.place.shard.look(|engine, _| engine.unpin(self.place.lane));
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("tenant", &self.route.id)
            .field("vendor", &self.route.vendor.name)
            .finish_non_exhaustive()
    }
}

/// The right to one exchange, which counts as started now.
///
/// Tell it how the exchange ended. A permit that is dropped counts as an exchange that its caller abandoned: the
/// vendor may have counted the request, and may still be busy with it. A permit lasts until then, however long the
/// exchange takes; the vendor's `attempt_timeout` does not end it.
#[must_use = "a permit that is dropped counts as a request whose caller went away"]
pub struct Permit {
    held: PermitGuard,
    waited: Duration,
    /// Its units in the client's store.
    usage: Option<Box<PermitUsage>>,
}

impl Permit {
    fn new(held: PermitGuard, waited: Duration, usage: Option<Box<PermitUsage>>) -> Permit {
        Permit { held, waited, usage }
    }

    /// How long the permit took to get.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Records that the vendor has responded, or that the exchange has failed: the request counts for one more window
    /// from now. Its slot in a concurrency limit is kept until [`finish`](Permit::finish) or drop.
    pub fn answered(&self) {
        self.held.on_response(self.held.now(), Feedback::Passed(None), &[]);
    }

    /// As [`answered`](Permit::answered), for an exchange whose response the program knows: the limits learn from its
    /// status and headers as from a response to [`send`](IntegrationClient::send). A refusal pauses the lane for as
    /// long as the vendor says, and headers that report few remaining units slow the lane down.
    ///
    /// Nothing is retried, and no event of a request is emitted, only those of limits. Rules of the vendor's entry
    /// about bodies do not apply.
    ///
    /// ```
    /// use http::{HeaderMap, HeaderValue, StatusCode};
    /// use integration_client::config::TenantEntry;
    /// use integration_client::{IntegrationClient, Priority};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let tenant = TenantEntry::new("acme", "github").credential("env:ACME_GITHUB_TOKEN");
    /// let client = IntegrationClient::builder().tenant(tenant).build().await?;
    /// let permit = client.lane("acme", "github")?.acquire(Priority::Normal, 1).await?;
    /// // … the exchange, by whatever means: refused …
    /// let mut headers = HeaderMap::new();
    /// headers.insert("retry-after", HeaderValue::from_static("30"));
    /// let feedback = permit.answered_with(StatusCode::TOO_MANY_REQUESTS, &headers);
    /// permit.finish();
    /// assert!(feedback.is_refusal());
    /// assert!(client.tenants().paused_for("acme", "github")?.is_some());
    /// # Ok::<(), integration_client::Error>(()) }).unwrap();
    /// ```
    pub fn answered_with(&self, status: StatusCode, headers: &HeaderMap) -> PermitFeedback {
        let known = self.held.owner::<Core>().and_then(|core| {
            let (tenant, vendor, endpoint) = self.held.is_for()?;
            Some((core.registry.route(&tenant, &vendor).ok()?, core, endpoint))
        });
        match known {
            Some((route, core, endpoint)) => {
                permit_answered(&core, &route, endpoint, &self.held, self.usage.as_deref(), status, headers)
            }
            // The client or the tenant is gone: no limit can learn from the response.
            None => {
                self.answered();
                PermitFeedback::default()
            }
        }
    }

    /// Ends the exchange: the response has been read, or will not be.
    #[inline]
    pub fn finish(self) {
        self.held.finish();
    }

    /// Gives everything back: not a byte of the request has left.
    pub fn not_sent(self) {
        if let Some(usage) = &self.usage {
            usage.not_sent();
        }
        self.held.not_sent();
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("waited", &self.waited).finish_non_exhaustive()
    }
}
