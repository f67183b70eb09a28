//! The bodies of answers.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::error::BoxError;
use crate::request::ResponseBody;

/// The body of a gateway's answer: the vendor's as it comes, or one of the gateway's own.
#[derive(Debug)]
pub struct GatewayBody(Content);

enum Content {
    Own(Option<Bytes>),
    Vendors(ResponseBody),
    /// Comes piece by piece, without a stated length.
    Live(Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send + Sync>>),
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Own(bytes) => f.debug_tuple("Own").field(bytes).finish(),
            Content::Vendors(body) => f.debug_tuple("Vendors").field(body).finish(),
            Content::Live(_) => f.write_str("Live"),
        }
    }
}

impl GatewayBody {
    pub(crate) fn own(bytes: Bytes) -> GatewayBody {
        GatewayBody(Content::Own(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }

    #[cfg_attr(not(feature = "console"), allow(dead_code, reason = "the console's events are such a body"))]
    pub(crate) fn live(body: impl Body<Data = Bytes, Error = BoxError> + Send + Sync + 'static) -> GatewayBody {
        GatewayBody(Content::Live(Box::pin(body)))
    }

    pub(super) fn of_vendor(body: ResponseBody) -> GatewayBody {
        GatewayBody(Content::Vendors(body))
    }
}

impl Body for GatewayBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Content::Own(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Vendors(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Content::Live(body) => body.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Content::Own(bytes) => bytes.is_none(),
            Content::Vendors(body) => body.is_end_stream(),
            Content::Live(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Content::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Content::Vendors(body) => body.size_hint(),
            Content::Live(body) => body.size_hint(),
        }
    }
}
