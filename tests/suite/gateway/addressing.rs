//! The ways to name tenant and vendor other than by path, and the links in responses to requests that came by them.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::support::tls::{Authority, Leaf};

/// A vendor whose responses link to a second page at the vendor itself. It ends when it is dropped.
struct LinkingVendor {
    base_url: String,
    /// The heads of the requests so far.
    heads: Arc<Mutex<Vec<String>>>,
    _server: JoinSet<()>,
}

impl LinkingVendor {
    /// Starts a vendor, which speaks TLS if there is an acceptor.
    async fn start(acceptor: Option<TlsAcceptor>) -> LinkingVendor {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if acceptor.is_some() { "https" } else { "http" };
        let base_url = format!("{scheme}://{}/base", listener.local_addr().unwrap());
        let next = format!("{base_url}/r?page=2");
        let answer = format!(
            "HTTP/1.1 200 OK\r\nlink: <{next}>; rel=\"next\"\r\nlocation: {next}\r\ncontent-location: {next}\r\n\
             operation-location: {next}\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"
        );
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let (seen, mut server) = (heads.clone(), JoinSet::new());
        server.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A request that breaks off fails at its caller.
                let _ = match &acceptor {
                    None => respond(stream, &answer, &seen).await,
                    Some(acceptor) => match acceptor.accept(stream).await {
                        Ok(stream) => respond(stream, &answer, &seen).await,
                        Err(error) => Err(error),
                    },
                };
            }
        });
        LinkingVendor { base_url, heads, _server: server }
    }

    /// The configuration of this vendor and of a caller, with more lines of TOML for the vendor's entry.
    fn toml(&self, more: &str) -> String {
        let entry = format!("[vendors.shop]\nbase_url = \"{}\"\nauth = {{ scheme = \"bearer\" }}\n", self.base_url);
        let limit = "\n[[vendors.shop.limits]]\nname = \"at_once\"\nconcurrency = 4\n";
        entry + more + limit + &callers("billing")
    }

    /// Method and target of the requests so far.
    fn targets(&self) -> Vec<String> {
        let first = |head: &String| head.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
        self.heads.lock().unwrap().iter().map(first).collect()
    }
}

