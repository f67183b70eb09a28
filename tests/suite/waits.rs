//! How long a client sends nothing after the vendor has asked it to wait, which lanes wait, and after which responses.
//! In virtual time.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::testing::{FakeAnswer, FakeCall, FakeTransport};
use integration_client::{ErrorKind, IntegrationClient, Priority, Request};
use jiff::Timestamp;
use jiff::fmt::rfc2822;

#[derive(serde::Deserialize)]
struct Case {
    id: String,
    vendor: String,
    status: u16,
    now: Timestamp,
    headers: Vec<(String, String)>,
    body: Option<String>,
    expect: Expect,
}

#[derive(serde::Deserialize)]
struct Expect {
    throttled: bool,
    retry_after_s: Option<f64>,
    default_wait_s: Option<f64>,
}

const VENDORS: &str = include_str!("../../fixtures/dialects.toml");

fn vendors(case: &Case) -> (String, String) {
    let vendor = match VENDORS.contains(&format!("[vendors.{}.dialect]", case.vendor)) {
        true => case.vendor.clone(),
        false => "plain".to_owned(),
    };
    // The entry has the vendor's dialect, and otherwise only what is needed to call the vendor.
    let dialects = VENDORS.split("\n\n").filter(|table| table.starts_with(&format!("[vendors.{vendor}.dialect")));
    let dialect = dialects.collect::<Vec<_>>().join("\n");
    let text = format!(
        "{dialect}\n[vendors.{vendor}]\nbase_url = \"https://v.example\"\nauth = {{ scheme = \"none\" }}\n\
         [[vendors.{vendor}.limits]]\nname = \"requests\"\nalgorithm = \"sliding_window\"\nlimit = 1000\nwindow = \"1s\"\n"
    );
    (vendor, text)
}

async fn client(text: &str, transport: &FakeTransport, tenants: &[(&str, &str, &str)]) -> IntegrationClient {
    let mut builder = IntegrationClient::builder().without_catalogue().vendors_toml(text).transport(transport.clone());
    for (tenant, vendor, account) in tenants {
        builder = builder.tenant(TenantEntry::new(*tenant, *vendor).account(*account));
    }
    builder.build().await.unwrap()
}

fn answer(case: &Case) -> Option<FakeAnswer> {
    let is_plain = |(_, value): &&(String, String)| http::HeaderValue::from_str(value).is_ok();
    let mut answer = FakeAnswer::status(case.status).body(case.body.clone().unwrap_or_default());
    // The client's clock is that of this machine, and the server's clock shows the time of the case.
    if !case.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("date")) {
        answer = answer.header("date", &rfc2822::to_string(&case.now.to_zoned(jiff::tz::TimeZone::UTC)).unwrap());
    }
    for (name, value) in case.headers.iter().filter(is_plain) {
        answer = answer.header(name, value);
    }
    case.headers.iter().all(|header| is_plain(&header)).then_some(answer)
}

/// Whether a stated wait applies to the lane. With a 202 or a redirect it states when to look again. Among other
/// responses, only successes, refusals and 5xx make the lane wait.
fn is_for_the_lane(case: &Case) -> bool {
    case.expect.throttled || (case.status / 100 == 2 && case.status != 202) || matches!(case.status, 500..=599)
}

