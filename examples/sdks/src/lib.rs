//! A vendor on loopback for the SDKs. It counts requests, refuses those above its limit, and checks the key of each.
//! A request with [`BREAK`] in its body gets no response: the connection closes.

#![allow(clippy::disallowed_methods, reason = "programs spawn and measure; the library does not")]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use integration_client::IntegrationClient;
use integration_client::config::TenantEntry;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// The error with which an example ends.
pub type BoxError = Box<dyn Error + Send + Sync>;
/// An answer of the vendor.
pub type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The most requests that the vendor accepts in any second.
pub const LIMIT: usize = 20;
/// Requests that each example sends at once, above the limit.
pub const AT_ONCE: usize = 45;
/// The credential that is given to the SDK. It must not reach the vendor.
pub const CALLERS_TOKEN: &str = "callers-token-0123456789abcdef";
/// In the body of a request that the vendor leaves without a response.
pub const BREAK: &str = "break";
/// The tenant's credential.
pub const KEY: &str = "vendor-key";

/// An HTTP server that accepts [`LIMIT`] requests in any second, by a sliding log, and refuses more. It stops when
/// dropped.
pub struct Vendor {
    address: SocketAddr,
    counts: Arc<Mutex<Counts>>,
    _server: JoinSet<()>,
}

#[derive(Default)]
struct Counts {
    taken: VecDeque<Instant>,
    arrived: usize,
    refused: usize,
    leaked: usize,
    broken: usize,
}

/// How the vendor of one SDK answers.
#[derive(Clone, Copy, Debug)]
pub struct Behaviour {
    /// Whether the credential or signature of a request is right.
    pub is_right: fn(&Parts, &[u8]) -> bool,
    /// The answer to an accepted request. The last argument is the vendor's base URL.
    pub answer: fn(&Parts, &[u8], &str) -> Answer,
}

impl Vendor {
    /// Starts the vendor.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start(behaviour: Behaviour) -> io::Result<Vendor> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let counts = Arc::<Mutex<Counts>>::default();
        let mut server = JoinSet::new();
        server.spawn(accept(listener, format!("http://{address}"), counts.clone(), behaviour));
        Ok(Vendor { address, counts, _server: server })
    }

    /// The vendor's base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A client with one tenant, `acme`, at this vendor, which the client knows as `vendor`. `auth` is the entry's
    /// scheme.
    ///
    /// # Errors
    /// The entry is not valid.
    pub async fn client(&self, auth: &str) -> Result<IntegrationClient, integration_client::Error> {
        let url = self.url();
        let entry = format!(
            "[vendors.vendor]\nbase_url = \"{url}\"\nauth = {{ scheme = \"{auth}\" }}\n\
             [[vendors.vendor.limits]]\nname = \"second\"\nlimit = {LIMIT}\nwindow = \"1s\"\n"
        );
        let tenant = TenantEntry::new("acme", "vendor");
        let tenant = if auth == "none" { tenant } else { tenant.credential("example:key") };
        let key = |_: String| async { Ok(KEY.into()) };
        let builder = IntegrationClient::builder().without_catalogue().vendors_toml(entry).tenant(tenant);
        builder.credential_resolver("example", key).build().await
    }

    /// Sets the counts to 0. The log of recent requests stays, so that the limit still holds.
    pub fn reset(&self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        (counts.arrived, counts.refused, counts.leaked, counts.broken) = (0, 0, 0, 0);
    }

    /// Checks the one call of a run with [`BREAK`] in its body: it ended with the client's error, and arrived once.
    ///
    /// # Errors
    /// The call succeeded or ended with another error, or its request did not arrive exactly once.
    pub fn check_broken<T, E: Error + 'static>(&self, called: Result<T, E>) -> Result<(), BoxError> {
        let Err(error) = called else {
            return Err("a call without a response succeeded".into());
        };
        let first: &(dyn Error + 'static) = &error;
        let texts: Vec<_> =
            std::iter::successors(Some(first), |cause| (*cause).source()).map(|cause| cause.to_string()).collect();
        if !texts.iter().any(|text| text.contains("broke before the response")) {
            return Err(format!("the SDK's error does not show the client's text: {texts:?}").into());
        }
        let broken = self.counts.lock().unwrap_or_else(PoisonError::into_inner).broken;
        if broken == 1 { Ok(()) } else { Err(format!("the call without a response arrived {broken} times").into()) }
    }

    /// A line with the counts of the run, if `expected` requests arrived.
    ///
    /// # Errors
    /// A request was refused, leaked the caller's token, was lost or arrived twice.
    pub fn report(&self, sdk: &str, expected: usize) -> Result<String, BoxError> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let Counts { arrived, refused, leaked, .. } = *counts;
        let doubled = arrived.saturating_sub(expected);
        let report = format!("{sdk}: requests={arrived} refused={refused} leaked={leaked} doubled={doubled}");
        if refused + leaked == 0 && arrived == expected { Ok(report) } else { Err(report.into()) }
    }
}

impl fmt::Debug for Vendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vendor").field("address", &self.address).finish_non_exhaustive()
    }
}

async fn accept(listener: TcpListener, base: String, counts: Arc<Mutex<Counts>>, behaviour: Behaviour) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (base, counts) = (base.clone(), counts.clone());
        connections.spawn(async move {
            let service = service_fn(|request| judge(request, &base, &counts, behaviour));
            // An error here means that the caller has closed the connection, or that the vendor broke it.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn judge(
    request: http::Request<Incoming>,
    base: &str,
    counts: &Mutex<Counts>,
    behaviour: Behaviour,
) -> io::Result<Answer> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let text = String::from_utf8_lossy(&body);
    let is_broken = text.contains(BREAK);
    let is_taken = {
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while counts.taken.front().is_some_and(|first| now - *first > Duration::from_secs(1)) {
            counts.taken.pop_front();
        }
        counts.arrived += 1;
        counts.leaked += usize::from(format!("{parts:?}{text}").contains(CALLERS_TOKEN));
        counts.broken += usize::from(is_broken);
        let is_taken = counts.taken.len() < LIMIT;
        if is_taken {
            counts.taken.push_back(now);
        } else {
            counts.refused += 1;
        }
        is_taken
    };
    if is_taken && is_broken {
        // Without an answer, hyper closes the connection.
        return Err(io::Error::other("broken"));
    }
    Ok(match is_taken {
        false => answer(StatusCode::TOO_MANY_REQUESTS, "application/json", r#"{"message":"too many requests"}"#),
        true if !(behaviour.is_right)(&parts, &body) => {
            answer(StatusCode::UNAUTHORIZED, "application/json", r#"{"message":"wrong credential"}"#)
        }
        true => (behaviour.answer)(&parts, &body, base),
    })
}

/// An answer with this status and body.
pub fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()).boxed_unsync());
    *answer.status_mut() = status;
    answer.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    answer
}

/// Whether a request carries the tenant's key as a bearer token.
pub fn has_key(parts: &Parts, _: &[u8]) -> bool {
    parts
        .headers
        .get(http::header::AUTHORIZATION)
        .is_some_and(|value| value.as_bytes() == format!("Bearer {KEY}").as_bytes())
}

/// Waits until an example's direct calls, which the client does not know of, no longer count against the vendor's
/// limit.
pub async fn forgotten() {
    tokio::time::sleep(Duration::from_millis(1_100)).await;
}
