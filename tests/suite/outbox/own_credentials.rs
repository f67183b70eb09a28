//! Requests that bring a credential of their own, in whichever header: nothing of it is stored.

use std::path::Path;

use integration_client::dead_letter::MemorySink;
use integration_client::testing::{FakeAnswer, FakeTransport};

use super::*;

/// A vendor without a credential in the client, whose entry gives a key to every request.
const OPEN: &str = r#"
[vendors.open]
base_url = "https://open.example"
auth = { scheme = "none" }
unpublished = true
dead_letters = "whole"
retry = { max_retries = 1, first_wait = "1ms" }
headers = { x-api-key = "of-every-request" }
"#;

async fn open_client(sink: &Arc<MemorySink>) -> IntegrationClient {
    IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(OPEN)
        .tenant(TenantEntry::new("acme", "open"))
        .store(Store::sqlite(folder().join("s.db")))
        .dead_letter_sink(sink.clone())
        .transport(FakeTransport::new(|_| FakeAnswer::status(503)))
        .build()
        .await
        .unwrap()
}

/// Whether a file of the folder contains the text.
fn is_stored(folder: &Path, text: &str) -> bool {
    std::fs::read_dir(folder).unwrap().any(|file| {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn credential_in_known_header_is_not_stored() {
    let sink = Arc::new(MemorySink::new(100));
    let own = ["private-token", "x-api-key", "API-Key", "authorization", "cookie"].map(|name| (name, CANARY));
    // None is a credential of the request's own: the last is what the entry gives to every request.
    let others = [("x-csrf-token", "Fetch"), ("sync-token", "7"), ("x-api-key", "of-every-request")];
    for (is_own, (name, value)) in
        own.map(|header| (true, header)).into_iter().chain(others.map(|header| (false, header)))
    {
        // Each has a client of its own: after some failures a client sends nothing to that host for a while.
        let client = open_client(&sink).await;
        let request = || Request::get("open", "/a").header(name, value);
        let accepted = client.outbox().enqueue("acme", Priority::Normal, request()).await;
        assert_eq!(accepted.is_err(), is_own, "{name}");
        if let Err(error) = accepted {
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{name}");
            let text = error.to_string();
            assert!(text.contains(&name.to_ascii_lowercase()) && !text.contains(CANARY), "{text}");
        }
        let error = client.send("acme", Priority::Normal, request()).await.unwrap_err();
        assert!(error.letter_id().is_some(), "{name}: {error}");
        client.shutdown(Duration::from_secs(5)).await;
    }
    let letters = sink.letters();
    let whole: Vec<bool> = letters.iter().map(|letter| matches!(letter.request, LetterRequest::Whole { .. })).collect();
    assert_eq!(whole, [false, false, false, false, false, true, true, true], "an outline has no header");
    assert!(!serde_json::to_string(&letters).unwrap().contains(CANARY));
}

/// A shared key in the vendor's entry is replaced while jobs wait.
#[tokio::test(flavor = "multi_thread")]
async fn headers_of_the_entry_are_not_stored() {
    const NEXT: &str = "next-2b7e9d04";
    let (rows, config) = (folder(), folder().join("vendors.toml"));
    std::fs::write(&config, OPEN.replace("of-every-request", CANARY)).unwrap();
    let transport = FakeTransport::new(|call| match call.path() {
        "/refused" => FakeAnswer::status(422),
        _ => FakeAnswer::status(200),
    });
    let client = IntegrationClient::builder()
        .without_catalogue()
        .without_watching()
        .vendors_file(&config)
        .tenant(TenantEntry::new("acme", "open"))
        .store(Store::sqlite(rows.join("s.db")))
        .transport(transport.clone())
        .work()
        .build()
        .await
        .unwrap();
    client.tenants().pause("acme", "open").unwrap();
    let mut receipts = Vec::new();
    for path in ["/a", "/refused"] {
        let request = Request::post("open", path).header("x-own", "own-5c1f").body("x");
        receipts.push(client.outbox().enqueue("acme", Priority::Normal, request).await.unwrap());
    }
    std::fs::write(&config, OPEN.replace("of-every-request", NEXT)).unwrap();
    client.config().reload().await.unwrap();
    client.tenants().resume("acme", "open").unwrap();
    for receipt in &receipts {
        until_ended(receipt).await;
    }
    let sent: Vec<_> = transport.calls().iter().map(|call| call.header("x-api-key").map(str::to_owned)).collect();
    assert_eq!(sent, [Some(NEXT.to_owned()), Some(NEXT.to_owned())]);
    client.shutdown(Duration::from_secs(5)).await;
    assert!(!is_stored(&rows, CANARY) && !is_stored(&rows, NEXT));
    assert!(is_stored(&rows, "own-5c1f"), "the letter holds the request's own headers");
}

/// The vendor repeats the secret of the header in its refusal.
#[tokio::test(flavor = "multi_thread")]
async fn secret_headers_are_not_stored() {
    const SECOND: &str = "second-7d20c1be";
    let rows = folder();
    let entry =
        OPEN.replace("headers = { x-api-key = \"of-every-request\" }", "secret_headers = { x-api-key = \"kept:x\" }");
    let transport = FakeTransport::new(|call| {
        let status = if call.path() == "/refused" { 422 } else { 200 };
        FakeAnswer::status(status).body(format!("unknown: {}", call.header("x-api-key").unwrap_or_default()))
    });
    let client = IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(entry)
        .credential_resolver("kept", |_: String| async move { Ok(SecretString::from(SECOND)) })
        .tenant(TenantEntry::new("acme", "open"))
        .store(Store::sqlite(rows.join("s.db")))
        .transport(transport.clone())
        .work()
        .build()
        .await
        .unwrap();
    let mut receipts = Vec::new();
    for path in ["/a", "/refused"] {
        // The caller's value is not sent, so it is not stored either.
        let request = Request::post("open", path).header("x-api-key", CANARY).body("x");
        receipts.push(client.outbox().enqueue("acme", Priority::Normal, request).await.unwrap());
    }
    for receipt in &receipts {
        until_ended(receipt).await;
    }
    let sent: Vec<_> = transport.calls().iter().map(|call| call.header("x-api-key").map(str::to_owned)).collect();
    assert_eq!(sent, [Some(SECOND.to_owned()), Some(SECOND.to_owned())]);
    let kept = client.outbox().dead_letters().unwrap().show(&receipts[1].id()).await.unwrap().unwrap();
    let shown = serde_json::to_string(&kept.letter).unwrap();
    assert!(shown.contains("unknown: ***") && matches!(kept.letter.request, LetterRequest::Whole { .. }), "{shown}");
    client.shutdown(Duration::from_secs(5)).await;
    assert!(!is_stored(&rows, CANARY) && !is_stored(&rows, SECOND));
    let names = is_stored(&rows, "\"replaced\":[\"x-api-key\"]");
    assert!(names, "the row names the header, for a process that does not know the secret");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_of_own_credential_names_secret_headers() {
    let client = open_client(&Arc::new(MemorySink::new(1))).await;
    let request = Request::get("open", "/a").header("x-api-key", CANARY);
    let error = client.outbox().enqueue("acme", Priority::Normal, request).await.unwrap_err().to_string();
    assert!(error.contains("`secret_headers` in the entry of the vendor or the tenant"), "{error}");
    client.shutdown(Duration::from_secs(5)).await;
}

/// A plain send leaves a letter, and the next process does not know the secret.
#[tokio::test(flavor = "multi_thread")]
async fn letter_without_its_header_is_not_sent() {
    let (rows, transport) = (folder(), FakeTransport::new(|_| FakeAnswer::status(503)));
    let process = async |headers: &str| {
        let builder = IntegrationClient::builder().without_catalogue().tenant(TenantEntry::new("acme", "open"));
        let builder = builder.vendors_toml(OPEN.replace("headers = { x-api-key = \"of-every-request\" }", headers));
        let builder = builder.credential_resolver("kept", |_: String| async move { Ok(SecretString::from("second")) });
        builder.store(Store::sqlite(rows.join("s.db"))).transport(transport.clone()).build().await.unwrap()
    };
    let first = process("secret_headers = { x-api-key = \"kept:x\" }").await;
    let request = Request::get("open", "/a").header("x-api-key", CANARY);
    let error = first.send("acme", Priority::Normal, request).await.unwrap_err();
    assert!(first.shutdown(Duration::from_secs(5)).await);
    drop(first);
    let (second, sent) = (process("").await, transport.calls().len());
    let letters = second.outbox().dead_letters().unwrap();
    let kept = letters.show(error.letter_id().unwrap()).await.unwrap().unwrap();
    let error = second.redrive(&kept.letter).await.unwrap_err();
    assert!(error.to_string().contains("the header x-api-key was left out"), "{error}");
    assert_eq!(transport.calls().len(), sent);
    // The row of the letter names it too, for the outbox.
    let holds = |bytes: Vec<u8>| bytes.windows(24).any(|window| window == b"\"replaced\":[\"x-api-key\"]");
    let count = std::fs::read_dir(&rows).unwrap().filter(|entry| {
        let path = entry.as_ref().unwrap().path();
        holds(std::fs::read(path).unwrap())
    });
    assert!(count.count() > 0);
    second.shutdown(Duration::from_secs(5)).await;
}
