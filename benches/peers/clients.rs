//! The clients: ours, and peers used as their documentation says, each with reqwest.
//!
//! A peer limits requests but does not send them. This file has the code that its users write around it, the same for
//! all peers: take a permit, send, and after a refusal wait as long as `retry-after` says and take another permit.

use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use governor::{DefaultDirectRateLimiter, Quota};
use integration_client::config::TenantEntry;
use integration_client::dead_letter::MemorySink;
use integration_client::{IntegrationClient, Priority, Request};
use leaky_bucket::RateLimiter;
use secrecy::SecretString;
use throttle_net::provider::HeaderProfile;
use throttle_net::{SlidingWindowLog, Throttle};
use tokio::sync::{Mutex, watch};
use tower::Service;
use tower::limit::RateLimit;
use tower::limit::rate::Rate;

use crate::vendor::{KEY, Spec, StatedHeaders, VendorAccess, WINDOW};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    OursAdaptive,
    OursPace,
    OursBands,
    OursOff,
    Governor,
    ThrottleNet,
    ThrottleNetSynced,
    LeakyBucket,
    Tower,
    Oracle,
}

impl Kind {
    pub(crate) const ALL: [Kind; 10] = [
        Kind::OursAdaptive,
        Kind::OursPace,
        Kind::OursBands,
        Kind::OursOff,
        Kind::Governor,
        Kind::ThrottleNet,
        Kind::ThrottleNetSynced,
        Kind::LeakyBucket,
        Kind::Tower,
        Kind::Oracle,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::OursAdaptive => "ours-adaptive",
            Kind::OursPace => "ours-pace",
            Kind::OursBands => "ours-bands",
            Kind::OursOff => "ours-off",
            Kind::Governor => "governor",
            Kind::ThrottleNet => "throttle-net",
            Kind::ThrottleNetSynced => "throttle-net-synced",
            Kind::LeakyBucket => "leaky-bucket",
            Kind::Tower => "tower",
            Kind::Oracle => "oracle",
        }
    }

    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Kind::OursAdaptive | Kind::OursPace | Kind::OursBands | Kind::OursOff)
    }

    /// The headers that the vendor sends in the runs of this client. Clients that read only `retry-after` run with that
    /// alone. Without other headers the three settings of this client would behave alike, so one of them is enough.
    pub(crate) fn header_styles(self) -> &'static [StatedHeaders] {
        match self {
            Kind::OursAdaptive => &[StatedHeaders::Everything, StatedHeaders::RetryAfter, StatedHeaders::Nothing],
            Kind::OursPace => &[StatedHeaders::Everything, StatedHeaders::RetryAfter],
            Kind::OursBands | Kind::OursOff | Kind::ThrottleNetSynced => &[StatedHeaders::Everything],
            _ => &[StatedHeaders::RetryAfter],
        }
    }

    /// The client's settings, as a text for the report.
    pub(crate) fn setting(self) -> &'static str {
        match self {
            Kind::OursAdaptive => "the vendor's own entry, safety = 1.0, with the default throttle, \"adaptive\"",
            Kind::OursPace => "the same with throttle = \"pace\"",
            Kind::OursBands => "the same with throttle = \"bands\"",
            Kind::OursOff => "the same with throttle = \"off\"",
            Kind::Governor => {
                "windows: Quota::per_second(limit).allow_burst(1); buckets: Quota::per_second(limit); until_ready()"
            }
            Kind::ThrottleNet => {
                "windows: SlidingWindowLog::new(limit, 1 s); buckets: Throttle::per_second(limit); pause_for(retry-after) \
                 at a refusal"
            }
            Kind::ThrottleNetSynced => "the same, and HeaderProfile::RFC with sync_requests() at every answer",
            Kind::LeakyBucket => {
                "windows: max and initial = limit, refill(limit) each 1 s; buckets: refill(limit / 100) each 10 ms"
            }
            Kind::Tower => "RateLimit, Rate::new(limit, 1 s), behind a fair mutex",
            Kind::Oracle => {
                "what this machine can do: bare reqwest by somebody who knows that the job's windows begin with their first \
                 request; the bucket by governor"
            }
        }
    }
}

