//! Jobs whose idempotency key the vendor may have forgotten by the time at which they would be sent again.

use std::sync::atomic::{AtomicBool, AtomicI64};

use integration_client::store::faults::{Fault as StoreFault, Moment, Watch};
use integration_client::testing::{FakeAnswer, FakeTransport};

use super::*;

/// A machine that a test lets run ahead.
pub(super) struct Machine {
    pub(super) began: tokio::time::Instant,
    pub(super) ahead_ms: AtomicI64,
}

impl Watch for Machine {
    fn at(&self, _: &'static str, _: Moment) -> StoreFault {
        StoreFault::None
    }

    fn restarted(&self) -> Option<(u64, i64)> {
        let ran_ms = i64::try_from(now().duration_since(self.began).as_millis()).unwrap();
        Some((0, ran_ms + self.ahead_ms.load(Relaxed)))
    }
}

/// [`RETRY`], at a vendor that keeps keys for half an hour.
fn half_hour() -> String {
    RETRY.replacen("\"idempotency-key\"", "\"idempotency-key\"\nkeeps = \"30m\"", 1)
}

async fn letter_of(client: &IntegrationClient, id: &str) -> DeadLetter {
    client.outbox().dead_letters().unwrap().show(id).await.unwrap().unwrap().letter
}

