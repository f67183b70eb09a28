//! Tests of the table of routes.

use std::sync::Arc;
use std::time::Duration;

use super::{Route, RouteTable};
use crate::ErrorKind;
use crate::config::{Config, Holds, LimitKind, OAuthEntry, Sources, TenantEntry};

/// Holders of a route see that it was replaced, and what was learned of the vendor goes on.
#[test]
fn route_is_current_until_its_tenant_changes() {
    let tenant = |id: &str| TenantEntry::new(id, "github");
    let config = Config::load(&Sources::new().tenants([tenant("a")]), 1).unwrap();
    let table = RouteTable::new();
    table.replace_all(&config).unwrap();
    let first = table.find("a", "github").unwrap();
    first.answered_in(Duration::from_millis(30));
    table.insert(config.vendors(), &tenant("b")).unwrap();
    assert!(first.is_current(), "another tenant is none of its business");
    assert_eq!(table.find("b", "github").unwrap().service_ns(), 30_000_000);

    let (second, _) = table.insert(config.vendors(), &tenant("a").weight(2)).unwrap();
    assert!(!first.is_current() && second.is_current());
    table.replace_all(&config.reload(&Sources::new().tenants([tenant("a")])).unwrap()).unwrap();
    let third = table.find("a", "github").unwrap();
    assert!(!second.is_current() && third.is_current());
    assert_eq!(third.service_ns(), 30_000_000, "the vendor is where it was");
    table.remove("a", "github").unwrap();
    assert!(!third.is_current());
}

/// An account's tenants share its access token, so they change what it is for together, by a reload.
#[test]
fn account_changes_its_grant_as_a_whole() {
    let vendor = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"bearer\" }\n\
                  unpublished = true\n[vendors.v.oauth]\ngrant = \"refresh_token\"\n\
                  token_url = \"https://v.example/token\"\nclient_id = \"env:ID\"\n";
    let tenant = |id: &str, grant: &str| {
        let oauth = OAuthEntry::default().refresh_token(format!("env:{grant}"));
        TenantEntry::new(id, "v").account("one").oauth(oauth)
    };
    let sources = |grant: &str| {
        let sources = Sources::new().without_catalogue().file("f.toml", vendor);
        sources.tenants([tenant("a", grant), tenant("b", grant)])
    };
    let first = Config::load(&sources("FIRST"), 1).unwrap();
    let table = RouteTable::new();
    table.replace_all(&first).unwrap();
    let old = table.find("a", "v").unwrap();
    let error = table.insert(first.vendors(), &tenant("a", "SECOND")).unwrap_err().to_string();
    // The account remembers `a` alone.
    assert!(error.contains("tenants `a` and others have one account at vendor `v`"), "{error}");
    let error = table.insert(first.vendors(), &tenant("b", "SECOND")).unwrap_err().to_string();
    assert!(error.contains("tenants `a` and `b` have one account at vendor `v`"), "{error}");
    assert!(old.is_current() && table.single_changes() == 0, "nothing has changed");

    let second = first.reload(&sources("SECOND")).unwrap();
    assert_eq!(table.replace_all(&second).unwrap().changed.len(), 2);
    let is_replaced = |route: &Route| route.oauth.as_ref().unwrap().is_replaced();
    assert!(is_replaced(&old) && !is_replaced(&table.find("a", "v").unwrap()));

    // The only tenant of the account may change. A tenant that was set while running stays through reloads.
    table.remove("b", "v").unwrap();
    table.insert(second.vendors(), &tenant("a", "FIRST")).unwrap();
    assert_eq!(table.single_changes(), 2);
    let third = second.reload(&sources("THIRD")).unwrap();
    let error = table.replace_all(&third).unwrap_err().to_string();
    assert!(error.contains("added while running") && error.contains("tenants `a` and `b`"), "{error}");
    assert_eq!(table.len(), 1, "nothing has changed");
    table.remove("a", "v").unwrap();
    assert_eq!(table.replace_all(&third).unwrap().added.len(), 2);
    assert_eq!(table.single_changes(), 3, "reloads are not counted");
}

