//! How a claim ends after the vendor's answers, and what is recorded of it.

use http::{HeaderMap, StatusCode};

use super::*;
use crate::Class;
use crate::config::OnAmbiguous;
use crate::dead_letter::{AttemptRecord, Phase};

/// The limit has no unit for a second exchange in the claim in which the credential is replaced.
#[tokio::test(start_paused = true)]
async fn credential_is_replaced_once_across_claims() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(401));
    let client = builder_with_secret(SLOW, &transport, true).build().await.unwrap();
    let records = StallingRecords::new(Duration::ZERO, &[]);
    let mut history = History::default();
    let letter = loop {
        match send_stored(client.core(), Sending { history, ..job(1, records.clone()) }, None).await {
            ClaimEnd::Later { wait, history: next } if transport.calls().len() < 3 => {
                tokio::time::sleep(wait).await;
                history = next;
            }
            ClaimEnd::Dead(letter) => break letter,
            _ => panic!("{} calls", transport.calls().len()),
        }
    };
    assert_eq!((letter.reason, transport.calls().len()), (Reason::Rejected, 2));
}

/// The job was a dead letter, and was sent again. Now the vendor refuses its secret, and then the request.
#[tokio::test(start_paused = true)]
async fn each_refusal_has_a_record_of_its_own() {
    let transport = FakeTransport::new(|call| match call.number {
        0 => FakeAnswer::status(401),
        _ => FakeAnswer::status(422).body("the postcode is missing"),
    });
    let client = builder_with_secret(TWENTY, &transport, true).build().await.unwrap();
    let earlier = AttemptRecord::new(jiff::Timestamp::UNIX_EPOCH, Phase::MaybeSent, 0);
    let history = History { attempts: vec![earlier], ..History::default() };
    let records = StallingRecords::new(Duration::ZERO, &[]);
    let ending = send_stored(client.core(), Sending { history, ..job(1, records) }, None).await;
    let ClaimEnd::Dead(letter) = ending else { panic!("the vendor refused it for good") };
    let told: Vec<_> = letter.attempts.iter().map(|attempt| (attempt.status, attempt.answer.as_deref())).collect();
    assert_eq!(told, [(None, None), (Some(401), None), (Some(422), Some("the postcode is missing"))]);
}

/// Redirects are not followed. Two of them say that the request was processed.
#[tokio::test(start_paused = true)]
async fn redirect_delivers_only_what_was_processed() {
    for (status, is_delivered) in [(303, true), (304, true), (301, false), (302, false), (307, false), (308, false)] {
        let transport = FakeTransport::new(move |_| FakeAnswer::status(status).header("location", "/elsewhere"));
        let client = builder_with_secret(TWENTY, &transport, true).build().await.unwrap();
        let request = Request::post("v", "/a").body("content");
        let sending = Sending { request, ..job(1, StallingRecords::new(Duration::ZERO, &[])) };
        let is_expected = match send_stored(client.core(), sending, None).await {
            ClaimEnd::Delivered(answer) => is_delivered && answer.0.status().as_u16() == status,
            ClaimEnd::Dead(letter) => !is_delivered && letter.reason == Reason::Rejected,
            _ => false,
        };
        assert!(is_expected && transport.calls().len() == 1, "{status}");
    }
}

/// A refusal after an attempt on which the vendor may have acted. Only a method that is safe to repeat, or a refusal of
/// what the request says, leaves no doubt. Of such a refusal the letter holds none, so that its job is sent however old
/// the key is.
#[tokio::test(start_paused = true)]
async fn refusal_in_doubt_is_ambiguous() {
    let keyed = || Request::post("v", "/a").body("content").accepted_key("k");
    let resent = || keyed().on_ambiguous(OnAmbiguous::Resend);
    let bare = || Request::post("v", "/a").body("content").without_new_key().on_ambiguous(OnAmbiguous::Resend);
    for (request, status, is_in_doubt, reason) in [
        (keyed(), 401, true, Reason::Ambiguous),
        (keyed(), 403, true, Reason::Ambiguous),
        (keyed(), 404, true, Reason::Ambiguous),
        (keyed(), 409, true, Reason::Ambiguous),
        (keyed(), 302, true, Reason::Ambiguous),
        (keyed(), 400, true, Reason::Rejected),
        (keyed(), 422, true, Reason::Rejected),
        (keyed(), 409, false, Reason::Rejected),
        (resent(), 409, true, Reason::Rejected),
        (bare(), 422, true, Reason::Rejected),
        (Request::get("v", "/a"), 403, true, Reason::Rejected),
        (Request::delete("v", "/a"), 404, true, Reason::Rejected),
    ] {
        let transport = FakeTransport::new(move |_| FakeAnswer::status(status));
        let entry = format!("{TWENTY}[vendors.v.idempotency]\nheader = \"idempotency-key\"\n");
        let client = builder_with_secret(&entry, &transport, true).build().await.unwrap();
        let history = History { may_have_acted_at: is_in_doubt.then_some(0), ..History::default() };
        let what = format!("{} {status}, in doubt: {is_in_doubt}", request.method());
        let is_bare = request.parts.notes.as_ref().is_some_and(|notes| notes.accepted_without_key);
        let records = StallingRecords::new(Duration::ZERO, &[]);
        let ending = send_stored(client.core(), Sending { request, history, ..job(1, records) }, None).await;
        let ClaimEnd::Dead(letter) = ending else { panic!("{what}: it goes on") };
        assert_eq!((letter.reason, letter.attempts.last().unwrap().status), (reason, Some(status)), "{what}");
        // Without a key the refusal may be of the repetition alone.
        let is_answered = matches!(status, 400 | 422) && !is_bare;
        assert_eq!(letter.may_have_acted_at.is_some(), is_in_doubt && !is_answered, "{what}");
    }
}

