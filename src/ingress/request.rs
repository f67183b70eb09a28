//! Converts an `http::Request` to a [`Request`] of this client.

use std::borrow::Cow;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Uri;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::{BodyExt, Limited};
use percent_encoding::percent_decode_str;
use tokio::time::Sleep;

use super::headers::strip;
use super::options::{SendOptions, callers_timeout};
use crate::clock::Clock;
use crate::config::AuthScheme;
use crate::config::priority::Priority;
use crate::error::{BoxError, Error, ErrorKind};
use crate::request::{Request, Target};
use crate::route::Route;
use crate::transport::{Body, target};

/// The longest wait for a piece of a body, and for all of a body that is read into memory if no deadline is stated.
const BODY: Duration = Duration::from_secs(60);

/// An incoming request in the client's own form.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) request: Request,
    pub(crate) priority: Priority,
    /// Whether the request is sent at once or fails, without a wait for a permit.
    pub(crate) immediate: bool,
    /// The deadline that the request itself states; no default is filled in.
    #[cfg_attr(not(feature = "gateway"), allow(dead_code, reason = "the gateway tells streams by it"))]
    pub(crate) stated_deadline: Option<Duration>,
}

/// Converts an incoming request to a request to the vendor of `route`. Options come from its extensions, then from its
/// headers, and then from `defaults`.
///
/// A URI without a host is taken as a path below the vendor's base URL. A URI with a host must lie below the base URL.
///
/// A body whose length is known and at most `buffer_up_to` bytes is read into memory, so that a retry can send it
/// again. Any other body is sent once, as it arrives. With `answered`, it fails if nothing of it comes for a minute,
/// until that flag is set: for callers outside of this program, which may never go on. A program streams its own bodies
/// as it likes, for example one that goes on while the response comes.
///
/// # Errors
/// [`ErrorKind::InvalidRequest`] if a header cannot be read, the URI is not below the base URL, or the body broke off;
/// [`ErrorKind::Deadline`] if the body did not arrive in time. Everything else is checked when the request is sent.
pub(crate) async fn accept<B>(
    request: http::Request<B>,
    route: &Route,
    defaults: &SendOptions,
    buffer_up_to: usize,
    answered: Option<Arc<AtomicBool>>,
    clock: Clock,
) -> Result<Accepted, Error>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let began = clock.now();
    let (mut parts, body) = request.into_parts();
    let refuse = |why: Cow<'_, str>| route.not_sent(ErrorKind::InvalidRequest, why);
    let stated = SendOptions::take(&mut parts.headers).map_err(|why| refuse(why.into()))?;
    let options = parts.extensions.remove::<SendOptions>().unwrap_or_default();
    let options = options.or(&stated);
    let stated_deadline = options.stated_deadline();
    let options = options.or(defaults).before(callers_timeout(&parts.headers));
    strip(&mut parts.headers, &route.vendor.auth);
    let mut request = aim(&parts.uri, parts.method, route)?;
    request.parts.headers = parts.headers;
    let most = options.stated_deadline().unwrap_or(BODY);
    let late = || {
        let within = match options.stated_deadline() {
            Some(_) => "before its deadline; state a later one".to_owned(),
            None => format!("within {} s; state a deadline that leaves it more time", BODY.as_secs()),
        };
        let why = format_args!("the request's body did not come {within}");
        Err(route.not_sent(ErrorKind::Deadline, why))
    };
    request.parts.body = match body.size_hint().exact().is_some_and(|length| length <= buffer_up_to as u64) {
        false => match answered {
            Some(answered) => Body::wrap(Timed { body: Box::pin(body), wait: None, answered }),
            None => Body::wrap(body),
        },
        true => match tokio::time::timeout(most, whole(body, buffer_up_to)).await {
            Ok(Ok(whole)) => whole.into(),
            Ok(Err(Unread::Broken(why))) => {
                let error = refuse("the request's body broke off before it was complete".into());
                return Err(error.with_source(why));
            }
            Ok(Err(Unread::Stalled)) => return Err(route.not_sent(ErrorKind::Deadline, stalled())),
            Err(_) => return late(),
        },
    };
    // The time that it took to read the body counts towards the deadline.
    let left = options.stated_deadline().map(|total| total.saturating_sub(clock.now().since(began)));
    if left == Some(Duration::ZERO) && options.stated_deadline() != left {
        return late();
    }
    let (priority, immediate) = (options.stated_priority(), options.is_immediate());
    Ok(Accepted { request: options.before(left).apply(request), priority, immediate, stated_deadline })
}

