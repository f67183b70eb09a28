//! The bodies of the gateway's responses.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use super::json_links::JsonLinks;
use super::wire::Busy;
use crate::error::BoxError;
use crate::send::response::ResponseBody;

/// How long the gateway waits for the end of a body whose caller went away: a vendor may send its last data and the end
/// in two packets, and a caller that has a whole JSON value need not read on to the end.
const END: Duration = Duration::from_secs(1);

/// The body of a gateway's response: the vendor's body as it arrives, or one of the gateway's own.
pub struct GatewayBody {
    watch: Watch,
    content: Content,
    /// What the caller still has to get of the length that the response states; `None` if it states none.
    left: Option<u64>,
    /// Where the rest of the body goes if its caller leaves; `None` if the connection has no task that would read it.
    rest: Option<RestSlot>,
    /// Keeps the connection marked as busy until the body is dropped.
    _busy: Option<Busy>,
}

/// Called with the reason when the caller does not get all of a vendor's body. It remembers the request.
pub(super) type OnCut = Box<dyn FnOnce(String) -> Forget + Send + Sync>;

/// Forgets the request again.
pub(super) type Forget = Box<dyn FnOnce() + Send>;

/// Where a body that its caller has left goes. The task of the caller's connection reads on, so that these bodies count
/// as connections do and end with them.
pub(super) type RestSlot = Arc<Mutex<Option<Box<Rest>>>>;

/// What is left of a vendor's body after its caller went away: perhaps its end alone.
pub(super) struct Rest {
    content: Content,
    forget: Forget,
}

impl Rest {
    /// Waits a moment for the end of the body. If it comes without further data, the caller had all of the body, and the
    /// request is forgotten.
    pub(super) async fn settle(self) {
        let Rest { mut content, forget } = self;
        let is_at_end = async move {
            loop {
                // Without it, empty frames that come at once would keep the time from being looked at.
                tokio::task::coop::consume_budget().await;
                match std::future::poll_fn(|cx| content.poll_frame(cx)).await {
                    None => return true,
                    Some(Ok(frame)) if frame.is_trailers() => return true,
                    // Over HTTP/2 a bare end comes as an empty frame.
                    Some(Ok(frame)) if frame.data_ref().is_some_and(Bytes::is_empty) => {}
                    Some(_) => return false,
                }
            }
        };
        if tokio::time::timeout(END, is_at_end).await.is_ok_and(|is_at_end| is_at_end) {
            forget();
        }
    }
}

/// Watches whether all of a vendor's body is taken.
#[derive(Default)]
struct Watch {
    /// `None` once all of the body has been taken.
    on_cut: Option<OnCut>,
    /// Whether a body that is dropped before its end counts as cut, and not only one that breaks off.
    minds_leaving: bool,
}

impl Drop for GatewayBody {
    fn drop(&mut self) {
        if !self.watch.minds_leaving {
            return;
        }
        let Some(on_cut) = self.watch.on_cut.take() else { return };
        // The request is remembered before the vendor's connection is closed, and while it is open whether more comes.
        let forget = on_cut("its caller went away before all of the answer had been sent".to_owned());
        // Of a body with a stated length it is known that more comes.
        if self.left.is_none()
            && self.size_hint().lower() == 0
            && let Some(slot) = self.rest.take()
        {
            let content = std::mem::replace(&mut self.content, Content::Own(None));
            *slot.lock() = Some(Box::new(Rest { content, forget }));
        }
    }
}

enum Content {
    Own(Option<Bytes>),
    Vendors(ResponseBody),
    /// The vendor's body with its URLs rewritten. Boxed because few callers ask for it.
    Rewritten(Box<Rewritten>),
    /// A body of the gateway's own that is streamed without a stated length.
    Live(Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send + Sync>>),
}

impl Content {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self {
            Content::Own(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Vendors(body) => {
                let frame = std::task::ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)))
            }
            Content::Rewritten(body) => body.poll_frame(cx),
            Content::Live(body) => body.as_mut().poll_frame(cx),
        }
    }
}

struct Rewritten {
    body: ResponseBody,
    links: JsonLinks,
    /// The frame after the last data: trailers, or the error that broke the body off.
    last: Option<Option<Result<Frame<Bytes>, BoxError>>>,
}

