//! Idempotency keys through the gateway: a key lets its request be repeated if the vendor reads it, and otherwise
//! changes nothing.

use super::*;

/// A key that the gateway puts where the vendor reads it.
const STATED: &str = "integration-idempotency-key: order-7\r\n";
/// A key that the SDK puts into a header.
const IN_PLACE: &str = "idempotency-key: order-7\r\n";

/// A gateway, and a vendor that acts on each request and then resets the connection. `keys` says how the vendor takes
/// keys.
async fn gateway_before_resets(keys: &str) -> (Serving, FakeVendor) {
    let vendor = FakeVendor::builder().fault(When::any(), Fault::Reset).start().await.unwrap();
    let more = format!("\n[vendors.shop.retry]\nmax_retries = 0\n[vendors.shop.idempotency]\n{keys}\n");
    (serve_gateway(vendor.vendors_toml("shop") + &more + &callers("billing")).await, vendor)
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_key_protects_no_request() {
    let long = format!("integration-idempotency-key: {}\r\n", "k".repeat(40));
    for (keys, method, key) in [
        ("header = \"idempotency-key\"\npaths = [\"/keyed\"]", "POST", IN_PLACE),
        ("header = \"idempotency-key\"\nmethods = [\"POST\"]", "PATCH", IN_PLACE),
        ("header = \"idempotency-key\"\npaths = [\"/keyed\"]\non_unsendable = \"warn\"", "POST", STATED),
        ("header = \"idempotency-key\"\nmax_length = 32\non_unsendable = \"warn\"", "POST", &*long),
        ("body = \"key\"\non_unsendable = \"warn\"", "POST", STATED),
        ("on_unsendable = \"warn\"", "POST", STATED),
    ] {
        let (serving, vendor) = gateway_before_resets(keys).await;
        // No key can be put into this body, because it is no object.
        let request = post("/acme/shop/orders", key, "[7]").replacen("POST", method, 1);
        for repeated in [false, true] {
            let got = send_raw(&serving, &request).await;
            let is_repeated = got.head.contains("integration-repeated: true");
            assert_eq!((got.status, is_repeated), (422, repeated), "{keys}: {} {}", got.head, got.body);
            assert!(got.head.contains("x-should-retry: false"), "{keys}: {}", got.head);
        }
        assert_eq!(vendor.arrivals().len(), 1, "{keys}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn read_key_lets_its_request_be_repeated() {
    let keys = "header = \"idempotency-key\"\npaths = [\"/keyed\"]";
    let (serving, vendor) = gateway_before_resets(keys).await;
    for (key, arrived) in [(IN_PLACE, 1), (STATED, 2), (IN_PLACE, 3)] {
        let got = send_raw(&serving, &post("/acme/shop/keyed", key, "[7]")).await;
        assert!(got.head.contains("integration-delivery: ambiguous"), "{} {}", got.head, got.body);
        assert!(got.status != 422 && !got.head.contains("x-should-retry"), "{} {}", got.head, got.body);
        assert_eq!(vendor.arrivals().len(), arrived);
    }
    assert!(vendor.arrivals().iter().all(|arrival| &*arrival.idempotency_key == "order-7"));
}

/// A gateway before `vendor`, which takes keys in a header. `retry` is the vendor's `[retry]` table.
async fn gateway_that_makes_keys(vendor: &FakeVendor, retry: &str) -> Serving {
    let entry = vendor.vendors_toml("shop").replacen("\nauth", "\nattempt_timeout = \"1s\"\nauth", 1);
    let keys = "[vendors.shop.idempotency]\nheader = \"idempotency-key\"\n";
    serve_gateway(format!("{entry}\n[vendors.shop.retry]\n{retry}\n{keys}{}", callers("billing"))).await
}

const SHORT_WAITS: &str = "first_wait = \"50ms\"\nlongest_wait = \"100ms\"";

/// Asserts that the response says that the request must not be repeated, and that a repetition is not sent.
async fn assert_not_repeated(serving: &Serving, vendor: &FakeVendor, request: &str, got: &RawResponse) {
    assert!(got.head.contains("x-should-retry: false"), "{request}: {}", got.head);
    assert!(got.head.contains("integration-delivery: ambiguous"), "{request}: {}", got.head);
    let sent = vendor.arrivals().len();
    let again = send_raw(serving, request).await;
    assert_eq!(again.status, 422, "{request}: {} {}", again.head, again.body);
    assert!(again.head.contains("integration-repeated: true"), "{request}: {}", again.head);
    assert!(again.body.contains(&format!("the vendor answered {}", got.status)), "{request}: {}", again.body);
    assert_eq!(vendor.arrivals().len(), sent, "{request}: the repetition was sent");
}

/// The key that the client makes would allow a retry, but there is none: the caller gets the vendor's response.
#[tokio::test(flavor = "multi_thread")]
async fn failed_post_without_a_retry_is_not_repeated() {
    for (retry, more) in [
        (SHORT_WAITS, "integration-max-wait: 0\r\n"),
        ("max_retries = 0", ""),
        ("max_retries = 0", "integration-max-wait: 0\r\n"),
        ("max_replay_bytes = 4", ""),
    ] {
        let vendor = FakeVendor::builder().fault(When::any(), Fault::Status(500)).start().await.unwrap();
        let serving = gateway_that_makes_keys(&vendor, retry).await;
        for (sent, method) in (1..).zip(["POST", "PATCH"]) {
            let order = post("/acme/shop/orders", more, "{\"n\":1}").replacen("POST", method, 1);
            let got = send_raw(&serving, &order).await;
            assert_eq!(got.status, 500, "{retry}: {} {}", got.head, got.body);
            assert_eq!(vendor.arrivals().len(), sent, "{retry}");
            assert_not_repeated(&serving, &vendor, &order, &got).await;
        }
        assert!(vendor.arrivals().iter().all(|arrival| !arrival.idempotency_key.is_empty()), "{retry}");
        // A method that may be repeated is sent again.
        for _ in 0..2 {
            let put = post("/acme/shop/orders", more, "{\"n\":1}").replacen("POST", "PUT", 1);
            let got = send_raw(&serving, &put).await;
            assert!(got.status == 500 && !got.head.contains("x-should-retry"), "{retry}: {} {}", got.head, got.body);
        }
        assert_eq!(vendor.arrivals().len(), 4, "{retry}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn final_status_after_an_open_attempt_is_not_repeated() {
    let vendor = FakeVendor::builder()
        .fault(When::path("/stalls").first(1), Fault::Stall)
        .fault(When::path("/stalls"), Fault::Status(409))
        .fault(When::path("/fails").first(1), Fault::Status(500))
        .fault(When::path("/fails"), Fault::Status(422))
        .fault(When::path("/recovers").nth(1), Fault::Status(500));
    let vendor = vendor.start().await.unwrap();
    let serving = gateway_that_makes_keys(&vendor, SHORT_WAITS).await;
    for (path, status) in [("/stalls", 409), ("/fails", 422)] {
        vendor.reset_log();
        let order = post(&format!("/acme/shop{path}"), "", "{\"n\":1}");
        let got = send_raw(&serving, &order).await;
        assert_eq!(got.status, status, "{} {}", got.head, got.body);
        let keys: Vec<_> = vendor.arrivals().iter().map(|arrival| arrival.idempotency_key.clone()).collect();
        assert!(keys.len() == 2 && keys[0] == keys[1] && !keys[0].is_empty(), "{path}: {keys:?}");
        assert_not_repeated(&serving, &vendor, &order, &got).await;
        // The caller's own key lets the request be sent. No attempt of this one had an unknown outcome.
        let keyed = send_raw(&serving, &post(&format!("/acme/shop{path}"), STATED, "{\"n\":1}")).await;
        assert_eq!((keyed.status, vendor.arrivals().len()), (status, 3), "{} {}", keyed.head, keyed.body);
        assert!(!keyed.head.contains("x-should-retry"), "{path}: {}", keyed.head);
    }
    // A 2xx says that the vendor has acted, so another order like it may follow.
    vendor.reset_log();
    for sent in [2, 3] {
        let got = send_raw(&serving, &post("/acme/shop/recovers", "", "{\"n\":1}")).await;
        assert_eq!((got.status, vendor.arrivals().len()), (200, sent), "{} {}", got.head, got.body);
        assert!(!got.head.contains("x-should-retry"), "{}", got.head);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_post_may_be_repeated_at_once() {
    let vendor = FakeVendor::builder()
        .fault(When::path("/invalid"), Fault::Status(422))
        .fault(When::path("/busy"), Fault::Status(429));
    let vendor = vendor.start().await.unwrap();
    let serving = gateway_that_makes_keys(&vendor, SHORT_WAITS).await;
    for sent in [1, 2] {
        let got = send_raw(&serving, &post("/acme/shop/invalid", "", "{}")).await;
        assert_eq!((got.status, vendor.arrivals().len()), (422, sent), "{} {}", got.head, got.body);
        assert!(!got.head.contains("x-should-retry") && !got.head.contains("integration-repeated"), "{}", got.head);
    }
    // The first 429 is the vendor's, and pauses the lane. The second one is the gateway's.
    for _ in 0..2 {
        let got = send_raw(&serving, &post("/acme/shop/busy", "integration-max-wait: 0\r\n", "{}")).await;
        assert_eq!(got.status, 429, "{} {}", got.head, got.body);
        assert!(!got.head.contains("x-should-retry") && !got.head.contains("integration-repeated"), "{}", got.head);
    }
}
