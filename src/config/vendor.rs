//! A vendor as validated: what `vendors.toml` says about it, with every default filled in.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use url::Url;

use super::costs::Costs;
use super::credential::CredentialRef;
use super::entry::{EndpointOverride, LimitEntry, TenantEntry};
use super::idempotency::Idempotency;
use super::limit::{Limit, LimitKind, Scope, Unit};
use super::oauth::OAuth;
use super::retry::{AtRest, Keep, RetryPolicy, Throttle};
use super::secret_headers::{SecretHeader, as_written};
use super::{base_url, pattern, suggest};
use crate::signals::Dialect;
use crate::{Delivery, Error, ErrorKind};

/// A vendor in one environment, validated. Made by [`Config`](super::Config); shared by all its tenants.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Vendor {
    /// The vendor's name, as in `[vendors.NAME]`.
    pub name: Arc<str>,
    /// The environment: `live` unless the tenant names another.
    pub environment: Arc<str>,
    /// The base URL, possibly with tenant variables: `https://{shop}.myshopify.com/admin`.
    pub base_url: String,
    /// How requests are authenticated.
    pub auth: AuthScheme,
    /// Headers that every request gets unless it sets them itself.
    pub headers: Vec<(String, String)>,
    /// Headers that carry secrets beside the credential, for all tenants that state none of the same name.
    pub secret_headers: Vec<SecretHeader>,
    /// Default cost of a request, per kind of points, for requests that state no cost of their own.
    pub costs: Costs,
    /// Limits that apply to every request.
    pub limits: Vec<Limit>,
    /// Named groups of paths with their own limits. Sorted by name; an endpoint's number is its index here.
    pub endpoints: Vec<Endpoint>,
    /// Connecting (name resolution, TCP, TLS) may take this long.
    pub connect_timeout: Duration,
    /// One exchange, body included, may take this long.
    pub attempt_timeout: Duration,
    /// The longest time between the send and the vendor's count of a request.
    pub max_transit: Duration,
    /// The largest response body, in decoded bytes. Of the response to a job, a store keeps
    /// [less](crate::Request::keep_response).
    pub max_response_bytes: u64,
    /// Connection settings beside the defaults.
    pub connection: Connection,
    /// Whether requests carry the trace context to the vendor in a header.
    pub propagate_trace: bool,
    /// Other names under which people search for the vendor. A tenant cannot name the vendor by them, only by `name`.
    pub also: Vec<String>,
    /// What a developer must know about this vendor.
    pub quirks: Vec<String>,
    /// The vendor publishes no limits, or none that are known, so the absence of limits is intended: no warning.
    pub unpublished: bool,
    /// When and how often a request is retried.
    pub retry: RetryPolicy,
    /// How the vendor takes idempotency keys.
    pub idempotency: Idempotency,
    /// How requests slow down when few of a limit's units remain.
    pub throttle: Throttle,
    /// How much of a request its dead letter keeps.
    pub dead_letters: Keep,
    /// The form in which the store keeps accepted requests for this vendor.
    pub at_rest: AtRest,
    /// How this vendor states its limits in responses, where the shape of the headers is not enough to tell.
    pub dialect: Arc<Dialect>,
    /// Whether any limit counts bytes.
    pub(crate) counts_bytes: bool,
    /// Whether any limit has a window so long that its usage must survive the process, in the store if there is one.
    pub(crate) keeps_usage: bool,
    /// The widest scope of any limit, at least `Tenant`.
    pub(crate) widest_scope: Scope,
}

/// A named group of paths with its own limits and cost.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Endpoint {
    /// The endpoint's name.
    pub name: Arc<str>,
    /// Path patterns: literal segments, `*` for one segment, a last `**` for any rest. The most literal match wins.
    pub paths: Vec<String>,
    /// HTTP methods that belong to the endpoint, upper case; empty means all.
    pub methods: Vec<String>,
    /// Default cost of a request to this endpoint, per kind of points.
    pub costs: Costs,
    /// Limits that apply to this endpoint alone, in addition to the vendor's.
    pub limits: Vec<Limit>,
}

/// Where a request carries the credential.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthScheme {
    /// No credential is sent.
    None,
    /// `Authorization: Bearer SECRET`.
    Bearer,
    /// `NAME: PREFIX SECRET` in a header of the vendor's own.
    Header {
        /// The header's name.
        name: String,
        /// The text before the secret, including a separating space if the vendor expects one.
        prefix: String,
    },
    /// `Authorization: Basic …`; the secret is `user:password`.
    Basic,
    /// `?NAME=SECRET` in the query string.
    Query {
        /// The parameter's name.
        name: String,
    },
}

