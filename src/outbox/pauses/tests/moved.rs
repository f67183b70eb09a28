//! A tenant that moves to another account, whose lane the change has not reached yet.

#![allow(clippy::unwrap_used, reason = "tests: helpers unwrap too")]

use super::super::*;
use crate::config::TenantEntry;
use crate::testing::{FakeAnswer, FakeTransport};
use crate::{IntegrationClient, Priority, Request};

/// The vendor asks all of an account to wait.
const VENDOR: &str = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n\
                      [vendors.v.dialect]\nanswers = [{ status = [429], scope = \"account\" }]\n";

#[tokio::test(start_paused = true)]
async fn earlier_accounts_pause_is_not_written_of_later() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(429).header("retry-after", "600"));
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(VENDOR).transport(transport);
    let client = builder.tenant(TenantEntry::new("acme", "v").account("one")).build().await.unwrap();
    let request = Request::get("v", "/").deadline(Duration::from_secs(5));
    assert!(client.send("acme", Priority::Normal, request).await.is_err());
    let core: &Core = client.core();
    let (pauses, told, now) = (Mutex::<Pauses>::default(), Told::default(), core.clock.now());
    let accounts = |changes: Changes| -> Vec<String> {
        let of_account = changes.begun.into_iter().filter(|begun| begun.holder.scope == "account");
        of_account.map(|begun| begun.holder.name).collect()
    };
    let look = || {
        let route = core.registry.route("acme", "v").unwrap();
        told.add(Looked::new(&route, core.registry.dispatch.find(&route).unwrap()));
    };
    let compare = |all: bool| {
        let lanes = take_lanes(&pauses, &told, now, all);
        (lanes.len(), compare(&pauses, Some(core), &lanes, now))
    };
    look();
    assert_eq!(accounts(compare(false).1), ["one"]);
    let moved = TenantEntry::new("acme", "v").account("two");
    core.registry.routes.insert(core.registry.config.load().vendors(), &moved).unwrap();
    look();
    assert!(compare(false).1.is_empty());
    core.registry.bring_up_to_date("acme", "v", false);
    let (lanes, changes) = compare(true);
    assert_eq!(lanes, 1, "it is looked at again");
    assert_eq!(accounts(changes), Vec::<String>::new());
}
