//! What a shutdown waits for, and what it ends.

use std::sync::{Arc, Mutex};
use std::task::Poll;

use integration_client::dead_letter::{DeadLetter, DeadLetterSink};
use integration_client::store::Store;
use integration_client::transport::SecretString;

use integration_client::{BoxError, BoxFuture};

use super::*;
use crate::support::folder;

/// A vendor that takes keys, and whose tenant's key is read by the resolver `slow`.
const KEYED: &str = "[vendors.v]\nbase_url = \"https://v.example\"\nunpublished = true\n\
                     [vendors.v.idempotency]\nheader = \"idempotency-key\"\n";

/// Takes 300 ms for each letter.
#[derive(Default)]
struct SlowSink(Mutex<Vec<String>>);

impl DeadLetterSink for SlowSink {
    fn write<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            self.0.lock().unwrap().push(letter.id.clone());
            Ok(())
        })
    }
}

/// Answers 503 to the first call, which states a wait of ten seconds, and 200 afterwards.
fn busy_once() -> FakeTransport {
    FakeTransport::new(|call| match call.number {
        0 => FakeAnswer::status(503).header("retry-after", "10"),
        _ => FakeAnswer::status(200),
    })
}

/// A send that waits for its second attempt, and one that reads its key. The grace is longer than both, or too short
/// for the first alone.
#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_all_sends() {
    for (grace, delivered) in [(Duration::from_secs(30), true), (Duration::from_secs(4), false)] {
        let (transport, sink) = (busy_once(), Arc::new(SlowSink::default()));
        let client = IntegrationClient::builder()
            .without_catalogue()
            .vendors_toml(KEYED)
            .credential_resolver("slow", |_| async {
                tokio::time::sleep(Duration::from_secs(3)).await;
                Ok(SecretString::from("key"))
            })
            .tenant(TenantEntry::new("a", "v"))
            .tenant(TenantEntry::new("b", "v").credential("slow:b"))
            .transport(transport.clone())
            .dead_letter_sink(sink.clone())
            .build();
        let client = client.await.unwrap();
        let post = client.send("a", Priority::Normal, Request::post("v", "/orders"));
        let reads = client.send("b", Priority::Normal, get("/b"));
        let shut = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let began = now();
            let mut shutdown = std::pin::pin!(client.shutdown(grace));
            let begins = std::future::poll_fn(|context| Poll::Ready(shutdown.as_mut().poll(context)));
            assert!(begins.await.is_pending());
            let late = client.send("a", Priority::High, get("/late")).await.unwrap_err();
            assert_eq!((late.kind(), late.delivery()), (ErrorKind::Shutdown, Delivery::NotSent));
            (shutdown.await, began.elapsed())
        };
        let (post, reads, (drained, took)) = tokio::join!(post, reads, shut);
        assert_eq!(reads.unwrap().status(), 200);
        assert_eq!(drained, delivered);
        if delivered {
            assert_eq!(post.unwrap().attempts(), 2);
            assert!(took > Duration::from_secs(9) && took < Duration::from_secs(12), "{took:?}");
        } else {
            let error = post.unwrap_err();
            assert_eq!((error.kind(), error.delivery()), (ErrorKind::Shutdown, Delivery::Ambiguous), "{error}");
            let letter = error.letter_id().expect("its next attempt was due").to_owned();
            assert_eq!(*sink.0.lock().unwrap(), [letter]);
            assert!(took < Duration::from_secs(5), "{took:?}");
        }
    }
}

/// A standby that tries to build its client again and again while another one works on the file.
#[tokio::test]
async fn failed_build_leaves_no_task() {
    let store = Store::sqlite(folder("failed-build").join("s.db"));
    let works = || IntegrationClient::builder().without_catalogue().store(store.clone()).work();
    let first = works().build().await.unwrap();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert!(works().build().await.unwrap_err().is_store_in_use());
    let until = now() + Duration::from_secs(10);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let before = tasks();
    for _ in 0..20 {
        assert!(works().build().await.unwrap_err().is_store_in_use());
    }
    while tasks() > before {
        assert!(now() < until, "{} tasks, {before} before", tasks());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(first);
}
