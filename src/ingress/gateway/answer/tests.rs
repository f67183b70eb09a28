//! Tests of `answer`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use http::HeaderMap;

use super::*;

/// A body of these frames. `None` stands for a frame that never comes.
struct Frames(VecDeque<Option<Result<Frame<Bytes>, BoxError>>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.0.pop_front() {
            Some(Some(frame)) => Poll::Ready(Some(frame)),
            Some(None) => {
                self.0.push_front(None);
                Poll::Pending
            }
            None => Poll::Ready(None),
        }
    }
}

fn data(text: &'static str) -> Option<Result<Frame<Bytes>, BoxError>> {
    Some(Ok(Frame::data(Bytes::from_static(text.as_bytes()))))
}

/// Whether a request is forgotten if this is what is left of its response when its caller leaves.
async fn forgets(body: impl Body<Data = Bytes, Error = BoxError> + Send + Sync + 'static) -> bool {
    let is_forgotten = Arc::new(AtomicBool::new(false));
    let seen = is_forgotten.clone();
    let forget: Forget = Box::new(move || seen.store(true, Relaxed));
    Rest { content: Content::Live(Box::pin(body)), forget }.settle().await;
    is_forgotten.load(Relaxed)
}

/// Over HTTP/2 the end is often an empty frame of data with a flag.
#[tokio::test(start_paused = true)]
async fn empty_frames_are_no_content() {
    let trailers = Some(Ok(Frame::trailers(HeaderMap::new())));
    let error = Some(Err(BoxError::from("the connection broke")));
    for (frames, expected) in [
        (vec![], true),
        (vec![data("")], true),
        (vec![data(""), data(""), trailers], true),
        (vec![data(""), data("more")], false),
        (vec![data(""), error], false),
        // The end does not come in time.
        (vec![data(""), None], false),
    ] {
        let said = format!("{frames:?}");
        assert_eq!(forgets(Frames(frames.into())).await, expected, "{said}");
    }
}

/// A body without an end, all of whose frames are empty.
struct EmptyFrames;

impl Body for EmptyFrames {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::new()))))
    }
}

/// In real time, which alone goes on while frames come.
#[tokio::test]
async fn endless_empty_frames_are_left() {
    assert!(!forgets(EmptyFrames).await);
}
