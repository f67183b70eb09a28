//! The body of a request: bytes in memory, or a stream.

use crate::BoxError;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::sync_body::Exclusive;

/// A request body: bytes in memory, or a stream.
///
/// Bytes can be sent again by a retry; a stream is sent once, so a request with a streaming body is not retried after
/// its first byte may have left.
///
/// ```
/// use integration_client::Body;
///
/// assert_eq!(Body::from("hello").as_bytes(), Some(&b"hello"[..]));
/// ```
#[derive(Default)]
pub struct Body(Content);

enum Content {
    Bytes(Bytes),
    Stream(reqwest::Body),
}

impl Default for Content {
    fn default() -> Content {
        Content::Bytes(Bytes::new())
    }
}

impl Body {
    /// A body of unknown length from a stream of chunks. It is sent once and never buffered as a whole.
    pub fn stream<S, C, E>(stream: S) -> Body
    where
        S: Stream<Item = Result<C, E>> + Send + 'static,
        Bytes: From<C>,
        C: 'static,
        E: Into<BoxError> + 'static,
    {
        Body(Content::Stream(reqwest::Body::wrap_stream(stream)))
    }

    /// A body of another type, streamed and sent once. If its length is known, it is stated to the vendor.
    pub fn wrap<B>(body: B) -> Body
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Body(Content::Stream(reqwest::Body::wrap(Exclusive::new(body))))
    }

    /// The content, unless it is a stream.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        self.bytes().map(|bytes| &bytes[..])
    }

    pub(crate) fn bytes(&self) -> Option<&Bytes> {
        match &self.0 {
            Content::Bytes(bytes) => Some(bytes),
            Content::Stream(_) => None,
        }
    }

    /// Clones the body without copying its content; `None` for a stream.
    pub fn try_clone(&self) -> Option<Body> {
        self.bytes().cloned().map(Body::from)
    }

    pub(crate) fn into_reqwest(self) -> reqwest::Body {
        match self.0 {
            Content::Bytes(bytes) => bytes.into(),
            Content::Stream(stream) => stream,
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        Body(Content::Bytes(bytes))
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        Bytes::from(bytes).into()
    }
}

impl From<String> for Body {
    fn from(text: String) -> Body {
        Bytes::from(text).into()
    }
}

impl From<&'static [u8]> for Body {
    fn from(bytes: &'static [u8]) -> Body {
        Bytes::from_static(bytes).into()
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Body {
        text.as_bytes().into()
    }
}

impl From<()> for Body {
    fn from((): ()) -> Body {
        Body::default()
    }
}

#[cfg(feature = "reqwest-api")]
impl From<reqwest::Body> for Body {
    /// Copies bytes, because reqwest only lends them; a stream stays a stream.
    fn from(body: reqwest::Body) -> Body {
        match body.as_bytes() {
            Some(bytes) => Bytes::copy_from_slice(bytes).into(),
            None => Body(Content::Stream(body)),
        }
    }
}

impl fmt::Debug for Body {
    /// Prints only the size, because a body may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Content::Bytes(bytes) => write!(f, "Body({} bytes)", bytes.len()),
            Content::Stream(_) => f.write_str("Body(stream)"),
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Content::Bytes(bytes) if bytes.is_empty() => Poll::Ready(None),
            Content::Bytes(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Content::Stream(stream) => {
                Pin::new(stream).poll_frame(cx).map_err(|error| Box::new(error.without_url()) as BoxError)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Content::Bytes(bytes) => bytes.is_empty(),
            Content::Stream(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Content::Bytes(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Stream(stream) => stream.size_hint(),
        }
    }
}
