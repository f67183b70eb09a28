//! Vendors with invalid certificates: a send fails at once, sends no byte of the request, and retries neither in the
//! same way nor with weaker security.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: helpers unwrap too")]

use crate::support::fault;
use crate::support::tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use fault::{FaultServer, Step};
use integration_client::config::TenantEntry;
use integration_client::{Delivery, Error, ErrorKind, IntegrationClient, Priority, Request};
use tls::{Authority, Leaf};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A vendor that accepts one request on each connection.
struct Vendor {
    url: String,
    connections: Arc<AtomicUsize>,
    /// Connections on which a byte of a request arrived.
    requests: Arc<AtomicUsize>,
}

async fn vendor(authority: &Authority, leaf: Leaf) -> Vendor {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let acceptor = authority.acceptor(leaf, &["http/1.1"]);
    let (connections, requests) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (all, with_request) = (connections.clone(), requests.clone());
    #[expect(clippy::disallowed_methods, reason = "a server of its own; it ends with the runtime")]
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            all.fetch_add(1, SeqCst);
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            if stream.read(&mut [0; 4096]).await.is_ok_and(|n| n > 0) {
                with_request.fetch_add(1, SeqCst);
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
                stream.write_all(answer).await.unwrap();
                let _ = stream.shutdown().await;
            }
        }
    });
    Vendor { url, connections, requests }
}

/// Sends one request, with the default retries.
async fn send(url: &str, authority: Option<&Authority>) -> Result<String, Error> {
    let authority = authority
        .map_or(String::new(), |authority| format!("connection = {{ extra_ca = \"{}\" }}", authority.path().display()));
    let toml = format!(
        r#"
[vendors.v]
base_url = "{url}"
auth = {{ scheme = "none" }}
{authority}
[[vendors.v.limits]]
name = "parallel"
concurrency = 4
"#
    );
    let client = IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(toml)
        .tenant(TenantEntry::new("a", "v"))
        .build()
        .await
        .unwrap();
    let sent = client.send("a", Priority::Normal, Request::get("v", "/x"));
    // Retries would take much longer.
    let sent = tokio::time::timeout(Duration::from_secs(20), sent).await.expect("an answer or an error at once");
    assert_eq!(client.dead_letter_counts().waiting + client.dead_letter_counts().written, 0);
    match sent {
        Ok(response) => response.text().await,
        Err(error) => {
            assert_eq!(client.in_flight(), 0);
            Err(error)
        }
    }
}

fn kind_and_delivery(error: &Error) -> (ErrorKind, Delivery) {
    (error.kind(), error.delivery())
}

#[tokio::test]
async fn invalid_certificate_is_an_error_at_once() {
    let authority = Authority::new();
    for leaf in [Leaf::Expired, Leaf::OtherHost, Leaf::SelfSigned] {
        let vendor = vendor(&authority, leaf).await;
        let error = send(&vendor.url, Some(&authority)).await.expect_err("it is not good");
        assert_eq!(kind_and_delivery(&error), (ErrorKind::Tls, Delivery::NotSent), "{leaf:?}: {error:?}");
        assert!(error.to_string().contains("certificate"), "{leaf:?}: {error}");
        assert_eq!((vendor.connections.load(SeqCst), vendor.requests.load(SeqCst)), (1, 0), "{leaf:?}: tried once");
    }
    // A valid certificate works, so the certificate makes the difference.
    let good = vendor(&authority, Leaf::Good).await;
    assert_eq!(send(&good.url, Some(&authority)).await.unwrap(), "ok");
    assert_eq!((good.connections.load(SeqCst), good.requests.load(SeqCst)), (1, 1));
    let error = send(&good.url, None).await.expect_err("nobody has said that the authority is one");
    assert_eq!(kind_and_delivery(&error), (ErrorKind::Tls, Delivery::NotSent), "{error:?}");
    assert_eq!((good.connections.load(SeqCst), good.requests.load(SeqCst)), (2, 1));
}

/// Short-lived certificates are replaced while the process runs.
#[tokio::test]
async fn changed_certificate_file_is_read_again() {
    let (authority, other) = (Authority::new(), Authority::new());
    let vendor = vendor(&authority, Leaf::Good).await;
    let path = std::env::temp_dir().join(format!("ic-changed-{}.pem", std::process::id()));
    std::fs::copy(other.path(), &path).unwrap();
    let toml = format!(
        "[vendors.v]\nbase_url = \"{}\"\nauth = {{ scheme = \"none\" }}\nconnection = {{ extra_ca = \"{}\" }}\n",
        vendor.url,
        path.display()
    );
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(toml);
    let client = builder.tenant(TenantEntry::new("a", "v")).build().await.unwrap();
    let send = async || client.send("a", Priority::Normal, Request::get("v", "/x")).await;
    assert_eq!(send().await.unwrap_err().kind(), ErrorKind::Tls);
    // A file that is just being written is not used.
    std::fs::write(&path, "-----BEGIN").unwrap();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(send().await.unwrap_err().kind(), ErrorKind::Tls);
    std::fs::copy(authority.path(), &path).unwrap();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(send().await.unwrap().text().await.unwrap(), "ok");
    std::fs::remove_file(&path).unwrap();
}

/// A vendor that supports only TLS 1.0 answers with the alert `protocol_version`.
#[tokio::test]
async fn old_version_of_tls_is_not_spoken() {
    let protocol_version = vec![0x15, 3, 1, 0, 2, 2, 70];
    let server =
        FaultServer::start(vec![vec![Step::ReadBytes(5), Step::Write(protocol_version), Step::HalfClose]]).await;
    let error = send(&server.url().replace("http:", "https:"), None).await.expect_err("no version in common");
    assert_eq!(kind_and_delivery(&error), (ErrorKind::Tls, Delivery::NotSent), "{error:?}");
    assert_eq!((server.connections(), server.requests().len()), (1, 0), "tried once, and not without TLS");
}

/// With TLS 1.2 a vendor refuses a client certificate within the handshake, here with the alert `certificate_expired`.
#[tokio::test]
async fn refused_client_certificate_is_no_lost_connection() {
    let certificate_expired = vec![0x15, 3, 3, 0, 2, 2, 45];
    let server =
        FaultServer::start(vec![vec![Step::ReadBytes(5), Step::Write(certificate_expired), Step::HalfClose]]).await;
    let error = send(&server.url().replace("http:", "https:"), None).await.expect_err("a refused certificate");
    assert_eq!(kind_and_delivery(&error), (ErrorKind::Tls, Delivery::NotSent), "{error:?}");
    assert!(error.to_string().contains("another client certificate"), "{error}");
    assert_eq!(server.connections(), 1, "tried once");
}
