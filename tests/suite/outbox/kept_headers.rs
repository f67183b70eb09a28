//! The headers of a response that are kept with the outcome of a job.

use integration_client::testing::{FakeAnswer, FakeTransport};

use super::*;

/// A vendor that answers with `status`, and repeats the request's secret in the query of the location.
fn pointing(status: u16) -> FakeTransport {
    FakeTransport::new(move |call| {
        let secret = call.header("authorization").unwrap_or_default().trim_start_matches("Bearer ");
        FakeAnswer::status(status)
            .header("location", &format!("https://v.example/jobs/7?key={secret}&page=2"))
            .header("x-request-id", "r-7")
            .header("set-cookie", "session=1")
            .body("{}")
    })
}

const LOCATION: &str = "https://v.example/jobs/7?key=***&page=2";

/// A header in a reply.
fn in_reply<'a>(reply: &'a serde_json::Value, name: &str) -> Option<&'a str> {
    reply["headers"].as_array()?.iter().find(|pair| pair[0] == name)?[1].as_str()
}

async fn only_reply(client: &IntegrationClient) -> serde_json::Value {
    let replies = client.outbox().replies(10).await.unwrap();
    assert_eq!(replies.len(), 1, "{replies:?}");
    serde_json::from_str(&replies[0].json).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn delivery_keeps_headers_without_secrets() {
    for status in [201, 202, 303] {
        let (vendor, folder) = (vendor(FakeVendor::builder()).await, folder());
        let (store, collected) = (Store::sqlite(folder.join("s.db")), CollectingHandler::default());
        let builder = client(&vendor, &store, RETRY).transport(pointing(status)).response_handler(collected.clone());
        let client = builder.work().build().await.unwrap();
        let request = post("/jobs").keep_response().reply();
        let receipt = client.outbox().enqueue("acme", Priority::Normal, request).await.unwrap();
        let ended = until_ended(&receipt).await;
        let Status::Delivered { response: Some(kept), .. } = ended else { panic!("{status}: {ended:?}") };
        let names = ["location", "x-request-id", "set-cookie"];
        let expected = [Some(LOCATION), Some("r-7"), None];
        assert_eq!(names.map(|name| kept.headers().get(name)), expected, "{status}");
        let reply = only_reply(&client).await;
        assert_eq!(names.map(|name| in_reply(&reply, name)), expected, "{status}: {reply}");
        let told = collected.delivered.lock().unwrap()[0].clone();
        assert_eq!(&told.kept_headers, kept.headers());
        assert!(told.headers.contains_key("set-cookie") && told.headers["location"].to_str().unwrap().contains(CANARY));
        assert!(client.shutdown(Duration::from_secs(5)).await);
        for entry in std::fs::read_dir(&folder).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            assert!(!bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes()));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn letter_says_where_a_redirect_pointed() {
    let without_query = Some("https://v.example/jobs/7");
    for (status, keep, location) in [
        (302, "redacted", without_query),
        (302, "whole", Some(LOCATION)),
        (302, "no_answer", None),
        (422, "redacted", without_query),
        (403, "redacted", None),
        (403, "whole", Some(LOCATION)),
    ] {
        let vendor = vendor(FakeVendor::builder()).await;
        let store = Store::sqlite(folder().join("s.db"));
        let entry = format!("{RETRY}\n[vendors.v.environments.other]\ndead_letters = \"{keep}\"\n");
        let other = TenantEntry::new("other", "v").credential("keys:acme").environment("other");
        let builder = client(&vendor, &store, &entry).transport(pointing(status)).tenant(other);
        let client = builder.work().build().await.unwrap();
        let receipt = client.outbox().enqueue("other", Priority::Normal, post("/jobs").reply()).await.unwrap();
        let ended = until_ended(&receipt).await;
        assert!(matches!(ended, Status::Dead { reason: Some(Reason::Rejected), .. }), "{status} {keep}: {ended:?}");
        let letter = client.outbox().dead_letters().unwrap().show(&receipt.id()).await.unwrap().unwrap().letter;
        let headers = &letter.attempts.last().unwrap().headers;
        assert_eq!((headers.get("location"), headers.get("set-cookie")), (location, None), "{status} {keep}");
        let reply = only_reply(&client).await;
        assert_eq!(in_reply(&reply, "location"), location, "{status} {keep}: {reply}");
    }
}
