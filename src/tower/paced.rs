//! A layer that paces another service: that one sends.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;
use url::Url;

use crate::BoxFuture;
use crate::client::{IntegrationClient, Lane};
use crate::core::{Egress, refusal};
use crate::dispatch::PermitGuard;
use crate::engine::Ask;
use crate::engine::cost::Cost;
use crate::engine::plan::{EndpointId, NO_ENDPOINT};
use crate::error::{BoxError, Error, ErrorKind};
use crate::ingress::{SendOptions, callers_timeout};
use crate::route::Route;
use crate::send::permit_answered;
use crate::transport::target;

/// Paces a service that sends by itself: requests whose signature or connection is the SDK's own business. Made by
/// [`IntegrationClient::layer`].
///
/// Each request takes one permit of the lane, and the service inside is called when it is granted. The limits learn from the
/// answer's status and headers, as from an answer to [`send`](IntegrationClient::send), and the request's place in a
/// concurrency limit is kept until the body has been read or dropped.
///
/// The request goes on as it is, but for headers that begin with `Integration-`. Of [`SendOptions`] priority, deadline, longest
/// wait, cost and endpoint count here: a deadline ends the wait for the permit and not the exchange, whose timeouts are those of
/// the service inside. Nothing is tried again. A request that the service inside fails counts like one whose caller went away:
/// the vendor may have counted it.
///
/// A vendor whose limits count bytes learns the request's size from `Content-Length`.
#[derive(Clone, Debug)]
pub struct LaneLayer {
    lane: Arc<Lane>,
    defaults: Arc<SendOptions>,
}

impl IntegrationClient {
    /// A layer that paces a service by the limits of one tenant at one vendor, for requests that something else sends.
    ///
    /// ```
    /// use integration_client::IntegrationClient;
    /// use integration_client::config::TenantEntry;
    /// use tower_layer::Layer;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let tenant = TenantEntry::new("acme", "github").credential("env:ACME_GITHUB_TOKEN");
    /// let client = IntegrationClient::builder().tenant(tenant).build().await?;
    /// # let own_transport = ();
    /// let paced = client.layer("acme", "github")?.layer(own_transport);
    /// # drop(paced);
    /// # Ok::<(), integration_client::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// Unknown tenant or vendor.
    pub fn layer(&self, tenant: &str, vendor: &str) -> Result<LaneLayer, Error> {
        let lane = Arc::new(self.lane(tenant, vendor)?);
        Ok(LaneLayer { lane, defaults: Arc::default() })
    }
}

impl LaneLayer {
    /// How requests are paced that do not say so themselves.
    #[must_use]
    pub fn options(mut self, options: SendOptions) -> LaneLayer {
        self.defaults = Arc::new(options.or(&self.defaults));
        self
    }
}

impl<S> Layer<S> for LaneLayer {
    type Service = Paced<S>;

    fn layer(&self, inner: S) -> Paced<S> {
        Paced { inner, layer: self.clone() }
    }
}

/// A service whose requests are paced: see [`LaneLayer`].
#[derive(Clone)]
pub struct Paced<S> {
    inner: S,
    layer: LaneLayer,
}

impl<S> fmt::Debug for Paced<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paced").field("layer", &self.layer).finish_non_exhaustive()
    }
}

/// The permit of one request, with what its answer is told to.
pub(super) struct Pacing {
    held: PermitGuard,
    route: Arc<Route>,
    endpoint: EndpointId,
}

impl Pacing {
    /// The service inside has answered.
    pub(super) fn answered(&self, layer: &LaneLayer, status: StatusCode, headers: &HeaderMap) {
        permit_answered(layer.lane.client().core(), &self.route, self.endpoint, &self.held, status, headers);
    }

    /// The answer's body, with which the permit ends.
    pub(super) fn body<R: HttpBody>(self, inner: R) -> PacedBody<R> {
        PacedBody::new(inner, self.held, self.route)
    }
}

impl LaneLayer {
    /// Takes the options out of a request.
    pub(super) fn options_of(&self, parts: &mut Parts) -> Result<SendOptions, Error> {
        let stated = SendOptions::take(&mut parts.headers).map_err(|why| {
            let (tenant, vendor) = (self.lane.tenant(), self.lane.vendor());
            Error::of_tenant(tenant, vendor, ErrorKind::InvalidRequest, crate::Delivery::NotSent, why)
        })?;
        let options = parts.extensions.remove::<SendOptions>().unwrap_or_default();
        Ok(options.or(&stated).or(&self.defaults).before(callers_timeout(&parts.headers)))
    }

