//! Tenants and limits as written: by a person in TOML, by a program, or in a database row. A new field of a limit needs
//! changes here, in `overlay.rs`, in `validate/limit.rs` and in `limit.rs`.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::limit::{Algorithm, Scope, Unit};
use super::reference::reference;
use super::secret_headers::SecretHeaders;

/// A limit as written, or fields that replace those of another limit. Validated when it is used, not when it is made.
///
/// In a vendor's entry it states a limit; in a tenant or an environment it states only the fields that differ, and
/// omitted fields keep the vendor's value.
///
/// ```
/// use integration_client::config::LimitEntry;
/// use std::time::Duration;
///
/// let smaller = LimitEntry::default().limit(100).window(Duration::from_secs(60));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[must_use]
pub struct LimitEntry {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) window: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) resets: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) algorithm: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) concurrency: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) burst: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refill_interval: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) release_interval: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) safety: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ceiling: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) largest_request: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cold_start: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) shared: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) as_of: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) confidence: Option<String>,
    /// Whether `window` is from an entry above the one with the calendar in `resets`. No key: `overlay.rs` sets it.
    #[serde(skip)]
    pub(in crate::config) window_over_calendar: bool,
}

impl LimitEntry {
    /// Units per window, 1 to 4,000,000,000.
    pub fn limit(mut self, units: u32) -> Self {
        self.limit = Some(units.into());
        self
    }

    /// The window, above zero and at most 366 days.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = Some(text(window));
        self
    }

    /// When a quota resets by a calendar, such as `daily America/Los_Angeles`, or `rolling` for no calendar. A calendar
    /// replaces the window.
    pub fn resets(mut self, when: impl Into<String>) -> Self {
        self.resets = Some(when.into());
        self
    }

    /// How the vendor counts.
    pub fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = Some(algorithm.name().to_owned());
        self
    }

    /// Which requests share the limit.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = Some(scope.name().to_owned());
        self
    }

    /// The most requests in flight at once, instead of a limit per window.
    pub fn concurrency(mut self, requests: u32) -> Self {
        self.concurrency = Some(requests.into());
        self
    }

    /// The capacity of the bucket: the most units that may be sent at once, at most the limit.
    pub fn burst(mut self, units: u32) -> Self {
        self.burst = Some(units.into());
        self
    }

    /// Whether processes that share limits share this one; true unless stated.
    pub fn shared(mut self, shared: bool) -> Self {
        self.shared = Some(shared);
        self
    }

    /// The share of the limit to use, above 0 and at most 1.
    pub fn safety(mut self, share: f64) -> Self {
        self.safety = Some(share);
        self
    }

    /// The guard's share of the limit, above 0 and at most 1.
    pub fn ceiling(mut self, share: f64) -> Self {
        self.ceiling = Some(share);
        self
    }

    /// What the limit counts: requests, points of a kind, or bytes.
    pub fn unit(mut self, unit: Unit) -> Self {
        self.unit = Some(unit.name().to_owned());
        self
    }
}

/// Writes a duration in the configuration format; in seconds if they are whole, which are easier to read in a database.
fn text(duration: Duration) -> String {
    if duration.subsec_nanos() == 0 { format!("{}s", duration.as_secs()) } else { format!("{}ns", duration.as_nanos()) }
}

/// What a tenant changes about one endpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndpointOverride {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) limits: BTreeMap<String, LimitEntry>,
}

