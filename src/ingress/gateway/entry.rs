//! [`Gateway`] and its settings.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::Body;
use tokio::sync::Semaphore;

use super::answer::GatewayBody;
use super::door::Door;
use super::listen::Listen;
use super::mounted::Mounted;
use super::serve::{Serving, start};
use super::shared::{Metrics, Shared};
use crate::BoxFuture;
use crate::IntegrationClient;
use crate::error::{BoxError, Error};

/// The default deadline: below the 60 s after which boto3 and most load balancers give up.
const DEADLINE: Duration = Duration::from_secs(55);
const CONNECTIONS: usize = 10_000;
/// The default of [`GatewayBuilder::body_memory`].
const BODY_MEMORY: usize = 256 * 1024 * 1024;

/// A gateway: serve it with [`serve`](Gateway::serve), or nest it as a tower service into a server of your own.
/// Cloning is cheap; clones share all state.
#[derive(Clone, Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
}

/// The settings of a [`Gateway`].
#[must_use = "nothing happens before `build`"]
pub struct GatewayBuilder {
    client: IntegrationClient,
    deadline: Duration,
    asks_for_tokens: bool,
    sends: bool,
    max_connections: usize,
    body_memory: usize,
    public_url: Option<Uri>,
    pub(crate) console: Option<Arc<dyn Mounted>>,
    metrics: Option<Metrics>,
}

impl fmt::Debug for GatewayBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayBuilder").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl Gateway {
    /// Returns the builder of a gateway through which other programs use `client`.
    pub fn builder(client: IntegrationClient) -> GatewayBuilder {
        GatewayBuilder {
            client,
            deadline: DEADLINE,
            asks_for_tokens: true,
            sends: true,
            max_connections: CONNECTIONS,
            body_memory: BODY_MEMORY,
            public_url: None,
            metrics: None,
            console: None,
        }
    }

    /// Starts to listen. If the configuration states no `[[callers]]` and the listener is on loopback, the gateway
    /// generates a token: [`Serving::token`]. Each call generates another, and all are valid as long as the gateway exists.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config): an address cannot be listened on; or it is not loopback, and the
    /// configuration states no callers or the gateway asks for no tokens.
    pub async fn serve(&self, listen: Listen) -> Result<Serving, Error> {
        start(self.shared.clone(), listen).await
    }
}

impl GatewayBuilder {
    /// How long a request that states no deadline may wait for the head of its response, and how long any request
    /// may then wait for each piece of the body; 55 s unless stated.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Asks for no tokens: everyone who reaches the gateway may send for every tenant. The gateway then listens only
    /// on loopback or a Unix socket, and refuses the requests of browsers. Nested in another server it takes only
    /// requests whose `Host` is `localhost`, `127.0.0.1` or `[::1]`.
    pub fn without_tokens(mut self) -> Self {
        self.asks_for_tokens = false;
        self
    }

    /// Forwards no requests: only paths below `/~/` are served, for example a console beside a program that sends by
    /// itself.
    pub fn without_sending(mut self) -> Self {
        self.sends = false;
        self
    }

    /// The most connections at once; 10,000 unless stated. Connections above it are answered 503.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections.max(1);
        self
    }

    /// The most memory, in bytes, that the bodies of all requests may take together; 256 MiB unless stated. The gateway
    /// keeps a body of up to 1 MiB so that the client can send it again, and so that it recognises a repetition of a
    /// request with unknown outcome. A body for which there is no memory left is streamed to the vendor instead: its
    /// request is sent once. A request to be stored is then answered 503.
    pub fn body_memory(mut self, bytes: usize) -> Self {
        self.body_memory = bytes;
        self
    }

    /// The URL under which callers reach the gateway, for one that is nested in another server or behind a proxy. URLs
    /// of a vendor in `Link`, `Location` and their like are rewritten to URLs below it, and the paths of receipts begin
    /// with its path. Unless stated, it is `http://` and the `Host` of each request.
    ///
    /// ```no_run
    /// # async fn run(client: integration_client::IntegrationClient) {
    /// let url = http::Uri::from_static("https://internal.example/vendors");
    /// let gateway = integration_client::gateway::Gateway::builder(client).public_url(url).build();
    /// # }
    /// ```
    pub fn public_url(mut self, url: Uri) -> Self {
        self.public_url = Some(url);
        self
    }

    /// Serves `/~/metrics`, to callers with the right `view`, with the text that `render` returns, for example that of
    /// a metrics recorder installed by the program. Without this setting the page does not exist.
    ///
    /// ```no_run
    /// # async fn run(client: integration_client::IntegrationClient) {
    /// # struct Handle; impl Handle { fn render(&self) -> String { String::new() } }
    /// # let handle = Handle;
    /// // let handle = metrics_exporter_prometheus::PrometheusBuilder::new().install_recorder()?;
    /// let gateway = integration_client::gateway::Gateway::builder(client).metrics(move || handle.render()).build();
    /// # }
    /// ```
    pub fn metrics(mut self, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.metrics = Some(Box::new(render));
        self
    }

    /// Builds the gateway.
    pub fn build(self) -> Gateway {
        Gateway {
            shared: Arc::new(Shared {
                client: self.client,
                asks_for_tokens: self.asks_for_tokens,
                sends: self.sends,
                deadline: self.deadline,
                max_connections: self.max_connections,
                metrics: self.metrics,
                callers: Default::default(),
                repeats: Default::default(),
                guesses: Default::default(),
                console: self.console,
                servings: AtomicUsize::new(0),
                body_memory: Arc::new(Semaphore::new(self.body_memory.min(Semaphore::MAX_PERMITS))),
                public_url: self.public_url,
            }),
        }
    }
}

impl<B> tower_service::Service<Request<B>> for Gateway
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<GatewayBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let shared = self.shared.clone();
        Box::pin(async move { Ok(shared.answer(request, &Door::unknown()).await) })
    }
}
