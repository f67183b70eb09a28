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
    /// What a request costs that states nothing else, by kind of points.
    pub costs: Costs,
    /// Limits that hold for every request.
    pub limits: Vec<Limit>,
    /// Named groups of paths with their own limits. Sorted by name; an endpoint's number is its place here.
    pub endpoints: Vec<Endpoint>,
    /// Connecting (name resolution, TCP, TLS) may take this long.
    pub connect_timeout: Duration,
    /// One exchange, body included, may take this long.
    pub attempt_timeout: Duration,
    /// The longest time between the send and the vendor's count of a request.
    pub max_transit: Duration,
    /// The largest response body, in decoded bytes.
    pub max_response_bytes: u64,
    /// Connection settings beside the defaults.
    pub connection: Connection,
    /// The header that carries trace context, when the operator wants it propagated.
    pub propagate_trace: bool,
    /// Other names by which people look for it. No tenant can use them: they lead to `name`.
    pub also: Vec<String>,
    /// What a developer must know about this vendor.
    pub quirks: Vec<String>,
    /// The vendor publishes no figures, or none that are known: that no limit is stated is meant so.
    pub unpublished: bool,
    /// When and how often a request is tried again.
    pub retry: RetryPolicy,
    /// How it takes idempotency keys.
    pub idempotency: Idempotency,
    /// How requests slow down when little of the vendor's limit is left.
    pub throttle: Throttle,
    /// How much of a request is kept once it is given up on.
    pub dead_letters: Keep,
    /// In which form its accepted requests stand in the store.
    pub at_rest: AtRest,
    /// How this vendor speaks about its limits, beyond what headers say by their shape.
    pub dialect: Arc<Dialect>,
    /// A limit counts bytes.
    pub(crate) counts_bytes: bool,
    /// A limit has a window so long that what was taken of it is remembered beyond the process, where there is a store.
    pub(crate) keeps_usage: bool,
    /// Of its limits' scopes the widest, a tenant at least.
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
    /// HTTP methods that belong to it, upper case; empty means all.
    pub methods: Vec<String>,
    /// What one of its requests costs, unless the request says otherwise.
    pub costs: Costs,
    /// Limits that hold for this endpoint alone, beside the vendor's.
    pub limits: Vec<Limit>,
}

/// Where the credential goes.
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
        /// Put before the secret, with the space if there is one.
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

/// Connection settings of a vendor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Connection {
    /// Proxy URL; no proxy (nor the environment's) is used without it.
    pub proxy: Option<String>,
    /// PEM file with certificate authorities to trust beside the usual roots.
    pub extra_ca: Option<String>,
    /// PEM file with the client's certificate and key. A tenant may have one of its own.
    pub client_certificate: Option<String>,
    /// Plain `http` to a host that is not loopback is refused unless this is set.
    pub allow_http: bool,
    /// A host that comes from a tenant's variables may lead to a private, loopback, link-local or reserved address. Without
    /// it such an address is not connected to. Hosts that the vendor's entry spells out are never checked. Behind a `proxy`
    /// it is the proxy that resolves names, and that has to check them.
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
    /// The vendor credential that several tenants may share; the tenant's own id when none is named.
    pub account: Arc<str>,
    /// Where the secret is, never the secret.
    pub credential: Option<CredentialRef>,
    /// How it gets access tokens, in place of a credential.
    pub oauth: Option<Arc<OAuth>>,
    /// Values of the base URL's variables.
    pub variables: BTreeMap<String, String>,
    /// Turns in the share of limits that several tenants use: 1 to 1000.
    pub weight: u32,
    /// PEM file with this tenant's own client certificate and key.
    pub client_certificate: Option<String>,
    /// What the tenant changes, as written; kept so that new vendors can be put under it.
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
    /// An error of a request of this tenant.
    pub(crate) fn error(&self, kind: ErrorKind, delivery: Delivery, why: impl std::fmt::Display) -> Error {
        Error::of_tenant(&self.id, &self.vendor.name, kind, delivery, why)
    }

    /// An error of a request of this tenant, before its first byte left.
    pub(crate) fn not_sent(&self, kind: ErrorKind, why: impl std::fmt::Display) -> Error {
        self.error(kind, Delivery::NotSent, why)
    }
}

impl Vendor {
    /// The name of the endpoint of this number.
    pub(crate) fn endpoint_name(&self, number: usize) -> Option<&str> {
        self.endpoints.get(number).map(|endpoint| &*endpoint.name)
    }

    /// The endpoint `name` and its number.
    ///
    /// # Errors
    /// `UnknownEndpoint`, with the name that was probably meant.
    pub fn endpoint(&self, name: &str) -> Result<(usize, &Endpoint), Error> {
        if let Ok(index) = self.endpoints.binary_search_by(|endpoint| (*endpoint.name).cmp(name)) {
            return Ok((index, &self.endpoints[index]));
        }
        let hint = suggest::hint(name, "endpoints", self.endpoints.iter().map(|endpoint| &*endpoint.name));
        let name: String = name.chars().take(128).collect();
        let message = format!("vendor `{}` has no endpoint {name:?}; {hint}", self.name);
        Err(Error::not_sent(ErrorKind::UnknownEndpoint, message))
    }

    /// Whether what a request cost is known only when the body of its response was read.
    pub(crate) fn settles_by_body(&self) -> bool {
        self.counts_bytes || self.dialect.costs_in_body()
    }

    /// Whether some limit counts this unit. A limit of `bytes` counts those of requests and those of responses.
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

    /// `expected` bytes of an answer to a request with a body of `sent` bytes, or fewer: never more than a limit has room
    /// for, because an estimate must not stop a request for ever.
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

    /// The endpoint that a request belongs to, and its number. `path` is below the base URL; a query is ignored.
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

    /// Scheme, host and port of the base URL, where the host is not in the vendor's own domain but this tenant's choice.
    pub(crate) fn chosen_host(&self) -> Option<String> {
        if base_url::host_is_the_vendors(&self.vendor.base_url) {
            return None;
        }
        // A base URL that cannot be filled reaches no host: no other tenant has this one.
        let host = self.base_url().map_or_else(|_| self.id.to_string(), |url| url.origin().ascii_serialization());
        Some(host)
    }

    /// The path of `url` below this tenant's base URL; `None` when the URL belongs elsewhere, and so must not be sent
    /// this tenant's credential.
    pub fn path_below_base<'u>(&self, url: &'u Url) -> Option<&'u str> {
        base_url::below(&self.base_url().ok()?, url)
    }

    /// The tenant as an entry, to change it and add it again.
    pub fn entry(&self) -> TenantEntry {
        let overrides = self.overrides.as_deref().cloned().unwrap_or_default();
        TenantEntry {
            id: (*self.id).to_owned(),
            vendor: (*self.vendor.name).to_owned(),
            environment: Some((*self.vendor.environment).to_owned()),
            account: (self.account != self.id).then(|| (*self.account).to_owned()),
            credential: self.credential.as_ref().map(CredentialRef::to_string),
            oauth: self.oauth.as_ref().map(|oauth| oauth.entry.clone()),
            vars: self.variables.clone(),
            weight: Some(self.weight.into()),
            share: overrides.share,
            client_certificate: self.client_certificate.clone(),
            limits: overrides.limits,
            endpoints: overrides.endpoints,
        }
    }
}
