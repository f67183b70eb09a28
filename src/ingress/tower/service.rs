//! The client as a tower service that sends the requests.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Body as HttpBody;
use tower_service::Service;

use crate::BoxFuture;
use crate::client::Lane;
use crate::config::OnAmbiguous;
use crate::error::{BoxError, Error};
use crate::ingress::{SendOptions, accept};
use crate::retry;
use crate::send::response::{Response, ResponseBody};
use crate::send::{Caller, Outgoing, key, send};

/// The default of [`LaneService::buffer_up_to`], in bytes.
const BUFFER: usize = 1024 * 1024;

/// Sends `http::Request`s on behalf of one tenant to one vendor, as [`Lane::send`] does. Made by [`Lane::service`].
///
/// - A relative URI is taken as a path below the vendor's base URL. A whole URL must lie below the base URL.
/// - `Host`, `Content-Length` and other headers of the connection are dropped, and so are the headers that the vendor's
///   `auth` sets: SDKs insist on a credential, and the tenant's credential replaces it. A vendor with `auth = "none"`
///   gets the SDK's credential.
/// - [`SendOptions`] state how a request is sent.
/// - Every response is `Ok`, whatever its status; redirects are responses. [`ResponseInfo`](crate::ResponseInfo) is in
///   its extensions. A body that the vendor compressed is decoded.
///
/// ```
/// use integration_client::config::TenantEntry;
/// use integration_client::{IntegrationClient, Priority, SendOptions};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let tenant = TenantEntry::new("acme", "github").credential("env:ACME_GITHUB_TOKEN");
/// let client = IntegrationClient::builder().tenant(tenant).build().await?;
/// let service = client.lane("acme", "github")?.service().options(SendOptions::new().priority(Priority::Low));
/// // octocrab: OctocrabBuilder::new_empty().with_service(service).with_auth(AuthState::None).build()
/// # drop(service);
/// # Ok::<(), integration_client::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct LaneService {
    lane: Arc<Lane>,
    defaults: Arc<SendOptions>,
    buffer_up_to: usize,
}

impl Lane {
    /// Returns this lane as a tower service, which sends through the client. The service of a lane that is bound to one
    /// endpoint counts its requests there.
    pub fn service(&self) -> LaneService {
        let defaults = self.endpoint_name().map_or_else(SendOptions::new, |name| SendOptions::new().endpoint(name));
        LaneService { lane: Arc::new(self.clone()), defaults: Arc::new(defaults), buffer_up_to: BUFFER }
    }
}

impl LaneService {
    /// Sets default options, for requests that do not state their own.
    #[must_use]
    pub fn options(mut self, options: SendOptions) -> LaneService {
        self.defaults = Arc::new(options.or(&self.defaults));
        self
    }

    /// Sets the size up to which a body of known length is kept in memory, so that its request can be retried. If nothing
    /// of such a body comes for a minute, its request fails and is not sent. Other bodies are sent once, as they arrive;
    /// only the time of the attempt and the request's deadline bound the pauses in them. The default is 1 MiB.
    #[must_use]
    pub fn buffer_up_to(mut self, bytes: usize) -> LaneService {
        self.buffer_up_to = bytes;
        self
    }
}

impl<B> Service<http::Request<B>> for LaneService
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = http::Response<ResponseBody>;
    type Error = Error;
    type Future = BoxFuture<'static, Result<Self::Response, Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let sent = service.sent(request).await;
            sent.map(|sent| http::Response::from(sent.answer)).map_err(|failed| failed.error)
        })
    }
}

/// A request that has a response.
pub(super) struct Sent {
    pub(super) answer: Response,
    /// See [`Failed::may_act_twice`].
    pub(super) may_act_twice: bool,
}

/// Why a request has no response.
pub(super) struct Failed {
    pub(super) error: Error,
    /// Whether a second execution does no harm: because of the method, because of a key, or because the vendor's entry
    /// or the request says so.
    pub(super) may_act_twice: bool,
}

impl LaneService {
    /// Converts an incoming request and sends it.
    pub(super) async fn sent<B>(self, request: http::Request<B>) -> Result<Sent, Failed>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let LaneService { lane, defaults, buffer_up_to } = self;
        let core = lane.client().core();
        let method = request.method().clone();
        // Nothing has been sent yet.
        let unsent = |error| Failed { error, may_act_twice: true };
        // The route is looked up for each request, because the configuration may have changed since the lane was made.
        let route = core.registry.route(lane.tenant(), lane.vendor()).map_err(unsent)?;
        let accepted = accept(request, &route, &defaults, buffer_up_to, None, core.clock).await.map_err(unsent)?;
        let may_resend = accepted.request.parts.on_ambiguous.unwrap_or(route.vendor.retry.on_ambiguous);
        let may_act_twice = retry::idempotent(&method, || key::is_covered(&accepted.request, &route), false)
            || may_resend == OnAmbiguous::Resend
            || key::is_stated(&accepted.request, &route);
        let outgoing =
            Outgoing::new(core, Caller::Lane(&route), accepted.priority, accepted.request, accepted.immediate);
        let sent = send(core, outgoing).await;
        sent.map(|answer| Sent { answer, may_act_twice }).map_err(|error| Failed { error, may_act_twice })
    }
}
