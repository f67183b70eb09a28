//! The other processes of the bench. Each prints a line with its address, and ends when its standard input closes.

use std::convert::Infallible;
use std::io::Read;
use std::process::ExitCode;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use integration_client::IntegrationClient;
use integration_client::config::TenantEntry;
use integration_client::gateway::{Gateway, Listen};
use secrecy::SecretString;
use tokio::net::TcpListener;

use crate::caller::{Address, LARGE, SMALL};

const KEY: &str = "Bearer key-of-acme";

async fn until_closed(address: &Address) {
    println!("{}", serde_json::to_string(address).unwrap());
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.unwrap().unwrap();
}

async fn bind() -> (TcpListener, Address) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    (listener, Address { host, credential: KEY.to_owned(), ..Address::default() })
}

/// Serves each connection in its own task.
async fn accept<B, F>(listener: TcpListener, answer: impl Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static)
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
{
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let answer = answer.clone();
        let service = service_fn(move |request| {
            let answer = answer(request);
            async move { Ok::<_, Infallible>(answer.await) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// A vendor on one thread that answers all paths with [`SMALL`] bytes, and one path with [`LARGE`].
pub(crate) fn vendor() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (listener, address) = bind().await;
        let (small, large) = (Bytes::from(vec![b'x'; SMALL]), Bytes::from(vec![b'x'; LARGE]));
        tokio::spawn(accept(listener, move |request: Request<Incoming>| {
            let body = if request.uri().path() == "/large" { large.clone() } else { small.clone() };
            async move {
                assert_eq!(request.headers()["authorization"], KEY);
                let mut sent = request.into_body();
                while sent.frame().await.transpose().unwrap().is_some() {}
                Response::new(Full::new(body))
            }
        }));
        until_closed(&address).await;
    });
    ExitCode::SUCCESS
}

/// A proxy that passes requests and responses on unchanged, except for the headers of the connection.
pub(crate) fn proxy(vendor: &str) -> ExitCode {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let (listener, address) = bind().await;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client: Client<_, Incoming> = Client::builder(TokioExecutor::new()).build(connector);
        let (vendor, host) = (vendor.to_owned(), HeaderValue::from_str(vendor).unwrap());
        tokio::spawn(accept(listener, move |mut request: Request<Incoming>| {
            let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
            *request.uri_mut() = format!("http://{vendor}{path}").parse::<Uri>().unwrap();
            let headers = request.headers_mut();
            headers.remove(CONNECTION);
            headers.remove(TRANSFER_ENCODING);
            headers.insert(HOST, host.clone());
            let answer = client.request(request);
            async move {
                let mut answer = answer.await.unwrap();
                answer.headers_mut().remove(CONNECTION);
                answer.headers_mut().remove(TRANSFER_ENCODING);
                answer
            }
        }));
        until_closed(&address).await;
    });
    ExitCode::SUCCESS
}

/// The same proxy with reqwest instead of hyper's client. It shows the cost of the gateway's transport by itself.
pub(crate) fn reqwest_proxy(vendor: &str) -> ExitCode {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let (listener, address) = bind().await;
        let none = reqwest::redirect::Policy::none();
        let client = reqwest::Client::builder().no_proxy().redirect(none).tcp_nodelay(true).build().unwrap();
        let (vendor, host) = (vendor.to_owned(), HeaderValue::from_str(vendor).unwrap());
        tokio::spawn(accept(listener, move |request: Request<Incoming>| {
            let (mut parts, body) = request.into_parts();
            let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
            let url = format!("http://{vendor}{path}");
            parts.headers.remove(CONNECTION);
            parts.headers.remove(TRANSFER_ENCODING);
            parts.headers.insert(HOST, host.clone());
            let mut onward = client.request(parts.method, url).headers(parts.headers);
            if !body.is_end_stream() {
                onward = onward.body(reqwest::Body::wrap(body));
            }
            async move {
                let mut answer = Response::<reqwest::Body>::from(onward.send().await.unwrap());
                answer.headers_mut().remove(CONNECTION);
                answer.headers_mut().remove(TRANSFER_ENCODING);
                answer
            }
        }));
        until_closed(&address).await;
    });
    ExitCode::SUCCESS
}

/// The gateway, run by `serve`.
pub(crate) fn gateway(vendor: &str) -> ExitCode {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let entry = format!(
            "[vendors.fake]\nbase_url = \"http://{vendor}\"\nauth = {{ scheme = \"bearer\" }}\n\
             [[vendors.fake.limits]]\nname = \"rate\"\nalgorithm = \"sliding_window\"\nlimit = 1_000_000\nwindow = \"1s\"\n\
             [[vendors.fake.limits]]\nname = \"at_once\"\nconcurrency = 10_000\n"
        );
        let client = IntegrationClient::builder()
            .without_catalogue()
            .vendors_toml(entry)
            .credential_resolver("bench", |_: String| async { Ok(SecretString::from(&KEY["Bearer ".len()..])) })
            .tenant(TenantEntry::new("acme", "fake").credential("bench:acme"))
            .build()
            .await
            .unwrap();
        let gateway = Gateway::builder(client).max_connections(20_000).build();
        let serving = gateway.serve(Listen::loopback()).await.unwrap();
        let address = Address {
            host: serving.address().unwrap().to_string(),
            prefix: "/acme/fake".to_owned(),
            credential: format!("Bearer {}", serving.token().unwrap()),
        };
        until_closed(&address).await;
    });
    ExitCode::SUCCESS
}
