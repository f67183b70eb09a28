//! Stored jobs that the vendor refuses: they are sent again whatever the size of their body, and a refusal is never
//! taken for a delivery.

use integration_client::testing::{FakeAnswer, FakeOutcome, FakeTransport};

use super::*;

/// A vendor without retries, whose dialect decides by the body whether a 200 is a refusal and a 429 is none.
const ONCE: &str = r#"
[vendors.v.retry]
max_retries = 0
[vendors.v.dialect]
answers = [
    { status = [200], from = "body#/error", is = ["THROTTLED"], throttled = true },
    { status = [429], from = "body#/error", is = ["quota"], throttled = false },
]
"#;

/// Accepts a request in a client whose vendor answers as `script` says, by the number of the call. Returns how the job
/// ends, its dead letter and the number of calls.
async fn outcome(
    store: Store,
    entry: &str,
    request: Request,
    script: impl Fn(usize) -> FakeAnswer + Send + Sync + 'static,
) -> (Status, Option<DeadLetter>, usize) {
    let transport = FakeTransport::new(move |call| script(call.number));
    let vendor = vendor(FakeVendor::builder()).await;
    let client = client(&vendor, &store, entry).transport(transport.clone()).work().build().await.unwrap();
    let receipt = client.outbox().enqueue("acme", Priority::Normal, request).await.unwrap();
    let status = until_ended(&receipt).await;
    let kept = client.outbox().dead_letters().unwrap().show(&receipt.id()).await.unwrap();
    (status, kept.map(|kept| kept.letter), transport.calls().len())
}