#[test]
fn only_what_changes_a_tenant_counts_as_a_change() {
    let tenant = |id: &str| TenantEntry::new(id, "github");
    let config = Config::load(&Sources::new().tenants([tenant("a")]), 1).unwrap();
    let table = RouteTable::new();
    table.replace_all(&config).unwrap();
    // The first time, the configuration's tenant becomes the program's.
    for (entry, changes) in [
        (tenant("a"), 1),
        (tenant("a"), 1),
        (tenant("a").weight(2), 2),
        (tenant("a").weight(2), 2),
        (tenant("b"), 3),
        (tenant("b"), 3),
    ] {
        table.insert(config.vendors(), &entry).unwrap();
        assert_eq!(table.single_changes(), changes);
    }
    assert!(table.remove("c", "github").is_none());
    assert_eq!(table.single_changes(), 3);
    table.remove("b", "github").unwrap();
    assert_eq!(table.single_changes(), 4);
}

/// No change of the program's tenants helps if the configuration's own tenants have such a limit.
#[test]
fn limit_that_the_store_cannot_hold_is_its_tenants() {
    let vendor = |window: &str| {
        format!(
            "[vendors.v]\nbase_url = \"https://v.example\"\nauth = {{ scheme = \"none\" }}\n[[vendors.v.limits]]\n\
             name = \"l\"\nalgorithm = \"sliding_window\"\nlimit = 10\nwindow = \"{window}\"\n"
        )
    };
    let sources = |window: &str| Sources::new().without_catalogue().file("f.toml", vendor(window));
    let holds = Holds { windows_from: Duration::from_secs(60), name: "a store" };
    let table = RouteTable::new().shared(Some(holds));
    let long = Config::load(&sources("60s"), 1).unwrap();
    table.replace_all(&long).unwrap();
    table.insert(long.vendors(), &TenantEntry::new("added", "v")).unwrap();

    let short = long.reload(&sources("1s")).unwrap();
    assert!(table.check_all(&short).is_ok(), "the configuration has no tenant");
    let error = table.replace_all(&short).unwrap_err().to_string();
    assert!(error.contains("added while running") && error.contains("the limit `l`"), "{error}");
    let own = long.reload(&sources("1s").tenants([TenantEntry::new("own", "v")])).unwrap();
    let error = table.replace_all(&own).unwrap_err().to_string();
    assert!(table.check_all(&own).is_err() && !error.contains("added while running"), "{error}");
    assert_eq!(table.len(), 1, "nothing has changed");
}

#[test]
fn reload_reports_changes_and_keeps_added_tenants() {
    let tenant = |id: &str| TenantEntry::new(id, "github");
    let first = Config::load(&Sources::new().tenants([tenant("a"), tenant("b"), tenant("c")]), 1).unwrap();
    let table = RouteTable::new();
    assert_eq!(table.replace_all(&first).unwrap().added.len(), 3);
    table.insert(first.vendors(), &tenant("added").limit("rest", 10)).unwrap();

    let second = first.reload(&Sources::new().tenants([tenant("a"), tenant("b").weight(2), tenant("d")])).unwrap();
    assert_eq!(second.version(), 2);
    assert_ne!(first.hash(), second.hash());
    assert!(Arc::ptr_eq(&first.vendor("github", "live").unwrap(), &second.vendor("github", "live").unwrap()));
    let changes = table.replace_all(&second).unwrap();
    let ids = |routes: &[Arc<Route>]| routes.iter().map(|route| route.id.to_string()).collect::<Vec<_>>();
    assert_eq!(
        (ids(&changes.added), ids(&changes.changed), ids(&changes.removed)),
        (vec!["d".into()], vec!["b".into()], vec!["c".into()])
    );
    let vendor = &table.get("added", "github").unwrap().vendor;
    let of_endpoints = vendor.endpoints.iter().flat_map(|endpoint| &endpoint.limits);
    let rest = vendor.limits.iter().chain(of_endpoints).find(|limit| &*limit.name == "rest").unwrap();
    assert!(matches!(&rest.kind, LimitKind::Rate(rate) if rate.limit == 10), "{rest:?}");
    assert_eq!(table.get("c", "github").unwrap_err().kind(), ErrorKind::UnknownTenant);
    assert_eq!(table.len(), 4);
    assert!(table.remove("added", "github").is_some());
    assert!(table.find("added", "github").is_none());

    table.insert(second.vendors(), &tenant("added")).unwrap();
    let gone = "[vendors.other]\nbase_url = \"https://other.example\"\n";
    let third = second.reload(&Sources::new().without_catalogue().file("f.toml", gone)).unwrap();
    assert!(table.replace_all(&third).is_err(), "a tenant that was added has lost its vendor");
    assert_eq!(table.len(), 4, "and nothing changed");
}
