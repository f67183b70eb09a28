//! The file format as serde reads it; limits and tenants are in `entry.rs`. Values are as written;
//! [`validate`](super::validate) checks them.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use super::entry::{LimitEntry, TenantEntry};
use super::reference::reference;
use super::secret_headers::SecretHeaders;

/// A whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub(super) vendors: BTreeMap<String, VendorEntry>,
    #[serde(default)]
    pub(super) tenants: Vec<TenantEntry>,
    #[serde(default)]
    pub(super) callers: Vec<CallerEntry>,
    pub(super) sharing: Option<SharingEntry>,
}

/// `[sharing]`.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SharingEntry {
    pub(super) through: String,
    pub(super) lease: Option<String>,
    pub(super) when_away: Option<String>,
    pub(super) floor: Option<f64>,
    pub(super) max_processes: Option<u32>,
}

impl fmt::Debug for SharingEntry {
    /// Omits the URL: while unchecked, it may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharingEntry").field("lease", &self.lease).finish_non_exhaustive()
    }
}

/// `[[callers]]`.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallerEntry {
    pub(super) name: String,
    #[serde(default, deserialize_with = "reference")]
    pub(super) token: Option<String>,
    pub(super) tenants: Vec<String>,
    pub(super) vendors: Option<Vec<String>>,
    pub(super) priority: Option<String>,
    pub(super) may: Option<Vec<String>>,
    pub(super) rewrite: Option<String>,
}

impl fmt::Debug for CallerEntry {
    /// Shows the name alone: while unchecked, the token's reference may be the token itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerEntry").field("name", &self.name).finish_non_exhaustive()
    }
}

/// `[vendors.NAME]`, and `[vendors.NAME.environments.ENV]` with the fields that differ in that environment.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VendorEntry {
    pub(super) extends: Option<String>,
    pub(super) base_url: Option<String>,
    pub(super) auth: Option<AuthEntry>,
    pub(super) also: Option<Vec<String>>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) secret_headers: SecretHeaders,
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
    pub(super) idempotency: Option<IdempotencyEntry>,
    pub(super) oauth: Option<VendorOAuthEntry>,
    pub(super) throttle: Option<String>,
    pub(super) dead_letters: Option<String>,
    pub(super) at_rest: Option<String>,
    pub(super) dialect: Option<DialectEntry>,
    #[serde(default)]
    pub(super) costs: BTreeMap<String, i64>,
    #[serde(default)]
    pub(super) limits: Vec<LimitEntry>,
    #[serde(default)]
    pub(super) endpoints: BTreeMap<String, EndpointEntry>,
    #[serde(default)]
    pub(super) environments: BTreeMap<String, VendorEntry>,
}

/// `auth = { scheme = "…" }`. Not an enum, because serde would lose the line number of an error inside it.
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
    pub(super) allow_private: Option<bool>,
}

/// `[vendors.NAME.retry]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RetryEntry {
    pub(super) max_retries: Option<i64>,
    pub(super) first_wait: Option<String>,
    pub(super) longest_wait: Option<String>,
    pub(super) default_wait: Option<String>,
    pub(super) max_age: Option<String>,
    pub(super) max_hold: Option<String>,
    pub(super) max_pause: Option<String>,
    pub(super) max_shared_pause: Option<String>,
    pub(super) on_ambiguous: Option<String>,
    pub(super) unavailable_is_safe: Option<bool>,
    pub(super) unprocessed_is_safe: Option<bool>,
    pub(super) max_replay_bytes: Option<i64>,
}

/// `[vendors.NAME.idempotency]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IdempotencyEntry {
    pub(super) header: Option<String>,
    pub(super) query: Option<String>,
    pub(super) body: Option<String>,
    pub(super) methods: Option<Vec<String>>,
    pub(super) paths: Option<Vec<String>>,
    pub(super) max_length: Option<i64>,
    pub(super) keeps: Option<String>,
    pub(super) on_unsendable: Option<String>,
}

/// `[vendors.NAME.oauth]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VendorOAuthEntry {
    pub(super) grant: Option<String>,
    pub(super) token_url: Option<String>,
    pub(super) client_auth: Option<String>,
    pub(super) scopes: Option<Vec<String>>,
    pub(super) params: Option<BTreeMap<String, String>>,
    pub(super) rotates: Option<bool>,
    pub(super) client_id: Option<String>,
    pub(super) client_secret: Option<String>,
    pub(super) private_key: Option<String>,
    pub(super) key_id: Option<String>,
    pub(super) algorithm: Option<String>,
    pub(super) audience: Option<String>,
}

/// `[vendors.NAME.dialect]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DialectEntry {
    pub(super) windows: Option<Vec<WindowEntry>>,
    pub(super) answers: Option<Vec<AnswerEntry>>,
    pub(super) waits: Option<Vec<WaitEntry>>,
    pub(super) costs: Option<BTreeMap<String, PlacesEntry>>,
    pub(super) rate: Option<String>,
    pub(super) reset_means: Option<String>,
    pub(super) ignore: Option<Vec<String>>,
    pub(super) nothing: Option<Vec<String>>,
}

/// `[[vendors.NAME.dialect.windows]]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WindowEntry {
    pub(super) name: Option<String>,
    pub(super) each: Option<String>,
    pub(super) items: Option<String>,
    pub(super) form: Option<String>,
    pub(super) limit: Option<FigureEntry>,
    pub(super) remaining: Option<FigureEntry>,
    pub(super) used: Option<FigureEntry>,
    pub(super) reset: Option<String>,
    pub(super) regain: Option<String>,
    pub(super) length: Option<String>,
    pub(super) length_from: Option<String>,
    pub(super) item: Option<i64>,
    pub(super) unit: Option<String>,
}

/// A count, or the place in a response that states it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "a count, or the place where it stands, such as a header's name")]
pub(super) enum FigureEntry {
    Is(i64),
    At(String),
}

/// The places in a response where a value may be, in the order in which they are tried.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "a place in a response, such as \"body#/usage/total\", or a list of places")]
pub(super) enum PlacesEntry {
    One(String),
    Any(Vec<String>),
}

/// A value that is compared as text.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "a text, a whole number, or true or false")]
pub(super) enum ValueEntry {
    Text(String),
    Number(i64),
    Is(bool),
}

/// `[[vendors.NAME.dialect.answers]]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerEntry {
    pub(super) status: Option<Vec<i64>>,
    pub(super) from: Option<String>,
    pub(super) is: Option<Vec<ValueEntry>>,
    pub(super) contains: Option<Vec<String>>,
    pub(super) exhausted: Option<bool>,
    pub(super) throttled: Option<bool>,
    pub(super) scope: Option<String>,
    pub(super) wait: Option<String>,
    pub(super) wait_until_next: Option<String>,
}

/// `[[vendors.NAME.dialect.waits]]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitEntry {
    pub(super) from: Option<String>,
    pub(super) after: Option<String>,
    pub(super) unit: Option<String>,
    pub(super) needed: Option<String>,
    pub(super) available: Option<String>,
    pub(super) per_second: Option<String>,
}

/// `[vendors.NAME.endpoints.ENDPOINT]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndpointEntry {
    pub(super) paths: Option<Vec<String>>,
    pub(super) methods: Option<Vec<String>>,
    #[serde(default)]
    pub(super) costs: BTreeMap<String, i64>,
    #[serde(default)]
    pub(super) limits: Vec<LimitEntry>,
}
