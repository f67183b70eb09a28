//! What a vendor's responses say about a shared limit applies to all tenants that share it. Over real sockets, in real
//! time.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests spawn and measure")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use integration_client::config::TenantEntry;
use integration_client::{IntegrationClient, Priority, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// `endpoint` is an endpoint's limit of an account.
const SCOPES: [&str; 3] = ["account", "vendor", "endpoint"];
const TENANTS: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];

/// For each request its arrival time, its path and the status of the response.
type Log = Arc<Mutex<Vec<(Instant, String, u16)>>>;
/// Returns status and headers for a request, from its number and the time since the first request.
type Script = fn(usize, Duration) -> (u16, &'static str);

async fn serve(mut stream: TcpStream, log: Log, script: Script) {
    let mut text = Vec::new();
    loop {
        while !text.ends_with(b"\r\n\r\n") {
            let mut bytes = [0; 1024];
            match stream.read(&mut bytes).await {
                Ok(count @ 1..) => text.extend_from_slice(&bytes[..count]),
                _ => return,
            }
        }
        let path = String::from_utf8_lossy(&text).split(' ').nth(1).unwrap().to_owned();
        text.clear();
        let (status, headers) = {
            let (mut log, now) = (log.lock().unwrap(), Instant::now());
            let first = log.first().map_or(now, |(first, ..)| *first);
            let (status, headers) = script(log.len(), now - first);
            log.push((now, path, status));
            (status, headers)
        };
        let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n{headers}\r\n");
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// A client whose tenants share the limit `shared`, and a vendor that answers by `script`.
async fn client(scope: &str, shared: &str, script: Script) -> (IntegrationClient, Log) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, log) = (listener.local_addr().unwrap(), Log::default());
    let kept = log.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, kept.clone(), script));
        }
    });
    let shared = match scope {
        "endpoint" => shared
            .replace("SCOPE", "account")
            .replace("limits =", "[vendors.v.endpoints.x]\npaths = [\"/x\"]\nlimits ="),
        _ => shared.replace("SCOPE", scope),
    };
    let text = format!("[vendors.v]\nbase_url = \"http://{address}\"\nauth = {{ scheme = \"none\" }}\n{shared}\n");
    let mut builder = IntegrationClient::builder().without_catalogue().vendors_toml(text);
    for tenant in TENANTS {
        // With a limit of the vendor each tenant has an account of its own; with the others all use one account.
        let account = if scope == "vendor" { tenant } else { "one" };
        builder = builder.tenant(TenantEntry::new(tenant, "v").account(account));
    }
    (builder.build().await.unwrap(), log)
}

/// Sends a request of each of these tenants, all at once.
async fn send_all(client: &IntegrationClient, tenants: &[&'static str], path: &'static str) {
    let mut sends = JoinSet::new();
    for tenant in tenants.iter().copied() {
        let client = client.clone();
        sends.spawn(async move { client.send(tenant, Priority::High, Request::get("v", path)).await.map(drop) });
    }
    while let Some(sent) = sends.join_next().await {
        sent.unwrap().unwrap();
    }
}

fn since_first(log: &Log) -> Vec<(Duration, String, u16)> {
    let log = log.lock().unwrap();
    log.iter().map(|(at, path, status)| (*at - log[0].0, path.clone(), *status)).collect()
}

#[tokio::test]
async fn nine_percent_left_slows_four_tenants_together() {
    for scope in SCOPES {
        // At full rate the client would send 16 requests a second.
        let shared = "throttle = \"bands\"\nlimits = [{ name = \"l\", scope = \"SCOPE\", limit = 1000, \
                      window = \"50s\", algorithm = \"fixed_window\" }]";
        let (client, log) = client(scope, shared, |number, _| match number {
            0 => (200, "x-ratelimit-limit: 1000\r\nx-ratelimit-remaining: 90\r\nx-ratelimit-reset: 40\r\n"),
            _ => (200, ""),
        })
        .await;
        send_all(&client, &TENANTS[..1], "/x").await;
        let four: Vec<&str> = TENANTS[..4].iter().copied().cycle().take(8).collect();
        send_all(&client, &four, "/x").await;
        let arrivals = since_first(&log);
        assert_eq!(arrivals.len(), 9);
        // The first of the eight requests is sent at once, and each further one a quarter of a second later.
        let took = arrivals[8].0 - arrivals[1].0;
        assert!((Duration::from_millis(1_700)..Duration::from_millis(3_500)).contains(&took), "{scope}: {took:?}");
    }
}

#[tokio::test]
async fn exhausted_shared_limit_stops_all_its_tenants() {
    for scope in SCOPES {
        let shared = "limits = [{ name = \"l\", scope = \"SCOPE\", limit = 100, window = \"60s\", \
                      algorithm = \"fixed_window\" }]";
        let (client, log) = client(scope, shared, |number, _| match number {
            0 => (200, "x-ratelimit-limit: 100\r\nx-ratelimit-remaining: 0\r\nx-ratelimit-reset: 2\r\n"),
            _ => (200, ""),
        })
        .await;
        send_all(&client, &TENANTS[..1], "/x").await;
        send_all(&client, &TENANTS[..2], "/x").await;
        let arrivals = since_first(&log);
        assert_eq!(arrivals.len(), 3);
        assert!(arrivals[1..].iter().all(|(at, ..)| *at >= Duration::from_secs(2)), "{scope}: {arrivals:?}");
    }
}

#[tokio::test]
async fn shared_refusal_is_met_by_one_tenant() {
    for scope in SCOPES {
        let shared = "limits = [{ name = \"l\", scope = \"SCOPE\", limit = 1000, window = \"10s\", \
                      algorithm = \"fixed_window\" }]";
        let (client, log) = client(scope, shared, |_, after| match after < Duration::from_secs(1) {
            true => (429, "retry-after: 1\r\n"),
            false => (200, ""),
        })
        .await;
        let first = client.try_send("a", Priority::High, Request::get("v", "/x")).await.unwrap();
        assert_eq!(first.status(), 429);
        send_all(&client, &TENANTS, "/x").await;
        let arrivals = since_first(&log);
        assert_eq!(arrivals.len(), 11, "{scope}");
        assert_eq!(arrivals.iter().filter(|(_, _, status)| *status == 429).count(), 1, "{scope}: {arrivals:?}");
    }
}

#[tokio::test]
async fn endpoint_limit_holds_up_its_requests_only() {
    for scope in ["account", "vendor"] {
        let shared = "[vendors.v.endpoints.search]\npaths = [\"/search\"]\nlimits = [{ name = \"l\", \
                      scope = \"SCOPE\", limit = 100, window = \"60s\", algorithm = \"fixed_window\" }]";
        let (client, log) = client(scope, shared, |number, _| match number {
            0 => (200, "x-ratelimit-limit: 100\r\nx-ratelimit-remaining: 0\r\nx-ratelimit-reset: 2\r\n"),
            _ => (200, ""),
        })
        .await;
        send_all(&client, &TENANTS[..1], "/search").await;
        tokio::join!(send_all(&client, &TENANTS[..2], "/search"), send_all(&client, &TENANTS[..4], "/other"));
        let arrivals = since_first(&log);
        assert_eq!(arrivals.len(), 7);
        for (at, path, _) in &arrivals[1..] {
            match path.as_str() {
                "/search" => assert!(*at >= Duration::from_secs(2), "{scope}: {arrivals:?}"),
                _ => assert!(*at < Duration::from_secs(2), "{scope}: {arrivals:?}"),
            }
        }
    }
}
