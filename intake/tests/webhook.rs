//! Replies to a webhook over a real socket. The receiver computes the expected signature itself.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests: helpers unwrap too"
)]

#[allow(dead_code, reason = "nothing is killed here")]
mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use integration_client::{Priority, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use support::{client, store_path, wait_until};

const SECRET: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The head and the body of a request to the webhook.
type ReceivedRequest = (String, String);

/// Starts a receiver that answers with `answers` in order, and repeats the last one. At `None` it closes the connection
/// without an answer. Returns its URL and the requests that it receives.
async fn receiver(answers: Vec<Option<&'static str>>) -> (String, Arc<Mutex<Vec<ReceivedRequest>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook?key=hunter2", listener.local_addr().unwrap());
    let got = Arc::new(Mutex::new(Vec::new()));
    let kept = got.clone();
    #[expect(clippy::disallowed_methods, reason = "a test's own")]
    tokio::spawn(async move {
        for number in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = Vec::new();
            let (head, body) = loop {
                let mut some = [0; 4096];
                let read = stream.read(&mut some).await.unwrap();
                bytes.extend_from_slice(&some[..read]);
                let text = String::from_utf8(bytes.clone()).unwrap();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let length =
                    head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                if length == Some(body.len()) {
                    break (head.to_owned(), body.to_owned());
                }
            };
            kept.lock().unwrap().push((head, body));
            if let Some(answer) = answers[number.min(answers.len() - 1)] {
                let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        }
    });
    (url, got)
}

fn header<'a>(head: &'a str, name: &str) -> &'a str {
    let line = head.lines().find(|line| line.to_lowercase().starts_with(&format!("{name}: "))).expect(name);
    &line[name.len() + 2..]
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_reply_repeats_under_one_id() {
    let answers = vec![None, Some("500 Oh"), Some("302 Found\r\nlocation: http://127.0.0.1:1/"), Some("204 Taken")];
    let (url, got) = receiver(answers).await;
    let (client, transport) = client(&store_path("webhook"), |store| store).await;
    let request = Request::post("v", "/order").body("{}").reply().metadata("order", "17");
    client.outbox().enqueue("acme", Priority::Normal, request).await.unwrap();
    let target = integration_client_intake::replies(&url, Some(&format!("whsec_{SECRET}"))).await.unwrap();
    assert_eq!(target.name(), "webhook:127.0.0.1");
    let looking = async {
        wait_until(async || got.lock().unwrap().len() == 4).await;
        // A delivered reply must not be sent again.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        client.shutdown(Duration::from_secs(5)).await;
    };
    assert_eq!(tokio::join!(client.outbox().deliver_replies(&*target), looking).0.unwrap(), 1);
    assert_eq!(transport.calls().len(), 1);
    let got = got.lock().unwrap();
    assert_eq!(got.len(), 4);
    let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(SECRET).unwrap());
    for (head, body) in got.iter() {
        let (id, time) = (header(head, "webhook-id"), header(head, "webhook-timestamp"));
        assert_eq!(id, header(&got[0].0, "webhook-id"), "the same on each try");
        let signature = STANDARD.decode(header(head, "webhook-signature").strip_prefix("v1,").unwrap()).unwrap();
        hmac::verify(&key, format!("{id}.{time}.{body}").as_bytes(), &signature).unwrap();
        assert!(head.starts_with("POST /hook?key=hunter2 ") && body.contains(r#""order":"17""#), "{head}\n{body}");
        assert!(body.contains(r#""outcome":"done""#) && id.starts_with(&body[7..39]), "{id} {body}");
    }
}
