//! The connections of the server, and what each fault does to them.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::Fault;
use super::body::AnswerBody;
use super::state::Shared;
use crate::testing::Refusal;

/// Connections that the system holds until the vendor accepts them: a test may open hundreds at once.
pub(super) const BACKLOG: u32 = 1_024;

/// Accepts connections until this future is dropped, which ends all connections.
pub(super) async fn accept(mut listener: TcpListener, address: SocketAddr, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        if shared.refuses() {
            drop(listener);
            connections.shutdown().await;
            listener = reopened(address, &shared).await;
        }
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve(stream, shared.clone()));
                }
                // The usual cause is a lack of file handles, so a retry without a wait would spin.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
            () = shared.outage_changes() => {}
        }
    }
}

/// Refuses connections until the outage is over. The port stays bound, so that no other process gets it.
async fn reopened(address: SocketAddr, shared: &Shared) -> TcpListener {
    loop {
        if let Ok(socket) = bound(address) {
            while shared.refuses() {
                shared.outage_changes().await;
            }
            if let Ok(listener) = socket.listen(BACKLOG) {
                return listener;
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(super) fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Closed connections may still linger on the port.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    // Small answers must not wait for acknowledgements of earlier ones.
    let _ = stream.set_nodelay(true);
    let reset = Arc::new(AtomicBool::new(false));
    let wire = Wire { stream, reset: reset.clone(), shared: shared.clone() };
    let service = service_fn(|request| answer(&shared, &reset, request));
    // An error means that the client has hung up, or that a fault was injected.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(wire), service).await;
}

async fn answer(
    shared: &Arc<Shared>,
    reset: &AtomicBool,
    request: Request<Incoming>,
) -> io::Result<Response<AnswerBody>> {
    wait(shared.arrival_delay()).await;
    let (parts, mut body) = request.into_parts();
    let cost = text(&parts.headers, "x-cost").and_then(|cost| cost.trim().parse().ok()).unwrap_or(1);
    let path = parts.uri.path();
    let idempotency_key = text(&parts.headers, "idempotency-key").unwrap_or_default();
    let decision = shared.decide(key(&parts.headers), path, idempotency_key, cost);
    // The limits decide from the headers, as gateways do; the body is read and ignored.
    while let Some(frame) = body.frame().await {
        frame.map_err(io::Error::other)?;
    }
    wait(decision.service).await;
    // Made before the request ends and before the return delay: a vendor states what it knows when it writes an answer.
    let said = shared.headers(&decision);

    let mut status = StatusCode::OK;
    let mut under_way = decision.under_way;
    let mut content_type = "text/plain; charset=utf-8";
    let body = match decision.fault {
        _ if !decision.verdict.admitted => {
            let Ok(refused) = StatusCode::from_u16(decision.verdict.status()) else {
                reset.store(true, Ordering::Relaxed);
                return Err(io::Error::other("outage: reset"));
            };
            status = refused;
            AnswerBody::whole(match decision.verdict.refusal {
                Some(Refusal::Outage(_)) => Bytes::from_static(b"unavailable\n"),
                Some(Refusal::Poisoned(_)) => Bytes::from_static(b"never here\n"),
                _ => Bytes::from_static(b"too many requests\n"),
            })
        }
        None => {
            let reply = shared.reply_to(path);
            status = reply.status;
            content_type = reply.content_type;
            AnswerBody::whole(reply.body.clone())
        }
        Some(Fault::Status(code)) => {
            status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            AnswerBody::whole(Bytes::new())
        }
        Some(Fault::Stall) => match std::future::pending::<Infallible>().await {},
        Some(Fault::Reset) => {
            reset.store(true, Ordering::Relaxed);
            return Err(io::Error::other("fault: reset"));
        }
        Some(Fault::SlowBody { chunks, chunk_bytes, pause }) => {
            AnswerBody::slow(vec![b'x'; chunk_bytes as usize].into(), chunks, pause, under_way.take())
        }
        Some(Fault::HalfBody) => {
            reset.store(true, Ordering::Relaxed);
            AnswerBody::half(Bytes::from_static(&[b'x'; 64]), under_way.take())
        }
    };
    // The request ends at the vendor here; only the return delay follows.
    drop(under_way);
    wait(shared.return_delay()).await;

    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if status.is_redirection() {
        // The log shows whether a client follows redirects by itself.
        response.headers_mut().insert(LOCATION, HeaderValue::from_static("/"));
    }
    response.headers_mut().extend(said);
    Ok(response)
}

async fn wait(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}

/// The key that identifies the client.
fn key(headers: &HeaderMap) -> &str {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
    });
    bearer.or_else(|| text(headers, "x-tenant")).unwrap_or_default()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// A connection that ends with a reset instead of an orderly close if a fault or an outage requires it.
struct Wire {
    stream: TcpStream,
    reset: Arc<AtomicBool>,
    shared: Arc<Shared>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.reset.load(Ordering::Relaxed) || self.shared.refuses() {
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.reset.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
