//! The response of a vendor, and the waits and attempts before it. It holds the permit until its body has been read, and
//! converts to an `http::Response`, which other crates accept.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;

use crate::core::Remembers;
use crate::dispatch::{PermitGuard, plan};
use crate::error::{Delivery, Error, ErrorKind, LastResponse};
use crate::request::{Headroom, WaitReason};
use crate::retry::{Outcome, is_ambiguous};
use crate::route::Route;
use crate::signals::meter::Meter;
use crate::transport::{AnswerBody, TransportError};

/// A vendor's response, with a body that has not been read yet. Any status is a response; see
/// [`Response::error_for_status`].
///
/// The request keeps its slot of a concurrency limit until the body has been read or the response has been dropped. A
/// short body that arrived together with the headers counts as read.
pub struct Response {
    /// Boxed: several functions return the response before the caller gets it, and each return would copy all fields.
    parts: Box<Parts>,
}

/// The fields of a [`Response`].
pub(crate) struct Parts {
    pub(crate) status: StatusCode,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    pub(crate) body: ResponseBody,
    pub(crate) waited: Duration,
    pub(crate) reason: Option<WaitReason>,
    pub(crate) headroom: Option<Headroom>,
    /// One of the attempts left open whether the vendor acted: the one that brought this response, or an earlier one.
    pub(crate) may_have_acted: bool,
}

impl Response {
    pub(crate) fn new(parts: Parts) -> Response {
        Response { parts: Box::new(parts) }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.parts.status
    }

    /// The version of HTTP.
    pub fn version(&self) -> Version {
        self.parts.version
    }

    /// The headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// The number of exchanges that it took; 1 if the first one brought this response.
    pub fn attempts(&self) -> u32 {
        self.parts.body.attempts
    }

    fn take_headers(&mut self) -> HeaderMap {
        std::mem::take(&mut self.parts.headers)
    }

    /// How long the request waited for its permit; zero if the permit was granted at once.
    pub fn waited(&self) -> Duration {
        self.parts.waited
    }

    /// What the request waited for last; `None` if its permit was granted at once.
    pub fn waited_for(&self) -> Option<&WaitReason> {
        self.parts.reason.as_ref()
    }

    /// The number of the send, as its [events](crate::events::Event::request_id) state it.
    pub fn request_id(&self) -> u64 {
        self.parts.body.request_id
    }

    /// What was left of the tightest limit when the response arrived: by the client's own count, or by the vendor's
    /// last report about that limit, whichever is lower. `None` if neither the vendor's entry nor its responses state a
    /// limit.
    pub fn headroom(&self) -> Option<Headroom> {
        self.parts.headroom
    }

    /// Returns the response itself, or an error if its status is 400 or above.
    ///
    /// # Errors
    /// [`ErrorKind::Status`]; the message names tenant, vendor and status, and [`Error::response`] has status and
    /// headers. Its body is empty: none is read here. The [`delivery`](Error::delivery) is `Ambiguous` if the status
    /// (408, 425, and 500 to 599) or an earlier attempt leaves open whether the vendor acted, and otherwise `Rejected`.
    pub fn error_for_status(mut self) -> Result<Response, Error> {
        let status = self.parts.status;
        if status.as_u16() < 400 {
            return Ok(self);
        }
        let route = &self.parts.body.route;
        let outcome = Outcome::Answered { status: status.as_u16(), class: None, retry_after: false };
        let delivery = match self.may_have_acted() || is_ambiguous(&outcome, &route.vendor.retry) {
            true => Delivery::Ambiguous,
            false => Delivery::Rejected,
        };
        let error = route.error(ErrorKind::Status, delivery, format_args!("the vendor answered {status}"));
        let response = LastResponse::new(status, self.take_headers(), Bytes::new());
        Err(error.with_response(response).after_attempts(self.attempts()).of_request(self.request_id()))
    }

    /// Reads the body to its end.
    ///
    /// # Errors
    /// The decoded body is larger than the vendor's `max_response_bytes`, arrives after the deadline, or is cut short.
    #[inline]
    pub fn bytes(self) -> impl Future<Output = Result<Bytes, Error>> + Send {
        // The headers are dropped here, and not kept while the body arrives.
        let mut body = self.parts.body;
        async move {
            match body.meter() {
                None => match body.body.take_arrived() {
                    Some(whole) => Ok(whole),
                    None => body.read().await,
                },
                Some(_) => body.read().await,
            }
        }
    }

