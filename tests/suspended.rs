//! The machine is suspended between a doubtful exchange and its repetition: the monotonic clock stands still, the wall
//! clock goes on, and the idempotency key grows older.
//!
//! The tests have a process of their own, because they step the wall clock that all clients of the process read.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests: helpers unwrap too")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::dead_letter::Reason;
use integration_client::outbox::{Receipt, Status};
use integration_client::store::Store;
use integration_client::store::faults::{Fault, Moment, Watch};
use integration_client::testing::{FakeAnswer, FakeTransport, step_wall_clock};
use integration_client::{Delivery, IntegrationClient, IntegrationClientBuilder, Priority, Request};
use tokio::sync::Mutex;

/// Held by the test that runs.
static ALONE: Mutex<()> = Mutex::const_new(());

const MINUTE_MS: i64 = 60_000;

/// For how many milliseconds the machine is suspended, and how many calls there are: the vendor keeps keys for six
/// minutes, and a call may take half a minute.
const CASES: [(i64, usize); 2] = [(5 * MINUTE_MS, 2), (7 * MINUTE_MS, 1)];

fn builder(transport: &FakeTransport) -> IntegrationClientBuilder {
    let text = "[vendors.v]\nbase_url = \"https://v.example\"\nunpublished = true\nattempt_timeout = \"30s\"\n\
                retry = { first_wait = \"50ms\", longest_wait = \"100ms\" }\n\
                idempotency = { header = \"idempotency-key\", keeps = \"6m\" }\n";
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(text);
    builder.transport(transport.clone()).tenant(TenantEntry::new("a", "v"))
}

fn order() -> Request {
    Request::post("v", "/orders").json(&["work"]).idempotency_key("order-17")
}

async fn until_ended(receipt: &Receipt) -> Status {
    for _ in 0..1_000 {
        let status = receipt.status().await.unwrap();
        if !matches!(status, Status::Waiting { .. } | Status::UnderWay) {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it does not end");
}

#[tokio::test(start_paused = true)]
async fn plain_retry_after_suspension_is_ambiguous() {
    let _alone = ALONE.lock().await;
    for (suspended_ms, calls) in CASES {
        let transport = FakeTransport::new(|call| match call.number {
            0 => FakeAnswer::status(503).header("retry-after", "10"),
            _ => FakeAnswer::status(200),
        });
        let client = builder(&transport).build().await.unwrap();
        let suspension = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            step_wall_clock(suspended_ms);
        };
        let (sent, ()) = tokio::join!(client.send("a", Priority::Normal, order()), suspension);
        assert_eq!(transport.calls().len(), calls, "{sent:?}");
        match calls {
            1 => {
                let error = sent.unwrap_err();
                assert_eq!(error.delivery(), Delivery::Ambiguous);
                assert!(error.to_string().contains("may no longer know the idempotency key"), "{error}");
            }
            _ => assert_eq!(sent.unwrap().status(), 200),
        }
    }
}

/// The vendor reads the key before the suspension, and the answer is read after it.
#[tokio::test(start_paused = true)]
async fn suspension_during_an_exchange_counts() {
    let _alone = ALONE.lock().await;
    for (suspended_ms, calls) in CASES {
        let transport = FakeTransport::new(move |call| {
            if call.number > 0 {
                return FakeAnswer::status(200);
            }
            step_wall_clock(suspended_ms);
            FakeAnswer::reset()
        });
        let client = builder(&transport).build().await.unwrap();
        let sent = client.send("a", Priority::Normal, order()).await;
        assert_eq!(transport.calls().len(), calls, "{sent:?}");
        match calls {
            1 => assert_eq!(sent.unwrap_err().delivery(), Delivery::Ambiguous),
            _ => assert_eq!(sent.unwrap().status(), 200),
        }
    }
}

/// Suspends the machine for this many milliseconds while the second exchange is recorded.
struct SuspendedAtSecondStart {
    suspended_ms: i64,
    starts: AtomicU32,
}

impl Watch for SuspendedAtSecondStart {
    fn at(&self, what: &'static str, moment: Moment) -> Fault {
        if what == "start" && moment == Moment::Before && self.starts.fetch_add(1, Relaxed) == 1 {
            step_wall_clock(self.suspended_ms);
        }
        Fault::None
    }
}

/// The job is claimed while the vendor knows its key, and gets its permit when the vendor has forgotten it.
#[tokio::test(flavor = "multi_thread")]
async fn claimed_job_is_not_resent_after_suspension() {
    let _alone = ALONE.lock().await;
    let folder = std::env::temp_dir().join(format!("ic-suspended-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    for (suspended_ms, calls) in CASES {
        let transport = FakeTransport::new(|call| FakeAnswer::status(if call.number == 0 { 503 } else { 200 }));
        let watch = SuspendedAtSecondStart { suspended_ms, starts: AtomicU32::new(0) };
        let store = Store::sqlite(folder.join(format!("{suspended_ms}.db"))).watched_by(Arc::new(watch));
        let client = builder(&transport).store(store).work().build().await.unwrap();
        let receipt = client.outbox().enqueue("a", Priority::Normal, order()).await.unwrap();
        let status = until_ended(&receipt).await;
        assert_eq!(transport.calls().len(), calls, "{status:?}");
        match calls {
            1 => assert!(matches!(status, Status::Dead { reason: Some(Reason::Ambiguous), .. }), "{status:?}"),
            _ => assert!(matches!(status, Status::Delivered { attempts: 2, .. }), "{status:?}"),
        }
        client.shutdown(Duration::from_secs(5)).await;
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
