//! A collector on loopback that receives OTLP over HTTP, as JSON. Yours is another program: of this file, a service
//! needs only [`Sender`].

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use opentelemetry_http::{HttpClient, HttpError};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::runtime::Handle;

/// A span as it arrived.
pub(crate) struct Seen {
    pub(crate) name: String,
    pub(crate) trace: String,
}

#[derive(Clone, Default)]
struct Stored(Arc<Mutex<(Vec<Seen>, BTreeSet<String>)>>);

pub(crate) struct Collector {
    url: String,
    stored: Stored,
}

impl Collector {
    pub(crate) async fn start() -> io::Result<Collector> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let stored = Stored::default();
        let app = Router::new().route("/v1/traces", post(spans)).route("/v1/metrics", post(metrics));
        let app = app.with_state(stored.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Collector { url, stored })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The HTTP client with which an exporter sends.
    pub(crate) fn sender(&self) -> Sender {
        Sender { http: reqwest::Client::new(), runtime: Handle::current() }
    }

    /// Takes the spans and the names of the metrics received so far.
    pub(crate) fn seen(&self) -> (Vec<Seen>, BTreeSet<String>) {
        std::mem::take(&mut *self.stored.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn list<'v>(value: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
    value[name].as_array().into_iter().flatten()
}

async fn spans(State(Stored(stored)): State<Stored>, Json(said): Json<Value>) -> Json<Value> {
    let scopes = list(&said, "resourceSpans").flat_map(|resource| list(resource, "scopeSpans"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let spans = scopes.flat_map(|scope| list(scope, "spans"));
    let seen = spans.map(|span| Seen { name: text(&span["name"]), trace: text(&span["traceId"]) });
    stored.lock().unwrap_or_else(PoisonError::into_inner).0.extend(seen);
    Json(Value::Object(Default::default()))
}

async fn metrics(State(Stored(stored)): State<Stored>, Json(said): Json<Value>) -> Json<Value> {
    let scopes = list(&said, "resourceMetrics").flat_map(|resource| list(resource, "scopeMetrics"));
    let names = scopes.flat_map(|scope| list(scope, "metrics")).filter_map(|metric| metric["name"].as_str());
    stored.lock().unwrap_or_else(PoisonError::into_inner).1.extend(names.map(str::to_owned));
    Json(Value::Object(Default::default()))
}

/// The HTTP client of the exporters. It sends on the runtime, because the exporters' threads do not belong to tokio.
#[derive(Debug)]
pub(crate) struct Sender {
    http: reqwest::Client,
    runtime: Handle,
}

#[async_trait::async_trait]
impl HttpClient for Sender {
    async fn send_bytes(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, HttpError> {
        let (http, request) = (self.http.clone(), reqwest::Request::try_from(request)?);
        let sent = self.runtime.spawn(async move {
            let answer = http.execute(request).await?;
            let (status, headers) = (answer.status(), answer.headers().clone());
            Ok::<_, reqwest::Error>((status, headers, answer.bytes().await?))
        });
        let (status, headers, body) = sent.await??;
        let mut answer = http::Response::new(body);
        (*answer.status_mut(), *answer.headers_mut()) = (status, headers);
        Ok(answer)
    }
}
