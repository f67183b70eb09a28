//! Stored jobs that do not fit the configuration: one that costs more than a limit holds, one whose endpoint is gone,
//! one with a header that it may not state any more, and one that needs a secret which another process has.

use super::*;
use crate::send::unfit::Unfit;

/// Four days of waits.
const FOUR_DAYS: Unfit = Unfit { waited_ms: 4 * 86_400_000, alone_ms: 0 };

fn points(limit: u32) -> String {
    format!(
        "[[vendors.v.limits]]\nname = \"p\"\nalgorithm = \"fixed_window\"\nlimit = {limit}\nwindow = \"1h\"\n\
         unit = \"points\"\n[vendors.v.idempotency]\nheader = \"idempotency-key\"\n"
    )
}

fn costly(history: History) -> Sending {
    let request = Request::post("v", "/").body("content").accepted_key("k").cost("points", 50);
    Sending { request, history, ..job(1, StallingRecords::new(Duration::ZERO, &[])) }
}

#[tokio::test(start_paused = true)]
async fn too_expensive_job_waits_for_higher_figure() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let lowered = builder(&points(10), &transport).build().await.unwrap();
    let mut history = History::default();
    for _ in 0..20 {
        match send_stored(lowered.core(), costly(history), None).await {
            ClaimEnd::Later { wait, history: next } => {
                assert!((30 * SECOND..=910 * SECOND).contains(&wait), "{wait:?}");
                history = next;
            }
            _ => panic!("it ended"),
        }
    }
    assert!(history.unfit.is_some_and(|unfit| unfit.waited_ms > 600_000), "{history:?}");
    let [record] = &history.attempts[..] else { panic!("it is recorded once: {history:?}") };
    assert!(record.error.as_ref().is_some_and(|error| error.contains("never fits limit `p`")), "{record:?}");
    let raised = builder(&points(100), &transport).build().await.unwrap();
    let ending = send_stored(raised.core(), costly(history), None).await;
    assert!(matches!(ending, ClaimEnd::Delivered(_)) && transport.calls().len() == 1);
}

#[tokio::test(start_paused = true)]
async fn too_expensive_job_ends_after_four_days() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let client = builder(&points(10), &transport).build().await.unwrap();
    for (may_have_acted_at, reason) in [(None, Reason::Rejected), (Some(0), Reason::Ambiguous)] {
        let history = History { unfit: Some(FOUR_DAYS), may_have_acted_at, ..History::default() };
        let ending = send_stored(client.core(), costly(history), None).await;
        let ClaimEnd::Dead(letter) = ending else { panic!("it goes on") };
        assert_eq!(letter.reason, reason);
    }
    assert!(transport.calls().is_empty());
}

/// Claims of a job that names a missing endpoint, until it is given up or has waited for `most`. Returns its waits.
async fn waits_without_endpoint(may_be_known: bool, most: Duration) -> Duration {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let client = builder(TWENTY, &transport).build().await.unwrap();
    let (mut history, mut waited) = (History::default(), Duration::ZERO);
    while waited < most {
        let request = Request::get("v", "/").endpoint("gone");
        let records = StallingRecords::new(Duration::ZERO, &[]);
        let sending = Sending { request, history, may_be_known, ..job(1, records) };
        match send_stored(client.core(), sending, None).await {
            ClaimEnd::Later { wait, history: next } => (history, waited) = (next, waited + wait),
            ClaimEnd::NotConfigured { history } => {
                assert_eq!(history.attempts.len(), 1, "{history:?}");
                return waited;
            }
            _ => panic!("it ended after {waited:?}"),
        }
    }
    waited
}

#[tokio::test(start_paused = true)]
async fn job_of_missing_endpoint_is_given_up() {
    let waited = waits_without_endpoint(false, 3_600 * SECOND).await;
    assert!((600 * SECOND..700 * SECOND).contains(&waited), "{waited:?}");
    let waited = waits_without_endpoint(true, 3_600 * SECOND).await;
    assert!(waited >= 3_600 * SECOND, "another process may know the endpoint: {waited:?}");
}