/// A tenant's part of the OAuth 2.0 settings, as written. It states where secrets are, never the secrets themselves.
/// Each field is `env:NAME`, `file:PATH`, or `RESOLVER:KEY` with a registered resolver, except the key's id and the
/// subject, which are not secret and are written as they are.
///
/// ```
/// use integration_client::config::{OAuthEntry, TenantEntry};
///
/// let oauth = OAuthEntry::default().refresh_token("env:ACME_XERO_REFRESH_TOKEN");
/// let acme = TenantEntry::new("acme", "xero").oauth(oauth);
/// # drop(acme);
/// ```
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[must_use]
pub struct OAuthEntry {
    #[serde(default, deserialize_with = "reference", skip_serializing_if = "Option::is_none")]
    pub(super) client_id: Option<String>,
    #[serde(default, deserialize_with = "reference", skip_serializing_if = "Option::is_none")]
    pub(super) client_secret: Option<String>,
    #[serde(default, deserialize_with = "reference", skip_serializing_if = "Option::is_none")]
    pub(super) refresh_token: Option<String>,
    #[serde(default, deserialize_with = "reference", skip_serializing_if = "Option::is_none")]
    pub(super) private_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subject: Option<String>,
}

impl OAuthEntry {
    /// The reference to the client's id, unless the vendor's entry states it.
    pub fn client_id(mut self, reference: impl Into<String>) -> Self {
        self.client_id = Some(reference.into());
        self
    }

    /// The reference to the client's secret, unless the vendor's entry states it.
    pub fn client_secret(mut self, reference: impl Into<String>) -> Self {
        self.client_secret = Some(reference.into());
        self
    }

    /// The reference to the refresh token that the tenant's user granted. The client keeps later refresh tokens itself.
    pub fn refresh_token(mut self, reference: impl Into<String>) -> Self {
        self.refresh_token = Some(reference.into());
        self
    }

    /// The reference to the private key that signs JWTs, in PEM, unless the vendor's entry states it.
    pub fn private_key(mut self, reference: impl Into<String>) -> Self {
        self.private_key = Some(reference.into());
        self
    }

    /// The name of the private key, which goes into the JWT's header.
    pub fn key_id(mut self, id: impl Into<String>) -> Self {
        self.key_id = Some(id.into());
        self
    }

    /// The subject of the JWT: on whose behalf it requests a token.
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }
}

impl OAuthEntry {
    /// The references to secrets, which `Debug` does not show.
    pub(super) fn references(&self) -> [&Option<String>; 4] {
        [&self.client_id, &self.client_secret, &self.refresh_token, &self.private_key]
    }
}

impl fmt::Debug for OAuthEntry {
    /// Shows which references are stated but not their text: an unchecked reference may be the secret itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stated = |field: &Option<String>| field.as_ref().map(|_| "…");
        f.debug_struct("OAuthEntry")
            .field("client_id", &stated(&self.client_id))
            .field("client_secret", &stated(&self.client_secret))
            .field("refresh_token", &stated(&self.refresh_token))
            .field("private_key", &stated(&self.private_key))
            .field("key_id", &self.key_id)
            .field("subject", &self.subject)
            .finish()
    }
}

/// A tenant at one vendor, as written. Checked by [`resolve_tenant`](super::resolve_tenant).
///
/// A `[[tenants]]` table in TOML has the same fields, and so has a row of a database that serde reads. The entry holds
/// a reference to the credential, never the credential itself.
///
/// ```
/// use integration_client::config::{Config, Sources, TenantEntry};
///
/// let acme = TenantEntry::new("acme", "github").credential("env:ACME_GITHUB_TOKEN").limit("rest", 100);
/// let config = Config::load(&Sources::new().tenant(acme), 1)?;
/// assert_eq!(&*config.tenant("acme", "github")?.vendor.name, "github");
/// # Ok::<(), integration_client::Error>(())
/// ```
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[must_use]
pub struct TenantEntry {
    pub(super) id: String,
    pub(super) vendor: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) environment: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) account: Option<String>,
    #[serde(default, deserialize_with = "reference", skip_serializing_if = "Option::is_none")]
    pub(super) credential: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) oauth: Option<OAuthEntry>,
    #[serde(default, skip_serializing_if = "SecretHeaders::is_empty")]
    pub(super) secret_headers: SecretHeaders,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) vars: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) weight: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client_certificate: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) limits: BTreeMap<String, LimitEntry>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) endpoints: BTreeMap<String, EndpointOverride>,
}

