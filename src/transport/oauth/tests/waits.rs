//! Tests of the waits that a token URL states, in virtual time.

use super::*;

/// An account whose token URL always gives this answer.
fn account(answer: FakeAnswer) -> (Account, Tenant) {
    (Account::at(FakeTransport::new(move |_| answer.clone())), tenant("OLD", "one", "d"))
}

/// Asks for a token, which must fail, and returns the number of token requests until then.
async fn asked(account: &Account, tenant: &Tenant) -> usize {
    account.tokens.get(tenant, secrets("old")).await.unwrap_err();
    account.used().len()
}

async fn pass(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn wait_until_a_date_is_kept() {
    let answer = FakeAnswer::status(429).header("date", "Thu, 15 Jan 2026 12:00:00 GMT");
    let (account, tenant) = account(answer.header("retry-after", "Thu, 15 Jan 2026 12:10:00 GMT"));
    for _ in 0..18 {
        assert_eq!(asked(&account, &tenant).await, 1);
        pass(30).await;
    }
    pass(61).await;
    assert_eq!(asked(&account, &tenant).await, 2);
}

#[tokio::test(start_paused = true)]
async fn wait_of_an_hour_is_not_cut() {
    let (account, tenant) = account(FakeAnswer::status(503).header("retry-after", "3600"));
    assert_eq!(asked(&account, &tenant).await, 1);
    pass(3_598).await;
    assert_eq!(asked(&account, &tenant).await, 1);
    pass(3).await;
    assert_eq!(asked(&account, &tenant).await, 2);
}

#[tokio::test(start_paused = true)]
async fn refusal_with_a_wait_is_temporary() {
    for (status, body) in [
        (403, ""),
        (403, "{\"message\":\"You have exceeded a secondary rate limit\"}"),
        (403, "{\"error\":\"access_denied\"}"),
        (400, "{\"error\":\"slow_down\"}"),
        (401, "{\"error\":\"invalid_client\"}"),
    ] {
        let (account, tenant) = account(FakeAnswer::status(status).header("retry-after", "120").body(body));
        assert_eq!(asked(&account, &tenant).await, 1, "{status} {body}");
        assert_eq!(account.tokens.view(&tenant).state, TokenState::Failing);
        pass(118).await;
        assert_eq!(asked(&account, &tenant).await, 1, "{status} {body}");
        pass(3).await;
        assert_eq!(asked(&account, &tenant).await, 2, "{status} {body}");
    }
}

#[tokio::test(start_paused = true)]
async fn dead_grant_with_a_wait_stays_dead() {
    let answer = FakeAnswer::status(400).header("retry-after", "1").body("{\"error\":\"invalid_grant\"}");
    let (account, tenant) = account(answer);
    assert_eq!(asked(&account, &tenant).await, 1);
    assert_eq!(account.tokens.view(&tenant).state, TokenState::NeedsReconnect);
    pass(60).await;
    assert_eq!(asked(&account, &tenant).await, 1);
}

#[tokio::test(start_paused = true)]
async fn throttling_url_is_not_asked_at_once() {
    let (account, tenant) = account(FakeAnswer::status(429));
    for _ in 0..10 {
        assert_eq!(asked(&account, &tenant).await, 1);
    }
    pass(2).await;
    assert_eq!(asked(&account, &tenant).await, 2);
}

#[tokio::test(start_paused = true)]
async fn url_that_nobody_asks_stops_failing() {
    let (account, tenant) = account(FakeAnswer::status(503).header("retry-after", "300"));
    assert_eq!(asked(&account, &tenant).await, 1);
    pass(300 + 118).await;
    assert_eq!(account.tokens.view(&tenant).state, TokenState::Failing);
    pass(3).await;
    let view = account.tokens.view(&tenant);
    assert_eq!((view.state, view.next_try), (TokenState::Unasked, None));
    assert!(view.problem.is_some_and(|why| why.contains("503")), "the last problem is still told");
    assert_eq!(asked(&account, &tenant).await, 2);
    assert_eq!(account.tokens.view(&tenant).state, TokenState::Failing);
}
