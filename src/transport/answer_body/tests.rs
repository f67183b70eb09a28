//! Tests of `answer_body`.

use std::collections::VecDeque;

use super::*;

/// A body that breaks off after its pieces.
struct BreakingBody {
    pieces: VecDeque<&'static str>,
    /// What is left of the length, if one is stated.
    left: Option<u64>,
}

impl HttpBody for BreakingBody {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        Poll::Ready(Some(match self.pieces.pop_front() {
            Some(piece) => {
                self.left = self.left.map(|left| left - piece.len() as u64);
                Ok(Frame::data(Bytes::from_static(piece.as_bytes())))
            }
            None => Err(TransportError::new(Sent::Answered, ErrorKind::Protocol, "the connection broke")),
        }))
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

#[expect(clippy::disallowed_methods, reason = "the deadline is far away")]
fn far_deadline() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[tokio::test]
async fn body_broken_ahead_states_no_size() {
    for length in [None, Some(10)] {
        for pieces in [vec![], vec!["pa", "rt"]] {
            let arrived = pieces.concat();
            let broken = BreakingBody { pieces: pieces.into(), left: length };
            let mut body = AnswerBody::new(broken, 1_024, far_deadline());
            body.peek(1_024).await;
            let hint = body.size_hint();
            assert_eq!((hint.lower(), hint.upper()), (arrived.len() as u64, None), "{length:?} {arrived}");
            assert!(!body.is_end_stream() && !body.is_whole(), "{length:?} {arrived}");
            if !arrived.is_empty() {
                assert_eq!(body.data().await.unwrap().unwrap(), arrived);
                assert_eq!((body.size_hint().exact(), body.is_end_stream()), (None, false), "{length:?}");
            }
            assert_eq!(body.data().await.unwrap_err().kind(), ErrorKind::Protocol);
            assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true), "{length:?} {arrived}");
        }
    }
}

#[tokio::test]
async fn body_read_ahead_states_its_size() {
    let mut body = AnswerBody::from_bytes("whole", 1_024, far_deadline());
    body.peek(1_024).await;
    assert_eq!((body.size_hint().exact(), body.is_whole()), (Some(5), true));
    assert_eq!(body.collect().await.unwrap(), "whole");
}