impl Rewritten {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            if let Some(last) = &mut self.last {
                return Poll::Ready(last.take());
            }
            let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
            let last = match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        let out = self.links.piece(&data);
                        if out.is_empty() {
                            // The rewriter holds back the whole piece.
                            continue;
                        }
                        return Poll::Ready(Some(Ok(Frame::data(out.into()))));
                    }
                    Err(trailers) => Some(Ok(trailers)),
                },
                Some(Err(error)) => Some(Err(error.into())),
                None => None,
            };
            self.last = Some(last);
            let rest = self.links.rest();
            if !rest.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(rest.into()))));
            }
        }
    }
}

impl fmt::Debug for GatewayBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GatewayBody").field(&self.content).finish()
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Own(bytes) => f.debug_tuple("Own").field(bytes).finish(),
            Content::Vendors(body) => f.debug_tuple("Vendors").field(body).finish(),
            Content::Rewritten(_) => f.write_str("Rewritten"),
            Content::Live(_) => f.write_str("Live"),
        }
    }
}

impl GatewayBody {
    fn new(content: Content) -> GatewayBody {
        GatewayBody { watch: Watch::default(), content, left: None, rest: None, _busy: None }
    }

    pub(crate) fn own(bytes: Bytes) -> GatewayBody {
        GatewayBody::new(Content::Own(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }

    #[cfg_attr(not(feature = "console"), allow(dead_code, reason = "the console's events are such a body"))]
    pub(crate) fn live(body: impl Body<Data = Bytes, Error = BoxError> + Send + Sync + 'static) -> GatewayBody {
        GatewayBody::new(Content::Live(Box::pin(body)))
    }

    /// The body of a vendor's response whose headers state this length.
    pub(super) fn of_vendor(body: ResponseBody, length: Option<u64>) -> GatewayBody {
        let mut body = GatewayBody::new(Content::Vendors(body));
        body.left = length;
        body
    }

    /// Rewrites the URLs of the JSON in a vendor's body, or in a buffered one.
    pub(super) fn rewritten(mut self, links: JsonLinks) -> GatewayBody {
        // The length was that of the vendor's own text.
        self.left = None;
        self.content = match std::mem::replace(&mut self.content, Content::Own(None)) {
            Content::Vendors(body) => Content::Rewritten(Box::new(Rewritten { body, links, last: None })),
            Content::Own(Some(bytes)) => Content::Own(Some(links.whole(&bytes))),
            other => other,
        };
        self
    }

    /// Calls `on_cut` if the body breaks off and, with `minds_leaving`, if it is dropped before all of it was taken.
    pub(super) fn watched(mut self, on_cut: Option<OnCut>, minds_leaving: bool) -> GatewayBody {
        let on_cut = on_cut.filter(|_| !self.is_taken());
        self.watch = Watch { on_cut, minds_leaving };
        self
    }

    /// Whether nothing of the body is left. hyper asks for no end after the last byte of a stated length, a body from
    /// reqwest states by its size alone that no byte follows, and one of another transport may state no size at all.
    fn is_taken(&self) -> bool {
        self.is_end_stream() || self.size_hint().exact() == Some(0) || self.left == Some(0)
    }

    /// Keeps the connection marked as busy until the body is dropped. If its caller leaves, what may be left of it goes
    /// to `rest`.
    pub(super) fn keeping(mut self, busy: Busy, rest: RestSlot) -> GatewayBody {
        (self._busy, self.rest) = (Some(busy), Some(rest));
        self
    }
}

impl Body for GatewayBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = std::task::ready!(self.content.poll_frame(cx));
        if let (Some(Ok(frame)), Some(left)) = (&frame, &mut self.left) {
            *left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len) as u64);
        }
        match &frame {
            Some(Err(error)) => {
                if let Some(on_cut) = self.watch.on_cut.take() {
                    drop(on_cut(format!("its answer broke off: {error}")));
                }
            }
            Some(Ok(frame)) if !frame.is_trailers() && !self.is_taken() => {}
            _ => self.watch.on_cut = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Own(bytes) => bytes.is_none(),
            Content::Vendors(body) => body.is_end_stream(),
            Content::Rewritten(_) => false,
            Content::Live(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Content::Vendors(body) => body.size_hint(),
            Content::Rewritten(_) => SizeHint::default(),
            Content::Live(body) => body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests;
