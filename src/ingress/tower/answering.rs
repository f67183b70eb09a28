//! The client as a service without errors: each error becomes a response.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::ACCEPT;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tower_service::Service;

use super::service::{LaneService, Sent};
use crate::BoxFuture;
use crate::error::{BoxError, Delivery};
use crate::ingress::{Problem, last_response, set_delivery};
use crate::send::response::ResponseBody;
use crate::transport::TransportError;

/// A [`LaneService`] that returns every error as a response. Made by [`LaneService::errors_as_responses`].
///
/// An error without a response of the vendor becomes a problem document (RFC 9457), as at the
/// [gateway](crate::gateway). It has the fields `kind`, `delivery`, `retry_after_s`, `request_id` and `letter_id`, the
/// members that SDKs read (`error`, `message`), and the header `Integration-Delivery`. Its status says what happened:
/// 429 if the limits have no room now, 503 if too many requests wait, 504 after a deadline, 502 if the vendor cannot be
/// reached, 422 if nobody knows whether the vendor acted on a request that may act twice: its method is none of GET,
/// HEAD, OPTIONS, PUT and DELETE, and it has no key that the vendor reads. If the vendor's own response ended the
/// request, that response is returned, also where nobody knows whether the vendor acted (with `x-should-retry: false`
/// then); of a long body it holds only the beginning.
#[derive(Clone, Debug)]
pub struct AnsweringService {
    inner: LaneService,
}

impl LaneService {
    /// Returns a service that turns every error into a response, and never fails. For SDKs that cannot handle an error
    /// of a type other than their own.
    pub fn errors_as_responses(self) -> AnsweringService {
        AnsweringService { inner: self }
    }
}

impl<B> Service<http::Request<B>> for AnsweringService
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = http::Response<AnsweredBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let service = self.inner.clone();
        let accept = request.headers().get(ACCEPT).cloned();
        Box::pin(async move {
            Ok(match service.sent(request).await {
                Ok(Sent { answer, may_act_twice }) => {
                    let is_open = !may_act_twice && answer.leaves_open();
                    let mut answer =
                        http::Response::from(answer).map(|body| AnsweredBody(Content::Vendors(Box::new(body))));
                    if is_open {
                        set_delivery(answer.headers_mut(), Delivery::Ambiguous, may_act_twice);
                    }
                    answer
                }
                Err(failed) => {
                    let last = last_response(&failed.error, failed.may_act_twice, |_| {});
                    let problem = || Problem::of(&failed.error, failed.may_act_twice).answer(accept.as_ref());
                    last.unwrap_or_else(problem).map(AnsweredBody::own)
                }
            })
        })
    }
}

/// The body of a response of [`AnsweringService`]: the vendor's body as it arrives, or one that the client has made.
#[derive(Debug)]
pub struct AnsweredBody(Content);

#[derive(Debug)]
enum Content {
    Own(Option<Bytes>),
    Vendors(Box<ResponseBody>),
}

impl AnsweredBody {
    fn own(bytes: Bytes) -> AnsweredBody {
        AnsweredBody(Content::Own(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }
}

impl HttpBody for AnsweredBody {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        match &mut self.0 {
            Content::Own(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Vendors(body) => Pin::new(&mut **body).poll_frame(context),
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
