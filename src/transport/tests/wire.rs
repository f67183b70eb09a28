//! Tests of what is sent, and of what is refused before it can be sent.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::server::{FaultServer, Step};
use super::*;
use crate::config::CredentialRef;

async fn ok_server() -> FaultServer {
    let answer = Step::Write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_vec());
    FaultServer::start(vec![vec![Step::Loop(vec![Step::Read, answer])]]).await
}

async fn head_of(request: Request, auth: AuthScheme, secret: &str) -> server::Seen {
    let server = ok_server().await;
    let mut prepared = prepare(request, auth, &format!("{}/v1", server.url())).unwrap();
    let exchange = prepared.authorized(secret, Duration::from_secs(2)).unwrap();
    assert_no_secret(&format!("{exchange:?}"));
    let answer = ReqwestTransport::new().execute(exchange).await.unwrap();
    assert_eq!(answer.body.collect().await.unwrap(), "ok");
    server.requests().remove(0)
}

#[tokio::test]
async fn auth_schemes_place_the_secret() {
    let get = || Request::get("acme-api", "/things").query("a", "b c");
    let bearer = head_of(get(), AuthScheme::Bearer, CANARY).await.head;
    assert!(bearer.starts_with("GET /v1/things?a=b%20c HTTP/1.1\r\n"), "{bearer}");
    assert!(bearer.contains(&format!("authorization: Bearer {CANARY}\r\n")), "{bearer}");
    assert!(bearer.contains("x-version: 1\r\n") && bearer.contains("user-agent: integration-client/"), "{bearer}");

    let own = AuthScheme::Header { name: "X-Api-Key".into(), prefix: "Token ".into() };
    assert!(head_of(get(), own, CANARY).await.head.contains(&format!("x-api-key: Token {CANARY}\r\n")));
    let basic = head_of(get(), AuthScheme::Basic, "user:pass").await.head;
    assert!(basic.contains("authorization: Basic dXNlcjpwYXNz\r\n"), "{basic}");
    let query = head_of(get(), AuthScheme::Query { name: "key".into() }, "a&b=c").await.head;
    assert!(query.starts_with("GET /v1/things?a=b%20c&key=a%26b%3Dc HTTP/1.1\r\n"), "{query}");
    let none = head_of(get(), AuthScheme::None, CANARY).await.head;
    assert!(!none.contains("canary"), "{none}");
}

/// A part of gzip's bytes cannot be decoded, and reqwest asks for gzip wherever a request states no coding.
#[tokio::test]
async fn range_is_asked_for_without_coding() {
    let codings = async |request: Request| {
        let head = head_of(request, AuthScheme::None, "").await.head;
        let lines = head.lines().filter_map(|line| line.strip_prefix("accept-encoding: ").map(str::to_owned));
        lines.collect::<Vec<_>>()
    };
    let get = || Request::get("acme-api", "/things");
    assert_eq!(codings(get()).await, ["gzip"]);
    assert_eq!(codings(get().header("range", "bytes=0-9")).await, ["identity"]);
    assert_eq!(codings(get().header("range", "bytes=0-9").header("accept-encoding", "gzip")).await, ["identity"]);
}

#[tokio::test]
async fn vendors_do_not_share_connections() {
    let server = ok_server().await;
    let tenant = tenant(vendor(AuthScheme::None));
    let send = async |transport: &ReqwestTransport, tenant: &Arc<Route>| {
        let base = target::base(&server.url(), false).unwrap();
        let mut prepared = Prepared::new(Request::get("acme-api", "/things"), tenant, &base).unwrap();
        let exchange = prepared.exchange(tenant, attempt(None, Duration::from_secs(2))).unwrap();
        let answer = transport.execute(exchange).await?;
        answer.body.collect().await
    };
    let (one, other) = (ReqwestTransport::new(), ReqwestTransport::new());
    for (transport, connections) in [(&one, 1), (&one, 1), (&other, 2), (&one, 2), (&other, 2)] {
        send(transport, &tenant).await.unwrap();
        assert_eq!(server.connections(), connections);
    }
    one.reset();
    for connections in [3, 3] {
        send(&one, &tenant).await.unwrap();
        assert_eq!(server.connections(), connections, "what was idle is forgotten, and what came after it is not");
    }
    let mut certified = Tenant::clone(&tenant);
    certified.client_certificate = Some("/nonexistent/x".into());
    let error = send(&one, &tenant.beside(certified)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "its own certificate, not the vendor's connections");
    let mut proxied = Vendor::clone(&tenant.vendor);
    proxied.connection.proxy = Some("no URL: \0".into());
    let proxied = super::tenant(proxied);
    assert_eq!(send(&one, &proxied).await.unwrap_err().kind(), ErrorKind::Config, "a copy may have other settings");
}

