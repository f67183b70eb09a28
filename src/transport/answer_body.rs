//! A response body that is read as it arrives, bounded in size and time.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Version;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::{Instant, Sleep};

use super::clients::UnderWay;
use super::{Sent, TransportError};
use crate::error::ErrorKind;

/// Bodies up to this many bytes are read together with the headers, if they have arrived by then.
const AT_ONCE: u64 = 16 * 1024;

/// A response body, read as it arrives. At most `max_bytes` decoded bytes are read, until the deadline; if an idle
/// timeout was set, it replaces the deadline, and bounds the wait for each piece. A later deadline may be set besides.
///
/// Whatever the vendor does (stall, a decompression bomb, an endless stream), reading ends with the last byte or with
/// an error. Dropping the body frees the connection.
pub struct AnswerBody {
    /// `None` after the end or an error, so that the connection is released at once.
    inner: Option<Inner>,
    deadline: Deadline,
    /// Boxed, because few bodies have one.
    idle: Option<Box<IdleTimeout>>,
    max_bytes: u64,
    left: u64,
    /// Boxed, because few bodies are read ahead and the buffer would enlarge every send's future.
    ahead: Option<Box<Ahead>>,
}

/// When reading ends. One value for moment and timer, because it is a part of every send's future.
enum Deadline {
    /// Only the wait for each piece is bounded.
    Never,
    At(Instant),
    /// The timer is created at the first wait for the body: most bodies arrive with the headers and need none.
    Running(Pin<Box<Sleep>>),
}

/// Bounds the wait for each piece.
struct IdleTimeout {
    longest: Duration,
    /// The present wait. It begins when the reader first waits for a piece, so that a slow reader does not use it up.
    sleep: Option<Pin<Box<Sleep>>>,
}

/// Data that [`peek`](AnswerBody::peek) has read and the reader of the body has not.
#[derive(Default)]
struct Ahead {
    /// Content that the reader still has to get.
    data: BytesMut,
    /// What followed the content: trailers, or an error.
    after: Option<Result<Frame<Bytes>, TransportError>>,
}

enum Inner {
    Reqwest {
        body: reqwest::Body,
        /// The exchange counts at its HTTP client until this is dropped.
        _under_way: Option<UnderWay>,
    },
    Bytes(Bytes),
    Stream(Pin<Box<dyn HttpBody<Data = Bytes, Error = TransportError> + Send + Sync>>),
}

impl Inner {
    fn reqwest(response: reqwest::Response, under_way: Option<UnderWay>) -> Inner {
        Inner::Reqwest { body: http::Response::from(response).into_body(), _under_way: under_way }
    }
}

impl AnswerBody {
    /// The body of a response of your own transport, bounded by `max_bytes` and `deadline` like any other.
    pub fn new<B>(body: B, max_bytes: u64, deadline: Instant) -> AnswerBody
    where
        B: HttpBody<Data = Bytes, Error = TransportError> + Send + Sync + 'static,
    {
        AnswerBody::limited(Inner::Stream(Box::pin(body)), max_bytes, deadline)
    }

    /// The body of `response`. A short body has usually arrived together with the headers and is read at once, so that
    /// the exchange ends without waiting for the caller to read it. Until the body has ended or is dropped, the exchange
    /// is under way.
    pub(super) fn from_reqwest(
        mut response: reqwest::Response,
        under_way: Option<UnderWay>,
        max_bytes: u64,
        deadline: Instant,
        cx: &mut Context<'_>,
    ) -> AnswerBody {
        // The end of an HTTP/2 body is a separate frame, and a compressed body's decoded length is unknown.
        let length = response.content_length().filter(|_| response.version() <= Version::HTTP_11);
        let Some(length) = length.filter(|length| *length <= AT_ONCE.min(max_bytes)) else {
            return AnswerBody::limited(Inner::reqwest(response, under_way), max_bytes, deadline);
        };
        if length == 0 {
            return AnswerBody::from_bytes(Bytes::new(), max_bytes, deadline);
        }
        let first = pin!(response.chunk()).poll(cx);
        match first {
            Poll::Ready(Ok(Some(data))) if data.len() as u64 == length => {
                AnswerBody::from_bytes(data, max_bytes, deadline)
            }
            Poll::Pending => AnswerBody::limited(Inner::reqwest(response, under_way), max_bytes, deadline),
            Poll::Ready(Ok(data)) => {
                let data = data.unwrap_or_default();
                let mut body = AnswerBody::limited(Inner::reqwest(response, under_way), max_bytes, deadline);
                body.left = body.left.saturating_sub(data.len() as u64);
                body.ahead = Some(Box::new(Ahead { data: data.into(), after: None }));
                body
            }
            Poll::Ready(Err(error)) => {
                let after = Some(Err(super::cause::body_error(error)));
                let mut body = AnswerBody::limited(Inner::Bytes(Bytes::new()), max_bytes, deadline);
                body.ahead = Some(Box::new(Ahead { data: BytesMut::new(), after }));
                body
            }
        }
    }

