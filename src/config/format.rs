//! The file format: what serde reads. Values are as written; [`validate`](super::validate) checks them.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::entry::{LimitEntry, TenantEntry};

/// A whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub(super) vendors: BTreeMap<String, VendorEntry>,
    #[serde(default)]
    pub(super) tenants: Vec<TenantEntry>,
}

/// `[vendors.NAME]`, and `[vendors.NAME.environments.ENV]` with what differs there.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VendorEntry {
    pub(super) extends: Option<String>,
    pub(super) base_url: Option<String>,
    pub(super) auth: Option<AuthEntry>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    pub(super) safety: Option<f64>,
    pub(super) connect_timeout: Option<String>,
    pub(super) attempt_timeout: Option<String>,
    pub(super) max_transit: Option<String>,
    pub(super) max_response_bytes: Option<i64>,
    pub(super) connection: Option<ConnectionEntry>,
    pub(super) propagate_trace: Option<bool>,
    pub(super) quirks: Option<Vec<String>>,
    pub(super) unpublished: Option<bool>,
    pub(super) retry: Option<RetryEntry>,
    pub(super) throttle: Option<String>,
    pub(super) dead_letters: Option<String>,
    #[serde(default)]
    pub(super) limits: Vec<LimitEntry>,
    #[serde(default)]
    pub(super) endpoints: BTreeMap<String, EndpointEntry>,
    #[serde(default)]
    pub(super) environments: BTreeMap<String, VendorEntry>,
}

/// `auth = { scheme = "…" }`. Not an enum: serde would forget the line of what is wrong in it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuthEntry {
    pub(super) scheme: String,
    pub(super) name: Option<String>,
    pub(super) prefix: Option<String>,
}

/// `[vendors.NAME.connection]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConnectionEntry {
    pub(super) proxy: Option<String>,
    pub(super) extra_ca: Option<String>,
    pub(super) client_certificate: Option<String>,
    pub(super) allow_http: Option<bool>,
}

/// `[vendors.NAME.retry]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RetryEntry {
    pub(super) max_retries: Option<i64>,
    pub(super) first_wait: Option<String>,
    pub(super) longest_wait: Option<String>,
    pub(super) max_age: Option<String>,
    pub(super) max_hold: Option<String>,
    pub(super) on_ambiguous: Option<String>,
    pub(super) unavailable_is_safe: Option<bool>,
    pub(super) idempotency_header: Option<String>,
    pub(super) max_replay_bytes: Option<i64>,
}

/// `[vendors.NAME.endpoints.ENDPOINT]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndpointEntry {
    pub(super) paths: Option<Vec<String>>,
    pub(super) methods: Option<Vec<String>>,
    pub(super) cost: Option<i64>,
    #[serde(default)]
    pub(super) limits: Vec<LimitEntry>,
}
