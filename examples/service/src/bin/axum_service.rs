//! The client inside an axum service: `cargo run -p service --bin axum_service`.
//!
//! The state of the service holds one client. The service maps the client's errors to responses that its own callers
//! understand: 503 with `Retry-After` if the same request can succeed later. At shutdown the listener closes, requests
//! under way are answered, and then the client ends.
//!
//! `main` runs the service, calls it as its users would, and checks what they and the vendor have seen.

#![allow(clippy::print_stdout, reason = "a program for the command line")]
#![allow(clippy::disallowed_methods, reason = "programs spawn and measure; the library does not")]

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use integration_client::config::TenantEntry;
use integration_client::testing::{FakeVendor, VendorLimit};
use integration_client::{ErrorKind, IntegrationClient, Priority, Request};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// How long a user of the service waits. A request that the limits do not allow within this time is refused at once.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long requests under way may take at shutdown.
const GRACE: Duration = Duration::from_secs(10);

/// The state that all handlers share. Cloning the client clones a pointer.
#[derive(Clone)]
struct App {
    client: IntegrationClient,
}

fn router(app: App) -> Router {
    Router::new()
        .route("/tenants/{tenant}/orders/{order}", get(order))
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(ready))
        .with_state(app)
}

/// Returns one order of a customer from the vendor. If the customer's browser disconnects, axum drops this future, and
/// with it the request: a request that is dropped while it waits for the limit costs nothing.
async fn order(State(app): State<App>, Path((tenant, order)): Path<(String, u64)>) -> Result<Response, Refused> {
    let request = Request::get("shop", format!("/orders/{order}")).deadline(PATIENCE);
    let answer = app.client.send(&tenant, Priority::High, request).await?;
    let status = answer.status();
    Ok((status, Body::from(answer.bytes().await?)).into_response())
}

/// Whether load balancers should send requests here: whether the configuration in use is the one that its source
/// states.
async fn ready(State(app): State<App>) -> Response {
    match app.client.config().problem() {
        None => "ready".into_response(),
        Some(problem) => (StatusCode::SERVICE_UNAVAILABLE, problem).into_response(),
    }
}

/// An error of the client, as the service answers it.
struct Refused(integration_client::Error);

impl From<integration_client::Error> for Refused {
    fn from(error: integration_client::Error) -> Refused {
        Refused(error)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        use ErrorKind::{Deadline, InvalidRequest, NotNow, QueueFull, RetryLater, Shutdown, UnknownTenant};
        let Refused(error) = self;
        let ends = matches!(error.kind(), NotNow | RetryLater | QueueFull | Deadline | Shutdown);
        let (status, retry_s, detail) = match error.kind() {
            UnknownTenant => (StatusCode::NOT_FOUND, None, error.to_string()),
            InvalidRequest => (StatusCode::BAD_REQUEST, None, error.to_string()),
            _ if !error.is_safe_to_resend() => {
                (StatusCode::BAD_GATEWAY, None, format!("the vendor may have acted on this request: {error}"))
            }
            // 503 and not 429, because the limit is the vendor's: the caller has exceeded none of this service. Not with
            // a dead letter: an operator may send that one, and the vendor would act twice.
            _ if error.letter_id().is_none() && (ends || error.retry_after().is_some()) => {
                // Rounded up: a caller who comes back too early is refused again.
                let seconds = error.retry_after().map_or(1, |wait| wait.as_secs() + 1);
                (StatusCode::SERVICE_UNAVAILABLE, Some(seconds), error.to_string())
            }
            _ => (StatusCode::BAD_GATEWAY, None, error.to_string()),
        };
        let body = json!({ "error": error.kind(), "detail": detail, "delivery": error.delivery() });
        let content: [(HeaderName, &str); 1] = [(header::CONTENT_TYPE, "application/json")];
        let mut answer = (status, content, body.to_string()).into_response();
        if let Some(seconds) = retry_s {
            answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        answer
    }
}

/// Serves until `stop`, then lets requests under way end, for a while, and then shuts the client down. Returns whether all
/// of them have ended.
async fn serve(
    listener: TcpListener,
    client: IntegrationClient,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<bool> {
    let app = router(App { client: client.clone() });
    let (stopping, stopped) = oneshot::channel();
    let stop = async move {
        stop.await;
        let _ = stopping.send(());
    };
    let serving = axum::serve(listener, app).with_graceful_shutdown(stop).into_future();
    // A caller that reads nothing, or sends half a request, must not keep the process for ever.
    let too_long = async {
        let _ = stopped.await;
        tokio::time::sleep(GRACE).await;
    };
    let ended = tokio::select! {
        served = serving => served.map(|()| true)?,
        () = too_long => false,
    };
    Ok(client.shutdown(GRACE).await && ended)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limit = VendorLimit::sliding_window(10, Duration::from_secs(1));
    let vendor = FakeVendor::builder().limit(limit).latency(Duration::from_millis(20)).start().await?;
    let tenant = TenantEntry::new("acme", "shop");
    let entry = vendor.vendors_toml("shop").replace("\"bearer\"", "\"none\"");
    let client = IntegrationClient::builder().vendors_toml(entry).tenant(tenant).build().await?;

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    // Your service stops at `tokio::signal::ctrl_c()`, or at SIGTERM by `tokio::signal::unix`.
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(serve(listener, client, async move {
        let _ = stopped.await;
    }));

    let users = reqwest::Client::builder().no_proxy().build()?;
    for (path, status) in [("healthz", 200), ("readyz", 200), ("tenants/nobody/orders/1", 404)] {
        let answer = users.get(format!("{url}/{path}")).send().await?;
        println!("GET /{path}: {}", answer.status());
        if answer.status() != status {
            return Err(format!("/{path} was to be {status}").into());
        }
    }

    // Three times what the vendor accepts in the second that these users wait.
    let mut at_once = JoinSet::new();
    for order in 0..50 {
        let asked = users.get(format!("{url}/tenants/acme/orders/{order}")).send();
        at_once.spawn(async move {
            let answer = asked.await?;
            let retry = answer.headers().contains_key(header::RETRY_AFTER);
            Ok::<_, reqwest::Error>((answer.status().as_u16(), retry))
        });
    }
    let mut seen = BTreeMap::<_, u32>::new();
    for answer in at_once.join_all().await {
        *seen.entry(answer?).or_default() += 1;
    }
    for ((status, retry), count) in &seen {
        println!("{count} users got {status}{}", if *retry { " with Retry-After" } else { "" });
    }
    if seen.keys().copied().collect::<Vec<_>>() != [(200, false), (503, true)] {
        return Err("users were to be answered 200, or 503 with Retry-After".into());
    }

    // The service stops while the vendor is processing a request.
    tokio::time::sleep(PATIENCE).await;
    let last = tokio::spawn(users.get(format!("{url}/tenants/acme/orders/51")).send());
    while vendor.arrivals().last().is_none_or(|last| &*last.path != "/orders/51") {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let _ = stop.send(());
    let (last, ended) = (last.await??.status(), serving.await??);
    let refused = vendor.refused();
    println!("axum_service: last={} ended_in_order={ended} refused={refused}", last.as_u16());
    if last == 200 && ended && refused == 0 { Ok(()) } else { Err("the service did not end in good order".into()) }
}
