//! Tests of what an error before the response's headers says.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::*;

#[test]
fn own_reset_is_no_refusal_of_the_vendor() {
    for reason in [h2::Reason::REFUSED_STREAM, h2::Reason::NO_ERROR, h2::Reason::CANCEL] {
        assert_eq!(not_processed(&reason.into()), None, "{reason:?}");
    }
}

/// The parts of a body, the last one first.
struct Parts([Option<Result<bytes::Bytes, reqwest::Error>>; 2]);

impl futures_core::Stream for Parts {
    type Item = Result<bytes::Bytes, reqwest::Error>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.iter_mut().rev().find_map(Option::take))
    }
}

/// A body whose source has lost its connection, and cannot connect again.
#[tokio::test]
async fn connection_of_a_bodys_source_is_not_the_vendors() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let client = reqwest::Client::new();
    // No server listens at port 1.
    let of_source = client.get("http://127.0.0.1:1/").send().await.unwrap_err();
    assert!(of_source.is_connect());
    let parts = Parts([Some(Err(of_source)), Some(Ok(bytes::Bytes::from_static(b"part")))]);
    let sending = client.post(url).body(reqwest::Body::wrap_stream(parts)).send();
    let error = tokio::select! {
        answer = sending => answer.unwrap_err(),
        // Keeps the connection open.
        never = async { (listener.accept().await, std::future::pending::<()>().await) } => unreachable!("{never:?}"),
    };
    let told = (Sent::MaybeSent, ErrorKind::InvalidRequest, "the request body's stream failed");
    assert_eq!(classify(&error), told, "{error:?}");
}

/// The server closes each connection at once, so that it ends before it takes its request, and returns it. The text
/// is the same if there was no connection.
#[tokio::test]
async fn canceled_by_the_pool_is_known_by_its_text() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let closing = async {
        loop {
            drop(listener.accept().await.unwrap());
        }
    };
    let asking = async {
        let mut builder = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new());
        let client = builder.retry_canceled_requests(false).build_http::<http_body_util::Empty<bytes::Bytes>>();
        let mut errors = Vec::new();
        for _ in 0..50 {
            errors.push(client.get(url.parse().unwrap()).await.unwrap_err());
        }
        errors
    };
    let errors = tokio::select! {
        errors = asking => errors,
        () = closing => unreachable!(),
    };
    assert!(errors.iter().any(|error| found_no_connection(error)), "{errors:?}");
}