/// Settings for connections to a vendor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Connection {
    /// Proxy URL. Without it no proxy is used, not even one that environment variables name.
    pub proxy: Option<String>,
    /// PEM file with certificate authorities to trust in addition to the usual roots.
    pub extra_ca: Option<String>,
    /// PEM file with the client's certificate and key. A tenant may have a file of its own.
    pub client_certificate: Option<String>,
    /// Plain `http` to a host that is not loopback is refused unless this is set.
    pub allow_http: bool,
    /// Whether a host that comes from a tenant's variables may resolve to a private, loopback, link-local or reserved
    /// address. Unless this is set, connections to such an address are refused. Hosts that the vendor's entry spells
    /// out are never checked. With a `proxy`, the proxy resolves names and has to check the addresses itself.
    pub allow_private: bool,
}

/// A tenant at one vendor, validated.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Tenant {
    /// The tenant's id: 1 to 128 of `A-Z a-z 0-9 . _ -`.
    pub id: Arc<str>,
    /// The vendor, in the tenant's environment, with the tenant's overrides applied.
    pub vendor: Arc<Vendor>,
    /// The vendor's account, which several tenants may share; the tenant's own id unless stated.
    pub account: Arc<str>,
    /// Where the secret is, never the secret.
    pub credential: Option<CredentialRef>,
    /// How the tenant gets access tokens, in place of a credential.
    pub oauth: Option<Arc<OAuth>>,
    /// The tenant's own headers that carry secrets beside the credential;
    /// [`all_secret_headers`](Self::all_secret_headers) are those of its requests.
    pub secret_headers: Vec<SecretHeader>,
    /// Values of the base URL's variables.
    pub variables: BTreeMap<String, String>,
    /// The tenant's weight when several tenants take turns at a limit they share: 1 to 1000.
    pub weight: u32,
    /// PEM file with this tenant's own client certificate and key.
    pub client_certificate: Option<String>,
    /// The tenant's overrides as written, kept so that they can be applied to the vendors of a later configuration.
    pub(crate) overrides: Option<Arc<Overrides>>,
}

/// What a tenant changes about its vendor.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Overrides {
    pub(super) limits: BTreeMap<String, LimitEntry>,
    pub(super) endpoints: BTreeMap<String, EndpointOverride>,
    pub(super) share: Option<f64>,
}

impl Tenant {
    /// The error for a failed request of this tenant.
    pub(crate) fn error(&self, kind: ErrorKind, delivery: Delivery, why: impl std::fmt::Display) -> Error {
        Error::of_tenant(&self.id, &self.vendor.name, kind, delivery, why)
    }

    /// The error for a request of this tenant that failed before any byte of it was sent.
    pub(crate) fn not_sent(&self, kind: ErrorKind, why: impl std::fmt::Display) -> Error {
        self.error(kind, Delivery::NotSent, why)
    }
}

impl Vendor {
    /// The name of endpoint `number`.
    pub(crate) fn endpoint_name(&self, number: usize) -> Option<&str> {
        self.endpoints.get(number).map(|endpoint| &*endpoint.name)
    }

    /// The endpoint `name` and its number.
    ///
    /// # Errors
    /// `UnknownEndpoint`, with a suggested name.
    pub fn endpoint(&self, name: &str) -> Result<(usize, &Endpoint), Error> {
        if let Ok(index) = self.endpoints.binary_search_by(|endpoint| (*endpoint.name).cmp(name)) {
            return Ok((index, &self.endpoints[index]));
        }
        let hint = suggest::hint(name, "endpoints", self.endpoints.iter().map(|endpoint| &*endpoint.name));
        let name: String = name.chars().take(128).collect();
        let message = format!("vendor `{}` has no endpoint {name:?}; {hint}", self.name);
        Err(Error::not_sent(ErrorKind::UnknownEndpoint, message))
    }

    /// Whether a request's cost is known only after the response body has been read.
    pub(crate) fn settles_by_body(&self) -> bool {
        self.counts_bytes || self.dialect.costs_in_body()
    }

    /// Whether some limit counts this unit. A limit of `bytes` counts both request bytes and response bytes.
    pub(crate) fn has_unit(&self, unit: &str) -> bool {
        let limits = self.limits.iter().chain(self.endpoints.iter().flat_map(|endpoint| &endpoint.limits));
        limits.into_iter().any(|limit| match &limit.kind {
            LimitKind::Rate(rate) => match &rate.unit {
                Unit::Bytes => [Unit::RequestBytes.name(), Unit::ResponseBytes.name()].contains(&unit),
                own => own.name() == unit,
            },
            LimitKind::Concurrency { .. } => false,
        })
    }

    /// Whether a limit of a request to `endpoint` counts this kind of points, so that the request's cost matters.
    pub(crate) fn counts(&self, kind: &str, endpoint: Option<&Endpoint>) -> bool {
        let limits = self.limits.iter().chain(endpoint.into_iter().flat_map(|endpoint| &endpoint.limits));
        let mut rates = limits.filter_map(|limit| match &limit.kind {
            LimitKind::Rate(rate) => Some(rate),
            LimitKind::Concurrency { .. } => None,
        });
        rates.any(|rate| matches!(&rate.unit, Unit::Cost(own) if **own == *kind))
    }

