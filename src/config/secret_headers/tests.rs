//! Tests of headers with secrets in entries of vendors and tenants.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::config::{Config, Sources, TenantEntry, resolve_tenant};

const VENDOR: &str = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"header\", name = \"x-key\" }\n\
                      unpublished = true\n";

fn load(text: &str, over: &str, tenant: TenantEntry) -> Result<Config, crate::Error> {
    let sources = Sources::new().without_catalogue().file("f.toml", text).over("o.toml", over);
    Config::load(&sources.tenant(tenant), 1)
}

fn tenant() -> TenantEntry {
    TenantEntry::new("a", "v")
}

/// Entries of a table of `secret_headers`, each with the reference `env:A`.
fn entries(names: &[&str]) -> String {
    names.iter().map(|name| format!("\"{name}\" = \"env:A\"\n")).collect()
}

#[test]
fn upper_entry_replaces_secret_headers_by_name() {
    let text = format!(
        "{VENDOR}secret_headers = {{ X-Second = \"env:SECOND\", x-third = \"env:THIRD\" }}\n\
         [vendors.v.environments.test]\nsecret_headers = {{ x-second = \"env:TEST\" }}\n"
    );
    let over = "[vendors.v.secret_headers]\nX-THIRD = \"file:/third\"\n";
    for (over, entry, expected) in [
        ("", tenant(), ["x-second=env:SECOND", "x-third=env:THIRD"]),
        ("", tenant().environment("test"), ["x-second=env:TEST", "x-third=env:THIRD"]),
        (over, tenant(), ["x-second=env:SECOND", "x-third=file:/third"]),
        ("", tenant().secret_header("X-SECOND", "env:OWN"), ["x-third=env:THIRD", "x-second=env:OWN"]),
    ] {
        let config = load(&text, over, entry).unwrap();
        let tenant = config.tenant("a", "v").unwrap();
        let stated = tenant.all_secret_headers().map(|header| format!("{}={}", header.name, header.secret));
        assert_eq!(stated.collect::<Vec<String>>(), expected);
        let again = resolve_tenant(config.vendors(), &tenant.entry()).unwrap();
        assert_eq!(again.secret_headers, tenant.secret_headers);
    }
}

#[test]
fn environment_with_own_url_inherits_no_secret() {
    let text = format!(
        "{VENDOR}secret_headers = {{ x-second = \"env:SECOND\" }}\n\
         [vendors.v.environments.plan]\nsafety = 0.5\n\
         [vendors.v.environments.sandbox]\nbase_url = \"https://sandbox.example\"\n\
         [vendors.v.environments.other]\nbase_url = \"https://other.example\"\n\
         secret_headers = {{ x-third = \"env:OTHER\" }}\n"
    );
    for (environment, expected) in [
        ("live", &["x-second=env:SECOND"][..]),
        ("plan", &["x-second=env:SECOND"]),
        ("sandbox", &[]),
        ("other", &["x-third=env:OTHER"]),
    ] {
        let config = load(&text, "", tenant().environment(environment)).unwrap();
        let tenant = config.tenant("a", "v").unwrap();
        let stated = tenant.all_secret_headers().map(|header| format!("{}={}", header.name, header.secret));
        assert_eq!(stated.collect::<Vec<String>>(), expected, "{environment}");
    }
}

#[test]
fn shared_secret_goes_to_no_chosen_host() {
    let of_all = "secret_headers = { x-second = \"env:SECOND\" }\n";
    for (url, is_refused) in
        [("https://{v}/x", true), ("https://{v}.example/x", true), ("https://{v}.v.example/x", false)]
    {
        let entry = VENDOR.replace("https://v.example", url);
        let value = if url.starts_with("https://{v}/") { "a.example" } else { "a" };
        let at_host = || tenant().variable("v", value);
        match load(&(entry.clone() + of_all), "", at_host()) {
            Ok(_) => assert!(!is_refused, "{url}"),
            Err(error) => {
                let told = error.to_string();
                assert!(is_refused && told.contains("f.toml:5:") && told.contains("in the tenants' entries"), "{told}");
            }
        }
        load(&entry, "", at_host().secret_header("x-second", "env:OWN")).unwrap();
    }
}