impl TenantEntry {
    /// Tenant `id` at `vendor`, in the environment `live`, without overrides.
    pub fn new(id: impl Into<String>, vendor: impl Into<String>) -> Self {
        TenantEntry { id: id.into(), vendor: vendor.into(), ..TenantEntry::default() }
    }

    /// The tenant's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The vendor's name.
    pub fn vendor(&self) -> &str {
        &self.vendor
    }

    /// The vendor's environment, for example `sandbox`.
    pub fn environment(mut self, name: impl Into<String>) -> Self {
        self.environment = Some(name.into());
        self
    }

    /// The vendor's account, if several tenants use one; the tenant's id unless stated.
    pub fn account(mut self, account: impl Into<String>) -> Self {
        self.account = Some(account.into());
        self
    }

    /// Where the secret is: `env:NAME`, `file:PATH`, or `RESOLVER:KEY` with a registered resolver.
    pub fn credential(mut self, reference: impl Into<String>) -> Self {
        self.credential = Some(reference.into());
        self
    }

    /// How the tenant gets access tokens, in place of a [`credential`](Self::credential). The vendor's entry supplies
    /// the fields that this leaves out.
    pub fn oauth(mut self, oauth: OAuthEntry) -> Self {
        self.oauth = Some(oauth);
        self
    }

    /// Where the secret of the header `name` is, which each request carries beside the [`credential`](Self::credential).
    /// It replaces the vendor's header of that name.
    pub fn secret_header(mut self, name: impl Into<String>, reference: impl Into<String>) -> Self {
        self.secret_headers.set(name, reference);
        self
    }

    /// The value of a variable of the vendor's base URL.
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.vars.insert(name.into(), value.into());
        self
    }

    /// The tenant's weight when several tenants take turns at a limit they share: 1 to 1000; 1 by default.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = Some(weight.into());
        self
    }

    /// The part of every limit that this process may use, above 0 and at most 1; rounded down to whole units.
    pub fn share(mut self, share: f64) -> Self {
        self.share = Some(share);
        self
    }

    /// A PEM file with this tenant's own client certificate and key.
    pub fn client_certificate(mut self, path: impl Into<String>) -> Self {
        self.client_certificate = Some(path.into());
        self
    }

    /// Another figure for the vendor's limit `name`; shorthand for [`override_limit`](Self::override_limit).
    pub fn limit(mut self, name: impl Into<String>, units: u32) -> Self {
        self.limits.entry(name.into()).or_default().limit = Some(units.into());
        self
    }

    /// Replaces fields of the vendor's limit `name`: the one that applies to every request or, if there is none of that
    /// name, the only endpoint limit that has it.
    pub fn override_limit(mut self, name: impl Into<String>, limit: LimitEntry) -> Self {
        self.limits.insert(name.into(), limit);
        self
    }

    /// Replaces fields of the limit `name` of `endpoint`.
    pub fn override_endpoint_limit(
        mut self,
        endpoint: impl Into<String>,
        name: impl Into<String>,
        limit: LimitEntry,
    ) -> Self {
        self.endpoints.entry(endpoint.into()).or_default().limits.insert(name.into(), limit);
        self
    }
}

impl fmt::Debug for TenantEntry {
    /// Shows everything but the references to secrets: while unchecked, one may be the secret itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantEntry")
            .field("id", &self.id)
            .field("vendor", &self.vendor)
            .field("environment", &self.environment)
            .field("account", &self.account)
            .field("credential", &self.credential.as_ref().map(|_| "…"))
            .field("oauth", &self.oauth)
            .field("secret_headers", &self.secret_headers)
            .field("vars", &self.vars)
            .field("weight", &self.weight)
            .field("share", &self.share)
            .field("client_certificate", &self.client_certificate)
            .field("limits", &self.limits)
            .field("endpoints", &self.endpoints)
            .finish()
    }
}