    /// Reads the body as UTF-8; invalid bytes become U+FFFD.
    ///
    /// # Errors
    /// As [`bytes`](Response::bytes).
    pub async fn text(self) -> Result<String, Error> {
        let bytes = self.bytes().await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads the body as JSON.
    ///
    /// # Errors
    /// As [`bytes`](Response::bytes), and [`ErrorKind::Decode`] with line and column if the body does not fit `T`.
    pub async fn json<T: DeserializeOwned>(self) -> Result<T, Error> {
        let (tenant, attempts, request_id) = (self.parts.body.route.clone(), self.attempts(), self.request_id());
        let bytes = self.bytes().await?;
        serde_json::from_slice(&bytes).map_err(|error| {
            // serde_json's own message may quote the body.
            let (line, column) = (error.line(), error.column());
            let why =
                format_args!("the response body does not fit the type asked for, at line {line}, column {column}");
            let error = tenant.error(ErrorKind::Decode, Delivery::Delivered, why);
            error.after_attempts(attempts).of_request(request_id)
        })
    }

    /// Whether one of the attempts left open whether the vendor acted. A final status does not settle that: a 409 after
    /// a timeout says only that the vendor refused the second attempt.
    fn may_have_acted(&self) -> bool {
        self.parts.may_have_acted
    }

    /// Whether this response leaves open whether the vendor acted. After a 2xx the vendor has acted.
    #[cfg(any(feature = "gateway", feature = "tower"))]
    pub(crate) fn leaves_open(&self) -> bool {
        self.may_have_acted() && !self.status().is_success()
    }

    /// Whether all of the body has arrived, without an error.
    #[cfg(feature = "gateway")]
    pub(crate) fn is_whole(&self) -> bool {
        self.parts.body.body.is_whole()
    }

    /// Removes the deadline from the body, for streams such as server-sent events that last longer than the request's
    /// deadline. Instead, reading ends with an error once nothing has arrived for `idle`. Until the body ends or is
    /// dropped the request keeps its slot of a concurrency limit, and a cost that the body states counts, also after
    /// the vendor's `attempt_timeout`.
    ///
    /// ```no_run
    /// # use integration_client::{IntegrationClient, Priority, Request, Error};
    /// # use std::time::Duration;
    /// # async fn read(client: IntegrationClient) -> Result<(), Error> {
    /// let request = Request::get("openai", "/responses/resp_1?stream=true");
    /// let mut answer = client.send("acme", Priority::Normal, request).await?.idle_timeout(Duration::from_secs(60));
    /// while let Some(piece) = answer.chunk().await? {
    ///     print!("{}", String::from_utf8_lossy(&piece));
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn idle_timeout(mut self, idle: Duration) -> Response {
        if let Some(held) = &self.parts.body.held {
            held.outlasts();
        }
        self.parts.body.body.set_idle_timeout(idle);
        self
    }

    /// Bounds the time for the whole body of a stream that has an [idle timeout](Self::idle_timeout).
    #[cfg(feature = "gateway")]
    pub(crate) fn until(mut self, deadline: tokio::time::Instant) -> Response {
        self.parts.body.body.set_deadline(deadline);
        self
    }

    /// Returns the next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// As [`bytes`](Response::bytes).
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(frame) = self.parts.body.frame().await {
            let frame = frame.map_err(|error| self.parts.body.error(error))?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// Returns the body as a stream.
    pub fn into_body(self) -> ResponseBody {
        self.parts.body
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.parts.status)
            .field("version", &self.parts.version)
            .field("request_id", &self.request_id())
            .field("attempts", &self.attempts())
            .field("waited", &self.parts.waited)
            .field("headroom", &self.parts.headroom)
            .finish_non_exhaustive()
    }
}

/// Settles the cost of a request by its response body.
#[derive(Default)]
pub(crate) struct Settling {
    /// Reads the actual cost from the body.
    pub(crate) meter: Option<Meter>,
    pub(crate) remembers: Option<Remembers>,
}

/// The body of a response. Reading fails at the deadline and at the size cap, so a vendor cannot make it last longer.
pub struct ResponseBody {
    body: AnswerBody,
    /// The permit, which ends with the last byte of the body; `None` after that.
    held: Option<PermitGuard>,
    /// Boxed, because the body states the cost at few vendors only.
    settling: Option<Box<Settling>>,
    route: Arc<Route>,
    request_id: u64,
    /// The number of exchanges that it took to get the response.
    attempts: u32,
}

impl ResponseBody {
    pub(crate) fn new(
        body: AnswerBody,
        held: Option<PermitGuard>,
        route: Arc<Route>,
        request_id: u64,
        attempts: u32,
    ) -> ResponseBody {
        ResponseBody { body, held, settling: None, route, request_id, attempts }
    }