#[derive(Clone)]
pub(crate) enum Client {
    Ours(IntegrationClient),
    Peer(Arc<Peer>),
}

impl Client {
    pub(crate) async fn start(kind: Kind, spec: &Spec, access: &VendorAccess) -> Client {
        match kind {
            Kind::OursAdaptive => Client::Ours(ours(&access.toml, "adaptive").await),
            Kind::OursPace => Client::Ours(ours(&access.toml, "pace").await),
            Kind::OursBands => Client::Ours(ours(&access.toml, "bands").await),
            Kind::OursOff => Client::Ours(ours(&access.toml, "off").await),
            _ => Client::Peer(Arc::new(Peer {
                limiter: Limiter::new(kind, spec),
                http: http(),
                url: format!("{}/records", access.url),
                synced: kind == Kind::ThrottleNetSynced,
            })),
        }
    }

    /// Sends one record until the vendor has accepted it.
    pub(crate) async fn record(&self) {
        match self {
            Client::Ours(client) => {
                // The client retries by itself. When it returns an error after all retries, the caller sends again. The
                // vendor's log has every exchange.
                loop {
                    let request = Request::get("vendor", "/records").deadline(Duration::from_secs(120));
                    match client.send("acme", Priority::Normal, request).await {
                        Ok(response) if response.status() == 200 => {
                            response.bytes().await.unwrap();
                            return;
                        }
                        _ => tokio::time::sleep(Duration::from_millis(1)).await,
                    }
                }
            }
            Client::Peer(peer) => while !peer.once().await {},
        }
    }
}

async fn ours(entry: &str, throttle: &str) -> IntegrationClient {
    // The first line is the header of the vendor's table; the limits are tables below it.
    let (table, rest) = entry.split_once('\n').unwrap();
    let toml = format!("{table}\nsafety = 1.0\nthrottle = \"{throttle}\"\n{rest}");
    IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(toml)
        .credential_resolver("bench", |_: String| async { Ok(SecretString::from(KEY)) })
        .tenant(TenantEntry::new("acme", "vendor").credential("bench:acme"))
        .dead_letter_sink(MemorySink::new(1))
        .build()
        .await
        .unwrap()
}

/// A client with the settings of our own transport, and with the timeout that our client sets for an attempt and its
/// body.
fn http() -> reqwest::Client {
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .retry(reqwest::retry::never())
        .no_proxy()
        .gzip(true)
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(30))
        .connect_timeout(Duration::from_secs(10))
        .timeout(Duration::from_secs(30))
        .user_agent("peer")
        .build()
        .unwrap()
}

pub(crate) struct Peer {
    limiter: Limiter,
    http: reqwest::Client,
    url: String,
    /// Whether the limiter is told what every response states about limits.
    synced: bool,
}

impl Peer {
    /// Sends one request. Returns whether the vendor accepted it.
    async fn once(&self) -> bool {
        self.limiter.permit().await;
        let response = self.http.get(&self.url).bearer_auth(KEY).send().await.unwrap();
        let status = response.status();
        if let Limiter::Windows(windows) = &self.limiter {
            windows.answered();
        }
        if self.synced {
            let headers: Vec<(&str, &str)> =
                response.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
            let said = HeaderProfile::RFC.parse(&headers);
            match &self.limiter {
                Limiter::Log(limiter) => said.sync_requests(limiter),
                Limiter::Tokens(limiter) => said.sync_requests(limiter),
                _ => 0,
            };
        }
        let seconds = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        response.bytes().await.unwrap();
        if status == 200 {
            return true;
        }
        assert_eq!(status, 429);
        self.limiter.refused(Duration::from_secs(seconds.unwrap_or(1))).await;
        false
    }
}

enum Limiter {
    Governor(DefaultDirectRateLimiter),
    Log(SlidingWindowLog),
    Tokens(Throttle),
    Leaky(RateLimiter),
    Tower(Mutex<RateLimit<Permits>>),
    Windows(Windows),
}

