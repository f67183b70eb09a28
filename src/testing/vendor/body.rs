//! Bodies of answers: whole, slow, or incomplete.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use super::state::UnderWay;

pub(super) enum AnswerBody {
    Whole(Option<Bytes>),
    Slow(Box<Slow>),
}

pub(super) struct Slow {
    chunk: Bytes,
    left: u32,
    /// The body fails when this many chunks are left.
    breaks_at: Option<u32>,
    pause: Duration,
    sleep: Pin<Box<Sleep>>,
    /// Keeps the request in flight at the vendor until the last chunk is sent.
    _under_way: Option<UnderWay>,
}

impl AnswerBody {
    pub(super) fn whole(bytes: Bytes) -> AnswerBody {
        AnswerBody::Whole(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }

    pub(super) fn slow(chunk: Bytes, chunks: u32, pause: Duration, under_way: Option<UnderWay>) -> AnswerBody {
        let sleep = Box::pin(tokio::time::sleep(pause));
        AnswerBody::Slow(Box::new(Slow { chunk, left: chunks, breaks_at: None, pause, sleep, _under_way: under_way }))
    }

    /// A body that announces two chunks and fails after the first. The pause lets the first chunk out before the
    /// failure.
    pub(super) fn half(chunk: Bytes, under_way: Option<UnderWay>) -> AnswerBody {
        let mut body = AnswerBody::slow(chunk, 2, Duration::from_millis(5), under_way);
        if let AnswerBody::Slow(slow) = &mut body {
            slow.breaks_at = Some(1);
        }
        body
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let slow = match self.get_mut() {
            AnswerBody::Whole(bytes) => return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            AnswerBody::Slow(slow) => slow,
        };
        if slow.left == 0 {
            return Poll::Ready(None);
        }
        ready!(slow.sleep.as_mut().poll(cx));
        if slow.breaks_at == Some(slow.left) {
            return Poll::Ready(Some(Err(io::Error::other("fault: half a body"))));
        }
        slow.left -= 1;
        slow.sleep = Box::pin(tokio::time::sleep(slow.pause));
        Poll::Ready(Some(Ok(Frame::data(slow.chunk.clone()))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            AnswerBody::Whole(bytes) => bytes.is_none(),
            AnswerBody::Slow(slow) => slow.left == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            AnswerBody::Whole(bytes) => bytes.as_ref().map_or(0, Bytes::len) as u64,
            AnswerBody::Slow(slow) => slow.chunk.len() as u64 * u64::from(slow.left),
        })
    }
}