#[test]
fn mistakes_in_secret_headers_are_all_reported() {
    let text = format!(
        "{VENDOR}headers = {{ x-plain = \"1\" }}\nidempotency = {{ header = \"x-once\" }}\n[vendors.v.secret_headers]\n\
         {}x-pasted = \"hunter2\"\n",
        entries(&["X-Key", "X-Plain", "X-Once", "authorization", "Host", "x y"])
    );
    let error = load(&text, "", tenant()).unwrap_err().to_string();
    for (line, part) in [
        (8, "the vendor's `auth` puts the credential into this header"),
        (9, "`headers` states this header too"),
        (10, "this header carries the idempotency key"),
        (11, "this header is for the credential"),
        (12, "belongs to the connection"),
        (13, "this is not a header name"),
        (14, "this is not a reference and may be a secret"),
    ] {
        let place = format!("f.toml:{line}:");
        let is_told = |told: &str| told.contains(&place) && told.contains(part);
        assert!(error.lines().any(is_told), "{line}: {error}");
    }
    assert!(!error.contains("hunter2"), "{error}");
    for (more, part) in [
        ("secret_headers = { x-a = \"env:A\", X-A = \"env:B\" }\n".to_owned(), "this header is stated twice"),
        ("secret_headers = { Integration-Priority = \"env:A\" }\n".to_owned(), "are this client's own"),
        ("secret_headers = { x-a = 1234567 }\n".to_owned(), "f.toml:5:"),
        ("secret_header = { x-a = \"env:A\" }\n".to_owned(), "did you mean `secret_headers`?"),
        (
            "[vendors.v.secret_headers]\n".to_owned()
                + &entries(&["x-1", "x-2", "x-3", "x-4", "x-5", "x-6", "x-7", "x-8", "x-9"]),
            "more than 8 headers with secrets",
        ),
    ] {
        let error = load(&format!("{VENDOR}{more}"), "", tenant()).unwrap_err().to_string();
        assert!(error.contains(part) && !error.contains("1234567"), "{error}");
    }
}

#[test]
fn tenants_secret_headers_fit_the_vendors() {
    let text = format!("{VENDOR}[vendors.v.secret_headers]\n{}", entries(&["x-1", "x-2", "x-3", "x-4", "x-5"]));
    let with = |names: &[&str]| names.iter().fold(tenant(), |entry, name| entry.secret_header(*name, "env:OWN"));
    load(&text, "", with(&["X-1", "x-6", "x-7", "x-8"])).unwrap();
    let error = load(&text, "", with(&["x-6", "x-7", "x-8", "x-9"])).unwrap_err().to_string();
    assert!(error.contains("secret_headers: with the vendor's, these are more than 8"), "{error}");
    let error = load(&text, "", with(&["X-Key"]).secret_header("x-own", "hunter2")).unwrap_err().to_string();
    assert!(error.contains("X-Key: the vendor's `auth` puts the credential"), "{error}");
    assert!(error.contains("x-own: this is not a reference") && !error.contains("hunter2"), "{error}");
}

#[test]
fn entry_with_secret_headers_goes_through_serde() {
    let entry = tenant().secret_header("x-second", "env:SECOND");
    let row = serde_json::to_string(&entry).unwrap();
    assert!(row.contains("\"secret_headers\":{\"x-second\":\"env:SECOND\"}"), "{row}");
    assert_eq!(serde_json::from_str::<TenantEntry>(&row).unwrap(), entry);
    assert!(!serde_json::to_string(&tenant()).unwrap().contains("secret_headers"));
    let pasted = serde_json::from_str::<TenantEntry>(&row.replace("\"env:SECOND\"", "1234567")).unwrap_err();
    assert!(!pasted.to_string().contains("1234567"), "{pasted}");
    assert!(!format!("{:?}", tenant().secret_header("x-second", "hunter2")).contains("hunter2"));
    // Another reference is another configuration.
    let hash = |entry: TenantEntry| Sources::new().tenant(entry).hash();
    assert_ne!(hash(entry), hash(tenant().secret_header("x-second", "env:OTHER")));
}
