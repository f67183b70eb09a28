//! A wrapper that makes a body `Sync`: nobody reads the body through a shared reference.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;

/// Makes a body `Sync`, which reqwest requires. Only the owner of the body takes the lock, so no thread ever waits for
/// it.
pub(super) struct Exclusive<B>(Mutex<Pin<Box<B>>>);

impl<B> Exclusive<B> {
    pub(super) fn new(body: B) -> Exclusive<B> {
        Exclusive(Mutex::new(Box::pin(body)))
    }
}

impl<B: HttpBody> HttpBody for Exclusive<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.0.get_mut().as_mut().poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().size_hint()
    }
}
