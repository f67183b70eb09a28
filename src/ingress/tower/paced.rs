//! A layer that paces another service, which sends the requests itself. A deadline bounds the wait for the permit and
//! not the exchange, and nothing is sent again here.

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
use crate::send::{PermitUsage, permit_answered};
use crate::transport::target;

/// Paces a service that sends requests itself, for SDKs that must sign their requests or make their connections
/// themselves. Made by [`IntegrationClient::layer`].
///
/// Each request takes one permit of the lane, and the inner service is called once the permit is granted. The
/// response's status and headers adjust the limits, as for a response to [`send`](IntegrationClient::send). The request
/// keeps its slot of a concurrency limit until the response body has been read or dropped, however long the exchange
/// takes: the vendor's `attempt_timeout` does not apply.
///
/// The request is passed on unchanged, except that headers that begin with `Integration-` are removed. Of the
/// [`SendOptions`], priority, deadline, longest wait, cost and endpoint apply here. A deadline limits the wait for the
/// permit, and not the exchange, whose timeouts are those of the inner service. Nothing is retried. A request for which
/// the inner service returns an error counts as one whose caller has gone away: the vendor may have counted it.
///
/// For a vendor whose limits count bytes, the size of the request is read from `Content-Length`.
#[derive(Clone, Debug)]
pub struct LaneLayer {
    lane: Arc<Lane>,
    defaults: Arc<SendOptions>,
}

impl IntegrationClient {
    /// Returns a layer that paces another service's requests by the limits of one tenant at one vendor.
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
    /// The tenant or the vendor is unknown.
    pub fn layer(&self, tenant: &str, vendor: &str) -> Result<LaneLayer, Error> {
        let lane = Arc::new(self.lane(tenant, vendor)?);
        Ok(LaneLayer { lane, defaults: Arc::default() })
    }
}

impl LaneLayer {
    /// Sets default options, for requests that do not state their own.
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

/// The permit of one request, with the route and the endpoint that its response is reported for.
pub(super) struct Pacing {
    held: PermitGuard,
    usage: Option<Box<PermitUsage>>,
    route: Arc<Route>,
    endpoint: EndpointId,
}

impl Pacing {
    /// Reports the status and the headers of the inner service's response.
    pub(super) fn answered(&self, layer: &LaneLayer, status: StatusCode, headers: &HeaderMap) {
        let (core, usage) = (layer.lane.client().core(), self.usage.as_deref());
        permit_answered(core, &self.route, self.endpoint, &self.held, usage, status, headers);
    }

    /// Wraps the response body, so that the permit ends with it.
    pub(super) fn body<R: HttpBody>(self, inner: R) -> PacedBody<R> {
        PacedBody::new(inner, self.held, self.usage, self.route)
    }
}

impl LaneLayer {
    /// Takes the options out of a request's extensions and headers, and completes them with the defaults.
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
        // A longest wait of zero makes the request immediate. As a time limit it would have passed already.
        let wait = options.stated_max_wait().filter(|wait| !wait.is_zero());
        let longest = options.stated_deadline().into_iter().chain(wait).min();
        let give_up = now + longest.unwrap_or(core.egress.default_deadline);
        let priority = options.stated_priority();
        let ask = Egress::ask(priority, endpoint, cost, give_up, vendor.attempt_timeout);
        let ask = Ask { immediate: options.is_immediate(), attempt: ask.attempt.open_ended(), ..ask };
        let series = core.telemetry.metrics.series(&route.id, &vendor.name);
        let granted = core.registry.acquire(&route, None, ask, now, &series).await;
        let grant = granted.map_err(|why| refusal::error(&route, priority, core.clock.now(), why))?;
        let usage = PermitUsage::begin(core, &route, endpoint, priority, cost);
        Ok(Pacing { held: grant.held, usage, route, endpoint })
    }
}

/// Returns the path below the vendor's base URL, or the whole path if the request is for another host: some vendors put
/// the name of a storage bucket into the host.
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
    /// An error of the inner service, or an [`Error`] of the client.
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        // The clone is both asked for readiness and called: tower allows a call only on the value that was ready.
        let Paced { mut inner, layer } = self.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let options = layer.options_of(&mut parts)?;
            // A permit counts as an exchange that has begun, so it is taken only once the inner service is ready.
            poll_fn(|cx| inner.poll_ready(cx)).await.map_err(Into::into)?;
            let pacing = layer.permit(options, &parts).await?;
            let response = inner.call(http::Request::from_parts(parts, body)).await.map_err(Into::into)?;
            pacing.answered(&layer, response.status(), response.headers());
            Ok(response.map(|inner| pacing.body(inner)))
        })
    }
}

pin_project! {
    /// The body of a paced response. The request's slot of a concurrency limit is freed when the body has been read or
    /// dropped.
    pub struct PacedBody<R> {
        #[pin]
        inner: R,
        held: Option<PermitGuard>,
        usage: Option<Box<PermitUsage>>,
        route: Arc<Route>,
        bytes: u64,
    }

    impl<R> PinnedDrop for PacedBody<R> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            ended(this.held, this.usage.as_deref(), this.route, *this.bytes, false);
        }
    }
}

impl<R: HttpBody> PacedBody<R> {
    fn new(inner: R, held: PermitGuard, usage: Option<Box<PermitUsage>>, route: Arc<Route>) -> PacedBody<R> {
        let mut body = PacedBody { inner, held: Some(held), usage, route, bytes: 0 };
        if body.inner.is_end_stream() {
            ended(&mut body.held, body.usage.as_deref(), &body.route, 0, true);
        }
        body
    }
}

/// Ends the permit with the body: nothing more of the body will be read. `is_whole`: all of it was read.
fn ended(held: &mut Option<PermitGuard>, usage: Option<&PermitUsage>, route: &Route, bytes: u64, is_whole: bool) {
    if let Some(held) = held.take() {
        if route.vendor.counts_bytes {
            if is_whole {
                route.answer_had(bytes);
            }
            if let (Some(corrected), Some(usage)) = (held.received(bytes, is_whole), usage) {
                usage.corrected(corrected);
            }
        }
        held.finish();
    }
}

impl<R: HttpBody> HttpBody for PacedBody<R> {
    type Data = R::Data;
    type Error = R::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<R::Data>, R::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.inner.as_mut().poll_frame(cx));
        let mut is_whole = frame.is_none();
        if let Some(Ok(frame)) = &frame {
            *this.bytes += frame.data_ref().map_or(0, |data| data.remaining() as u64);
            // A reader that knows the length does not ask for the end.
            is_whole = this.inner.is_end_stream();
        }
        if is_whole || matches!(frame, Some(Err(_))) {
            ended(this.held, this.usage.as_deref(), this.route, *this.bytes, is_whole);
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