/// The process is killed in the middle of the exchange, and the next one starts minutes later.
#[test]
fn job_whose_key_is_forgotten_is_not_resent() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for (minutes, is_sent) in [(20, true), (31, false)] {
        let stalls = FakeVendor::builder().fault(When::any().first(1), Fault::Stall);
        let vendor = runtime.block_on(vendor(stalls));
        let machine = Arc::new(Machine { began: now(), ahead_ms: AtomicI64::new(0) });
        let store = Store::sqlite(folder().join("s.db")).watched_by(machine.clone());
        let id = enqueue_in_dying_process(&vendor, &store, &half_hour(), post("/a"));
        machine.ahead_ms.store(minutes * 60_000, Relaxed);
        runtime.block_on(async {
            let next = client(&vendor, &store, &half_hour()).work().build().await.unwrap();
            let status = until_ended(&next.outbox().receipt(&id).unwrap()).await;
            let arrivals = vendor.arrivals();
            if is_sent {
                assert!(matches!(status, Status::Delivered { attempts: 2, .. }), "{status:?}");
                assert_eq!(arrivals.len(), 2);
                assert_eq!(arrivals[0].idempotency_key, arrivals[1].idempotency_key);
            } else {
                assert!(matches!(status, Status::Dead { reason: Some(Reason::Ambiguous), .. }), "{status:?}");
                assert_eq!(arrivals.len(), 1, "the vendor may act twice: not sent again");
                let letter = letter_of(&next, &id).await;
                let why = letter.attempts.last().unwrap().error.clone().unwrap();
                assert!(why.contains("may no longer know the idempotency key"), "{why}");
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_wait_outlasts_the_key() {
    let an_hour = |status: u16| FakeAnswer::status(status).header("retry-after", "3600");
    // The last answer says to wait for an hour. The vendor may have acted before, except where it only refused.
    for (answers, in_doubt) in
        [(vec![an_hour(503)], true), (vec![FakeAnswer::reset(), an_hour(429)], true), (vec![an_hour(429)], false)]
    {
        let expected = answers.len();
        let transport = FakeTransport::new(move |call| answers[call.number.min(expected - 1)].clone());
        let vendor = vendor(FakeVendor::builder()).await;
        let store = Store::sqlite(folder().join("s.db"));
        let builder = client(&vendor, &store, &half_hour()).transport(transport.clone());
        let client = builder.work().build().await.unwrap();
        let receipt = client.outbox().enqueue("acme", Priority::Normal, post("/a")).await.unwrap();
        while transport.calls().len() < expected {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let status = wait_for_status(&receipt, |status| !matches!(status, Status::UnderWay)).await;
        if in_doubt {
            assert!(matches!(status, Status::Dead { reason: Some(Reason::Ambiguous), .. }), "{status:?}");
        } else {
            assert!(matches!(status, Status::Waiting { .. }), "{status:?}");
        }
        assert_eq!(transport.calls().len(), expected);
    }
}

/// A letter is sent again while the vendor knows its key, and the job waits until the vendor may have forgotten it.
#[tokio::test(flavor = "multi_thread")]
async fn redriven_job_is_not_sent_after_its_key() {
    for (minutes, is_plain) in [(20, false), (20, true), (31, false), (31, true)] {
        let is_up = Arc::new(AtomicBool::new(false));
        let answers = is_up.clone();
        let transport = FakeTransport::new(move |_| FakeAnswer::status(if answers.load(Relaxed) { 200 } else { 504 }));
        let vendor = vendor(FakeVendor::builder()).await;
        let machine = Arc::new(Machine { began: now(), ahead_ms: AtomicI64::new(0) });
        let store = Store::sqlite(folder().join("s.db")).watched_by(machine.clone());
        // Of a plain send no more than an outline is kept, unless its entry says otherwise.
        let entry = half_hour() + "[vendors.v.environments.whole]\ndead_letters = \"whole\"\n";
        let whole = || TenantEntry::new("whole", "v").credential("keys:acme").environment("whole");
        let builder = || client(&vendor, &store, &entry).transport(transport.clone()).tenant(whole());

        let first = builder().work().build().await.unwrap();
        let id = match is_plain {
            true => {
                let error = first.send("whole", Priority::Normal, post("/a")).await.unwrap_err();
                error.letter_id().unwrap().to_owned()
            }
            false => {
                let receipt = first.outbox().enqueue("whole", Priority::Normal, post("/a")).await.unwrap();
                until_ended(&receipt).await;
                receipt.id()
            }
        };
        assert!(first.shutdown(Duration::from_secs(5)).await);
        drop(first);
        let accepting = builder().build().await.unwrap();
        assert_eq!(letter_of(&accepting, &id).await.reason, Reason::Exhausted, "all retries are used");
        assert!(accepting.outbox().dead_letters().unwrap().redrive(&id).await.unwrap());
        drop(accepting);

        let tried = transport.calls().len();
        machine.ahead_ms.store(minutes * 60_000, Relaxed);
        is_up.store(true, Relaxed);
        let next = builder().work().build().await.unwrap();
        let receipt = next.outbox().receipt(&id).unwrap();
        let status = until_ended(&receipt).await;
        if minutes < 30 {
            assert!(matches!(status, Status::Delivered { .. }), "{status:?}");
            assert_eq!(transport.calls().len(), tried + 1);
            continue;
        }
        assert!(matches!(status, Status::Dead { reason: Some(Reason::Ambiguous), .. }), "{status:?}");
        assert_eq!(transport.calls().len(), tried, "the vendor may act twice: not sent again");
        let why = letter_of(&next, &id).await.attempts.last().unwrap().error.clone().unwrap();
        assert!(why.contains("may no longer know the idempotency key"), "{why}");
        // A person has asked the vendor.
        assert!(next.outbox().dead_letters().unwrap().redrive(&id).await.unwrap());
        let status = until_ended(&receipt).await;
        assert!(matches!(status, Status::Delivered { .. }), "{status:?}");
        assert_eq!(transport.calls().len(), tried + 1);
    }
}

/// Two operators look at a letter, and send it again one after the other. The vendor has forgotten its key.
#[tokio::test(flavor = "multi_thread")]
async fn second_redrive_sends_no_job_in_doubt() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(504));
    let vendor = vendor(FakeVendor::builder()).await;
    let machine = Arc::new(Machine { began: now(), ahead_ms: AtomicI64::new(0) });
    let store = Store::sqlite(folder().join("s.db")).watched_by(machine.clone());
    let builder = || client(&vendor, &store, &half_hour()).transport(transport.clone());
    let first = builder().work().build().await.unwrap();
    let receipt = first.outbox().enqueue("acme", Priority::Normal, post("/a")).await.unwrap();
    until_ended(&receipt).await;
    assert!(first.shutdown(Duration::from_secs(5)).await);
    let id = receipt.id();
    drop((receipt, first));

    let tried = transport.calls().len();
    machine.ahead_ms.store(31 * 60_000, Relaxed);
    let next = builder().work().build().await.unwrap();
    let letters = next.outbox().dead_letters().unwrap();
    let seen = letters.show(&id).await.unwrap().unwrap();
    assert!(seen.letter.reason == Reason::Exhausted && seen.is_in_doubt(), "{seen:?}");
    assert!(letters.redrive_seen(&seen).await.unwrap());
    let status = until_ended(&next.outbox().receipt(&id).unwrap()).await;
    assert!(matches!(status, Status::Dead { reason: Some(Reason::Ambiguous), .. }), "{status:?}");
    assert!(!letters.redrive_seen(&seen).await.unwrap(), "it is another letter now");
    assert_eq!(letter_of(&next, &id).await.reason, Reason::Ambiguous);
    let later = letters.show(&id).await.unwrap().unwrap();
    assert!(later.version() != seen.version() && !later.is_in_doubt(), "the later one is sent: {later:?}");
    assert_eq!(transport.calls().len(), tried, "the vendor may act twice: not sent again");
}

/// A refusal of the attempt that a person has asked for says nothing of the attempt that got no answer.
#[tokio::test(flavor = "multi_thread")]
async fn redriven_ambiguous_letter_stays_in_doubt() {
    let transport =
        FakeTransport::new(|call| if call.number == 0 { FakeAnswer::reset() } else { FakeAnswer::status(404) });
    let vendor = vendor(FakeVendor::builder()).await;
    let store = Store::sqlite(folder().join("s.db"));
    let client = client(&vendor, &store, RETRY).transport(transport.clone()).work().build().await.unwrap();
    let receipt = client.outbox().enqueue("acme", Priority::Normal, post("/a")).await.unwrap();
    let letters = client.outbox().dead_letters().unwrap();
    // The first attempt is repeated, with its key.
    for calls in 2..=4 {
        let status = until_ended(&receipt).await;
        assert!(matches!(status, Status::Dead { reason: Some(Reason::Ambiguous), .. }), "{status:?}");
        assert_eq!(transport.calls().len(), calls);
        assert!(letters.redrive(&receipt.id()).await.unwrap());
    }
}
