//! Limits that count bytes.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::*;

const BYTES: &str = "algorithm = \"sliding_window\"\nlimit = 1_000\nwindow = \"1s\"\nsafety = 1.0";

fn limit_in_unit(unit: &str) -> String {
    format!("{BYTES}\nunit = \"{unit}\"")
}

fn transport_with_body(bytes: usize) -> FakeTransport {
    FakeTransport::new(move |_| FakeAnswer::status(200).body(vec![b'x'; bytes]))
}

fn remaining_units(client: &IntegrationClient) -> u32 {
    client.status("a", "v").unwrap().limits[0].remaining
}

fn put(bytes: usize) -> Request {
    Request::new(http::Method::PUT, "v", "/").body(vec![b'y'; bytes])
}

#[tokio::test(start_paused = true)]
async fn units_count_what_they_say() {
    for (unit, used) in
        [("requests", 1), ("points", 1), ("request_bytes", 300), ("response_bytes", 100), ("bytes", 400)]
    {
        let client = client(&[("volume", &limit_in_unit(unit))], &transport_with_body(100)).await;
        client.send("a", Priority::High, put(300)).await.unwrap().bytes().await.unwrap();
        assert_eq!(remaining_units(&client), 1_000 - used, "{unit}");
    }
}

#[tokio::test(start_paused = true)]
async fn exhausted_byte_limit_is_waited_for() {
    let client = client(&[("volume", &limit_in_unit("request_bytes"))], &transport_with_body(1)).await;
    let start = now();
    for _ in 0..3 {
        client.send("a", Priority::High, put(500)).await.unwrap().bytes().await.unwrap();
    }
    let took = start.elapsed();
    assert!((ms(1_000)..=ms(1_020)).contains(&took), "{took:?}");
    let error = client.send("a", Priority::High, put(1_001)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CostAboveCapacity, "{error}");
}

#[tokio::test(start_paused = true)]
async fn response_bytes_are_expected_from_recent_ones() {
    let client = client(&[("volume", &limit_in_unit("response_bytes"))], &transport_with_body(300)).await;
    let sends = |n: usize| {
        let client = client.clone();
        async move {
            for _ in 0..n {
                client.send("a", Priority::High, get("/")).await.unwrap().bytes().await.unwrap();
            }
        }
    };
    sends(1).await;
    let start = now();
    // 300 bytes are used. Two more responses of 300 fit. The next request waits, because its response is expected to
    // have 300 bytes too.
    sends(2).await;
    assert!(start.elapsed() < ms(20), "{:?}", start.elapsed());
    assert_eq!(remaining_units(&client), 100);
    sends(1).await;
    assert!(start.elapsed() >= ms(900), "{:?}", start.elapsed());
    // A request whose response is expected to be huge is sent once the whole limit is free. Of a dropped body the bytes
    // count that have arrived.
    drop(client.send("a", Priority::High, get("/").expect_bytes(0, u32::MAX)).await.unwrap());
    assert_eq!(remaining_units(&client), 700);
}

/// The vendor has sent these bytes, and counts them, although nobody reads them.
#[tokio::test(start_paused = true)]
async fn unread_bodies_count_what_arrived() {
    let transport = FakeTransport::new(|call| {
        let answer = FakeAnswer::status(200).body(vec![b'x'; 300]);
        if call.path() == "/late" { answer.body_delay(ms(10)) } else { answer }
    });
    let client = client(&[("volume", &limit_in_unit("response_bytes"))], &transport).await;
    let send = |path: &'static str| client.send("a", Priority::High, get(path));
    drop(send("/").await.unwrap());
    assert_eq!(remaining_units(&client), 700, "it came as a whole");
    drop(send("/late").await.unwrap());
    assert_eq!(remaining_units(&client), 400, "of its length nothing is known, so it has what was expected");
    assert_eq!(send("/").await.unwrap().status(), 200);
    assert_eq!(remaining_units(&client), 100, "the next one is expected to be as long as the first");
    // A response that turns out to be longer than expected is not shortened by a reader who stops early.
    let began = now();
    let mut longer = client.send("a", Priority::High, get("/late").expect_bytes(0, 50)).await.unwrap();
    assert_eq!(longer.chunk().await.unwrap().map(|piece| piece.len()), Some(300));
    drop(longer);
    assert!(began.elapsed() < ms(20) && remaining_units(&client) == 0, "{:?}", began.elapsed());
}

/// A body stream of one piece.
struct OnePieceStream(Option<Vec<u8>>);

impl futures_core::Stream for OnePieceStream {
    type Item = Result<Vec<u8>, std::io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.take().map(Ok))
    }
}

#[tokio::test(start_paused = true)]
async fn stream_says_how_long_it_is() {
    let client = client(&[("volume", &limit_in_unit("bytes"))], &transport_with_body(0)).await;
    let stream = || {
        Request::new(http::Method::PUT, "v", "/")
            .body(integration_client::Body::stream(OnePieceStream(Some(vec![b'z'; 200]))))
    };
    let error = client.send("a", Priority::High, stream()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.to_string().contains("expect_bytes"), "{error}");
    client.send("a", Priority::High, stream().expect_bytes(200, 0)).await.unwrap().bytes().await.unwrap();
    assert_eq!(remaining_units(&client), 800);
}
