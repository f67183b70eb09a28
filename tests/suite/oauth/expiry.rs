//! Access tokens that expire while requests wait for their permits, in virtual time.

use std::collections::HashMap;

use integration_client::config::Tenant;
use integration_client::testing::FakeCall;
use integration_client::transport::Token;
use tokio::time::Instant;

use super::*;

#[expect(clippy::disallowed_methods, reason = "a test measures")]
fn now() -> Instant {
    Instant::now()
}

const SECOND: Duration = Duration::from_secs(1);
const LIMIT: &str = "[[vendors.v.limits]]\nname = \"r\"\nalgorithm = \"sliding_window\"\nlimit = 20\nwindow = \"1s\"\n";

fn entry(limits: &str) -> String {
    format!(
        "[vendors.v]\nbase_url = \"https://v.example\"\nauth = {{ scheme = \"bearer\" }}\nunpublished = true\n{limits}\
         [vendors.v.oauth]\ngrant = \"client_credentials\"\ntoken_url = \"https://v.example/token\"\n\
         client_id = \"test:client\"\nclient_secret = \"test:secret\"\n"
    )
}

/// A vendor that issues each token within the time `takes`, for `life`, refuses older ones, and answers the first request
/// for `/pause` with 429 and a wait of that length.
fn vendor(takes: Duration, life: Duration, pause: Duration) -> FakeTransport {
    let issued = Mutex::new(HashMap::<String, Instant>::new());
    let is_paused = Mutex::new(false);
    FakeTransport::new(move |call: &FakeCall| {
        let mut issued = issued.lock().unwrap();
        if call.path() == "/token" {
            let token = format!("token-{}", issued.len());
            let body = format!("{{\"access_token\":\"{token}\",\"expires_in\":{}}}", life.as_secs());
            issued.insert(token, now());
            return FakeAnswer::status(200).body(body).delay(takes);
        }
        let token = call.header("authorization").and_then(|text| text.strip_prefix("Bearer ")).unwrap_or_default();
        if issued.get(token).is_none_or(|at| at.elapsed() > life) {
            return FakeAnswer::status(401);
        }
        if call.path() == "/pause" && !std::mem::replace(&mut *is_paused.lock().unwrap(), true) {
            return FakeAnswer::status(429).header("retry-after", &pause.as_secs().to_string());
        }
        FakeAnswer::status(200)
    })
}

async fn client(transport: &FakeTransport, limits: &str) -> IntegrationClient {
    let client = builder(entry(limits), &Secrets::new()).transport(transport.clone());
    client.tenant(TenantEntry::new("a", "v").oauth(OAuthEntry::default())).build().await.unwrap()
}

/// The number of requests that carried each token, without those to the token URL.
fn sent_with(transport: &FakeTransport) -> HashMap<String, usize> {
    let mut sent = HashMap::new();
    for call in transport.calls().iter().filter(|call| call.path() != "/token") {
        *sent.entry(call.header("authorization").unwrap_or_default().to_owned()).or_default() += 1;
    }
    sent
}

fn asked(transport: &FakeTransport) -> usize {
    transport.calls().iter().filter(|call| call.path() == "/token").count()
}

/// Sends fifty requests that wait for the end of a pause, in which their token expires. The token URL takes this long to
/// answer.
async fn send_after_pause(takes: Duration) -> FakeTransport {
    let transport = vendor(takes, 120 * SECOND, 300 * SECOND);
    let client = client(&transport, LIMIT).await;
    let mut sends = tokio::task::JoinSet::new();
    for number in 0..50 {
        let client = client.clone();
        sends.spawn(async move {
            // The first is refused, and the others wait for the end of its pause.
            if number > 0 {
                tokio::time::sleep(2 * SECOND).await;
            }
            let path = if number == 0 { "/pause" } else { "/x" };
            client.send("a", Priority::Normal, Request::get("v", path)).await.map(|response| response.status().as_u16())
        });
    }
    while let Some(sent) = sends.join_next().await {
        assert_eq!(sent.unwrap().unwrap(), 200);
    }
    transport
}

#[tokio::test(start_paused = true)]
async fn token_that_expires_in_a_pause_is_replaced() {
    let transport = send_after_pause(Duration::ZERO).await;
    let expected = HashMap::from([("Bearer token-0".to_owned(), 1), ("Bearer token-1".to_owned(), 50)]);
    assert_eq!((sent_with(&transport), asked(&transport)), (expected, 2), "no request was sent with the expired token");
}

/// Their turns come while the token is being issued, so all of them give their permits back.
#[tokio::test(start_paused = true)]
async fn waiters_of_a_slow_token_are_sent() {
    let transport = send_after_pause(SECOND).await;
    let expected = HashMap::from([("Bearer token-0".to_owned(), 1), ("Bearer token-1".to_owned(), 50)]);
    assert_eq!((sent_with(&transport), asked(&transport)), (expected, 2), "no request was sent with the expired token");
}

/// Starts three sends that may wait for long. Each returns the status of its response.
fn three_sends(client: &IntegrationClient) -> tokio::task::JoinSet<Result<u16, Error>> {
    let send = |client: IntegrationClient| async move {
        let request = Request::get("v", "/x").deadline(3_600 * SECOND);
        client.send("a", Priority::Normal, request).await.map(|response| response.status().as_u16())
    };
    (0..3).map(|_| send(client.clone())).collect()
}

/// The limit has one unit in a time that is longer than a token lives.
#[tokio::test(start_paused = true)]
async fn token_that_lives_shorter_than_each_wait_is_sent() {
    let limit = LIMIT.replace("20", "1").replace("1s", "40s");
    let transport = vendor(Duration::ZERO, 10 * SECOND, Duration::ZERO);
    let client = client(&transport, &limit).await;
    let mut sends = three_sends(&client);
    let begun = now();
    while let Some(sent) = sends.join_next().await {
        sent.unwrap().unwrap();
    }
    assert!(begun.elapsed() < 600 * SECOND, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn token_of_a_source_refused_in_the_wait_is_replaced() {
    let limit = LIMIT.replace("20", "1").replace("1s", "40s");
    let transport = FakeTransport::new(|call| match call.header("authorization") {
        Some("Bearer token-0") => FakeAnswer::status(401),
        _ => FakeAnswer::status(200),
    });
    let calls = AtomicU32::new(0);
    let entry = format!(
        "[vendors.v]\nbase_url = \"https://v.example\"\nauth = {{ scheme = \"bearer\" }}\nunpublished = true\n{limit}"
    );
    let client = builder(entry, &Secrets::new()).transport(transport.clone()).tenant(TenantEntry::new("a", "v"));
    let client = client.token_source("v", move |_: Tenant| {
        let token = Token::new(format!("token-{}", calls.fetch_add(1, Ordering::SeqCst)), None);
        async move { Ok(token) }
    });
    let client = client.build().await.unwrap();
    let mut sends = three_sends(&client);
    while let Some(sent) = sends.join_next().await {
        assert_eq!(sent.unwrap().unwrap(), 200);
    }
    let expected = HashMap::from([("Bearer token-0".to_owned(), 1), ("Bearer token-1".to_owned(), 3)]);
    assert_eq!(sent_with(&transport), expected, "one 401 for all that waited");
}