#[tokio::test]
async fn json_forms_and_streams_arrive_whole() {
    let json = head_of(Request::post("acme-api", "/x").json(&[1, 2]), AuthScheme::None, "").await;
    assert!(json.head.contains("content-type: application/json\r\n") && json.body == b"[1,2]", "{json:?}");
    let form = head_of(Request::post("acme-api", "/x").form([("a b", "c&d")]), AuthScheme::None, "").await;
    assert_eq!(form.body, b"a%20b=c%26d");
    let stream = Body::from(reqwest_stream());
    let streamed = head_of(Request::put("acme-api", "/x").body(stream), AuthScheme::None, "").await;
    assert!(streamed.head.contains("transfer-encoding: chunked\r\n"), "{streamed:?}");
    assert!(String::from_utf8_lossy(&streamed.body).contains("streamed"));
}

fn reqwest_stream() -> ::reqwest::Body {
    ::reqwest::Body::wrap(http_body_util::StreamBody::new(OnePieceStream(Some("streamed"))))
}

struct OnePieceStream(Option<&'static str>);

impl futures_core::Stream for OnePieceStream {
    type Item = Result<http_body::Frame<bytes::Bytes>, std::convert::Infallible>;
    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::task::Poll::Ready(self.0.take().map(|text| Ok(http_body::Frame::data(text.into()))))
    }
}

#[test]
fn smuggling_headers_are_refused_before_sending() {
    let get = |path: &str| Request::get("acme-api", path);
    let full = |url: &str| Request::from(::reqwest::Request::new(Method::GET, url.parse().unwrap()));
    let mut bad = vec![
        ("absolute", get("https://evil.example/")),
        ("other host", get("//evil.example/")),
        ("dots", get("/a/%2e%2e/admin")),
        ("line end in path", get("/a\r\nx: y")),
        ("line end in value", get("/a").header("x-a", "b\r\nc: d")),
        ("NUL in value", get("/a").header("x-a", "b\0")),
        ("bad name", get("/a").header("x a", "b")),
        ("line end in name", get("/a").header("x\r\n", "b")),
        ("authorization", get("/a").header("Authorization", "Bearer mine")),
        ("cookie", get("/a").header("cookie", "a=b")),
        ("trace parent", get("/a").trace_parent("zz")),
        ("CONNECT", Request::new(Method::CONNECT, "acme-api", "/a")),
        ("foreign URL", full("https://evil.example/v1/a")),
        ("URL above the base", full("https://api.example/a")),
        ("http URL", full("http://api.example/v1/a")),
        ("relative http::Request", Request::from(http::Request::get("/a").body(()).unwrap())),
    ];
    for name in [
        "Host",
        "content-length",
        "Transfer-Encoding",
        "connection",
        "Upgrade",
        "TE",
        "Trailer",
        "Keep-Alive",
        "Expect",
        "Proxy-Authorization",
        "proxy-connection",
    ] {
        bad.push((name, get("/a").header(name, "1")));
    }
    for (name, request) in bad {
        let error = prepare(request, AuthScheme::Bearer, "https://api.example/v1").err().expect(name);
        assert_eq!((error.kind(), error.delivery()), (ErrorKind::InvalidRequest, Delivery::NotSent), "{name}");
    }
    assert!(prepare(full("https://api.example/v1/a?b=c"), AuthScheme::Bearer, "https://api.example/v1").is_ok());
    assert!(prepare(get("/a").header("authorization", "x"), AuthScheme::None, "https://api.example/v1").is_ok());
}