#[tokio::test(start_paused = true)]
async fn stated_wait_is_kept_in_any_form() {
    let mut cases: Vec<Case> = serde_json::from_str(include_str!("../../fixtures/headers.json")).unwrap();
    cases.extend(serde_json::from_str::<Vec<Case>>(include_str!("../../fixtures/headers-own.json")).unwrap());
    let (mut seen, mut early) = (0, Vec::new());
    for case in cases.iter().filter(|case| is_for_the_lane(case)) {
        let stated = case.expect.retry_after_s.or(case.expect.default_wait_s.filter(|_| case.expect.throttled));
        let wait = |seconds: f64| Duration::from_millis((seconds * 1000.0).ceil() as u64);
        let Some(wait) = stated.map(wait) else { continue };
        // If the server's date cannot be read, times are measured by this machine's clock, so the case is left out.
        let Some(first) = answer(case).filter(|_| !case.id.contains("date-unparse")) else { continue };
        let transport = FakeTransport::new(move |call| match call.number {
            0 => first.clone(),
            _ => FakeAnswer::status(200),
        });
        let (vendor, text) = vendors(case);
        let client = client(&text, &transport, &[("a", &vendor, "a")]).await;
        let send = || {
            let request = Request::get(&vendor, "/x").deadline(Duration::from_secs(40 * 86_400));
            client.send("a", Priority::Normal, request)
        };
        let results = [send().await, send().await];
        let calls = transport.calls();
        let soonest = calls.iter().skip(1).map(|call| call.at.since(calls[0].at)).min();
        seen += 1;
        // A request waits for a quarter of an hour at most. If the wait is longer, the error states it.
        let handed_back = || {
            let errors = results.iter().filter_map(|result| result.as_ref().err());
            let later = errors.filter(|error| error.kind() == ErrorKind::RetryLater);
            later.filter_map(|error| error.retry_after()).min()
        };
        let least = soonest.or_else(handed_back);
        if least.is_none_or(|least| least + Duration::from_millis(1) < wait) {
            early.push(format!("{} ({}): {least:?} instead of {wait:?}", case.id, case.vendor));
        }
    }
    assert!(early.is_empty(), "{} of {seen}:\n{}", early.len(), early.join("\n"));
    assert!(seen > 120, "{seen}");
}

fn scoped(scope: &str) -> String {
    format!(
        r#"
[vendors.v]
base_url = "https://v.example"
auth = {{ scheme = "none" }}
[[vendors.v.limits]]
name = "requests"
algorithm = "sliding_window"
scope = "tenant"
limit = 1
window = "1s"
[vendors.v.dialect]
answers = [{{ status = [429], scope = "{scope}" }}]
[vendors.w]
base_url = "https://w.example"
auth = {{ scheme = "none" }}
[[vendors.w.limits]]
name = "requests"
algorithm = "sliding_window"
limit = 1
window = "1s"
"#
    )
}

const TENANTS: [(&str, &str, &str); 4] = [("a", "v", "one"), ("b", "v", "one"), ("c", "v", "two"), ("a", "w", "one")];

/// How long each tenant waits, in milliseconds, that sends shortly after `a` was refused at `v`.
async fn waited_after_a_refusal(scope: &str) -> [u128; 4] {
    let transport = FakeTransport::new(|call| match call.number {
        0 => FakeAnswer::status(429).header("retry-after", "10"),
        _ => FakeAnswer::status(200),
    });
    let client = client(&scoped(scope), &transport, &TENANTS).await;
    let send = |(tenant, vendor, _): (&'static str, &'static str, &'static str)| {
        client.send(tenant, Priority::Normal, Request::get(vendor, "/x").deadline(Duration::from_secs(60)))
    };
    let others = async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let [a, b, c, w] = TENANTS.map(send);
        let (a, b, c, w) = tokio::join!(a, b, c, w);
        [a, b, c, w].map(|result| result.unwrap().waited().as_millis())
    };
    let (first, waited) = tokio::join!(send(TENANTS[0]), others);
    assert_eq!(first.unwrap().status(), 200);
    waited
}

