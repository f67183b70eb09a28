//! A configuration server that a test can stop, and that remembers its requests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// A request that the server has received.
#[derive(Clone, Debug)]
pub(super) struct ReceivedRequest {
    pub(super) target: String,
    pub(super) headers: HeaderMap,
}

impl ReceivedRequest {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

pub(super) type Answer = Response<Full<Bytes>>;
type Handler = dyn Fn(&ReceivedRequest) -> Answer + Send + Sync;

pub(super) struct ConfigServer {
    address: SocketAddr,
    handler: Arc<Mutex<Arc<Handler>>>,
    asked: Arc<Mutex<Vec<ReceivedRequest>>>,
    serving: tokio::task::JoinHandle<()>,
}

impl ConfigServer {
    pub(super) async fn start(handler: impl Fn(&ReceivedRequest) -> Answer + Send + Sync + 'static) -> ConfigServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let handler: Arc<Mutex<Arc<Handler>>> = Arc::new(Mutex::new(Arc::new(handler)));
        let asked = Arc::<Mutex<Vec<ReceivedRequest>>>::default();
        let (handlers, log) = (handler.clone(), asked.clone());
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (handlers, log) = (handlers.clone(), log.clone());
                let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                    let (handlers, log) = (handlers.clone(), log.clone());
                    async move {
                        let (parts, body) = request.into_parts();
                        let _ = body.collect().await;
                        let asked = ReceivedRequest { target: parts.uri.to_string(), headers: parts.headers };
                        log.lock().unwrap().push(asked.clone());
                        let handler = handlers.lock().unwrap().clone();
                        Ok::<_, Infallible>(handler(&asked))
                    }
                });
                // Connections are not kept alive, so that a stopped server answers nothing more.
                let mut http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.keep_alive(false).serve_connection(TokioIo::new(stream), service));
            }
        });
        ConfigServer { address, handler, asked, serving }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Replaces the handler that answers all further requests.
    pub(super) fn answer(&self, handler: impl Fn(&ReceivedRequest) -> Answer + Send + Sync + 'static) {
        *self.handler.lock().unwrap() = Arc::new(handler);
    }

    pub(super) fn received_requests(&self) -> Vec<ReceivedRequest> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for ConfigServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

pub(super) fn status(status: u16) -> Answer {
    response_with(status, "", &[])
}

pub(super) fn response_with(status: u16, body: &str, headers: &[(&str, &str)]) -> Answer {
    let mut answer = Response::builder().status(StatusCode::from_u16(status).unwrap());
    for (name, value) in headers {
        answer = answer.header(*name, *value);
    }
    answer.body(Full::from(body.to_owned())).unwrap()
}

/// A handler that serves a file with an entity tag, as an object store does.
pub(super) fn serve_file(text: String) -> impl Fn(&ReceivedRequest) -> Answer + Send + Sync + 'static {
    let tag =
        format!("\"{:x}\"", text.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into())));
    serve_tagged(tag, text)
}

/// A handler that serves a text with an entity tag that the caller chooses.
pub(super) fn serve_tagged(
    tag: impl Into<String>,
    text: String,
) -> impl Fn(&ReceivedRequest) -> Answer + Send + Sync + 'static {
    let tag = tag.into();
    move |asked: &ReceivedRequest| match asked.header("if-none-match") == tag {
        true => response_with(304, "", &[("etag", &tag)]),
        false => response_with(200, &text, &[("etag", &tag)]),
    }
}