#[test]
fn secrets_show_nowhere() {
    let request = Request::get("acme-api", "/a?token=q-canary").header("x-key", CANARY).body(CANARY);
    assert_no_secret(&format!("{request:?}"));
    let mut prepared = prepare(request, AuthScheme::Basic, "https://api.example").unwrap();
    let error = prepared.authorized(CANARY, Duration::from_secs(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Credential, "no colon in it");
    assert_no_secret(&format!("{error} {error:?}"));
    assert_no_secret(&format!("{:?}", Token::new(CANARY, None)));
    let mut prepared = prepare(Request::get("acme-api", "/a"), AuthScheme::Bearer, "https://api.example").unwrap();
    let error = prepared.authorized(&format!("{CANARY}\r\nx: y"), Duration::from_secs(1)).unwrap_err();
    assert_no_secret(&format!("{error} {error:?}"));
}

#[test]
fn plain_http_needs_permission() {
    let exchange = Exchange {
        method: Method::GET,
        url: "http://192.0.2.1/".parse().unwrap(),
        headers: HeaderMap::new(),
        body: Body::default(),
        vendor: Arc::new(vendor(AuthScheme::None)),
        client_certificate: None,
        deadline: tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(async { after(Duration::from_secs(1)) }),
        connections: Arc::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(ReqwestTransport::new().execute(exchange)).unwrap_err();
    assert_eq!((error.sent(), error.kind()), (Sent::NotSent, ErrorKind::InvalidRequest));
}

/// The environment of a running process cannot be changed safely, so the check runs in a child of its own.
#[test]
fn proxy_in_the_environment_is_ignored() {
    let trap = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = format!("http://{}", trap.local_addr().unwrap());
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "transport::tests::wire::auth_schemes_place_the_secret"])
        .envs(["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"].map(|name| (name, proxy.as_str())))
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .status()
        .unwrap();
    assert!(status.success());
    trap.set_nonblocking(true).unwrap();
    assert!(trap.accept().is_err(), "the proxy was used");
}

struct CountingTokens(Arc<AtomicUsize>);

impl TokenSource for CountingTokens {
    fn token<'a>(&'a self, _: &'a Tenant) -> BoxFuture<'a, Result<Token, Box<dyn std::error::Error + Send + Sync>>> {
        Box::pin(async move {
            let n = self.0.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(Token::new(format!("token-{n}"), Some(Duration::from_secs(3600))))
        })
    }
}

#[tokio::test]
async fn many_requests_refresh_a_token_once() {
    let calls = Arc::new(AtomicUsize::new(0));
    let credentials = Arc::new(Credentials::new().token_source("acme-api", CountingTokens(calls.clone())));
    let tenant = tenant(vendor(AuthScheme::Bearer));
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (credentials, tenant) = (credentials.clone(), tenant.clone());
        asking.spawn(async move { credentials.secret(&tenant).await.unwrap().unwrap() });
    }
    let secrets = asking.join_all().await;
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    // A hundred responses with 401 in turn: all but the first name a token that has been replaced already.
    for stale in &secrets {
        credentials.invalidate(&tenant, stale).await;
        credentials.secret(&tenant).await.unwrap();
    }
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn credential_references_are_parsed() {
    use secrecy::ExposeSecret as _;
    let path = std::env::temp_dir().join(format!("integration-client-{}.secret", std::process::id()));
    std::fs::write(&path, format!("{CANARY}\n")).unwrap();
    let credentials = Credentials::new();
    let with = |reference: Option<CredentialRef>| {
        let mut tenant = Tenant::clone(&tenant(vendor(AuthScheme::Bearer)));
        tenant.credential = reference;
        tenant
    };
    let file = with(Some(CredentialRef::File(path.display().to_string())));
    assert_eq!(credentials.secret(&file).await.unwrap().unwrap().expose_secret(), CANARY);
    std::fs::remove_file(&path).unwrap();
    assert!(credentials.secret(&file).await.is_ok(), "cached");
    for (bad, says) in [
        (None, "none is configured"),
        (Some(CredentialRef::Env("INTEGRATION_CLIENT_UNSET".into())), "is not set"),
        (Some(CredentialRef::File("/nonexistent/x".into())), "cannot be read"),
        (Some(CredentialRef::Resolver { resolver: "vault".into(), key: "k".into() }), "vault is registered"),
    ] {
        let error = credentials.secret(&with(bad)).await.unwrap_err();
        assert_eq!((error.kind(), error.delivery()), (ErrorKind::Credential, Delivery::NotSent));
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains(says), "{source}");
    }
}

#[test]
fn signer_cannot_move_the_request() {
    struct MovingSigner;
    impl Signer for MovingSigner {
        fn sign(
            &self,
            parts: &mut SigningParts<'_>,
            _: Option<&SecretString>,
            _: SystemTime,
        ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            parts.url.set_host(Some("evil.example"))?;
            Ok(())
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _guard = runtime.enter();
    let mut prepared = prepare(Request::get("acme-api", "/a"), AuthScheme::None, "https://api.example").unwrap();
    let attempt = Attempt { signer: Some(&MovingSigner), ..attempt(None, Duration::from_secs(1)) };
    assert_eq!(prepared.exchange(attempt).unwrap_err().kind(), ErrorKind::Credential);
}

#[test]
fn public_types_cross_threads() {
    fn check<T: Send + Sync>() {}
    check::<Request>();
    check::<Body>();
    check::<Exchange>();
    check::<TransportError>();
    check::<ReqwestTransport>();
    check::<Credentials>();
    fn assert_send<T: Send>() {}
    assert_send::<Answer>();
}
