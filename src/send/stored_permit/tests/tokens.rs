//! Stored jobs whose tenant gets no access token.

use super::outages::aged;
use super::*;
use crate::config::OAuthEntry;

/// A client whose tenant gets its tokens from `/token` at the host of the vendor.
async fn client_with_token_url(transport: &FakeTransport) -> IntegrationClient {
    let text = format!(
        "[vendors.v]\nbase_url = \"https://v.example\"\nauth = {{ scheme = \"bearer\" }}\nconnect_timeout = \"1s\"\n{TWENTY}\
         [vendors.v.oauth]\ngrant = \"client_credentials\"\ntoken_url = \"https://v.example/token\"\n\
         client_id = \"keys:id\"\nclient_secret = \"keys:secret\"\n"
    );
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(text).transport(transport.clone());
    let builder = builder.credential_resolver("keys", |key: String| async move { Ok(SecretString::from(key)) });
    builder.tenant(TenantEntry::new("acme", "v").oauth(OAuthEntry::default())).build().await.unwrap()
}

fn put(history: History) -> Sending {
    let request = Request::put("v", "/").body("content");
    Sending { request, history, ..job(1, StallingRecords::new(Duration::ZERO, &[])) }
}

/// Sends the job for as long as `time`, in which it must not end. Returns its history.
async fn tried_for(client: &IntegrationClient, time: Duration) -> History {
    let (clock, mut history) = (Clock::system(), History::default());
    let began = clock.now();
    while clock.now().since(began) < time {
        match send_stored(client.core(), put(history), None).await {
            ClaimEnd::Later { wait, history: next } => {
                tokio::time::sleep(wait).await;
                history = aged(next, wait);
            }
            ClaimEnd::Dead(letter) => panic!("dead after {:?}: {:?}", clock.now().since(began), letter.reason),
            _ => panic!("it ended after {:?}", clock.now().since(began)),
        }
    }
    history
}

#[tokio::test(start_paused = true)]
async fn job_outlasts_an_outage_without_token() {
    let up = Arc::<AtomicBool>::default();
    let is_up = up.clone();
    let transport = FakeTransport::new(move |call| match (is_up.load(Relaxed), call.path()) {
        (false, _) => FakeAnswer::not_connected(),
        (true, "/token") => FakeAnswer::status(200).body("{\"access_token\":\"t\",\"expires_in\":600}"),
        (true, _) => FakeAnswer::status(200),
    });
    for had_token in [false, true] {
        let client = client_with_token_url(&transport).await;
        up.store(had_token, Relaxed);
        if had_token {
            client.send("acme", Priority::High, Request::get("v", "/first")).await.unwrap();
        }
        up.store(false, Relaxed);
        let history = tried_for(&client, 1_800 * SECOND).await;
        assert!(history.unreachable_since.is_some() && history.failing_since.is_none(), "{history:?}");
        up.store(true, Relaxed);
        tokio::time::sleep(60 * SECOND).await;
        let ending = send_stored(client.core(), put(history), None).await;
        assert!(matches!(ending, ClaimEnd::Delivered(_)), "had a token: {had_token}");
    }
}

/// A worker with room for one job, and a backlog: as soon as it has handed a job back, it claims the next.
#[tokio::test(start_paused = true)]
async fn jobs_in_hand_bound_the_claims_without_token() {
    let transport = FakeTransport::new(|_| FakeAnswer::not_connected());
    let client = client_with_token_url(&transport).await;
    let clock = Clock::system();
    let (began, mut claims) = (clock.now(), 0);
    while clock.now().since(began) < 600 * SECOND && claims < 1_000 {
        let ending = send_stored(client.core(), put(History::default()), None).await;
        assert!(matches!(ending, ClaimEnd::Later { .. }));
        claims += 1;
    }
    assert!(claims <= 15, "{claims} claims in ten minutes");
    // Three times for each refresh. The pause between two refreshes grows to a minute.
    assert!(transport.calls().len() <= 60, "{}", transport.calls().len());
}

