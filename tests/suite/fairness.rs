//! Tenants of one account under limits of all scopes, one of which sends a thousand times as much as the others: all
//! tenants get the same share.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use std::time::Duration;

use integration_client::Priority;
use integration_client::config::{Scope, Sources, TenantEntry};
use integration_client::testing::{Job, Network, ScriptedVendor, VendorLimit, World};

const TENANTS: usize = 50;
const SECONDS: u32 = 60;
const SECOND: Duration = Duration::from_secs(1);

const VENDOR: &str = r#"
[vendors.v]
base_url = "https://v.example"
max_transit = "100ms"
[[vendors.v.limits]]
name = "tenant"
limit = 40
window = "1s"
algorithm = "token_bucket"
scope = "tenant"
[[vendors.v.limits]]
name = "account"
limit = 200
window = "1s"
algorithm = "sliding_window"
scope = "account"
[[vendors.v.limits]]
name = "everybody"
limit = 1000
window = "1s"
algorithm = "fixed_window"
scope = "vendor"
[vendors.v.endpoints.orders]
paths = ["/orders"]
[[vendors.v.endpoints.orders.limits]]
name = "orders"
limit = 20
window = "1s"
algorithm = "sliding_counter"
"#;

/// (sum of x)² / (n x sum of x²): 1 when all are equal (Jain, Chiu and Hawe, 1984).
fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    sum * sum / (shares.len() as f64 * squares)
}

#[test]
fn loud_tenant_gets_no_more_than_others() {
    let tenants = (0..TENANTS).map(|n| TenantEntry::new(format!("t{n:02}"), "v").account("shared"));
    let sources = Sources::new().without_catalogue().file("fairness", VENDOR).tenants(tenants);
    let vendor = ScriptedVendor::new([
        VendorLimit::token_bucket(40, 40, SECOND),
        VendorLimit::sliding_window(200, SECOND).scope(Scope::Account),
        VendorLimit::fixed_window(1_000, SECOND).scope(Scope::Vendor),
        VendorLimit::sliding_counter(20, SECOND).endpoint("orders"),
    ]);
    let delay = Duration::from_millis(20);
    let network =
        Network { to_vendor: Duration::ZERO..=delay, from_vendor: Duration::ZERO..=delay, ..Network::default() };
    let mut world = World::new(sources, vendor, 11).unwrap().network(network);
    // Each of the other tenants asks for more than its share in every tier: 3 requests a second in each, of which 1.9,
    // 1 and 0.3 can be granted. Tenant 0 asks for a thousand times as many.
    let polite = 9 * SECONDS;
    let mut submit = |tenant: usize, number: u32, of: u32| {
        let at = SECOND * SECONDS * number / of;
        let priority = [Priority::High, Priority::Normal, Priority::Low][number as usize % 3];
        let endpoint = number.is_multiple_of(2).then(|| "orders".to_owned());
        world.submit(at, Job { endpoint, ..Job::new(tenant, priority) });
    };
    for tenant in 1..TENANTS {
        (0..polite).for_each(|number| submit(tenant, number, polite));
    }
    (0..1_000 * polite).for_each(|number| submit(0, number, 1_000 * polite));
    world.run(SECOND * SECONDS).unwrap();
    let mut granted = [0.0; TENANTS];
    for grant in world.grants().iter().filter(|grant| grant.at >= 2 * SECOND) {
        granted[grant.tenant] += 1.0;
    }
    let (all, others) = (jain(&granted), jain(&granted[1..]));
    println!(
        "loud {} others {}..{} jain {others:.5} with the loud one {all:.5} refused {}",
        granted[0],
        granted[1..].iter().copied().fold(f64::INFINITY, f64::min),
        granted[1..].iter().copied().fold(0.0, f64::max),
        world.refused()
    );
    assert_eq!(world.refused(), 0);
    assert!(others >= 0.99 && all >= 0.99, "{granted:?}");
}
