//! A thousand requests at once, to a vendor that takes a hundred a second.

use std::sync::Arc;
use std::time::Duration;

use integration_client::testing::{FakeVendor, VendorLimit};

use super::{SECOND, TOKEN, callers, serve_gateway};

/// The requests wait for their turns in the gateway: the vendor refuses none, the tiers get their shares while all
/// three wait, and a shutdown in the middle loses none.
#[tokio::test(flavor = "multi_thread")]
async fn thousand_concurrent_requests_lose_none() {
    let vendor = FakeVendor::builder().limit(VendorLimit::sliding_window(100, SECOND)).start().await.unwrap();
    let mut toml = vendor.vendors_toml("shop") + &callers("billing").replace("\"normal\"", "\"high\"");
    toml.push('\n');
    let serving = serve_gateway(toml).await;
    let sdk = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = Arc::new(serving.base_url("acme", "shop"));
    let mut all = tokio::task::JoinSet::new();
    for n in 0..1000_usize {
        let (sdk, url) = (sdk.clone(), url.clone());
        let tier = ["high", "normal", "low"][n % 3];
        let sent = async move {
            let request = sdk.get(format!("{url}/{tier}/{n}")).bearer_auth(TOKEN);
            request.header("integration-priority", tier).send().await.unwrap().status().as_u16()
        };
        all.spawn(sent);
    }
    while vendor.arrivals().len() < 400 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // By now all requests have arrived at the gateway.
    assert!(serving.shutdown(30 * SECOND).await);
    let statuses = all.join_all().await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    let arrivals = vendor.arrivals();
    assert_eq!((vendor.refused(), arrivals.len()), (0, 1000));
    // The first hundred are left out, because they were sent while others were still arriving.
    let of = |tier: &str| arrivals[100..500].iter().filter(|arrival| arrival.path.contains(tier)).count();
    let shares = [of("/high/"), of("/normal/"), of("/low/")].map(|sent| sent as f64 / 4.0);
    for (share, expected) in shares.into_iter().zip([60.0, 30.0, 10.0]) {
        assert!((share - expected).abs() <= 2.0, "{shares:?}");
    }
}
