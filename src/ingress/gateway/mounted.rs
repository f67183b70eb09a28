//! A service that the gateway hosts below `/~/console`. The gateway knows neither its paths nor its content, so it
//! compiles without the feature `console`.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Response, StatusCode, Uri};
use http_body::Body;
use http_body_util::{BodyExt as _, Limited};

use super::answer::GatewayBody;
use super::callers::Callers;
use crate::BoxFuture;
use crate::error::BoxError;

const AT: &str = "/~/console";
/// Largest body, in bytes, of a request to the mounted service. The console's longest calls name 1,000 dead letters with
/// their versions, which is up to 108 bytes for each.
const MOST: usize = 128 * 1024;
/// How long such a body may take to arrive. It is read before the service looks at a token, so anyone may send it.
const BODY: Duration = Duration::from_secs(10);

/// The mounted service.
pub(crate) trait Mounted: fmt::Debug + Send + Sync {
    /// Serves a request whose path is relative to the mount point and begins with a slash. `callers` are the
    /// gateway's.
    fn answer<'a>(
        &'a self,
        request: http::Request<Bytes>,
        peer: Option<IpAddr>,
        callers: &'a Callers,
    ) -> BoxFuture<'a, Response<GatewayBody>>;

    /// The service's background work; ends when [`close`](Mounted::close) is called.
    fn run(&self) -> BoxFuture<'static, ()>;

    /// Ends responses that would otherwise never end, such as event streams.
    fn close(&self);
}

/// Path and query below the mount point; `None` if the request is for another path.
pub(super) fn below(uri: &Uri) -> Option<Uri> {
    let below = uri.path_and_query().map(PathAndQuery::as_str)?.strip_prefix(AT)?;
    (uri.scheme().is_none() && (below.is_empty() || below.starts_with(['/', '?']))).then(|| {
        // Relative links need a page path that ends with a slash, so an empty path becomes `/.`, which is redirected.
        if below.starts_with('/') { below.parse().unwrap_or_default() } else { Uri::from_static("/.") }
    })
}

/// Passes a request to the mounted service.
pub(super) async fn answer<B>(
    mounted: &dyn Mounted,
    below: Uri,
    request: http::Request<B>,
    peer: Option<IpAddr>,
    callers: &Callers,
) -> Response<GatewayBody>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    match collected(request).await {
        Ok(mut request) => {
            *request.uri_mut() = below;
            mounted.answer(request, peer, callers).await
        }
        Err(answer) => *answer,
    }
}

/// Reads a request's body to its end.
///
/// # Errors
/// Holds the error response if the body is longer than 128 KiB, breaks off, or does not end within ten seconds.
pub(crate) async fn collected<B>(request: http::Request<B>) -> Result<http::Request<Bytes>, Box<Response<GatewayBody>>>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    match tokio::time::timeout(BODY, Box::pin(Limited::new(body, MOST).collect())).await {
        Ok(Ok(body)) => Ok(http::Request::from_parts(parts, body.to_bytes())),
        Ok(Err(_)) => Err(refusal(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long, or broke off\n")),
        Err(_) => Err(refusal(StatusCode::REQUEST_TIMEOUT, "the body did not end within ten seconds\n")),
    }
}

fn refusal(status: StatusCode, why: &'static str) -> Box<Response<GatewayBody>> {
    let mut answer = Response::new(GatewayBody::own(Bytes::from_static(why.as_bytes())));
    *answer.status_mut() = status;
    Box::new(answer)
}

#[cfg(test)]
mod tests;
