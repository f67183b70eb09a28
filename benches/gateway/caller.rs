//! Callers, each with one connection on which it sends one request after the other.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The bytes of a small response, and of a large body.
pub(crate) const SMALL: usize = 1024;
pub(crate) const LARGE: usize = 1024 * 1024;

/// How to call a process of the bench.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Address {
    pub(crate) host: String,
    /// The prefix of the vendor's paths.
    pub(crate) prefix: String,
    /// The value of `Authorization`.
    pub(crate) credential: String,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// GET of [`SMALL`] bytes.
    Small,
    /// POST of [`LARGE`] bytes.
    Up,
    /// GET of [`LARGE`] bytes.
    Down,
}

/// The result of one turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    /// Requests per second.
    pub(crate) rate: f64,
    pub(crate) median_us: f64,
    pub(crate) p99_us: f64,
}

/// Connections to one peer.
pub(crate) struct Callers {
    address: Address,
    connections: Vec<SendRequest<Full<Bytes>>>,
    large: Bytes,
}

impl Callers {
    pub(crate) async fn connect(address: &Address, at_once: usize) -> Callers {
        let mut connections = Vec::new();
        for _ in 0..at_once {
            let stream = TcpStream::connect(&address.host).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            connections.push(sender);
        }
        Callers { address: address.clone(), connections, large: Bytes::from(vec![b'x'; LARGE]) }
    }

    /// Sends on all connections for `time`.
    pub(crate) async fn turn(&mut self, kind: Kind, time: Duration) -> Turn {
        let mut tasks = JoinSet::new();
        let began = Instant::now();
        for mut connection in std::mem::take(&mut self.connections) {
            let request = self.request(kind);
            tasks.spawn(async move {
                let mut took = Vec::new();
                while began.elapsed() < time {
                    let sent = Instant::now();
                    exchange(&mut connection, request.clone(), kind).await;
                    took.push(sent.elapsed().as_secs_f64() * 1e6);
                }
                (connection, took)
            });
        }
        let ended = tasks.join_all().await;
        let elapsed = began.elapsed().as_secs_f64();
        let mut took = Vec::new();
        for (connection, mut times) in ended {
            self.connections.push(connection);
            took.append(&mut times);
        }
        took.sort_by(f64::total_cmp);
        let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
        Turn { rate: took.len() as f64 / elapsed, median_us: at(0.5), p99_us: at(0.99) }
    }

    /// Sends one small request on each connection, after which the connections stay idle.
    pub(crate) async fn send_one_each(mut self) -> Callers {
        let request = self.request(Kind::Small);
        for connection in &mut self.connections {
            exchange(connection, request.clone(), Kind::Small).await;
        }
        self
    }

    fn request(&self, kind: Kind) -> Request<Full<Bytes>> {
        let Address { host, prefix, credential } = &self.address;
        let (method, path, body) = match kind {
            Kind::Small => ("GET", "/small", Bytes::new()),
            Kind::Up => ("POST", "/up", self.large.clone()),
            Kind::Down => ("GET", "/large", Bytes::new()),
        };
        let request = Request::builder().method(method).uri(format!("{prefix}{path}")).header("host", host);
        request.header("authorization", credential).body(Full::new(body)).unwrap()
    }
}

async fn exchange(connection: &mut SendRequest<Full<Bytes>>, request: Request<Full<Bytes>>, kind: Kind) {
    let answer = connection.send_request(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    let mut body = answer.into_body();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        length += frame.unwrap().data_ref().map_or(0, Bytes::len);
    }
    let expected = if matches!(kind, Kind::Down) { LARGE } else { SMALL };
    assert_eq!(length, expected);
    connection.ready().await.unwrap();
}