#[tokio::test(start_paused = true)]
async fn refusal_pauses_all_lanes_of_its_scope() {
    // The vendor states 10 s. The lane waits up to a tenth longer, and other lanes up to a tenth of that in addition.
    let stands = 9_998..13_000;
    for (scope, stand) in [("tenant", 1), ("account", 2), ("vendor", 3)] {
        let waited = waited_after_a_refusal(scope).await;
        let (still, free) = waited.split_at(stand);
        assert!(still.iter().all(|ms| stands.contains(ms)), "{scope}: {waited:?}");
        assert!(free.iter().all(|ms| *ms == 0), "{scope}: {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn queued_requests_wait_for_their_accounts_pause() {
    let transport = FakeTransport::new(|call| match call.path() {
        "/refused" if call.number == 2 => FakeAnswer::status(429).header("retry-after", "10"),
        _ => FakeAnswer::status(200),
    });
    let client = client(&scoped("account"), &transport, &TENANTS).await;
    let send = |tenant: &'static str, path: &str| {
        client.send(tenant, Priority::Normal, Request::get("v", path).deadline(Duration::from_secs(60)))
    };
    // The units of one second are used up, so the next requests of both tenants wait.
    let (b, c) = tokio::join!(send("b", "/x"), send("c", "/x"));
    assert_eq!((b.unwrap().status().as_u16(), c.unwrap().status().as_u16()), (200, 200));
    let (a, b, c) = tokio::join!(send("a", "/refused"), send("b", "/x"), send("c", "/x"));
    let waited = [&b, &c].map(|result| result.as_ref().unwrap().waited());
    assert!(a.unwrap().waited() >= Duration::from_secs(9));
    assert!(waited[0] >= Duration::from_secs(10) && waited[1] < Duration::from_secs(2), "{waited:?}");
}

/// The error states the wait in words, and only the bound that ends the request.
#[tokio::test(start_paused = true)]
async fn wait_that_ends_a_request_is_explained() {
    let deadline = Duration::from_secs(60);
    for (request, bound) in [
        (Request::get("v", "/x").deadline(deadline), "after the request's deadline"),
        (Request::get("v", "/x"), "longer than the 15 minutes for which the vendor's `max_hold` lets a request wait"),
    ] {
        let transport = FakeTransport::new(|_| FakeAnswer::status(429).header("retry-after", "10000"));
        let client = client(&scoped("account"), &transport, &TENANTS).await;
        let error = client.send("a", Priority::Normal, request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RetryLater);
        let said = format!("the next attempt is due in 3 hours, which is {bound}; send it again after that time");
        assert!(error.to_string().contains(&said), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn long_pause_is_reported_at_once() {
    let transport = FakeTransport::new(|call| match call.number {
        0 => FakeAnswer::status(429).header("retry-after", "600"),
        _ => FakeAnswer::status(200),
    });
    let client = client(&scoped("account"), &transport, &TENANTS).await;
    let send = |tenant: &'static str| {
        client.send(tenant, Priority::Normal, Request::get("v", "/x").deadline(Duration::from_secs(60)))
    };
    assert_eq!(send("a").await.unwrap_err().kind(), ErrorKind::RetryLater);
    let error = send("b").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RetryLater);
    assert!(error.retry_after().unwrap() >= Duration::from_secs(600), "{error}");
    assert!(client.tenants().paused_for("b", "v").unwrap().unwrap() >= Duration::from_secs(600));
    assert_eq!(client.tenants().paused_for("c", "v").unwrap(), None);
    client.tenants().resume("b", "v").unwrap();
    assert_eq!(client.tenants().paused_for("b", "v").unwrap(), None);
    assert_eq!(send("b").await.unwrap().status(), 200);
    assert_eq!(transport.calls().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn success_with_retry_after_pauses_the_lane() {
    for (status, wait, least) in [(200, "3", 3_000), (201, "3", 3_000), (202, "3", 0), (303, "3", 0), (200, "0", 0)] {
        let transport = FakeTransport::new(move |call| match call.number {
            0 => FakeAnswer::status(status).header("retry-after", wait),
            _ => FakeAnswer::status(200),
        });
        let text = scoped("tenant").replace("limit = 1\n", "limit = 9\n");
        let client = client(&text, &transport, &TENANTS).await;
        let send = || client.send("a", Priority::Normal, Request::get("v", "/x"));
        let first = send().await.unwrap();
        assert_eq!((first.status().as_u16(), first.attempts()), (status, 1));
        assert_eq!(send().await.unwrap().waited().as_millis(), least, "{status} with {wait}");
    }
}

/// A response to a batch: the status of each part, and what the refused parts say.
fn batch(statuses: &[u16], refused: &str) -> FakeAnswer {
    let part = |status: &u16| match status {
        429 => format!("{{\"status\":429{refused}}}"),
        _ => format!("{{\"status\":{status}}}"),
    };
    let parts = statuses.iter().map(part).collect::<Vec<_>>().join(",");
    FakeAnswer::status(200).header("content-type", "application/json").body(format!("{{\"responses\":[{parts}]}}"))
}

#[tokio::test(start_paused = true)]
async fn refused_part_of_a_batch_pauses_the_lane() {
    let default = "retry = { default_wait = \"20s\" }\n";
    let stated = ",\"headers\":{\"Retry-After\":\"10\"}";
    for (statuses, refused, retry, expected) in [
        (&[201, 429][..], stated, "", 10_000..=12_000),
        (&[201, 429], "", default, 20_000..=24_000),
        // Neither the response nor the entry states a wait: the client guesses one, as after any refusal.
        (&[201, 429], "", "", 1..=10_000),
        (&[201, 404], stated, default, 0..=0),
    ] {
        let text = format!(
            "[vendors.v]\nbase_url = \"https://v.example\"\nauth = {{ scheme = \"none\" }}\n{retry}[vendors.v.dialect]\n\
             answers = [{{ status = [200], from = \"body#/responses/*/status\", is = [429], throttled = true }}]\n\
             waits = [{{ from = \"body#/responses/*/headers/Retry-After\" }}]\n"
        );
        let first = batch(statuses, refused);
        let script = move |call: &FakeCall| if call.number == 0 { first.clone() } else { FakeAnswer::status(200) };
        let transport = FakeTransport::new(script);
        let client = client(&text, &transport, &[("a", "v", "1")]).await;
        let send = || client.send("a", Priority::Normal, Request::post("v", "/$batch").body("[]"));
        let response = send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.attempts()), (200, 1), "{statuses:?}");
        send().await.unwrap();
        let calls = transport.calls();
        let gap = calls[1].at.since(calls[0].at).as_millis();
        assert!(calls.len() == 2 && expected.contains(&gap), "{statuses:?} {refused} {retry}: {gap} ms");
    }
}

/// A single success, which a proxy or a test page may have sent, must not stop a lane for a month. The wait of a
/// refusal is not capped.
#[tokio::test(start_paused = true)]
async fn wait_after_success_is_capped() {
    const MONTH: &str = "2678400";
    for (status, setting, longest) in [(200, "", 3_600), (200, "max_pause = \"2m\"\n", 120), (429, "", 2_678_400)] {
        let transport = FakeTransport::new(move |_| FakeAnswer::status(status).header("retry-after", MONTH));
        let text = scoped("tenant").replace("limit = 1\n", "limit = 9\n") + "[vendors.v.retry]\n" + setting;
        let client = client(&text, &transport, &TENANTS).await;
        let _ = client.send("a", Priority::Normal, Request::get("v", "/x")).await;
        let paused = client.tenants().paused_for("a", "v").unwrap().unwrap().as_secs();
        assert!((longest - 1..=longest + longest / 10).contains(&paused), "{status} {setting}: {paused} s");
    }
}

/// A gateway that sends the header with every response would slow its lane down for ever, so the vendor's entry can
/// ignore the header.
#[tokio::test(start_paused = true)]
async fn ignored_wait_slows_nothing() {
    for (ignored, least) in [("x-other", 3_000), ("retry-after", 0)] {
        let transport = FakeTransport::new(|_| FakeAnswer::status(200).header("retry-after", "3"));
        let dialect = format!("[vendors.v.dialect]\nignore = [\"{ignored}\"]\n");
        let text = scoped("tenant").replace("limit = 1\n", "limit = 9\n").replace("[vendors.v.dialect]\n", &dialect);
        let client = client(&text, &transport, &TENANTS).await;
        let send = || client.send("a", Priority::Normal, Request::get("v", "/x"));
        send().await.unwrap();
        assert_eq!(send().await.unwrap().waited().as_millis(), least, "{ignored}");
    }
}