impl Limiter {
    fn new(kind: Kind, spec: &Spec) -> Limiter {
        let (limit, is_bucket) = (spec.limit, spec.counting.is_bucket());
        match kind {
            Kind::Oracle if !is_bucket => Limiter::Windows(Windows::new(limit)),
            Kind::Governor | Kind::Oracle => {
                let quota = Quota::per_second(NonZeroU32::new(limit).unwrap());
                let even = quota.allow_burst(NonZeroU32::MIN);
                Limiter::Governor(governor::RateLimiter::direct(if is_bucket { quota } else { even }))
            }
            Kind::ThrottleNet | Kind::ThrottleNetSynced if is_bucket => Limiter::Tokens(Throttle::per_second(limit)),
            Kind::ThrottleNet | Kind::ThrottleNetSynced => Limiter::Log(SlidingWindowLog::new(limit, WINDOW)),
            Kind::LeakyBucket => {
                let (refill, interval) = if is_bucket { (limit / 100, WINDOW / 100) } else { (limit, WINDOW) };
                let limit = limit as usize;
                let mut builder = RateLimiter::builder();
                builder.max(limit).initial(limit).refill(refill as usize).interval(interval);
                Limiter::Leaky(builder.build())
            }
            Kind::Tower => Limiter::Tower(Mutex::new(RateLimit::new(Permits, Rate::new(limit.into(), WINDOW)))),
            Kind::OursAdaptive | Kind::OursPace | Kind::OursBands | Kind::OursOff => {
                unreachable!("ours limits and sends")
            }
        }
    }

    async fn permit(&self) {
        match self {
            Limiter::Governor(limiter) => limiter.until_ready().await,
            Limiter::Log(limiter) => limiter.acquire().await.unwrap(),
            Limiter::Tokens(limiter) => limiter.acquire().await.unwrap(),
            Limiter::Windows(windows) => windows.permit().await,
            Limiter::Leaky(limiter) => limiter.acquire_one().await,
            Limiter::Tower(limiter) => {
                let mut limiter = limiter.lock().await;
                let Ok(()) = poll_fn(|cx| limiter.poll_ready(cx)).await;
                let Ok(()) = limiter.call(()).await;
            }
        }
    }

    /// Applies a refusal. Limiters that can pause pause for all callers; with the others, only the caller that was
    /// refused waits.
    async fn refused(&self, wait: Duration) {
        match self {
            Limiter::Log(limiter) => limiter.pause_for(wait),
            Limiter::Tokens(limiter) => limiter.pause_for(wait),
            _ => tokio::time::sleep(wait).await,
        }
    }
}

/// Windows that begin with their first request. That request is sent alone; after its answer follow as many as fit. The
/// next window begins one window after that answer, when the vendor's window has ended.
struct Windows {
    limit: u32,
    sent: Mutex<u32>,
    /// When the first request of the window was answered. `None` until then.
    began: watch::Sender<Option<Instant>>,
}

impl Windows {
    fn new(limit: u32) -> Windows {
        Windows { limit, sent: Mutex::new(0), began: watch::Sender::new(None) }
    }

    async fn permit(&self) {
        let mut sent = self.sent.lock().await;
        if *sent > 0 {
            let began = *self.began.subscribe().wait_for(Option::is_some).await.unwrap();
            if *sent == self.limit {
                tokio::time::sleep_until((began.unwrap() + WINDOW).into()).await;
                self.began.send_replace(None);
                *sent = 0;
            }
        }
        *sent += 1;
    }

    /// Records an answer. Only the first answer of a window sets the window's begin.
    fn answered(&self) {
        self.began.send_if_modified(|began| {
            let first = began.is_none();
            began.get_or_insert_with(Instant::now);
            first
        });
    }
}

/// The service that tower limits. It does nothing itself.
struct Permits;

impl Service<()> for Permits {
    type Response = ();
    type Error = Infallible;
    type Future = Ready<Result<(), Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        ready(Ok(()))
    }
}