    /// The estimated size of a response, in bytes: `expected`, but at most what every limit has room for next to `sent`
    /// bytes of request body, because an estimate must not block a request for ever.
    pub(crate) fn largest_answer(&self, sent: u32, expected: u32) -> u32 {
        let limits = self.limits.iter().chain(self.endpoints.iter().flat_map(|endpoint| &endpoint.limits));
        let room = limits.filter_map(|limit| match &limit.kind {
            LimitKind::Rate(rate) if rate.unit == Unit::ResponseBytes => Some(rate.shape().largest_cost(false)),
            LimitKind::Rate(rate) if rate.unit == Unit::Bytes => {
                Some(rate.shape().largest_cost(false).saturating_sub(sent))
            }
            _ => None,
        });
        expected.min(room.min().unwrap_or(u32::MAX))
    }

    /// The endpoint that a request belongs to, and its number. `path` is relative to the base URL; a query is ignored.
    ///
    /// The most literal pattern wins; between equal ones, the endpoint that names its methods.
    pub fn match_endpoint(&self, method: &str, path: &str) -> Option<(usize, &Endpoint)> {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let mut best: Option<(usize, &Endpoint, &str)> = None;
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            if !endpoint.methods.is_empty() && !endpoint.methods.iter().any(|m| m.eq_ignore_ascii_case(method)) {
                continue;
            }
            for found in endpoint.paths.iter().filter(|pattern| pattern::matches(pattern, path)) {
                let better = best.is_none_or(|(_, other, pattern)| match pattern::compare(found, pattern) {
                    Ordering::Greater => true,
                    Ordering::Equal => other.methods.is_empty() && !endpoint.methods.is_empty(),
                    Ordering::Less => false,
                });
                if better {
                    best = Some((index, endpoint, found));
                }
            }
        }
        best.map(|(index, endpoint, _)| (index, endpoint))
    }
}

impl Tenant {
    /// The vendor's base URL with this tenant's variables filled in.
    ///
    /// # Errors
    /// `Config`; not for a tenant that [`resolve_tenant`](super::resolve_tenant) made and that was not changed.
    pub fn base_url(&self) -> Result<Url, Error> {
        base_url::fill(&self.vendor.base_url, &self.variables)
            .map_err(|why| Error::config(format!("tenant `{}` at vendor `{}`: {why}", self.id, self.vendor.name)))
    }

    /// Scheme, host and port of the base URL if this tenant's variables choose the domain; `None` if the host is in the
    /// vendor's own domain.
    pub(crate) fn chosen_host(&self) -> Option<String> {
        if base_url::host_is_the_vendors(&self.vendor.base_url) {
            return None;
        }
        // A base URL that cannot be filled in reaches no host. The tenant's id then stands for a host that no other
        // tenant shares.
        let host = self.base_url().map_or_else(|_| self.id.to_string(), |url| url.origin().ascii_serialization());
        Some(host)
    }

    /// The path of `url` below this tenant's base URL; `None` if the URL is not below it, in which case the request
    /// must not carry this tenant's credential.
    pub fn path_below_base<'u>(&self, url: &'u Url) -> Option<&'u str> {
        base_url::below(&self.base_url().ok()?, url)
    }

    /// The headers that carry secrets beside the credential in each request: the vendor's, and the tenant's own in place
    /// of those of the same name.
    pub fn all_secret_headers(&self) -> impl Iterator<Item = &SecretHeader> {
        let own = &self.secret_headers;
        let is_the_vendors = move |header: &&SecretHeader| own.iter().all(|other| other.name != header.name);
        self.vendor.secret_headers.iter().filter(is_the_vendors).chain(own)
    }

    /// Whether there are any [`all_secret_headers`](Self::all_secret_headers).
    #[inline]
    pub(crate) fn has_secret_headers(&self) -> bool {
        !self.secret_headers.is_empty() || !self.vendor.secret_headers.is_empty()
    }

    /// The tenant as an entry, which a program can change and add again.
    pub fn entry(&self) -> TenantEntry {
        let overrides = self.overrides.as_deref().cloned().unwrap_or_default();
        TenantEntry {
            id: (*self.id).to_owned(),
            vendor: (*self.vendor.name).to_owned(),
            environment: Some((*self.vendor.environment).to_owned()),
            account: (self.account != self.id).then(|| (*self.account).to_owned()),
            credential: self.credential.as_ref().map(CredentialRef::to_string),
            oauth: self.oauth.as_ref().map(|oauth| oauth.entry.clone()),
            secret_headers: as_written(&self.secret_headers),
            vars: self.variables.clone(),
            weight: Some(self.weight.into()),
            share: overrides.share,
            client_certificate: self.client_certificate.clone(),
            limits: overrides.limits,
            endpoints: overrides.endpoints,
        }
    }
}
