//! A service beside the vendors', below `/~/console`: the gateway knows neither its paths nor what it shows, so that it
//! compiles without the feature.

use std::fmt;
use std::net::IpAddr;

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
/// Bodies of the requests to it.
const MOST: usize = 64 * 1024;

/// What is mounted.
pub(crate) trait Mounted: fmt::Debug + Send + Sync {
    /// Answers a request, whose path begins with the slash behind the place where it is mounted. `callers` are the gateway's.
    fn answer<'a>(
        &'a self,
        request: http::Request<Bytes>,
        peer: Option<IpAddr>,
        callers: &'a Callers,
    ) -> BoxFuture<'a, Response<GatewayBody>>;

    /// What it does beside answering, until it is closed.
    fn run(&self) -> BoxFuture<'static, ()>;

    /// Ends answers that would go on for ever.
    fn close(&self);
}

/// Path and query below the place where it is mounted; none where the request is for something else.
pub(super) fn below(uri: &Uri) -> Option<Uri> {
    let below = uri.path_and_query().map(PathAndQuery::as_str)?.strip_prefix(AT)?;
    (uri.scheme().is_none() && (below.is_empty() || below.starts_with(['/', '?']))).then(|| {
        // Relative links of a page need the slash at the end of its own path: an empty one is answered with a redirect.
        if below.starts_with('/') { below.parse().unwrap_or_default() } else { Uri::from_static("/.") }
    })
}

/// Answers a request to what is mounted.
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

/// The request with its body.
///
/// # Errors
/// The answer to a body that is too long, or that breaks off.
pub(crate) async fn collected<B>(request: http::Request<B>) -> Result<http::Request<Bytes>, Box<Response<GatewayBody>>>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    match Box::pin(Limited::new(body, MOST).collect()).await {
        Ok(body) => Ok(http::Request::from_parts(parts, body.to_bytes())),
        Err(_) => {
            let mut answer =
                Response::new(GatewayBody::own(Bytes::from_static(b"the body is too long, or broke off\n")));
            *answer.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
            Err(Box::new(answer))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_paths_are_answered() {
        for (path, expected) in [
            ("/~/console/", Some("/")),
            ("/~/console", Some("/.")),
            ("/~/console?x", Some("/.")),
            ("/~/console/api/lanes?sort=name", Some("/api/lanes?sort=name")),
            ("/~/consoles", None),
            ("/~/livez", None),
            ("/acme/console/", None),
            ("http://vendor.example/~/console/", None),
        ] {
            let uri: Uri = path.parse().unwrap();
            assert_eq!(below(&uri), expected.map(|path| path.parse().unwrap()), "{path}");
        }
    }
}