    /// A body that is already in memory, bounded by `max_bytes`.
    pub fn from_bytes(bytes: impl Into<Bytes>, max_bytes: u64, deadline: Instant) -> AnswerBody {
        AnswerBody::limited(Inner::Bytes(bytes.into()), max_bytes, deadline)
    }

    fn limited(inner: Inner, max_bytes: u64, deadline: Instant) -> AnswerBody {
        let (inner, deadline) = (Some(inner), Deadline::At(deadline));
        AnswerBody { inner, deadline, idle: None, max_bytes, left: max_bytes, ahead: None }
    }

    /// Replaces the deadline with a bound on the wait for each piece.
    pub(crate) fn set_idle_timeout(&mut self, longest: Duration) {
        self.idle = Some(Box::new(IdleTimeout { longest, sleep: None }));
        self.deadline = Deadline::Never;
    }

    /// Replaces the deadline.
    #[cfg(feature = "gateway")]
    pub(crate) fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = Deadline::At(deadline);
    }

    /// Reads ahead until `most` bytes have arrived, or the end; the reader of the body still gets all of it.
    /// Cancel-safe.
    pub(crate) async fn peek(&mut self, most: usize) {
        while self.ahead.as_ref().is_none_or(|ahead| ahead.data.len() < most && ahead.after.is_none()) {
            let Some(frame) = std::future::poll_fn(|cx| self.poll_arriving(cx)).await else { return };
            let ahead = self.ahead.get_or_insert_default();
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) => ahead.data.extend_from_slice(&data),
                Ok(Err(frame)) => ahead.after = Some(Ok(frame)),
                Err(error) => ahead.after = Some(Err(error)),
            }
        }
    }

    /// Whether no more data will come from the connection.
    pub(crate) fn has_arrived(&self) -> bool {
        matches!(self.inner, None | Some(Inner::Bytes(_)))
    }

    /// Whether the complete body has arrived, and it did not break off. Only before reading has ended with an error.
    pub(crate) fn is_whole(&self) -> bool {
        // A reader who knows that no frame follows does not ask for the end.
        (self.has_arrived() || self.is_end_stream()) && !self.broke_off_ahead()
    }

    /// Whether the body broke off while it was read ahead, and its reader still has to get the error.
    fn broke_off_ahead(&self) -> bool {
        self.ahead.as_ref().is_some_and(|ahead| matches!(ahead.after, Some(Err(_))))
    }

    /// Takes the whole body, if it has arrived in one piece.
    pub(crate) fn take_arrived(&mut self) -> Option<Bytes> {
        match &mut self.inner {
            Some(Inner::Bytes(bytes)) if self.ahead.is_none() && bytes.len() as u64 <= self.left => {
                self.left -= bytes.len() as u64;
                Some(std::mem::take(bytes))
            }
            _ => None,
        }
    }

    /// Decoded bytes that have arrived here so far, whether they were read or not.
    pub(crate) fn bytes_arrived(&self) -> u64 {
        let unread = if let Some(Inner::Bytes(bytes)) = &self.inner { bytes.len() as u64 } else { 0 };
        (self.max_bytes - self.left).saturating_add(unread)
    }

    /// The content that was read ahead.
    pub(crate) fn ahead(&self) -> &[u8] {
        self.ahead.as_ref().map_or(&[], |ahead| &ahead.data)
    }

    /// Reads to the end. A body that arrived in one piece is not copied.
    ///
    /// # Errors
    ///
    /// Larger than the cap, later than the deadline, cut short, or not decodable.
    pub async fn collect(mut self) -> Result<Bytes, TransportError> {
        self.read().await
    }

    /// As [`collect`](AnswerBody::collect), without consuming the body.
    pub(crate) async fn read(&mut self) -> Result<Bytes, TransportError> {
        if let Some(whole) = self.take_arrived() {
            return Ok(whole);
        }
        let first = match self.data().await? {
            Some(first) => first,
            None => return Ok(Bytes::new()),
        };
        let Some(second) = self.data().await? else { return Ok(first) };
        let mut whole = BytesMut::from(first);
        whole.extend_from_slice(&second);
        while let Some(next) = self.data().await? {
            whole.extend_from_slice(&next);
        }
        Ok(whole.freeze())
    }

    /// Returns the next piece of content, and skips trailers.
    pub(crate) async fn data(&mut self) -> Result<Option<Bytes>, TransportError> {
        while let Some(frame) = self.frame().await {
            if let Ok(data) = frame?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    fn too_large(&self) -> TransportError {
        TransportError::new(
            Sent::Answered,
            ErrorKind::ResponseTooLarge,
            format!(
                "the response body is larger than {} bytes; raise max_response_bytes of the vendor",
                self.max_bytes
            ),
        )
    }

    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        match &mut self.inner {
            None => Poll::Ready(None),
            Some(Inner::Bytes(bytes)) if bytes.is_empty() => Poll::Ready(None),
            Some(Inner::Bytes(bytes)) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Some(Inner::Stream(body)) => body.as_mut().poll_frame(cx),
            Some(Inner::Reqwest { body, .. }) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(super::cause::body_error)))
            }
        }
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Deadline::At(deadline) = self.deadline {
            self.deadline = Deadline::Running(Box::pin(tokio::time::sleep_until(deadline)));
        }
        match &mut self.deadline {
            Deadline::Running(sleep) => sleep.as_mut().poll(cx),
            Deadline::Never | Deadline::At(_) => Poll::Pending,
        }
    }

    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(idle) = &mut self.idle else { return Poll::Pending };
        let longest = idle.longest;
        idle.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(longest))).as_mut().poll(cx)
    }

    /// Size of the data still to come from the connection.
    fn arriving(&self) -> SizeHint {
        match &self.inner {
            None => SizeHint::with_exact(0),
            Some(Inner::Bytes(bytes)) => SizeHint::with_exact(bytes.len() as u64),
            Some(Inner::Reqwest { body, .. }) => body.size_hint(),
            Some(Inner::Stream(body)) => body.size_hint(),
        }
    }

    /// Reads the next frame from the connection, and releases the connection after the end or an error.
    fn poll_arriving(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        let frame = ready!(self.poll_limited(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.inner = None;
            self.deadline = Deadline::Never;
        }
        Poll::Ready(frame)
    }

    fn poll_limited(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        // If the stated length exceeds `max_bytes`, fail without reading. The caller already has status and headers,
        // so what they say about limits is not lost with the body.
        if self.left == self.max_bytes && self.arriving().lower() > self.max_bytes {
            return Poll::Ready(Some(Err(self.too_large())));
        }
        // If a timer exists, poll it before the body: a vendor that always has one more chunk ready must not outrun
        // the deadline.
        if matches!(self.deadline, Deadline::Running(_)) && self.poll_deadline(cx).is_ready() {
            return Poll::Ready(Some(Err(TransportError::body_timeout())));
        }
        match self.poll_inner(cx) {
            Poll::Pending => {
                // Both are polled, so that the one that ends first wakes the reader.
                if self.poll_deadline(cx).is_pending() {
                    ready!(self.poll_idle(cx));
                }
                Poll::Ready(Some(Err(TransportError::body_timeout())))
            }
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(idle) = &mut self.idle {
                    idle.sleep = None;
                }
                let size = frame.data_ref().map_or(0, |data| data.len() as u64);
                if size > self.left {
                    return Poll::Ready(Some(Err(self.too_large())));
                }
                self.left -= size;
                Poll::Ready(Some(Ok(frame)))
            }
            end => end,
        }
    }
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        if let Some(ahead) = &mut self.ahead {
            if !ahead.data.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut ahead.data).freeze()))));
            }
            if let Some(after) = self.ahead.take().and_then(|ahead| ahead.after) {
                return Poll::Ready(Some(after));
            }
        }
        self.poll_arriving(cx)
    }

    fn is_end_stream(&self) -> bool {
        if self.ahead.as_ref().is_some_and(|ahead| !ahead.data.is_empty() || ahead.after.is_some()) {
            return false;
        }
        match &self.inner {
            None => true,
            Some(Inner::Bytes(bytes)) => bytes.is_empty(),
            Some(Inner::Reqwest { body, .. }) => body.is_end_stream(),
            Some(Inner::Stream(body)) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let arriving = self.arriving();
        let ahead = self.ahead().len() as u64;
        let mut whole = SizeHint::new();
        whole.set_lower(arriving.lower().saturating_add(ahead));
        // A server asks for nothing after the last byte of a known size. If the size were that of the part that has
        // come, the server would send the part as a whole body and would never get the error.
        let upper = arriving.upper().filter(|_| !self.broke_off_ahead());
        if let Some(upper) = upper.and_then(|upper| upper.checked_add(ahead)) {
            whole.set_upper(upper);
        }
        whole
    }
}

impl fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnswerBody({} bytes read)", self.max_bytes - self.left)
    }
}

#[cfg(test)]
mod tests;