/// The job states a header, in which its tenant's credential goes from then on.
#[tokio::test(start_paused = true)]
async fn job_in_hand_that_stops_fitting_waits() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let other = "[vendors.v.environments.other]\nauth = { scheme = \"header\", name = \"x-own\" }\n";
    let client = builder_with_secret(&format!("{TWENTY}{other}"), &transport, true).build().await.unwrap();
    let tenant = || TenantEntry::new("acme", "v").credential("keys:acme");
    let send = async |history: History| {
        let request = Request::post("v", "/").header("x-own", "value").body("content");
        let sending = Sending { request, history, ..job(1, StallingRecords::new(Duration::ZERO, &[])) };
        send_stored(client.core(), sending, None).await
    };
    client.tenants().pause("acme", "v").unwrap();
    let changes = async {
        tokio::time::sleep(5 * SECOND).await;
        client.tenants().set(tenant().environment("other")).unwrap();
        client.tenants().resume("acme", "v").unwrap();
    };
    let (ending, ()) = tokio::join!(send(History::default()), changes);
    let ClaimEnd::Later { wait, history } = ending else { panic!("it ended") };
    assert_eq!(wait, 30 * SECOND);
    let ClaimEnd::Later { history, .. } = send(history).await else { panic!("it ended") };
    let [record] = &history.attempts[..] else { panic!("it is recorded once: {history:?}") };
    assert!(record.error.as_ref().is_some_and(|error| error.contains("x-own")), "{record:?}");
    assert!(history.unfit.is_some() && transport.calls().is_empty());
    client.tenants().set(tenant()).unwrap();
    assert!(matches!(send(history).await, ClaimEnd::Delivered(_)) && transport.calls().len() == 1);
}

/// The process that accepted the job had loaded `secret_headers` earlier than the one that sends it.
#[tokio::test(start_paused = true)]
async fn job_waits_for_secret_of_replaced_header() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let sending = |history| {
        let request = Request::post("v", "/").body("content").replaced_headers(&["x-second".into()]);
        Sending { request, history, ..job(1, StallingRecords::new(Duration::ZERO, &[])) }
    };
    let before = builder(TWENTY, &transport).build().await.unwrap();
    let ending = send_stored(before.core(), sending(History::default()), None).await;
    let ClaimEnd::Later { history, .. } = ending else { panic!("it ended") };
    let [record] = &history.attempts[..] else { panic!("it is recorded: {history:?}") };
    assert!(record.error.as_ref().is_some_and(|error| error.contains("the header x-second")), "{record:?}");
    assert!(history.unfit.is_some() && transport.calls().is_empty());

    let with_secret = format!("secret_headers = {{ x-second = \"keys:second\" }}\n{TWENTY}");
    let after = builder(&with_secret, &transport);
    let after = after.credential_resolver("keys", |key: String| async move { Ok(SecretString::from(key)) });
    let after = after.build().await.unwrap();
    let ending = send_stored(after.core(), sending(history), None).await;
    assert!(matches!(ending, ClaimEnd::Delivered(_)));
    assert_eq!(transport.calls()[0].header("x-second"), Some("second"));
}

/// The tenant loses the secret that replaced the job's header.
#[tokio::test(start_paused = true)]
async fn job_in_hand_that_loses_its_secret_waits() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let client = builder_with_secret(TWENTY, &transport, true).build().await.unwrap();
    let tenant = || TenantEntry::new("acme", "v").credential("keys:acme");
    client.tenants().set(tenant().secret_header("x-second", "keys:second")).unwrap();
    client.tenants().pause("acme", "v").unwrap();
    let request = Request::post("v", "/").body("content").replaced_headers(&["x-second".into()]);
    let sending = Sending { request, ..job(1, StallingRecords::new(Duration::ZERO, &[])) };
    let changes = async {
        tokio::time::sleep(5 * SECOND).await;
        client.tenants().set(tenant()).unwrap();
        client.tenants().resume("acme", "v").unwrap();
    };
    let (ending, ()) = tokio::join!(send_stored(client.core(), sending, None), changes);
    let ClaimEnd::Later { wait, .. } = ending else { panic!("it ended") };
    assert!(wait == 30 * SECOND && transport.calls().is_empty());
}

/// The header has moved from `secret_headers` to `headers`, or to `auth`.
#[tokio::test(start_paused = true)]
async fn replaced_header_may_be_given_elsewhere() {
    let of_all = format!("headers = {{ X-Second = \"plain\" }}\n{TWENTY}");
    let auth = "[vendors.v.environments.other]\nauth = { scheme = \"header\", name = \"X-Second\" }\n";
    let tenant = || TenantEntry::new("acme", "v").credential("keys:acme");
    for (entry, tenant, value) in
        [(of_all, tenant(), "plain"), (format!("{TWENTY}{auth}"), tenant().environment("other"), "acme")]
    {
        let transport = FakeTransport::new(|_| FakeAnswer::status(200));
        let client = builder_with_secret(&entry, &transport, true).build().await.unwrap();
        client.tenants().set(tenant).unwrap();
        let request = Request::post("v", "/").body("content").replaced_headers(&["x-second".into()]);
        let sending = Sending { request, ..job(1, StallingRecords::new(Duration::ZERO, &[])) };
        let ending = send_stored(client.core(), sending, None).await;
        assert!(matches!(ending, ClaimEnd::Delivered(_)), "{value}");
        assert_eq!(transport.calls()[0].header("x-second"), Some(value));
    }
}
