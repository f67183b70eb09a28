//! Messages with headers that the client library cannot read.

use std::time::Duration;

use integration_client_intake::Nats;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::support::{client, line, store_path, wait_until};
use super::{add_consumer, publish, unsettled_messages, url, why};

/// Stores a message with a line of headers that the client library of these tests would not send.
async fn publish_with_line(subject: &str, line: &[u8], content: &str) {
    let server = url().rsplit(['/', '@']).next().unwrap().to_owned();
    let mut connection = TcpStream::connect(server).await.unwrap();
    let headers = [&b"NATS/1.0\r\n"[..], line, b"\r\n\r\n"].concat();
    let (length, total) = (headers.len(), headers.len() + content.len());
    let head = format!("CONNECT {{\"verbose\":false,\"headers\":true}}\r\nHPUB {subject} {length} {total}\r\n");
    let sent = [head.as_bytes(), &headers, content.as_bytes(), b"\r\nPING\r\n"].concat();
    connection.write_all(&sent).await.unwrap();
    // The answer comes behind the message, and behind what the server says of itself.
    let mut answer: Vec<u8> = Vec::new();
    while !answer.windows(4).any(|four| four == b"PONG") {
        assert!(connection.read_buf(&mut answer).await.unwrap() > 0, "{}", String::from_utf8_lossy(&answer));
    }
}

/// Messages with an unreadable one in their middle.
async fn around(name: &str, headers: &[u8]) -> async_nats::jetstream::Context {
    let message = |number: usize| line("acme", &format!("/{number}"));
    let context = publish(name, (0..10).map(|number| (None, message(number)))).await;
    add_consumer(&context, name, Duration::from_secs(2)).await;
    publish_with_line(name, headers, &line("acme", "/unreadable")).await;
    for number in 10..20 {
        context.publish(name.to_owned(), message(number).into()).await.unwrap().await.unwrap();
    }
    context
}

/// The messages behind it come, although the server redelivers all of them together with it.
pub(super) async fn malformed_header_starves_no_other() {
    for (name, headers) in [("MALFORMED", &b"a name: 1"[..]), ("UNREADABLE", &b"A: \xff"[..])] {
        let context = around(name, headers).await;
        let (client, transport) = client(&store_path("nats-malformed"), |store| store).await;
        let source = Nats::connect(&format!("{}?stream={name}", url())).await.unwrap();
        let looking = async {
            wait_until(async || transport.calls().len() == 20 && unsettled_messages(&context, name).await == 1).await;
            client.shutdown(Duration::from_secs(5)).await;
        };
        assert_eq!(tokio::join!(client.outbox().feed_from(&source), looking).0.unwrap(), 20, "{name}");
    }
}

/// The client library's task ends at such a header.
pub(super) async fn client_that_ended_is_replaced() {
    let context = around("ENDING", b"A: 1\r2").await;
    let (client, transport) = client(&store_path("nats-ending"), |store| store).await;
    let source = Nats::connect(&format!("{}?stream=ENDING", url())).await.unwrap();
    let fed = tokio::time::timeout(Duration::from_secs(60), client.outbox().feed_from(&source)).await;
    let why = why(fed.expect("it ends"));
    assert!(why.contains("a message of the stream ENDING has ended the client 3 times"), "{why}");
    wait_until(async || transport.calls().len() == 20).await;
    client.shutdown(Duration::from_secs(5)).await;
    assert_eq!(unsettled_messages(&context, "ENDING").await, 1);
}
