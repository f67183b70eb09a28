//! Tests on real sockets in real time, with bounds instead of exact timings. They are in the crate because only the
//! crate can make exchanges.

mod faults;
mod hosts;
mod secrets;
#[path = "../../../tests/suite/support/fault.rs"]
mod server;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use secrecy::SecretString;

use super::*;
use crate::clock::Time;
use crate::config::{AuthScheme, Connection, Scope};
use crate::request::Request;
use crate::route::{Authorization, Route};
use crate::send::prepared::{Attempt, Prepared};

const CANARY: &str = "canary-5up3r-s3cret";

fn vendor(auth: AuthScheme) -> Vendor {
    Vendor {
        unpublished: false,
        name: "acme-api".into(),
        environment: "live".into(),
        base_url: String::new(),
        auth,
        headers: vec![("x-version".into(), "1".into())],
        secret_headers: Vec::new(),
        costs: Default::default(),
        limits: Vec::new(),
        endpoints: Vec::new(),
        connect_timeout: Duration::from_secs(2),
        attempt_timeout: Duration::from_secs(5),
        max_transit: Duration::from_secs(3),
        max_response_bytes: 64 * 1024,
        connection: Connection::default(),
        propagate_trace: false,
        also: Vec::new(),
        quirks: Vec::new(),
        retry: Default::default(),
        idempotency: Default::default(),
        throttle: Default::default(),
        dialect: Default::default(),
        dead_letters: Default::default(),
        at_rest: Default::default(),
        counts_bytes: false,
        keeps_usage: false,
        widest_scope: Scope::Tenant,
    }
}

fn tenant(vendor: Vendor) -> Arc<Route> {
    Route::alone(Tenant {
        id: "t1".into(),
        vendor: Arc::new(vendor),
        account: "t1".into(),
        credential: None,
        oauth: None,
        secret_headers: Vec::new(),
        variables: BTreeMap::new(),
        weight: 1,
        client_certificate: None,
        overrides: None,
    })
}

#[expect(clippy::disallowed_methods, reason = "tests on real sockets run in real time")]
fn after(wait: Duration) -> Instant {
    Instant::now() + wait
}

fn attempt(authorization: Option<&Authorization>, wait: Duration) -> Attempt<'_> {
    Attempt { authorization, signer: None, wall: SystemTime::UNIX_EPOCH, deadline: after(wait) }
}

/// A request, and the tenant on whose behalf it is sent.
struct PreparedRequest {
    prepared: Prepared,
    tenant: Arc<Route>,
}

impl PreparedRequest {
    fn exchange(&mut self, attempt: Attempt<'_>) -> Result<Exchange, Error> {
        self.prepared.exchange(&self.tenant, attempt)
    }

    fn authorized(&mut self, secret: &str, wait: Duration) -> Result<Exchange, Error> {
        let secret = Arc::new(SecretString::from(secret));
        let authorization = Authorization::new(&self.tenant.vendor.auth, secret, Time::MAX);
        self.exchange(attempt(Some(&authorization), wait))
    }
}

fn prepare(request: Request, auth: AuthScheme, base: &str) -> Result<PreparedRequest, Error> {
    let tenant = tenant(vendor(auth));
    let prepared = Prepared::new(request, &tenant, &target::base(base, false).unwrap())?;
    Ok(PreparedRequest { prepared, tenant })
}

/// One exchange with a bearer credential, body included.
async fn exchange_with(
    transport: &ReqwestTransport,
    request: Request,
    base: &str,
    wait: Duration,
) -> Result<(StatusCode, bytes::Bytes), TransportError> {
    let exchange = prepare(request, AuthScheme::Bearer, base).unwrap().authorized(CANARY, wait).unwrap();
    let result = async {
        let answer = transport.execute(exchange).await?;
        Ok((answer.status, answer.body.collect().await?))
    };
    // Every outcome must come within the deadline and a little more.
    tokio::time::timeout(wait + Duration::from_secs(2), result).await.expect("the deadline ends every exchange")
}

async fn exchange(base: &str, wait_ms: u64) -> Result<(StatusCode, bytes::Bytes), TransportError> {
    let request = Request::get("acme-api", "/things").query("page", "q-canary");
    exchange_with(&ReqwestTransport::new(), request, base, Duration::from_millis(wait_ms)).await
}

fn assert_no_secret(text: &str) {
    for secret in [CANARY, "q-canary", "Y2FuYXJ5"] {
        assert!(!text.contains(secret), "{text}");
    }
}