/// What an error says of a body of which nothing comes.
fn stalled() -> String {
    format!("nothing more of the request's body came for {} s", BODY.as_secs())
}

/// A body that fails if its next piece does not come in time. The time runs only while the reader waits for a piece, so
/// that a vendor that takes the body slowly does not use it up.
struct Timed<B> {
    body: Pin<Box<B>>,
    /// Ends the present wait.
    wait: Option<Pin<Box<Sleep>>>,
    /// Whether the vendor's response has begun. The request may then go on for as long as the response, and be silent for
    /// longer than a minute.
    answered: Arc<AtomicBool>,
}

impl<B> HttpBody for Timed<B>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.body.as_mut().poll_frame(cx) {
            Poll::Ready(frame) => {
                self.wait = None;
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending => {
                ready!(self.wait.get_or_insert_with(|| Box::pin(tokio::time::sleep(BODY))).as_mut().poll(cx));
                match self.answered.load(Relaxed) {
                    true => Poll::Pending,
                    false => Poll::Ready(Some(Err(stalled().into()))),
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Why a body could not be read into memory.
enum Unread {
    /// It broke off, or is longer than it may be.
    Broken(BoxError),
    /// Its next piece did not come in time.
    Stalled,
}

/// Reads a body of at most `most` bytes to its end. A caller may state a deadline of days, but memory is not kept that
/// long for a body of which nothing comes.
async fn whole<B>(body: B, most: usize) -> Result<Bytes, Unread>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut body = pin!(Limited::new(body, most));
    let Some(first) = next_piece(&mut body).await? else { return Ok(Bytes::new()) };
    // A body of one piece is not copied.
    let Some(second) = next_piece(&mut body).await? else { return Ok(first) };
    let mut whole = BytesMut::from(first);
    whole.extend_from_slice(&second);
    while let Some(piece) = next_piece(&mut body).await? {
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

async fn next_piece<B>(body: &mut B) -> Result<Option<Bytes>, Unread>
where
    B: HttpBody<Data = Bytes, Error = BoxError> + Unpin,
{
    while let Some(frame) = tokio::time::timeout(BODY, body.frame()).await.map_err(|_| Unread::Stalled)? {
        if let Ok(piece) = frame.map_err(Unread::Broken)?.into_data() {
            return Ok(Some(piece));
        }
    }
    Ok(None)
}

/// Returns a request to the route's vendor for `uri`.
fn aim(uri: &Uri, method: http::Method, route: &Route) -> Result<Request, Error> {
    let refuse = |why: &str| Err(route.not_sent(ErrorKind::InvalidRequest, why));
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let path = without_credential(path, &route.vendor.auth);
    let Some(authority) = uri.authority() else {
        return Ok(Request::new(method, &*route.vendor.name, path));
    };
    let Some(scheme) = uri.scheme() else {
        return refuse("the request names a host and no path: a tunnel (CONNECT) cannot be paced from outside");
    };
    let base = route.base()?;
    let request = Request::at_url(method.clone(), &format!("{scheme}://{authority}{path}"));
    let Target::Url(url) = &request.parts.target else {
        return refuse(request.problem().unwrap_or("the URL cannot be read"));
    };
    match target::relative(&base, url) {
        // The URL is the base URL itself, perhaps with a query. A path begins with a slash, so none can express that.
        Ok(below) if !below.starts_with('/') => Ok(request),
        Ok(below) => Ok(Request::new(method, &*route.vendor.name, below)),
        Err(why) => {
            let (theirs, ours) = (url.host_str().unwrap_or_default(), base.host_str().unwrap_or_default());
            let why = format!(
                "{why}: the request is for {theirs}, and this tenant's vendor is at {ours}; give the SDK the vendor's \
                 base URL, or relative URLs"
            );
            refuse(&why)
        }
    }
}

/// Returns the path without the query parameter that carries the credential at this vendor: the SDK has put its own
/// credential there, and the tenant's replaces it.
pub(crate) fn without_credential<'p>(path: &'p str, auth: &AuthScheme) -> Cow<'p, str> {
    let AuthScheme::Query { name } = auth else { return path.into() };
    let Some((before, query)) = path.split_once('?') else { return path.into() };
    let is_other = |pair: &&str| {
        let found = pair.split_once('=').map_or(*pair, |(found, _)| found);
        !percent_decode_str(found).eq(name.bytes())
    };
    let left: Vec<&str> = query.split('&').filter(is_other).collect();
    match left.is_empty() {
        true => before.into(),
        false => format!("{before}?{}", left.join("&")).into(),
    }
}

#[cfg(test)]
#[path = "tests/request.rs"]
mod tests;
