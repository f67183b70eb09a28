//! Jobs per second from the store to the vendor and back: what a worker reaches with few and with a million waiting
//! jobs, with one tenant and with many, and what bare reqwest reaches at the same vendor.
//!
//! `http` is a vendor in its own process, on loopback. `fake` is a transport that waits as long as that vendor but has
//! no socket, so that the store's cost dominates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use integration_client::config::TenantEntry;
use integration_client::outbox::{Delivered, ResponseHandler};
use integration_client::store::Store;
use integration_client::transport::{Answer, AnswerBody, Exchange, Transport, TransportError};
use integration_client::{BoxFuture, IntegrationClient};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Set for the process that is the vendor.
pub(crate) const VENDOR: &str = "BENCH_STORE_VENDOR";
/// The number of jobs that a worker may hold. It is large, so that the number does not bound the measured rate of claims.
const IN_HAND: usize = 4_096;
/// The number of concurrent requests by bare reqwest.
const AT_ONCE: usize = 256;

/// How long the vendor takes for the next answer: 1 to 5 ms.
fn next_service_time() -> Duration {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // The steps of a generator modulo a prime, so that no two consecutive answers take the same time.
    Duration::from_micros(1_000 + NEXT.fetch_add(1_597, Relaxed) % 4_001)
}

/// A transport that answers without a socket.
struct SocketlessTransport;

impl Transport for SocketlessTransport {
    fn execute(&self, exchange: Exchange) -> BoxFuture<'static, Result<Answer, TransportError>> {
        Box::pin(async move {
            tokio::time::sleep(next_service_time()).await;
            let body =
                AnswerBody::from_bytes(bytes::Bytes::new(), exchange.vendor.max_response_bytes, exchange.deadline);
            Ok(Answer::new(http::StatusCode::OK, http::HeaderMap::new(), body))
        })
    }
}

async fn serve(connection: TcpStream) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let mut stream = BufReader::new(connection);
    let (mut line, mut body) = (String::new(), Vec::new());
    loop {
        let mut length = 0;
        loop {
            line.clear();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let text = line.trim_end();
            if text.is_empty() {
                break;
            }
            if let Some((name, value)) = text.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        body.resize(length, 0);
        stream.read_exact(&mut body).await?;
        tokio::time::sleep(next_service_time()).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await?;
    }
}

/// The vendor's process: prints its port, and answers until it is killed.
pub(crate) async fn vendor() -> bool {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    while let Ok((connection, _)) = listener.accept().await {
        tokio::spawn(serve(connection));
    }
    true
}

/// The vendor's process, which ends when this value is dropped.
pub(crate) struct Vendor {
    process: std::process::Child,
    pub port: u16,
}

impl Vendor {
    pub(crate) fn start() -> Vendor {
        use std::io::BufRead;
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let mut process = command.env(VENDOR, "1").stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Vendor { process, port: line.trim().parse().expect("the vendor prints its port") }
    }
}

impl Drop for Vendor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The result of a worker.
pub(crate) struct WorkerResult {
    pub a_second: f64,
    /// The time from the start of building the client to the first answer.
    pub first: Duration,
}

/// A client that works on the jobs of `tenants` tenants in `store`: over HTTP if `vendor` is a port.
pub(crate) async fn client(
    store: Store,
    tenants: usize,
    vendor: Option<u16>,
    handler: impl ResponseHandler,
) -> IntegrationClient {
    let host = vendor.map_or("https://vendor.example".to_owned(), |port| format!("http://127.0.0.1:{port}"));
    let vendors = format!("[vendors.v]\nbase_url = \"{host}\"\nauth = {{ scheme = \"none\" }}\n");
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(vendors).store(store);
    let builder = (0..tenants).fold(builder, |builder, n| builder.tenant(TenantEntry::new(format!("t{n}"), "v")));
    let builder = builder.response_handler(handler).max_jobs(IN_HAND).work();
    let builder = if vendor.is_none() { builder.transport(SocketlessTransport) } else { builder };
    builder.build().await.unwrap()
}

/// Works on the jobs of `tenants` tenants in `store` until `count` are delivered: over HTTP if `vendor` is a port.
pub(crate) async fn work(store: Store, tenants: usize, count: usize, vendor: Option<u16>) -> WorkerResult {
    let (done, first) = (Arc::new(AtomicUsize::new(0)), Arc::new(parking_lot::Mutex::new(None)));
    let over = Arc::new(tokio::sync::Notify::new());
    let handler = {
        let (done, first, over) = (done.clone(), first.clone(), over.clone());
        move |answer: Delivered| {
            assert_eq!(answer.status, 200);
            let before = done.fetch_add(1, Relaxed);
            if before == 0 {
                *first.lock() = Some(Instant::now());
            }
            if before + 1 == count {
                over.notify_one();
            }
            async { Ok(()) }
        }
    };
    let began = Instant::now();
    let client = client(store, tenants, vendor, handler).await;
    let late = tokio::time::timeout(Duration::from_secs(120), over.notified()).await.is_err();
    let (ended, delivered) = (Instant::now(), done.load(Relaxed));
    let first = first.lock().unwrap_or(ended);
    client.shutdown(Duration::from_secs(10)).await;
    drop(client);
    let a_second = delivered as f64 / (ended - first).as_secs_f64().max(1e-9);
    if late {
        println!("  only {delivered} of {count} were delivered in 120 s");
    }
    WorkerResult { a_second, first: first - began }
}

/// The requests per second of reqwest alone at the same vendor.
pub(crate) async fn bare(port: u16, count: usize) -> f64 {
    let (client, left) = (reqwest::Client::new(), Arc::new(AtomicUsize::new(count)));
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..AT_ONCE {
        let (client, left) = (client.clone(), left.clone());
        tasks.spawn(async move {
            let take = |left: usize| left.checked_sub(1);
            while left.fetch_update(Relaxed, Relaxed, take).is_ok() {
                let url = format!("http://127.0.0.1:{port}/orders");
                let answer = client.post(url).body(vec![b'x'; 100]).send().await.unwrap();
                answer.bytes().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    count as f64 / began.elapsed().as_secs_f64()
}