/// A person has sent an ambiguous letter again. The attempt is made, and its refusal answers the earlier ones only if it
/// is about what the request says, and the vendor still knows the key.
#[tokio::test(start_paused = true)]
async fn doubt_outlasts_a_redrive() {
    const TWO_DAYS: i64 = 2 * 86_400_000;
    for (status, acted_at, reason) in [
        (401, 0, Reason::Ambiguous),
        (404, 0, Reason::Ambiguous),
        (409, -TWO_DAYS, Reason::Ambiguous),
        (422, 0, Reason::Rejected),
        (422, -TWO_DAYS, Reason::Ambiguous),
    ] {
        let transport = FakeTransport::new(move |_| FakeAnswer::status(status));
        let entry = format!("{TWENTY}[vendors.v.idempotency]\nheader = \"idempotency-key\"\n");
        let client = builder_with_secret(&entry, &transport, true).build().await.unwrap();
        let request = Request::post("v", "/a").body("content").accepted_key("k");
        let history = History { overruled_at: Some(acted_at), ..History::default() };
        let sending = Sending { request, history, ..job(1, StallingRecords::new(Duration::ZERO, &[])) };
        let ClaimEnd::Dead(letter) = send_stored(client.core(), sending, None).await else { panic!("it goes on") };
        assert_eq!(letter.attempts.last().unwrap().status, Some(status), "it was sent");
        let is_in_doubt = reason == Reason::Ambiguous;
        assert_eq!((letter.reason, letter.may_have_acted_at), (reason, is_in_doubt.then_some(acted_at)), "{status}");
    }
}

/// A classifier that panics leaves the decision to the status.
#[tokio::test(start_paused = true)]
async fn panic_of_the_classifier_ends_no_job() {
    for (status, is_delivered) in [(200, true), (422, false)] {
        let transport = FakeTransport::new(move |_| FakeAnswer::status(status));
        let panics = |_: StatusCode, _: &HeaderMap| -> Option<Class> { panic!("the program's mistake") };
        let client = builder_with_secret(TWENTY, &transport, true).classifier("v", panics).build().await.unwrap();
        let ending = send_stored(client.core(), job(1, StallingRecords::new(Duration::ZERO, &[])), None).await;
        let is_expected = match ending {
            ClaimEnd::Delivered(_) => is_delivered,
            ClaimEnd::Dead(letter) => !is_delivered && letter.reason == Reason::Rejected,
            _ => false,
        };
        assert!(is_expected && transport.calls().len() == 1, "{status}");
    }
}

/// A job of a tenant that an operator has paused, whose secret is not at hand.
#[tokio::test(start_paused = true)]
async fn job_of_paused_tenant_is_recorded_once_it_is_sent() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let client = builder_with_secret(TWENTY, &transport, true).build().await.unwrap();
    client.tenants().pause("acme", "v").unwrap();
    let records = StallingRecords::new(Duration::ZERO, &[]);
    let sending = send_stored(client.core(), job(1, records.clone()), None);
    let resumed = async {
        tokio::time::sleep(5 * SECOND).await;
        assert_eq!((records.records.load(Relaxed), transport.calls().len()), (0, 0));
        client.tenants().resume("acme", "v").unwrap();
    };
    let (ending, ()) = tokio::join!(sending, resumed);
    assert!(matches!(ending, ClaimEnd::Delivered(_)));
    assert_eq!((records.records.load(Relaxed), transport.calls().len()), (1, 1));
}

/// The lane of a paused tenant moves to another shard while its job waits, because the tenant gets another account. On
/// a thread of its own, because a job that asked again and again at its old place would let nothing else run.
#[test]
fn job_of_paused_tenant_follows_its_lane() {
    let (told, ended) = std::sync::mpsc::channel();
    #[expect(clippy::disallowed_methods, reason = "a test that may hang")]
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let limit = "[[vendors.v.limits]]\nname = \"all\"\nlimit = 20\nwindow = \"1s\"\nscope = \"account\"\n";
            let transport = FakeTransport::new(|_| FakeAnswer::status(200));
            let client = builder_with_secret(limit, &transport, true).shards(8).build().await.unwrap();
            client.tenants().pause("acme", "v").unwrap();
            let records = StallingRecords::new(Duration::ZERO, &[]);
            let sending = send_stored(client.core(), job(1, records.clone()), None);
            let resumed = async {
                for account in 0..8 {
                    tokio::time::sleep(SECOND).await;
                    let entry = TenantEntry::new("acme", "v").credential("keys:acme").account(format!("a{account}"));
                    client.tenants().set(entry).unwrap();
                }
                tokio::time::sleep(SECOND).await;
                assert_eq!((records.records.load(Relaxed), transport.calls().len()), (0, 0));
                client.tenants().resume("acme", "v").unwrap();
            };
            let (ending, ()) = tokio::join!(sending, resumed);
            assert!(matches!(ending, ClaimEnd::Delivered(_)));
            assert_eq!((records.records.load(Relaxed), transport.calls().len()), (1, 1));
        });
        told.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(20)).expect("the job waits, and is sent once");
}
