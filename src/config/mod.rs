//! Configuration: vendors, their limits, and tenants. A configuration is validated as a whole before it is used.
//!
#![doc = include_str!("format.md")]
//!
//! A bucket is stated by its size and the time it takes to fill: a bucket of 40 requests that refills by 2 a second is
//! `limit = 40`, `window = "20s"`.
//!
//! A limit's `unit` says what the limit counts: `requests` (the default), `points` or another kind of points that
//! `costs` declares, `request_bytes`, `response_bytes` or `bytes` (both). A request's cost in each kind of points is
//! what the request states ([`Request::cost`](crate::Request::cost)), else the endpoint's cost, else the vendor's. If
//! `dialect.costs` names a place in the response, the actual cost is read from there and replaces this estimate. Of
//! several places the first that exists counts; `A + B` adds two; in an event stream the last value counts. Bytes are
//! those of decoded bodies, without headers. The size of a response is not known when its request is sent: the estimate
//! is the size of the vendor's recent responses, or [`Request::expect_bytes`](crate::Request::expect_bytes), and is
//! corrected when the response has been read.
//!
//! An endpoint without `paths` is used by requests that name it. An environment can also state the limits of another
//! plan of the vendor: a tenant on that plan says `environment = "PLAN"`.
//!
//! # What replaces what
//! - A vendor in a user's file that has the name of one in the catalogue must say how it relates to that entry. With
//!   `extends = "catalogue"` it changes the entry: stated fields replace fields, limits and endpoints are matched by
//!   name, and lists are replaced whole. With `extends = "none"` it **replaces** the entry, limits and dialect
//!   included. To state neither is an error.
//! - An environment changes its vendor in the same way; but one with a `base_url` has none of the vendor's
//!   `secret_headers`. `live` is the entry itself.
//! - A tenant changes limits by name. `limits.NAME` means the vendor's limit `NAME` or, if there is none, that of the
//!   only endpoint with it; `endpoints.ENDPOINT.limits.NAME` is always unambiguous. A tenant cannot change a limit of
//!   scope `vendor`, because all tenants share it.
//! - A text that is [laid over](Sources::over) the files, such as a key on a server or a row of a store, changes a
//!   vendor in the same way, without `extends`, and its tenants replace those of files. Rows replace tenants of keys
//!   too.
//! - One vendor in two files, one tenant twice at a vendor in files, in keys or in rows, and `[sharing]` twice are
//!   errors.
//!
//! # Changes while running
//! A client checks its files every second ([`watch_config`](crate::IntegrationClientBuilder::watch_config)) and puts a
//! new configuration into use as a whole, or not at all. Write a new file beside the old one and rename it, or swap a
//! symbolic link, so that no process ever reads half a file. A file that is written in place is used once it reads the
//! same twice, 200 ms apart. Half a file that stays unchanged for that time, and is valid up to its end, cannot be
//! distinguished from a whole one.
//!
//! | change | effect |
//! |---|---|
//! | limits, weights, `safety`, `share` | waiting requests continue with the new figures; used units stay used, and none are credited |
//! | a tenant is added | the tenant can be used at once |
//! | a tenant is removed, or a vendor with its tenants | new requests are refused; waiting requests are still sent, with the last figures, or refused ([`on_remove`](crate::IntegrationClientBuilder::on_remove)) |
//! | a vendor is removed that a tenant still uses | the new configuration is refused, like any other contradiction |
//! | another `credential`, or other `secret_headers` | the next exchange uses the new one, also for requests that the vendor refused with the old one |
//! | the secret behind a reference | it is read again after 60 s, or at once after a 401: once a minute while it stays the same |
//! | a secret's variable or file is missing or empty | once the value that was read before is 60 s old, requests end with [`ErrorKind::Credential`](crate::ErrorKind::Credential) and are not sent |
//! | the PEM file of a client certificate or an authority is replaced | new connections use it within a minute, or within a second after an exchange failed; until it can be read as a whole, the earlier one stays in use |
//! | a file is missing, unreadable, empty, incomplete or invalid | the configuration in use stays; the log says once what to do, and [`config_problem`](crate::LiveConfig::problem) says so for as long as the problem lasts |
//! | the server of a `RemoteSource` cannot be reached, or its response cannot be read | the same; the server is asked again less and less often, at least every 30 s |
//!
//! # Errors
//! Unknown keys, values out of range and names that do not exist are errors that name file, line and column. A load
//! reports all of them at once, up to 20. Messages do not repeat secrets or contents of files.

