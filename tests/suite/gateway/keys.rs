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
