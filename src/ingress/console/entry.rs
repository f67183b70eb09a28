//! [`Console`] and its settings.

use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tokio::time::MissedTickBehavior;

use super::access::Access;
use super::answer::answer;
use super::shared::{Decides, Shared};
use super::{history, recent};
use crate::error::BoxError;
use crate::ingress::gateway::answer::GatewayBody;
use crate::ingress::gateway::callers::Callers;
use crate::ingress::gateway::entry::GatewayBuilder;
use crate::ingress::gateway::mounted::{Mounted, collected};
use crate::{BoxFuture, IntegrationClient};

/// A console: let a gateway [serve](GatewayBuilder::console) it, or nest it as a tower service into a server of your
/// own, at a path that ends with a slash. Cheap to clone; clones share everything.
///
/// In a server of your own, run [`background`](Console::background) as a task too: it records the line of the last
/// hour, and reads the lanes ahead of those who look.
#[derive(Clone, Debug)]
pub struct Console {
    shared: Arc<Shared>,
}

/// The settings of a [`Console`].
#[must_use = "nothing happens before `build`"]
pub struct ConsoleBuilder {
    client: IntegrationClient,
    read_only: bool,
    decides: Option<Box<Decides>>,
}

impl Console {
    /// Returns a builder for a console of `client`.
    pub fn builder(client: IntegrationClient) -> ConsoleBuilder {
        ConsoleBuilder { client, read_only: false, decides: None }
    }

    /// Samples, until the console is closed, how much of their limits lanes have left: all lanes every 20 seconds, for
    /// the line of the last hour, and the lanes that users look at every 2 seconds. Also reads the lanes again for users who
    /// keep looking, so that they need not wait for it. A gateway runs this by itself.
    pub fn background(&self) -> impl Future<Output = ()> + Send + 'static {
        let shared = self.shared.clone();
        async move {
            let mut next = shared.client.core().clock.now() + history::EVERY;
            let mut ticks = tokio::time::interval(recent::EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    _ = ticks.tick() => {}
                    () = shared.snapshots.wanted() => {
                        shared.snapshots.renew(shared.client.core()).await;
                        continue;
                    }
                    () = shared.closing.notified() => return,
                }
                if shared.closed.load(Relaxed) {
                    return;
                }
                shared.sample_watched();
                let now = shared.client.core().clock.now();
                if now >= next {
                    next = now + history::EVERY;
                    shared.sample().await;
                }
            }
        }
    }
}

impl Shared {
    /// Samples the limits of the lanes that users look at.
    fn sample_watched(&self) {
        let lanes = self.recent.lock().lanes(self.client.core().clock.now());
        for lane in lanes {
            if let Ok(status) = self.client.status(&lane.0, &lane.1) {
                self.recent.lock().sample(&lane, &status.limits);
            }
        }
    }

    async fn sample(&self) {
        let core = self.client.core();
        let snapshot = self.snapshots.get(core).await;
        let below = snapshot.lanes.iter().filter(|lane| lane.facts.room < 1_000);
        let below = below.map(|lane| {
            let name = (lane.tenant.clone(), lane.vendor.clone());
            (name, u8::try_from(lane.facts.room / 10).unwrap_or(100))
        });
        self.history.lock().sample(below);
        drop(snapshot);
        let now = core.clock.now();
        self.snapshots.tidy(now);
        self.feed.tidy(now);
    }
}

impl ConsoleBuilder {
    /// Lets users look only, whatever their rights.
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Lets the program decide what the user of a request may do, by the head of the request. This is for servers that
    /// have logged the user in already; it replaces the console's own login. With `None` the user may do nothing.
    pub fn access(mut self, decides: impl Fn(&Parts) -> Option<Access> + Send + Sync + 'static) -> Self {
        self.decides = Some(Box::new(decides));
        self
    }

    /// Builds the console.
    pub fn build(self) -> Console {
        Console { shared: Arc::new(Shared::new(self.client, self.read_only, self.decides)) }
    }
}

impl fmt::Debug for ConsoleBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsoleBuilder").field("read_only", &self.read_only).finish_non_exhaustive()
    }
}

impl GatewayBuilder {
    /// Serves a console too, below `/~/console/`. Its callers are those of the gateway. If the configuration states
    /// none, the [token](crate::gateway::Serving::token) that the gateway generates gives the right to view, and to
    /// operate unless the console is [read-only](ConsoleBuilder::read_only).
    ///
    /// Vendors' responses, which come from the same origin, then have `Content-Security-Policy: sandbox` and
    /// `X-Content-Type-Options: nosniff`, so that no page of a vendor acts as the console's user in a browser.
    pub fn console(mut self, console: &Console) -> Self {
        self.console = Some(Arc::new(console.clone()));
        self
    }
}

impl Mounted for Console {
    fn answer<'a>(
        &'a self,
        request: Request<Bytes>,
        peer: Option<IpAddr>,
        callers: &'a Callers,
    ) -> BoxFuture<'a, Response<GatewayBody>> {
        Box::pin(answer(&self.shared, request, peer, callers))
    }

    fn run(&self) -> BoxFuture<'static, ()> {
        Box::pin(self.background())
    }

    fn close(&self) {
        self.shared.closed.store(true, Relaxed);
        self.shared.closing.notify_one();
    }
}

impl<B> tower_service::Service<Request<B>> for Console
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
        Box::pin(async move {
            Ok(match collected(request).await {
                Ok(request) => answer(&shared, request, None, &shared.callers).await,
                Err(refused) => *refused,
            })
        })
    }
}