use std::fmt;
use std::sync::Arc;

mod accounts;
pub(crate) mod base_url;
mod caller;
mod config_problem;
mod copies;
mod costs;
pub(crate) mod credential;
#[cfg(any(test, feature = "testing"))]
mod dialects;
mod entry;
mod file;
mod format;
mod idempotency;
mod joined;
mod limit;
mod lists;
mod load;
mod names;
mod oauth;
mod observed;
mod outline;
mod overlay;
mod parse;
mod pattern;
pub(crate) mod priority;
mod reference;
#[cfg(feature = "remote-config")]
mod remote;
mod report;
mod resets;
mod resolve;
mod retry;
mod secret_headers;
mod shape;
mod sharing;
mod source;
mod source_record;
mod suggest;
pub(crate) mod unknown;
mod validate;
mod vendor;

use crate::Error;
use load::Loaded;

pub(crate) use accounts::TokenAccounts;
pub use caller::{Caller, May, Rewrite};
pub(crate) use config_problem::{ConfigProblem, ProblemKind};
pub use copies::{CopiedFuture, CopyFuture, CopyPlace};
pub use costs::Costs;
pub(crate) use costs::MAX_COSTS;
pub use credential::CredentialRef;
#[cfg(any(test, feature = "testing"))]
pub(crate) use dialects::dialects;
pub use entry::{LimitEntry, OAuthEntry, TenantEntry};
pub use file::FileSource;
pub(crate) use file::{run_blocking, stamp};
pub use idempotency::{Idempotency, KeyCarrier, OnUnsendable};
pub(crate) use joined::JoinedSource;
pub use limit::{Algorithm, Limit, LimitKind, Rate, Scope, Source, Unit};
pub use oauth::{ClientAuth, JwtAlgorithm, OAuth, OAuthGrant};
pub(crate) use outline::Outline;
#[cfg(feature = "remote-config")]
pub use remote::RemoteSource;
pub use report::Finding;
pub use resets::{Period, Resets};
pub use resolve::{Vendors, resolve_tenant};
pub use retry::{AtRest, Keep, OnAmbiguous, RetryPolicy, Throttle};
pub use secret_headers::SecretHeader;
pub use shape::Shape;
pub(crate) use sharing::{Holds, LEASES};
pub use sharing::{Sharing, SharingFloor};
pub(crate) use source::join_fingerprints;
pub use source::{
    ConfigSource, FingerprintFuture, LastUsedFuture, LoadFuture, SourceKind, Sources, StaticSource, TakenFuture,
};
pub use source_record::SourceStatus;
pub(crate) use source_record::{SourceContent, SourceRecord};
pub(crate) use validate::CONNECTION_HEADERS;
#[cfg(any(feature = "testing", feature = "tower", feature = "gateway"))]
pub(crate) use validate::parse_duration;
pub use vendor::{AuthScheme, Connection, Endpoint, Tenant, Vendor};

/// A validated configuration: immutable and consistent as a whole.
pub struct Config {
    version: u64,
    hash: u64,
    vendors: Arc<Vendors>,
    /// Sorted by id, then vendor.
    tenants: Vec<Arc<Tenant>>,
    callers: Vec<Arc<Caller>>,
    sharing: Option<Sharing>,
    warnings: Vec<String>,
}

impl Config {
    /// Parses and validates `sources`. The caller numbers its configurations by `version`.
    ///
    /// # Errors
    /// `Config`, with up to 20 problems, each on a line of its own: file, line, column, what is wrong, what to do.
    ///
    /// ```
    /// use integration_client::config::{Config, Sources};
    ///
    /// let text = "[vendors.parcels]\nbase_url = \"https://x.example\"\nsafty = 0.5\n";
    /// let error = Config::load(&Sources::new().file("my.toml", text), 1).unwrap_err();
    /// assert!(error.to_string().starts_with("my.toml:3:1: unknown field `safty`; did you mean `safety`?"));
    /// ```
    pub fn load(sources: &Sources, version: u64) -> Result<Config, Error> {
        Config::from_loaded(load::load(sources, None)?, version)
    }