/// Reads a request, records its head, and responds.
async fn respond(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: &str,
    heads: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    heads.lock().unwrap().push(String::from_utf8_lossy(&head).into_owned());
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

/// Gets a page and then the page that it links to, as an SDK with this base URL does. All links must be below it.
async fn follow_links(sdk: &reqwest::Client, base_url: &str) {
    let next = format!("{base_url}/r?page=2");
    for url in [format!("{base_url}/r"), next.clone()] {
        let answer = sdk.get(&url).bearer_auth(TOKEN).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{url}");
        for (name, expected) in [
            ("link", &format!("<{next}>; rel=\"next\"")),
            ("location", &next),
            ("content-location", &next),
            ("operation-location", &next),
        ] {
            assert_eq!(answer.headers()[name].to_str().unwrap(), expected, "{name} of {url}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn links_stay_on_the_lane() {
    let vendor = LinkingVendor::start(None).await;
    let lane = Listen::loopback().lane("127.0.0.1:0".parse().unwrap(), "acme", "shop");
    let serving = Gateway::builder(client(vendor.toml("")).await).build().serve(lane).await.unwrap();
    let sdk = reqwest::Client::builder().no_proxy().build().unwrap();
    let lane = format!("http://{}", serving.lanes()[0]);
    follow_links(&sdk, &lane).await;
    // The SDK's own base URL may have the path of the vendor's.
    follow_links(&sdk, &format!("{lane}/base")).await;
    assert_eq!(vendor.targets(), ["GET /base/r", "GET /base/r?page=2"].repeat(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn links_stay_on_the_forward_proxy() {
    let authority = Authority::new();
    let trusted = format!("connection = {{ extra_ca = \"{}\" }}\n", authority.path().display());
    for (acceptor, more) in [(None, ""), (Some(authority.acceptor(Leaf::Good, &["http/1.1"])), &*trusted)] {
        let vendor = LinkingVendor::start(acceptor).await;
        let serving = serve_gateway(vendor.toml(more)).await;
        let proxy = format!("http://acme:{TOKEN}@{}", serving.address().unwrap());
        let sdk = reqwest::Client::builder().proxy(reqwest::Proxy::http(proxy).unwrap()).build().unwrap();
        // To `https` the SDK would open a tunnel, which the gateway refuses. So the links must say `http`.
        follow_links(&sdk, &vendor.base_url.replacen("https:", "http:", 1)).await;
        assert_eq!(vendor.targets(), ["GET /base/r", "GET /base/r?page=2"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_comes_from_the_token() {
    let vendor = LinkingVendor::start(None).await;
    let toml = vendor.toml("").replace("[\"acme\", \"eu-*\"]", "[\"us-1\"]");
    let resolver = |key: String| async move {
        let secret = if key == "billing" { TOKEN.to_owned() } else { format!("secret-of-{key}") };
        Ok(SecretString::from(secret))
    };
    let tenant = |id: &str| TenantEntry::new(id, "shop").credential(format!("kept:{id}"));
    let builder = IntegrationClient::builder().without_catalogue().credential_resolver("kept", resolver);
    let builder = builder.vendors_toml(toml).tenant(tenant("acme")).tenant(tenant("us-1"));
    let gateway = Gateway::builder(builder.build().await.unwrap()).build();
    let serving = gateway.serve(Listen::loopback()).await.unwrap();
    let sdk = reqwest::Client::builder().no_proxy().build().unwrap();
    follow_links(&sdk, &serving.base_url("@", "shop")).await;
    assert_eq!(send_raw(&serving, &get("/acme/shop/r", TOKEN)).await.status, 403);
    assert_eq!(vendor.targets(), ["GET /base/r", "GET /base/r?page=2"]);
    for head in vendor.heads.lock().unwrap().iter() {
        assert!(head.to_lowercase().contains("authorization: bearer secret-of-us-1\r\n"), "{head}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn token_stands_where_the_environment_takes_keys() {
    let vendor = LinkingVendor::start(None).await;
    let more = "\n[vendors.shop.environments.sandbox]\nauth = { scheme = \"header\", name = \"x-shop-key\" }\n\
                [[tenants]]\nid = \"eu-1\"\nvendor = \"shop\"\nenvironment = \"sandbox\"\n\
                credential = \"kept:vendor\"\n\
                [[callers]]\nname = \"only\"\ntoken = \"kept:other\"\ntenants = [\"eu-1\"]\n";
    let serving = serve_gateway(vendor.toml("") + more).await;
    for (path, token, status) in [
        ("/eu-1/shop/r", TOKEN, 200),
        ("/@/shop/r", "the-vendors-secret", 200),
        ("/eu-1/shop/r", "wrong-token-of-32-characters-0000", 401),
        // This tenant is in the vendor's other environment.
        ("/acme/shop/r", TOKEN, 401),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: g\r\nx-shop-key: {token}\r\nconnection: close\r\n\r\n");
        let got = send_raw(&serving, &request).await;
        assert_eq!(got.status, status, "{path} {} {}", got.head, got.body);
    }
    let heads = vendor.heads.lock().unwrap();
    assert_eq!(heads.len(), 2);
    for head in heads.iter().map(|head| head.to_lowercase()) {
        assert!(head.contains("x-shop-key: the-vendors-secret\r\n") && !head.contains(TOKEN), "{head}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_name_nothing_of_other_callers() {
    let vendor = start_shop_vendor().await;
    let more = "\n[[tenants]]\nid = \"au-1\"\nvendor = \"shop\"\ncredential = \"kept:vendor\"\n\
                [[tenants]]\nid = \"eu-2\"\nvendor = \"hidden\"\ncredential = \"kept:vendor\"\n\
                [[callers]]\nname = \"all\"\ntoken = \"kept:other\"\ntenants = [\"*\"]\n";
    let vendors = vendor.vendors_toml("shop") + "\n" + &vendor.vendors_toml("hidden");
    let serving = serve_gateway(vendors + more + &callers("billing")).await;
    for (path, others) in [("/eu-1/shop/x", "au-1"), ("/eu-2/shop/x", "hidden"), ("/acme/raw/x", "hidden")] {
        let got = send_raw(&serving, &get(path, TOKEN)).await;
        assert!(got.status == 403 && !got.body.contains(others), "{path} {} {}", got.head, got.body);
        let helped = send_raw(&serving, &get(path, "the-vendors-secret")).await;
        assert!(helped.status == 403 && helped.body.contains(others), "{path} {} {}", helped.head, helped.body);
    }
    let proxied = |tenant: &str| {
        format!(
            "GET {}/x HTTP/1.1\r\nhost: x\r\nproxy-authorization: Basic {}\r\nconnection: close\r\n\r\n",
            vendor.url(),
            basic_credentials(tenant, TOKEN)
        )
    };
    let (known, unknown) = (send_raw(&serving, &proxied("us-1")).await, send_raw(&serving, &proxied("us-9")).await);
    assert_eq!((known.status, unknown.status), (403, 403), "{}", known.body);
    assert_eq!(known.body, unknown.body, "whether a tenant of others exists");
    assert!(vendor.arrivals().is_empty());
}
