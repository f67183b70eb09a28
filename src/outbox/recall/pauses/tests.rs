//! Stored pauses of a tenant that changes while they are read.

#![allow(clippy::unwrap_used, reason = "tests: helpers unwrap too")]

use super::*;
use crate::IntegrationClient;
use crate::config::TenantEntry;
use crate::store::pauses::Paused;
use crate::testing::{FakeAnswer, FakeTransport};

/// A limit of an account, and one of the vendor, so that a lane stays in its shard.
const VENDOR: &str = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n\
                      [[vendors.v.limits]]\nname = \"minute\"\nscope = \"account\"\nlimit = 600\nwindow = \"1m\"\n\
                      [[vendors.v.limits]]\nname = \"all\"\nscope = \"vendor\"\nlimit = 6000\nwindow = \"1m\"\n";

async fn client() -> IntegrationClient {
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(VENDOR);
    let builder = builder.transport(FakeTransport::new(|_| FakeAnswer::status(200)));
    builder.tenant(TenantEntry::new("acme", "v").account("one")).build().await.unwrap()
}

/// What is read of the lane: its account's limit is paused for a minute.
fn stored(route: &Arc<Route>) -> (Vec<Holder>, Vec<Stored>) {
    let wanted = wanted(std::slice::from_ref(route));
    let holder = wanted.iter().position(|holder| holder.scope == "account").unwrap();
    let paused = Paused { limit: "minute".into(), limit_of: "*".into(), endpoint: "*".into() };
    (wanted, vec![Stored { holder, paused, left_ms: 60_000 }])
}

#[tokio::test(start_paused = true)]
async fn pause_of_later_account_waits_for_the_lane() {
    let client = client().await;
    let core: &Core = client.core();
    let pauses = Mutex::<Pauses>::default();
    let is_paused = || client.tenants().paused_for("acme", "v").unwrap().is_some();
    assert!(!is_paused(), "the lane is in memory");
    let moved = TenantEntry::new("acme", "v").account("two");
    core.registry.routes.insert(core.registry.config.load().vendors(), &moved).unwrap();
    let route = core.registry.route("acme", "v").unwrap();
    let read = stored(&route);
    assert!(!restore(core, &pauses, &route, &read, core.clock.now()), "it is to be read again");
    assert!(!is_paused(), "the earlier account is not paused");
    core.registry.bring_up_to_date("acme", "v", false);
    assert!(restore(core, &pauses, &route, &read, core.clock.now()));
    assert!(is_paused());
}

#[tokio::test(start_paused = true)]
async fn pauses_of_returned_tenant_are_read_again() {
    let client = client().await;
    let core: &Core = client.core();
    let pauses = Mutex::<Pauses>::default();
    let route = core.registry.route("acme", "v").unwrap();
    // The tenant was gone when they were read.
    assert!(!restore(core, &pauses, &route, &(Vec::new(), Vec::new()), core.clock.now()));
    assert!(restore(core, &pauses, &route, &stored(&route), core.clock.now()));
    assert!(client.tenants().paused_for("acme", "v").unwrap().is_some());
}
