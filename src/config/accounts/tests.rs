//! Tests of accounts.

use super::*;
use crate::config::{Config, OAuth, OAuthEntry, Sources, TenantEntry, resolve_tenant};

const VENDOR: &str = r#"
[vendors.v]
base_url = "https://{host}/api/{division}"
auth = { scheme = "bearer" }
unpublished = true
[vendors.v.oauth]
grant = "refresh_token"
token_url = "https://login.example/{directory}/token"
client_id = "env:ID"
"#;

fn tenant_of(id: &str, account: &str, change: impl FnOnce(TenantEntry) -> TenantEntry) -> Arc<Tenant> {
    let config = Config::load(&Sources::new().without_catalogue().file("f.toml", VENDOR), 1).unwrap();
    let entry = TenantEntry::new(id, "v").account(account).variable("host", "a.example");
    let entry = entry.variable("division", "1").variable("directory", "d");
    let entry = entry.oauth(OAuthEntry::default().refresh_token("env:FIRST"));
    Arc::new(resolve_tenant(config.vendors(), &change(entry)).unwrap())
}

fn tenant(id: &str, account: &str) -> Arc<Tenant> {
    tenant_of(id, account, |entry| entry)
}

/// The settings of a tenant of account `one` that differ from those of [`tenant`], and what differs.
fn others(id: &str) -> [(Arc<Tenant>, &'static str); 4] {
    let oauth = |entry: OAuthEntry| move |tenant: TenantEntry| tenant.oauth(entry);
    [
        (tenant_of(id, "one", oauth(OAuthEntry::default().refresh_token("env:SECOND"))), "`oauth`"),
        (
            tenant_of(id, "one", oauth(OAuthEntry::default().refresh_token("env:FIRST").client_id("env:OTHER"))),
            "`oauth`",
        ),
        (tenant_of(id, "one", |tenant| tenant.variable("directory", "e")), "token URLs"),
        (tenant_of(id, "one", |tenant| tenant.variable("host", "b.example")), "hosts"),
    ]
}

#[test]
fn token_is_for_its_settings_and_host() {
    let first = tenant("a", "one");
    for same in [
        tenant("a", "one"),
        tenant("b", "one"),
        tenant_of("a", "one", |tenant| tenant.variable("host", "A.example")),
        // Exact Online has a path for each division of what one user has granted, Jira for each site.
        tenant_of("c", "one", |tenant| tenant.variable("division", "2")),
        // The entry states what the vendor's states too.
        tenant_of("a", "one", |tenant| {
            tenant.oauth(OAuthEntry::default().refresh_token("env:FIRST").client_id("env:ID"))
        }),
    ] {
        assert!(same.may_use_token_of(&first) && first.may_use_token_of(&same), "{same:?}");
    }
    for (other, what) in others("a") {
        assert!(!other.may_use_token_of(&first) && !first.may_use_token_of(&other), "{what}");
    }
}

/// Two accounts that begin with one refresh token would make it void for each other.
#[test]
fn advice_splits_no_refresh_token_of_one_use() {
    let known = tenant("a", "one");
    let reusable = |tenant: &Arc<Tenant>| {
        let oauth = OAuth { rotates: false, ..(**tenant.oauth.as_ref().unwrap()).clone() };
        Tenant { oauth: Some(Arc::new(oauth)), ..(**tenant).clone() }
    };
    for (other, what) in others("b") {
        let is_one = other.oauth.as_ref().unwrap().refresh_token == known.oauth.as_ref().unwrap().refresh_token;
        let why = known.no_token_with(&other);
        assert_eq!(why.contains("with a refresh token of its own"), is_one, "{what}: {why}");
        let why = reusable(&known).no_token_with(&reusable(&other));
        assert!(why.ends_with("give each an `account` of its own, or the same settings"), "{what}: {why}");
    }
    let why = known.no_token_with_others(&tenant_of("b", "one", |tenant| tenant.variable("host", "b.example")));
    assert!(why.starts_with("tenants `a` and others have one account at vendor `v`"), "{why}");
}

#[test]
fn account_has_tenants_of_one_grant() {
    let mut accounts = TokenAccounts::default();
    let (a, b) = (tenant("a", "one"), tenant("b", "one"));
    accounts.add(&a).unwrap();
    for (other, what) in others("b") {
        let known = accounts.add(&other).unwrap_err();
        let why = known.no_token_with(&other);
        assert!(why.contains("tenants `a` and `b`") && why.contains(&format!("different {what};")), "{why}");
        // The only tenant of an account may change, and back.
        let changed = others("a").into_iter().find(|(tenant, _)| tenant.may_use_token_of(&other)).unwrap().0;
        accounts.replace(Some(&a), &changed).unwrap();
        accounts.add(&other).unwrap();
        accounts.remove(&other);
        accounts.replace(Some(&changed), &a).unwrap();
    }
    accounts.add(&tenant("c", "two")).unwrap();
    accounts.add(&tenant_of("d", "three", |tenant| tenant.variable("host", "d.example"))).unwrap();

    // With two of them, none may change alone. The refused change leaves the account as it was.
    accounts.add(&b).unwrap();
    let changed = tenant_of("a", "one", |tenant| tenant.variable("host", "b.example"));
    assert!(accounts.replace(Some(&a), &changed).is_err());
    accounts.remove(&b);
    accounts.replace(Some(&a), &changed).unwrap();
    assert!(accounts.add(&b).is_err());
    accounts.remove(&changed);
    accounts.add(&b).unwrap();
}
