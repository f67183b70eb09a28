//! The bodies of answers.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::error::BoxError;
use crate::request::ResponseBody;

/// The body of a gateway's answer: the vendor's as it comes, or one of the gateway's own.
#[derive(Debug)]
pub struct GatewayBody(Content);

#[derive(Debug)]
enum Content {
    Own(Option<Bytes>),
    Vendors(ResponseBody),
}

impl GatewayBody {
    pub(super) fn own(bytes: Bytes) -> GatewayBody {
        GatewayBody(Content::Own(Some(bytes).filter(|bytes| !bytes.is_empty())))
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
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Content::Own(bytes) => bytes.is_none(),
            Content::Vendors(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Content::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Content::Vendors(body) => body.size_hint(),
        }
    }
}
