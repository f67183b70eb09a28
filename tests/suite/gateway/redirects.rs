//! A vendor's redirect leads to no other tenant or vendor of the gateway.

use std::sync::{Arc, Mutex};

use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;

/// A server of two vendors, below `/shop` and `/raw`. To a request for `…/x` it responds 302, with the header that the
/// request states in `x-answer`. It ends when it is dropped.
struct RedirectingVendors {
    origin: String,
    /// The targets of the requests so far.
    targets: Arc<Mutex<Vec<String>>>,
    _server: JoinSet<()>,
}

impl RedirectingVendors {
    async fn start() -> RedirectingVendors {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let targets = Arc::<Mutex<Vec<String>>>::default();
        let (seen, mut server) = (targets.clone(), JoinSet::new());
        server.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A request that breaks off fails at its caller.
                let _ = respond(stream, &seen).await;
            }
        });
        RedirectingVendors { origin, targets, _server: server }
    }

    /// The configuration of both vendors, and of a caller that may call both for tenant `acme`.
    fn toml(&self) -> String {
        let entry = |name: &str| {
            format!(
                "[vendors.{name}]\nbase_url = \"{}/{name}\"\nauth = {{ scheme = \"bearer\" }}\nunpublished = true\n",
                self.origin
            )
        };
        let tenant = "[[tenants]]\nid = \"acme\"\nvendor = \"raw\"\ncredential = \"kept:vendor\"\n";
        entry("shop") + &entry("raw") + tenant + &callers("billing")
    }

    /// The targets of the requests since the last call.
    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.targets.lock().unwrap())
    }
}

async fn respond(mut stream: TcpStream, targets: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let stated = head.lines().find_map(|line| line.strip_prefix("x-answer: ")).unwrap_or("x-none: 1");
    let first = match target.ends_with("/x") {
        true => format!("302 Found\r\n{stated}"),
        false => "200 OK".to_owned(),
    };
    targets.lock().unwrap().push(target);
    let answer = format!("HTTP/1.1 {first}\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

#[tokio::test(flavor = "multi_thread")]
async fn redirect_leads_to_no_other_lane() {
    let vendors = RedirectingVendors::start().await;
    let serving = serve_gateway(vendors.toml()).await;
    let (gateway, port) = (serving.address().unwrap(), serving.address().unwrap().port());
    let sdk = reqwest::Client::builder().no_proxy().build().unwrap();
    // A client that follows redirects, as most do.
    let ask = async |answer: &str| {
        let asked = sdk.get(serving.base_url("acme", "shop") + "/x").bearer_auth(TOKEN).header("x-answer", answer);
        asked.send().await.unwrap().status().as_u16()
    };
    for url in [
        format!("http://{gateway}/acme/raw/secret"),
        format!("http://{gateway}/acme/shop/../raw/secret"),
        format!("http://localhost:{port}/acme/raw/secret"),
        format!("http:\\\\{gateway}\\acme\\raw\\secret"),
    ] {
        assert_eq!(
            (ask(&format!("location: {url}")).await, vendors.taken()),
            (302, vec!["/shop/x".to_owned()]),
            "{url}"
        );
    }
    let followed = vec!["/shop/x".to_owned(), "/shop/next".to_owned()];
    for url in [format!("http://{gateway}/acme/shop/next"), format!("{}/shop/next", vendors.origin), "next".to_owned()]
    {
        assert_eq!((ask(&format!("location: {url}")).await, vendors.taken()), (200, followed.clone()), "{url}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forward_proxy_leads_to_no_other_vendor() {
    let vendors = RedirectingVendors::start().await;
    let serving = serve_gateway(vendors.toml()).await;
    let origin = &vendors.origin;
    let host = origin.trim_start_matches("http://");
    for (header, is_removed) in [
        (format!("location: {origin}/raw/secret"), true),
        (format!("location: http://u:p@{host}/raw/secret"), true),
        ("location: /raw/secret".to_owned(), true),
        (format!("link: <{origin}/raw/secret>; rel=next"), true),
        (format!("location: http://{}/acme/raw/secret", serving.address().unwrap()), true),
        (format!("location: {origin}/shop/next"), false),
        (format!("location: {origin}/other/next"), false),
        (format!("link: <{origin}/shop/next>; rel=next"), false),
    ] {
        let request = format!(
            "GET {origin}/shop/x HTTP/1.1\r\nhost: {host}\r\nproxy-authorization: Basic {}\r\nx-answer: {header}\r\n\
             connection: close\r\n\r\n",
            basic_credentials("acme", TOKEN)
        );
        let got = send_raw(&serving, &request).await;
        assert_eq!((got.status, vendors.taken()), (302, vec!["/shop/x".to_owned()]), "{header} {}", got.head);
        assert_eq!(!got.head.lines().any(|line| line == header), is_removed, "{header} {}", got.head);
        assert_eq!(!got.head.contains("location:") && !got.head.contains("link:"), is_removed, "{}", got.head);
    }
}