    /// Loads `sources` as the next version after this one. Vendors that did not change keep their `Arc`.
    ///
    /// # Errors
    /// As for [`load`](Config::load). A failed reload does not change this configuration.
    pub fn reload(&self, sources: &Sources) -> Result<Config, Error> {
        Config::from_loaded(load::load(sources, Some(&self.vendors))?, self.version.saturating_add(1))
    }

    /// As [`load`](Config::load), for programs that show problems: returns up to a thousand of them, each with its
    /// position.
    ///
    /// # Errors
    /// The problems, in the order of the file or of the vendors' names. Syntax, vendors and tenants are checked one
    /// after the other, so problems with the first can hide problems with the next.
    ///
    /// ```
    /// use integration_client::config::{Config, Sources};
    ///
    /// let text = "[vendors.parcels]\nbase_url = \"https://x.example\"\nsafety = 2.0\n";
    /// let findings = Config::check(&Sources::new().file("my.toml", text)).unwrap_err();
    /// assert_eq!((findings[0].line, findings[0].column), (3, 10));
    /// ```
    pub fn check(sources: &Sources) -> Result<Config, Vec<Finding>> {
        let Loaded { vendors, tenants, callers, sharing, warnings, hash } = load::check(sources)?;
        Ok(Config { version: 1, hash, vendors: Arc::new(vendors), tenants, callers, sharing, warnings })
    }

    fn from_loaded(loaded: Loaded, version: u64) -> Result<Config, Error> {
        let Loaded { vendors, tenants, callers, sharing, warnings, hash } = loaded;
        Ok(Config { version, hash, vendors: Arc::new(vendors), tenants, callers, sharing, warnings })
    }

    /// The version that was given to [`load`](Config::load), plus one for each [`reload`](Config::reload).
    pub fn version(&self) -> u64 {
        self.version
    }

    /// [`Sources::hash`] of the sources: equal in all processes that use the same configuration.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Descriptions of what is valid but probably a mistake.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The vendors.
    pub fn vendors(&self) -> &Arc<Vendors> {
        &self.vendors
    }

    /// The vendor `name` in `environment`.
    ///
    /// # Errors
    /// `UnknownVendor`, with a suggested name.
    pub fn vendor(&self, name: &str, environment: &str) -> Result<Arc<Vendor>, Error> {
        self.vendors.get(name, environment)
    }

    /// The tenants, by id and then by vendor.
    pub fn tenants(&self) -> impl ExactSizeIterator<Item = &Arc<Tenant>> {
        self.tenants.iter()
    }

    /// The programs that may call through the gateway, in the order of the files.
    pub fn callers(&self) -> &[Arc<Caller>] {
        &self.callers
    }

    /// How processes share limits, if a file says so.
    pub fn sharing(&self) -> Option<&Sharing> {
        self.sharing.as_ref()
    }

    /// The tenant `id` at `vendor`.
    ///
    /// # Errors
    /// `UnknownVendor` or `UnknownTenant`, with a suggestion.
    pub fn tenant(&self, id: &str, vendor: &str) -> Result<Arc<Tenant>, Error> {
        if let Some(tenant) = self.find(id, vendor) {
            return Ok(tenant);
        }
        // If the vendor does not exist, that is the more useful error.
        self.vendors.get(vendor, resolve::LIVE)?;
        Err(unknown::unknown_tenant(id, vendor, &self.tenants))
    }

    /// The tenant `id` at the vendor whose base URL `url` lies below, and the path below that base URL.
    ///
    /// # Errors
    /// `UnknownVendor` if `url` lies below no base URL of the tenant. The message names only the host of `url`.
    pub fn vendor_for_url<'u>(&self, id: &str, url: &'u url::Url) -> Result<(Arc<Tenant>, &'u str), Error> {
        self.vendors.tenant_for_url(url, |vendor| self.find(id, vendor)).ok_or_else(|| unknown::unknown_url(id, url))
    }

    fn find(&self, id: &str, vendor: &str) -> Option<Arc<Tenant>> {
        let index = self.tenants.binary_search_by(|tenant| load::order(tenant, id, vendor)).ok()?;
        self.tenants.get(index).cloned()
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("version", &self.version)
            .field("hash", &self.hash)
            .field("vendors", &self.vendors.names().collect::<Vec<_>>())
            .field("tenants", &self.tenants.len())
            .field("warnings", &self.warnings)
            .finish()
    }
}
