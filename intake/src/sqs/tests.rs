//! The source beside a server that answers as the test says.

use std::collections::VecDeque;

use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use integration_client::IntegrationClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// A server with some responses to each action, the next of which it gives. It repeats the last one.
struct Server {
    listener: TcpListener,
    responses: parking_lot::Mutex<HashMap<&'static str, VecDeque<String>>>,
    /// The actions that were asked for, and the content of each request.
    asked: parking_lot::Mutex<Vec<(String, String)>>,
}

impl Server {
    async fn with(responses: Vec<(&'static str, Vec<String>)>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let responses = responses.into_iter().map(|(action, texts)| (action, VecDeque::from(texts))).collect();
        Server { listener, responses: parking_lot::Mutex::new(responses), asked: parking_lot::Mutex::default() }
    }

    async fn serve(&self) {
        loop {
            let (mut stream, _) = self.listener.accept().await.unwrap();
            let Some((action, content)) = read(&mut stream).await else { continue };
            let response = {
                let mut responses = self.responses.lock();
                let left = responses.get_mut(action.as_str()).expect("an action of the test");
                if left.len() > 1 { left.pop_front() } else { left.front().cloned() }
            };
            self.asked.lock().push((action, content));
            let response = response.unwrap();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-amz-json-1.0\r\nconnection: close";
            let response = format!("{head}\r\ncontent-length: {}\r\n\r\n{response}", response.len());
            stream.write_all(response.as_bytes()).await.unwrap();
        }
    }

    /// The contents of the requests for an action.
    fn asked(&self, action: &str) -> Vec<String> {
        let asked = self.asked.lock();
        asked.iter().filter(|(of, _)| of == action).map(|(_, content)| content.clone()).collect()
    }

    /// Runs a test beside the server.
    async fn beside(&self, test: impl Future<Output = ()>) {
        tokio::select! {
            () = self.serve() => {}
            () = test => {}
        }
    }

    fn source(&self) -> Sqs {
        let address = format!("http://{}", self.listener.local_addr().unwrap());
        let config = aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "test"))
            .endpoint_url(&address)
            .build();
        let shared = Arc::new(Shared {
            client: Client::from_conf(config),
            queue_url: format!("{address}/1/requests"),
            invisible_s: INVISIBLE_S,
            unsettled: Unsettled::new(),
            changing: tokio::sync::Mutex::default(),
        });
        #[expect(clippy::disallowed_methods, reason = "a test needs the task as the source does")]
        let extending = tokio::spawn(visibility::extend(shared.clone(), "test".to_owned()));
        let name = "test".to_owned();
        Sqs { shared, name, dead: None, max_deliveries: None, has_redrive: true, are_keys_renewed: false, extending }
    }
}

/// The action and the content of a request; `None` if the client has closed the connection.
async fn read(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    loop {
        let mut some = [0; 4096];
        let read = stream.read(&mut some).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&some[..read]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, content)) = text.split_once("\r\n\r\n") else { continue };
        let header = |wanted: &str| {
            let mut headers = head.lines().filter_map(|line| line.split_once(':'));
            headers.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim())
        };
        let length: usize = header("content-length").unwrap().parse().unwrap();
        if content.len() >= length {
            let action = header("x-amz-target").unwrap().trim_start_matches("AmazonSQS.");
            return Some((action.to_owned(), content.to_owned()));
        }
    }
}

/// The response with one message.
fn one(id: &str, receipt: &str) -> String {
    format!(r#"{{"Messages":[{{"MessageId":"{id}","ReceiptHandle":"{receipt}","Body":"{{}}"}}]}}"#)
}

fn done() -> Vec<String> {
    vec![r#"{"Successful":[],"Failed":[]}"#.to_owned()]
}

#[tokio::test]
async fn held_message_is_handed_over_once() {
    let received = vec![one("1", "old"), one("1", "new"), one("2", "other")];
    let server = Server::with(vec![("ReceiveMessage", received), ("DeleteMessageBatch", done())]).await;
    let source = server.source();
    let test = async {
        let first = source.fetch(5).await.unwrap();
        let second = source.fetch(5).await.unwrap();
        let ids: Vec<&str> = first.iter().chain(&second).map(|intake| intake.message().id.as_str()).collect();
        assert_eq!(ids, ["1", "2"], "the message that came again is held already");
        source.taken(&[first[0].message().clone()]).await.unwrap();
    };
    server.beside(test).await;
    let deleted = server.asked("DeleteMessageBatch").remove(0);
    assert!(deleted.contains(r#""ReceiptHandle":"new""#) && !deleted.contains("old"), "{deleted}");
}

/// The queue has a redrive policy, by which messages without room are held.
#[tokio::test]
async fn end_gives_back_what_is_held() {
    let received = vec![one("1", "first"), one("2", "second"), one("3", "third")];
    let visible = "ChangeMessageVisibilityBatch";
    let server =
        Server::with(vec![("ReceiveMessage", received), ("DeleteMessageBatch", done()), (visible, done())]).await;
    let source = server.source();
    let test = async {
        let first = source.fetch(5).await.unwrap();
        source.fetch(5).await.unwrap();
        source.fetch(5).await.unwrap();
        source.taken(&[first[0].message().clone()]).await.unwrap();
        source.ended().await;
        source.ended().await;
    };
    server.beside(test).await;
    let given_back = server.asked(visible);
    assert_eq!(given_back.len(), 1, "all in one request");
    assert!(!source.can_postpone() && !given_back[0].contains("first"), "{given_back:?}");
    assert!(given_back[0].contains("second") && given_back[0].contains("third"), "{given_back:?}");
    assert_eq!(given_back[0].matches(r#""VisibilityTimeout":0"#).count(), 2, "{given_back:?}");
}

#[tokio::test]
async fn refused_messages_are_sent_together() {
    // The queue of refused messages takes all of the first request but the message with number 3.
    let failed = r#"{"Successful":[],"Failed":[{"Id":"3","SenderFault":false,"Code":"InternalError"}]}"#;
    let sent = [vec![failed.to_owned()], done()].concat();
    let size = vec![r#"{"Attributes":{"MaximumMessageSize":"2048"}}"#.to_owned()];
    let responses = vec![("GetQueueAttributes", size), ("SendMessageBatch", sent), ("DeleteMessageBatch", done())];
    let server = Server::with(responses).await;
    let source = server.source();
    let why = IntegrationClient::builder().without_catalogue().vendors_toml("[").build().await.err().unwrap();
    let test = async {
        let client = &source.shared.client;
        let dead = RefusedQueue::find(client, format!("{}-refused", source.shared.queue_url)).await.unwrap();
        let message = |number: usize| {
            let message = Message::builder().message_id(number.to_string()).receipt_handle(format!("r{number}-"));
            (Delivery { message: message.body("{").build(), is_old: false }, &why)
        };
        source.put_aside(&dead, (0..12).map(message).collect()).await;
    };
    server.beside(test).await;
    let sent: Vec<usize> =
        server.asked("SendMessageBatch").iter().map(|content| content.matches("MessageBody").count()).collect();
    assert_eq!(sent, [10, 2]);
    let deleted = server.asked("DeleteMessageBatch");
    let receipts: Vec<usize> = deleted.iter().map(|content| content.matches("ReceiptHandle").count()).collect();
    assert_eq!(receipts, [9, 2], "the message that was not sent is delivered again");
    assert!(!deleted[0].contains("r3-"), "{deleted:?}");
}