#[tokio::test(flavor = "multi_thread")]
async fn large_job_is_retried_after_refusal() {
    // Larger than the body that a plain send keeps for its retries.
    let large = || Request::post("v", "/a").body(vec![b'x'; 3 << 19]);
    for refusal in [FakeAnswer::status(429).header("retry-after", "1"), FakeAnswer::status(503)] {
        let store = Store::sqlite(folder().join("s.db")).max_payload_bytes(4 << 20);
        let first = refusal.clone();
        let script = move |number: usize| if number == 0 { first.clone() } else { FakeAnswer::status(200) };
        let (status, _, calls) = outcome(store, RETRY, large(), script).await;
        assert!(matches!(status, Status::Delivered { status: 200, attempts: 2, .. }), "{refusal:?}: {status:?}");
        assert_eq!(calls, 2, "{refusal:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_without_retries_is_no_delivery() {
    let throttled = FakeAnswer::status(200).body("{\"error\":\"THROTTLED\"}");
    for (answer, expected) in [
        (throttled, Reason::Exhausted),
        (FakeAnswer::status(429), Reason::Exhausted),
        (FakeAnswer::status(429).body("{\"error\":\"quota\"}"), Reason::Rejected),
    ] {
        let given = answer.clone();
        let store = Store::sqlite(folder().join("s.db"));
        let (status, letter, calls) = outcome(store, ONCE, post("/a"), move |_| given.clone()).await;
        let is_expected = matches!(status, Status::Dead { reason: Some(reason), .. } if reason == expected);
        assert!(is_expected, "{answer:?}: {status:?}");
        let letter = letter.unwrap();
        assert_eq!((letter.attempts.len(), calls), (1, 1), "{answer:?}: {letter:?}");
        let FakeOutcome::Response { status, body, .. } = answer.outcome else { panic!("it is an answer") };
        assert_eq!(letter.attempts[0].status, Some(status.as_u16()));
        let said = letter.attempts[0].answer.clone().unwrap_or_default();
        assert_eq!(said.as_bytes(), &body[..], "the letter holds the vendor's words");
    }
}

/// The refusal of a job is in the body alone, which the client can read in no coding but gzip.
#[tokio::test(flavor = "multi_thread")]
async fn brotli_of_a_job_hides_no_refusal() {
    let transport = FakeTransport::new(|call| match call.header("accept-encoding") {
        Some(codings) if codings.contains("br") => {
            FakeAnswer::status(200).header("content-encoding", "br").body(&b"\x0b\x0e\x80 packed"[..])
        }
        _ => FakeAnswer::status(200).body("{\"error\":\"THROTTLED\"}"),
    });
    let vendor = vendor(FakeVendor::builder()).await;
    let store = Store::sqlite(folder().join("s.db"));
    let client = client(&vendor, &store, ONCE).transport(transport).work().build().await.unwrap();
    let request = post("/a").header("accept-encoding", "gzip, br");
    let receipt = client.outbox().enqueue("acme", Priority::Normal, request).await.unwrap();
    let status = until_ended(&receipt).await;
    assert!(matches!(status, Status::Dead { reason: Some(Reason::Exhausted), .. }), "{status:?}");
}

/// A vendor that answers batches.
const BATCHES: &str = r#"
[vendors.v.dialect]
answers = [{ status = [200], from = "body#/responses/*/status", is = [429], throttled = true }]
waits = [{ from = "body#/responses/*/headers/Retry-After" }]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn kept_response_shows_the_refused_parts() {
    // Longer than what a letter keeps, and the refused part comes last.
    let done = format!("{{\"status\":201,\"body\":\"{}\"}}", "x".repeat(500));
    let body = format!("{{\"responses\":[{done},{{\"status\":429}}]}}");
    let answer = FakeAnswer::status(200).header("content-type", "application/json").body(body.clone());
    let store = Store::sqlite(folder().join("s.db"));
    let request = post("/$batch").keep_response();
    let (status, letter, made) = outcome(store, BATCHES, request, move |_| answer.clone()).await;
    let Status::Delivered { status: 200, response: Some(response), .. } = status else { panic!("{status:?}") };
    assert_eq!((&response.body()[..], made), (body.as_bytes(), 1));
    assert!(letter.is_none(), "{letter:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_refused_in_part_is_not_sent_again() {
    let refused = r#"{"status":429,"headers":{"Retry-After":"1"}}"#;
    let done = r#"{"status":201}"#;
    // More parts than are read of one response, of which only those that are read are refused.
    let too_many = vec![refused; 100].join(",");
    for (parts, is_whole) in [
        (format!("{done},{refused}"), false),
        (format!("{refused},{refused}"), true),
        (format!("{refused},{{\"status\":424}}"), true),
        (format!("{too_many},{done}"), false),
        (format!("{refused},{{\"status\":201,\"body\":\"{}\"}}", "x".repeat(1 << 17)), false),
    ] {
        let body = format!("{{\"responses\":[{parts}]}}");
        let first = FakeAnswer::status(200).header("content-type", "application/json").body(body.clone());
        let script = move |number: usize| if number == 0 { first.clone() } else { FakeAnswer::status(200) };
        let store = Store::sqlite(folder().join("s.db"));
        let (status, letter, made) = outcome(store, BATCHES, post("/$batch"), script).await;
        let parts = &parts[..parts.len().min(120)];
        if is_whole {
            assert!(matches!(status, Status::Delivered { status: 200, .. }) && letter.is_none(), "{parts}: {status:?}");
            assert_eq!(made, 2, "{parts}");
            continue;
        }
        let is_ambiguous = matches!(status, Status::Dead { reason: Some(Reason::Ambiguous), .. });
        assert!(is_ambiguous && made == 1, "{parts}: {status:?} after {made} calls");
        let attempts = letter.unwrap().attempts;
        assert_eq!((attempts.len(), attempts[0].status), (1, Some(200)), "{parts}");
        let said = attempts[0].answer.clone().unwrap();
        assert!(body.starts_with(&said) && said.len() >= 30, "the letter holds the vendor's words: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redriven_letter_holds_the_next_refusal() {
    // The first 401 only replaces the credential.
    let transport = FakeTransport::new(|call| match call.number {
        0 | 1 => FakeAnswer::status(401),
        _ => FakeAnswer::status(422).body("the postcode is missing"),
    });
    let vendor = vendor(FakeVendor::builder()).await;
    let store = Store::sqlite(folder().join("s.db"));
    let client = client(&vendor, &store, RETRY).transport(transport).work().build().await.unwrap();
    let receipt = client.outbox().enqueue("acme", Priority::Normal, post("/a")).await.unwrap();
    until_ended(&receipt).await;
    let letters = client.outbox().dead_letters().unwrap();
    assert!(letters.redrive(&receipt.id()).await.unwrap());
    until_ended(&receipt).await;
    let letter = letters.show(&receipt.id()).await.unwrap().unwrap().letter;
    let told: Vec<_> = letter.attempts.iter().map(|attempt| (attempt.status, attempt.answer.as_deref())).collect();
    assert_eq!(told, [(Some(401), None), (Some(401), None), (Some(422), Some("the postcode is missing"))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn letter_hides_the_secret_that_the_vendor_repeats() {
    // The secret begins at the 188th character of the third body: before the end of the 200 that are kept.
    for (status, keep, filler) in
        [(400, "redacted", 0), (503, "redacted", 0), (400, "redacted", 180), (400, "whole", 0), (401, "whole", 0)]
    {
        let filler = "x".repeat(filler);
        let before = filler.clone();
        let transport = FakeTransport::new(move |call| {
            let repeated = call.header("authorization").unwrap_or_default();
            FakeAnswer::status(status).body(format!("{before}{repeated}"))
        });
        let vendor = vendor(FakeVendor::builder()).await;
        let store = Store::sqlite(folder().join("s.db"));
        let entry = format!("{RETRY}\n[vendors.v.environments.other]\ndead_letters = \"{keep}\"\n");
        let other = TenantEntry::new("other", "v").credential("keys:acme").environment("other");
        let client = client(&vendor, &store, &entry).transport(transport).tenant(other).work().build().await.unwrap();
        let receipt = client.outbox().enqueue("other", Priority::Normal, post("/a")).await.unwrap();
        until_ended(&receipt).await;
        let letter = client.outbox().dead_letters().unwrap().show(&receipt.id()).await.unwrap().unwrap().letter;
        let answer = letter.attempts.last().unwrap().answer.clone();
        assert_eq!(answer, Some(format!("{filler}Bearer ***")), "{status} {keep}");
    }
}