#[tokio::test(start_paused = true)]
async fn job_that_waits_for_a_token_takes_the_first() {
    let transport = FakeTransport::new(|call| match (call.path(), call.number) {
        ("/token", 0) => FakeAnswer::status(503).header("retry-after", "40"),
        ("/token", _) => FakeAnswer::status(200).body("{\"access_token\":\"t\",\"expires_in\":600}"),
        _ => FakeAnswer::status(200),
    });
    let client = client_with_token_url(&transport).await;
    let ending = send_stored(client.core(), put(History::default()), None).await;
    assert!(matches!(ending, ClaimEnd::Delivered(_)));
    let calls = transport.calls();
    let waited = calls[1].at.since(calls[0].at);
    assert!(calls.len() == 3 && waited >= 40 * SECOND && waited < 42 * SECOND, "{waited:?}");
}

/// The job has no record of an exchange, so the worker need not wait for it; a shutdown ends it too.
#[tokio::test(start_paused = true)]
async fn shutdown_ends_the_wait_for_a_token() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(503).header("retry-after", "40"));
    let client = client_with_token_url(&transport).await;
    let clock = Clock::system();
    let began = clock.now();
    let stop = async {
        tokio::time::sleep(5 * SECOND).await;
        client.shutdown(SECOND).await;
    };
    let (ending, ()) = tokio::join!(send_stored(client.core(), put(History::default()), None), stop);
    assert!(matches!(ending, ClaimEnd::Back));
    assert!(clock.now().since(began) < 10 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn job_waits_as_long_as_its_token_url_states() {
    let transport = FakeTransport::new(|call| match (call.path(), call.number) {
        ("/token", 0) => FakeAnswer::status(503).header("retry-after", "3600"),
        ("/token", _) => FakeAnswer::status(200).body("{\"access_token\":\"t\",\"expires_in\":600}"),
        _ => FakeAnswer::status(200),
    });
    let client = client_with_token_url(&transport).await;
    let history = tried_for(&client, 3_599 * SECOND).await;
    assert!(history.unreachable_since.is_some() && history.failing_since.is_none(), "{history:?}");
    assert_eq!(transport.calls().len(), 1, "nothing was asked before the stated time");
    tokio::time::sleep(2 * SECOND).await;
    let ending = send_stored(client.core(), put(history), None).await;
    assert!(matches!(ending, ClaimEnd::Delivered(_)));
}

/// The job's deadline ends its claim before the token URL has had its three times 15 s.
#[tokio::test(start_paused = true)]
async fn hanging_token_url_is_an_outage() {
    let transport = FakeTransport::new(|_| FakeAnswer::stall());
    let client = client_with_token_url(&transport).await;
    let ending = send_stored(client.core(), put(History::default()), Some(10 * SECOND)).await;
    let ClaimEnd::Later { history, .. } = ending else { panic!("it ended") };
    assert!(history.unreachable_since.is_some() && history.failing_since.is_none(), "{history:?}");
}

/// A person has to correct the secret, and learns of it from the letter.
#[tokio::test(start_paused = true)]
async fn refused_secret_ends_the_job_after_max_age() {
    let refused = FakeAnswer::status(401).body("{\"error\":\"invalid_client\"}");
    let transport = FakeTransport::new(move |_| refused.clone());
    let client = client_with_token_url(&transport).await;
    let (clock, mut history) = (Clock::system(), History::default());
    let began = clock.now();
    let letter = loop {
        match send_stored(client.core(), put(history), None).await {
            ClaimEnd::Later { wait, history: next } => {
                assert!(next.unreachable_since.is_none(), "{next:?}");
                tokio::time::sleep(wait).await;
                history = aged(next, wait);
            }
            ClaimEnd::Dead(letter) => break letter,
            _ => panic!("it ended"),
        }
        assert!(clock.now().since(began) < 400 * SECOND, "it goes on");
    };
    assert_eq!(letter.reason, Reason::Exhausted);
}
