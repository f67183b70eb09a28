//! A message that the client library cannot read, because its `message_id` is no UTF-8.

use std::time::Duration;

use integration_client_intake::RabbitMq;
use lapin::options::{QueueDeclareOptions, QueuePurgeOptions};
use lapin::types::{AMQPValue, FieldTable};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use url::Url;

use super::support::{client, line, store_path, wait_until};
use super::{Server, url};

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const END: u8 = 0xce;

/// A connection that sends and takes any bytes, as the client libraries of some other languages do.
struct RawConnection(TcpStream);

impl RawConnection {
    async fn open() -> RawConnection {
        let url = Url::parse(&url()).unwrap();
        let place = (url.host_str().unwrap(), url.port().unwrap_or(5672));
        let mut raw = RawConnection(TcpStream::connect(place).await.unwrap());
        raw.0.write_all(b"AMQP\0\0\x09\x01").await.unwrap();
        raw.read().await;
        let password = format!("\0{}\0{}", url.username(), url.password().unwrap_or_default());
        let mut start = vec![0; 4];
        start.extend(short(b"PLAIN"));
        start.extend(u32::try_from(password.len()).unwrap().to_be_bytes());
        start.extend(password.as_bytes());
        start.extend(short(b"en_US"));
        raw.method(0, [10, 11], &start).await;
        // The server states the channels, the size of a frame and the time of heartbeats; there are no heartbeats then.
        let mut tune = raw.read().await;
        tune.truncate(4 + 6);
        tune.extend([0, 0]);
        raw.method(0, [10, 31], &tune[4..]).await;
        raw.method(0, [10, 40], &[short(b"/"), short(b""), vec![0]].concat()).await;
        raw.read().await;
        raw.method(1, [20, 10], &short(b"")).await;
        raw.read().await;
        raw
    }

    /// Publishes a message with this `message_id` to a queue.
    async fn publish(&mut self, queue: &str, id: &[u8], content: &[u8]) {
        self.method(1, [60, 40], &[vec![0, 0], short(b""), short(queue.as_bytes()), vec![0]].concat()).await;
        let size = (content.len() as u64).to_be_bytes();
        // The flags name the only property.
        self.frame(HEADER, 1, &[&[0, 60, 0, 0][..], &size, &[0, 0x80], &short(id)].concat()).await;
        self.frame(BODY, 1, content).await;
    }

    /// Removes the first message of a queue.
    async fn remove_first(&mut self, queue: &str) {
        const WITHOUT_ACKNOWLEDGEMENT: u8 = 1;
        let get = [vec![0, 0], short(queue.as_bytes()), vec![WITHOUT_ACKNOWLEDGEMENT]].concat();
        self.method(1, [60, 70], &get).await;
        let answer = self.read().await;
        assert_eq!(answer[..4], [0, 60, 0, 71], "there is a message");
    }

    async fn method(&mut self, channel: u8, method: [u8; 2], arguments: &[u8]) {
        let [class, method] = method;
        self.frame(METHOD, channel, &[&[0, class, 0, method][..], arguments].concat()).await;
    }

    async fn frame(&mut self, kind: u8, channel: u8, payload: &[u8]) {
        let size = u32::try_from(payload.len()).unwrap().to_be_bytes();
        self.0.write_all(&[&[kind, 0, channel][..], &size, payload, &[END]].concat()).await.unwrap();
    }

    /// Reads one frame, and returns its payload.
    async fn read(&mut self) -> Vec<u8> {
        let mut head = [0; 7];
        self.0.read_exact(&mut head).await.unwrap();
        let size = u32::from_be_bytes(head[3..].try_into().unwrap());
        let mut payload = vec![0; size as usize + 1];
        self.0.read_exact(&mut payload).await.unwrap();
        assert_eq!(payload.pop(), Some(END));
        payload
    }
}

/// A string of at most 255 bytes, as it is sent.
fn short(bytes: &[u8]) -> Vec<u8> {
    [&[u8::try_from(bytes.len()).unwrap()][..], bytes].concat()
}

/// The other messages are accepted, and it alone is left.
pub(super) async fn unreadable_message_holds_up_no_other() {
    let (server, queue) = (Server::connect().await, "unreadable");
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    server.channel.queue_declare(queue.into(), QueueDeclareOptions::durable(), arguments).await.unwrap();
    server.channel.queue_purge(queue.into(), QueuePurgeOptions::default()).await.unwrap();
    let message = |number: usize| (Some(number.to_string()), line("acme", &format!("/{number}")));
    server.publish(queue, (0..3).map(message)).await;
    let mut raw = RawConnection::open().await;
    raw.publish(queue, b"\xff", line("acme", "/unreadable").as_bytes()).await;
    wait_until(async || server.waiting_messages(queue).await == 4).await;
    server.publish(queue, (4..7).map(message)).await;
    let (client, transport) = client(&store_path("unreadable"), |store| store).await;
    let url = format!("{}?queue={queue}", url());
    let source = RabbitMq::connect(&url).await.unwrap();
    let fed = tokio::time::timeout(Duration::from_secs(60), client.outbox().feed_from(&source)).await;
    let error = fed.expect("it ends").unwrap_err();
    let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(why.contains("the head of the queue unreadable") && why.contains("not UTF-8"), "{error}: {why}");
    wait_until(async || transport.calls().len() == 6).await;
    client.shutdown(Duration::from_secs(5)).await;
    drop(source);
    wait_until(async || server.waiting_messages(queue).await == 1).await;
    raw.remove_first(queue).await;
    assert_eq!(server.waiting_messages(queue).await, 0);
}
