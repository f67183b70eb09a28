use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::Frame;

use super::*;

/// A body of which nothing arrives.
struct Silent;

impl Body for Silent {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn body_without_end_is_refused_in_time() {
    let clock = crate::clock::Clock::system();
    let began = clock.now();
    let refused = collected(http::Request::new(Silent)).await.unwrap_err();
    assert_eq!(refused.status(), StatusCode::REQUEST_TIMEOUT);
    assert_eq!(clock.now().since(began).as_secs(), BODY.as_secs());
    let long = http_body_util::Full::new(Bytes::from(vec![0_u8; MOST + 1]));
    assert_eq!(collected(http::Request::new(long)).await.unwrap_err().status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[test]
fn own_paths_alone_are_answered() {
    for (path, expected) in [
        ("/~/console/", Some("/")),
        ("/~/console", Some("/.")),
        ("/~/console?x", Some("/.")),
        ("/~/console/api/lanes?sort=name", Some("/api/lanes?sort=name")),
        ("/~/consoles", None),
        ("/~/livez", None),
        ("/acme/console/", None),
        ("http://vendor.example/~/console/", None),
    ] {
        let uri: Uri = path.parse().unwrap();
        assert_eq!(below(&uri), expected.map(|path| path.parse().unwrap()), "{path}");
    }
}