    /// Sets how the body settles the request's cost.
    pub(crate) fn settling(mut self, settling: Option<Settling>) -> ResponseBody {
        self.settling = settling.map(Box::new);
        self
    }

    fn meter(&mut self) -> Option<&mut Meter> {
        self.settling.as_mut()?.meter.as_mut()
    }

    fn error(&self, error: TransportError) -> Error {
        error.into_error(&self.route).after_attempts(self.attempts).of_request(self.request_id)
    }

    /// Ends the permit, because nothing more of the body will be read. `is_whole`: all of the body has arrived.
    #[inline]
    fn ended(&mut self, is_whole: bool) {
        if let Some(held) = self.held.take() {
            self.give_up(held, is_whole);
        }
    }

    fn give_up(&mut self, held: PermitGuard, is_whole: bool) {
        let Settling { meter, remembers } = self.settling.take().map_or_else(Settling::default, |settling| *settling);
        let told = |corrected| {
            if let (Some(remembers), Some(corrected)) = (&remembers, corrected) {
                remembers.corrected(&self.route, corrected);
            }
        };
        if let Some(meter) = meter {
            told(held.settled(&plan::settled(&self.route.vendor, &meter.costs(), None)));
        }
        if self.route.vendor.counts_bytes {
            // The vendor counts what it sent, whether it was read here or not.
            let bytes = self.body.bytes_arrived();
            if is_whole {
                self.route.answer_had(bytes);
            }
            told(held.received(bytes, is_whole));
        }
    }

    async fn read(&mut self) -> Result<Bytes, Error> {
        let result = self.body.read().await;
        if let (Some(meter), Ok(data)) = (self.meter(), &result) {
            meter.rest(data);
        }
        self.ended(result.is_ok());
        result.map_err(|error| self.error(error))
    }
}

impl Drop for ResponseBody {
    #[inline]
    fn drop(&mut self) {
        if self.held.is_some() {
            self.ended(self.body.is_whole());
        }
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        match (&frame, self.meter()) {
            (Some(Ok(frame)), Some(meter)) => frame.data_ref().into_iter().for_each(|data| meter.piece(data)),
            (Some(Ok(_)), None) => {}
            (None, _) => self.ended(true),
            (Some(Err(_)), _) => self.ended(false),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}

/// Waits and attempts before a response. Found in the extensions of the `http::Response` that a [`Response`] is
/// converted to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ResponseInfo {
    /// The same as [`Response::waited`].
    pub waited: Duration,
    /// The same as [`Response::attempts`].
    pub attempts: u32,
    /// The same as [`Response::request_id`].
    pub request_id: u64,
    /// The same as [`Response::headroom`].
    pub headroom: Option<Headroom>,
}

impl From<Response> for http::Response<ResponseBody> {
    /// Status, version, headers and body are kept; [`ResponseInfo`] is in the extensions.
    fn from(mut response: Response) -> http::Response<ResponseBody> {
        let info = ResponseInfo {
            waited: response.waited(),
            attempts: response.attempts(),
            request_id: response.request_id(),
            headroom: response.headroom(),
        };
        let (status, version) = (response.status(), response.version());
        let headers = response.take_headers();
        let mut converted = http::Response::new(response.into_body());
        *converted.status_mut() = status;
        *converted.version_mut() = version;
        *converted.headers_mut() = headers;
        converted.extensions_mut().insert(info);
        converted
    }
}
