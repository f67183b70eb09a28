//! Vendors whose responses come too slowly or never end: the exchange ends at its deadline, delays no other request,
//! and fills no memory.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests: helpers unwrap too")]

use crate::support::fault;
use crate::support::tls;

use std::time::Duration;

use fault::{FaultServer, Step};
use integration_client::config::TenantEntry;
use integration_client::testing::{FakeVendor, VendorLimit};
use integration_client::{Delivery, ErrorKind, IntegrationClient, Priority, Request};
use tls::{Authority, Leaf};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[expect(clippy::disallowed_methods, reason = "a test measures")]
fn now() -> Instant {
    Instant::now()
}

fn vendor(name: &str, url: &str, more: &str) -> String {
    format!(
        r#"
[vendors.{name}]
base_url = "{url}"
auth = {{ scheme = "none" }}
retry = {{ max_retries = 0 }}
{more}
[[vendors.{name}.limits]]
name = "parallel"
concurrency = 2000
"#
    )
}

async fn client(vendors: &[String]) -> IntegrationClient {
    let mut builder = IntegrationClient::builder().without_catalogue().vendors_toml(vendors.concat());
    for (name, tenant) in [("slow", "a"), ("good", "b")].into_iter().take(vendors.len()) {
        builder = builder.tenant(TenantEntry::new(tenant, name));
    }
    builder.build().await.unwrap()
}

/// Half of the responses send one byte of a header every 100 ms, the other half one byte of a body.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_slow_responses_end_at_their_deadline() {
    const SLOW: usize = 1000;
    const TIMEOUT: Duration = Duration::from_secs(3);
    let head = Step::Drip(b"HTTP/1.1 200 OK\r\nx-slow: ".to_vec().repeat(9), ms(100));
    let body = b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n".to_vec();
    let by_turns: Vec<Vec<Step>> = (0..SLOW)
        .map(|n| match n % 2 {
            0 => vec![Step::Read, head.clone()],
            _ => vec![Step::Read, Step::Write(body.clone()), Step::Drip(vec![b'x'; 999], ms(100))],
        })
        .collect();
    let slow = FaultServer::start(by_turns).await;
    let good = FakeVendor::builder().limit(VendorLimit::concurrency(100)).start().await.unwrap();
    let client = client(&[vendor("slow", &slow.url(), ""), vendor("good", &good.url(), "")]).await;

    let mut slow_ones = JoinSet::new();
    for _ in 0..SLOW {
        let client = client.clone();
        slow_ones.spawn(async move {
            let began = now();
            let request = Request::get("slow", "/x").attempt_timeout(TIMEOUT);
            let error = match client.send("a", Priority::High, request).await {
                Ok(response) => response.bytes().await.unwrap_err(),
                Err(error) => error,
            };
            assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
            (error.delivery(), began.elapsed())
        });
    }
    while client.in_flight() < SLOW as u64 {
        tokio::time::sleep(ms(1)).await;
    }
    let (began, mut answered) = (now(), 0);
    while began.elapsed() < TIMEOUT / 2 {
        let response = client.send("b", Priority::Low, Request::get("good", "/y")).await.unwrap();
        assert_eq!(response.status(), 200);
        response.bytes().await.unwrap();
        answered += 1;
    }
    let ends = slow_ones.join_all().await;
    let longest = ends.iter().map(|(_, took)| *took).max().unwrap();
    let delivered = ends.iter().filter(|(delivery, _)| *delivery == Delivery::Delivered).count();
    println!("{SLOW} slow answers: the longest took {longest:.1?}; {delivered} had begun; {answered} others meanwhile");
    assert!(longest < TIMEOUT + Duration::from_secs(2), "{longest:?}");
    assert!(answered > 50, "{answered}");
    // An exchange that timed out holds its slot a little longer, because the vendor may still be working on it.
    let until = now() + TIMEOUT * 3;
    while client.in_flight() > 0 {
        assert!(now() < until, "{} slots are still held", client.in_flight());
        tokio::time::sleep(ms(10)).await;
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Starts an HTTP/2 vendor that sends `first` once and then `then` for ever on the first stream.
async fn flood(authority: &Authority, first: Vec<u8>, then: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let acceptor = authority.acceptor(Leaf::Good, &["h2"]);
    #[expect(clippy::disallowed_methods, reason = "a server of its own; it ends with the runtime")]
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = acceptor.accept(stream).await.unwrap();
            let (settings, acknowledged) = (frame(4, 0, 0, &[]), frame(4, 1, 0, &[]));
            let _ = stream.write_all(&[settings, acknowledged].concat()).await;
            let mut came = Vec::new();
            // HEADERS with END_STREAM and END_HEADERS, on stream 1.
            while !came.windows(6).any(|frame| frame == [1, 5, 0, 0, 0, 1]) {
                if stream.read_buf(&mut came).await.unwrap_or(0) == 0 {
                    break;
                }
            }
            let _ = stream.write_all(&first).await;
            while stream.write_all(&then).await.is_ok() {}
        }
    });
    url
}

/// The resident memory of the process in bytes, on systems that report it.
fn resident() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(pages.split(' ').nth(1)?.parse::<u64>().ok()? * 4096)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_frames_are_cut_off() {
    const MOST: u64 = 64 << 20;
    let authority = Authority::new();
    let certificate = format!("connection = {{ extra_ca = \"{}\" }}", authority.path().display());
    // A header field `x: aaaa…` as a literal, which does not enter the dynamic table.
    let field = [&b"\x00\x01x\x64"[..], &[b'a'; 100]].concat();
    let cases = [
        ("fields in CONTINUATION frames", frame(1, 0, 1, b"\x88"), frame(9, 0, 1, &field.repeat(100))),
        ("empty CONTINUATION frames", frame(1, 0, 1, b"\x88"), frame(9, 0, 1, b"").repeat(1000)),
        ("empty DATA frames", frame(1, 4, 1, b"\x88"), frame(0, 0, 1, b"").repeat(1000)),
        ("pings", Vec::new(), frame(6, 0, 0, b"12345678").repeat(500)),
        ("settings", Vec::new(), frame(4, 0, 0, &[]).repeat(500)),
    ];
    for (name, first, then) in cases {
        let url = flood(&authority, first, then).await;
        let client = client(&[vendor("slow", &url, &certificate)]).await;
        let (began, before) = (now(), resident());
        let request = Request::get("slow", "/x").attempt_timeout(Duration::from_secs(2));
        let error = match client.send("a", Priority::Normal, request).await {
            Ok(response) => response.bytes().await.unwrap_err(),
            Err(error) => error,
        };
        let (took, grown) =
            (began.elapsed(), resident().zip(before).map(|(after, before)| after.saturating_sub(before)));
        println!("{name}: {:?}, {:?} after {took:.1?}, {grown:?} bytes more; {error}", error.kind(), error.delivery());
        let kinds = [ErrorKind::Timeout, ErrorKind::Protocol, ErrorKind::ResponseTooLarge];
        assert!(kinds.contains(&error.kind()) && error.delivery() != Delivery::NotSent, "{name}: {error:?}");
        assert!(took < Duration::from_secs(5), "{name}: {took:?}");
        assert!(grown.unwrap_or(0) < MOST, "{name}: {grown:?} bytes");
    }
}
