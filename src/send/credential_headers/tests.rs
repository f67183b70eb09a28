use super::*;
use crate::config::{Config, Sources};
use crate::transport::auth::header_of;

#[test]
fn credential_headers_of_the_catalogue_are_known() {
    let config = Config::load(&Sources::new(), 1).unwrap();
    let mut count = 0;
    for vendor in config.vendors().iter() {
        if let Some(name) = header_of(&vendor.auth).unwrap() {
            assert!(is_credential(&name), "{}: {name}", vendor.name);
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
}

#[test]
fn headers_without_credentials_are_none() {
    for name in [
        "idempotency-key",
        "x-netsuite-idempotency-key",
        "x-csrf-token",
        "x-atlassian-token",
        "sync-token",
        "x-ms-continuationtoken",
        "x-continuation-token",
        "x-amz-content-sha256",
        "x-snowflake-authorization-token-type",
        "www-authenticate",
    ] {
        assert!(!is_credential(&HeaderName::from_static(name)), "{name}");
    }
}