    /// Waits for the permit of a request.
    pub(super) async fn permit(&self, options: SendOptions, parts: &Parts) -> Result<Pacing, Error> {
        let core = self.lane.client().core();
        let route = core.registry.route(self.lane.tenant(), self.lane.vendor())?;
        let vendor = &route.vendor;
        let found = match options.stated_endpoint() {
            Some(name) => Some(vendor.endpoint(name)?),
            None => vendor.match_endpoint(parts.method.as_str(), &path_below(&route, parts)),
        };
        let stated = options.stated_costs().iter().map(|(kind, units)| (&**kind, *units));
        let mut cost = Cost::of(found.map_or(&vendor.costs, |(_, endpoint)| &endpoint.costs).of(stated));
        if vendor.counts_bytes {
            let length = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
            let sent = length.unwrap_or(0);
            cost = cost.with_bytes(sent, route.expected_answer(sent, None));
        }
        let endpoint = found.map_or(NO_ENDPOINT, |(number, _)| EndpointId::at(number));
        let now = core.clock.now();
        // Now or not at all: that is no wait, and its end has not passed.
        let wait = options.stated_max_wait().filter(|wait| !wait.is_zero());
        let longest = options.stated_deadline().into_iter().chain(wait).min();
        let give_up = now + longest.unwrap_or(core.egress.default_deadline);
        let priority = options.stated_priority();
        let ask = Egress::ask(priority, endpoint, cost, give_up, vendor.attempt_timeout);
        let ask = Ask { immediate: options.is_immediate(), ..ask };
        let series = core.telemetry.metrics.series(&route.id, &vendor.name);
        let granted = core.registry.acquire(&route, None, ask, now, &series).await;
        let grant = granted.map_err(|why| refusal::error(&route, priority, core.clock.now(), why))?;
        Ok(Pacing { held: grant.held, route, endpoint })
    }
}

/// The path below the vendor's base URL, or as it is where the request goes elsewhere: a bucket may be a part of the host.
fn path_below(route: &Route, parts: &Parts) -> String {
    let below = || {
        parts.uri.authority()?;
        let url = Url::parse(&parts.uri.to_string()).ok()?;
        target::relative(&*route.base().ok()?, &url).ok().map(str::to_owned)
    };
    below().unwrap_or_else(|| parts.uri.path().to_owned())
}

impl<S, B, R> Service<http::Request<B>> for Paced<S>
where
    S: Service<http::Request<B>, Response = http::Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Send + 'static,
    R: HttpBody,
{
    type Response = http::Response<PacedBody<R>>;
    /// The service's own, or an [`Error`] of the client.
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        // What is called below is what was asked whether it is ready.
        let Paced { mut inner, layer } = self.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let options = layer.options_of(&mut parts)?;
            // A permit counts as an exchange that has begun, so it comes last.
            poll_fn(|cx| inner.poll_ready(cx)).await.map_err(Into::into)?;
            let pacing = layer.permit(options, &parts).await?;
            let response = inner.call(http::Request::from_parts(parts, body)).await.map_err(Into::into)?;
            pacing.answered(&layer, response.status(), response.headers());
            Ok(response.map(|inner| pacing.body(inner)))
        })
    }
}

pin_project! {
    /// The body of a paced answer. The request's place in a concurrency limit is free when it has been read or dropped.
    pub struct PacedBody<R> {
        #[pin]
        inner: R,
        held: Option<PermitGuard>,
        route: Arc<Route>,
        bytes: u64,
    }
}

impl<R: HttpBody> PacedBody<R> {
    fn new(inner: R, held: PermitGuard, route: Arc<Route>) -> PacedBody<R> {
        let mut body = PacedBody { inner, held: Some(held), route, bytes: 0 };
        if body.inner.is_end_stream() {
            ended(&mut body.held, &body.route, 0);
        }
        body
    }
}

/// Nothing more of the body will be read.
fn ended(held: &mut Option<PermitGuard>, route: &Route, bytes: u64) {
    if let Some(held) = held.take() {
        if route.vendor.counts_bytes {
            route.answer_had(bytes);
            held.received(bytes);
        }
        held.finish();
    }
}

impl<R: HttpBody> HttpBody for PacedBody<R> {
    type Data = R::Data;
    type Error = R::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<R::Data>, R::Error>>> {
        let this = self.project();
        let frame = ready!(this.inner.poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => *this.bytes += frame.data_ref().map_or(0, |data| data.remaining() as u64),
            _ => ended(this.held, this.route, *this.bytes),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<R> fmt::Debug for PacedBody<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacedBody").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
