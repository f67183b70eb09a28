//! Configuration: vendors, their limits, and tenants. A configuration is validated as a whole before it is used.
//!
//! # The format
//! `vendors.toml` in the repository is the shipped catalogue, which is built into the library. Users write their own
//! files in the same format:
//!
//! ```toml
//! [vendors.example]
//! base_url = "https://{region}.api.example.com/v1"   # {variables} come from the tenant
//! auth = { scheme = "header", name = "x-api-key" }   # none | bearer | basic | header (name, prefix) | query (name)
//! headers = { accept = "application/json" }
//! safety = 0.8                # the share of every limit that the client uses
//! connect_timeout = "10s"
//! attempt_timeout = "30s"
//! max_transit = "11s"         # connect_timeout + 1 s unless stated
//! max_response_bytes = 8388608
//! throttle = "adaptive"       # adaptive (by the usage of others) | bands (slower in steps near a limit) | pace
//!                             # (spreads the remaining units until the reset) | off
//! unpublished = true          # the vendor publishes no limits, or none are known: no warning if none is stated
//! quirks = ["…"]              # what a developer must know about the vendor
//! also = ["…"]                # other names to find the vendor by: `integration-client vendors NAME`
//! dead_letters = "redacted"   # what a dead letter keeps of a request: redacted | no_answer | whole
//! at_rest = "plain"           # accepted requests in the store: plain | sealed (with the store's key) | redacted
//!                             # (deleted when they end, with their responses)
//!
//! [vendors.example.connection] # proxy, extra_ca, client_certificate, allow_http
//! proxy = "http://proxy.internal:3128"
//! allow_private = false       # true if hosts from tenants' variables (`https://{host}`) are in a private network
//!
//! [vendors.example.retry]     # optional, as is each field; these are the defaults
//! max_retries = 5             # 0 to 20, on top of the first exchange
//! first_wait = "5s"           # waits of 5-10, 10-20, 20-40, 40-80, 80-120 s
//! longest_wait = "120s"       # does not shorten a wait that the vendor states
//! default_wait = "60s"        # after a refusal that states no wait; default: a quarter of the window, longer each time
//! max_age = "5m"              # how long to retry a failed connection, or a stream that the vendor did not process
//! max_hold = "15m"            # a longer pause ends the request with `RetryLater`
//! max_pause = "1h"            # the longest pause after a response that was no refusal
//! max_shared_pause = "15m"    # the longest pause of other tenants after a refusal of one tenant's request
//! on_ambiguous = "fail"       # if the outcome is unknown: fail (the caller decides) | park (fail, and keep a dead
//!                             # letter) | resend (the vendor may act twice)
//! unavailable_is_safe = false # the vendor's 408, 425 and 503 with Retry-After mean that it did not act
//! unprocessed_is_safe = true  # so do HTTP/2 streams that it refuses, or disowns by GOAWAY
//! max_replay_bytes = 1048576  # a larger body is not kept for retries
//!
//! [vendors.example.idempotency] # without this table no key is sent, and a request that states one fails
//! header = "idempotency-key"  # or query = "requestid", or body = "idempotency_key" (a member of a JSON object)
//! methods = ["POST", "PATCH"] # the requests that carry a key; these two by default
//! paths = ["/v2/payments/**"] # all by default
//! max_length = 255            # the longest key, 32 to 255 bytes
//! on_unsendable = "fail"      # if a stated key cannot be sent: fail | warn (sends without the key, and warns once)
//!
//! [vendors.example.oauth]     # for tenants with `oauth` in place of `credential`
//! grant = "refresh_token"     # refresh_token | client_credentials | jwt_bearer | github_app
//! token_url = "https://login.example.com/token"
//! client_auth = "basic"       # basic | body
//! client_id = "env:EXAMPLE_ID" # a tenant may state client_id, client_secret, private_key and key_id instead
//! client_secret = "env:EXAMPLE_SECRET"
//! scopes = ["read"]
//! params = { audience = "https://api.example.com" } # further parameters of the token request
//! rotates = true              # a response may contain a new refresh token, which must be stored: see GUIDE
//! # for grants with a JWT: private_key, key_id, algorithm = "RS256" | "ES256", audience (the token URL unless stated)
//!
//! [vendors.example.costs]     # kinds of points that limits may count, at most three beside `points`, and the
//! input_tokens = 1000         # cost of a request that states none
//!
//! [[vendors.example.limits]]  # a limit that applies to every request
//! name = "minute"
//! limit = 600
//! window = "1m"
//! algorithm = "sliding_window" # fixed_window sliding_window sliding_counter token_bucket leaky_bucket quota
//!                             # unknown
//! scope = "account"           # tenant (default here), account, vendor; endpoint (default in an endpoint)
//! shared = true               # false: processes that share limits do not share this one
//!
//! [[vendors.example.limits]]
//! name = "day"
//! limit = 10000
//! resets = "daily America/Los_Angeles" # in place of a window: a quota that resets by a calendar. hourly daily weekly
//!                             # monthly, an optional time (07:00), and a time zone, else UTC; "rolling" is the default
//!
//! [[vendors.example.limits]]
//! name = "parallel"
//! concurrency = 10
//!
//! [vendors.example.endpoints.search]
//! paths = ["/search/*", "/v2/search/**"]
//! methods = ["GET"]
//! costs = { points = 5 }      # the cost of a request to this endpoint that states none
//! [[vendors.example.endpoints.search.limits]]
//! name = "search"
//! limit = 30
//! window = "1m"
//! unit = "points"
//! largest_request = 10        # the vendor's largest request: a warning if it does not fit the bucket
//!
//! # How to read the vendor's responses, if the shape of its headers is not enough; most vendors need none of this.
//! [vendors.example.dialect]
//! costs = { points = "body#/extensions/cost" } # a place: HEADER, HEADER#/json/pointer, body#/json/pointer, or body for all
//! [[vendors.example.dialect.windows]]
//! name = "day"
//! limit = "x-day-quota"       # the places of a window's figures; limit and remaining may be numbers
//! used = "x-day-spent"
//! length = "24h"
//! [[vendors.example.dialect.windows]]
//! items = "x-quotas"          # a list: 100:120,20:1
//! form = "{limit}:{length}"
//! [[vendors.example.dialect.answers]]
//! status = [200, 403]         # any status unless stated
//! from = "body#/errors/*/code"
//! is = ["THROTTLED"]          # or contains = ["too many"]
//! throttled = true            # false: this response is no refusal by a limit, even if its status is 429
//! scope = "account"           # endpoint, tenant, account, vendor
//! wait = "30s"                # if the response states none; or wait_until_next = "15m"
//! [[vendors.example.dialect.waits]]
//! from = "body#/message"      # read only from refusals
//! after = "try again in "
//!
//! [vendors.example.environments.sandbox]
//! base_url = "https://sandbox.example.com/v1"
//! [[vendors.example.environments.sandbox.limits]]
//! name = "minute"             # overrides fields of the limit `minute`; a new name adds a limit
//! limit = 60
//! source = "https://docs.example.com/limits" # the document that states the figure
//! as_of = "2026-03"           # when the document was read
//! confidence = "documented"   # documented | seen in code | from memory (not confirmed)
//!
//! [[tenants]]
//! id = "acme"
//! vendor = "example"
//! environment = "live"
//! account = "acme-org"        # tenants of one account share its limits and token; the tenant's id unless stated
//! credential = "env:ACME_KEY" # or "file:PATH", or "RESOLVER:KEY"; never the secret
//!                             # or oauth = { refresh_token = "env:ACME_TOKEN" }: see `[vendors.example.oauth]`
//! vars = { region = "eu" }
//! weight = 1
//! share = 0.5                 # the part of every limit that this process may use
//! [tenants.limits.minute]     # overrides fields of one limit
//! limit = 1200
//! [tenants.endpoints.search.limits.search]
//! limit = 10
//!
//! [[callers]]                 # a program that calls through the gateway (feature `gateway`)
//! name = "billing"
//! token = "env:BILLING_TOKEN" # or "file:PATH", or "RESOLVER:KEY"; never the token
//! tenants = ["acme", "eu-*"]  # the tenants on whose behalf it may call; `*` stands for any characters
//! vendors = ["example"]       # the vendors that it may call; all unless stated
//! priority = "normal"         # the highest priority that it may ask for; high unless stated
//! may = ["send"]              # the default; `async` to leave requests in the store, to be sent later;
//!                             # `view` and `operate` for the console, with tenants = ["*"] and no vendors
//! rewrite = "json"            # leads the vendor's URLs through the gateway, in JSON bodies too; default: "headers"
//!
//! [sharing]                   # shares limits with other processes, through a store that all of them can reach
//! through = "env:SHARING_URL" # a variable with a URL (postgres, redis, sqlite), a URL without password, or "store"
//! lease = "10s"               # how long a process may go on while the store does not answer
//! when_away = "floor"         # after that: "stop" (the default), or use a part of each limit for ten minutes more
//! floor = 0.1                 # that part, for all processes together
//! max_processes = 16          # the number of processes among which the part is divided
//! ```
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
//! - An environment changes its vendor in the same way. `live` is the entry itself.
//! - A tenant changes limits by name. `limits.NAME` means the vendor's limit `NAME` or, if there is none, that of the
//!   only endpoint with it; `endpoints.ENDPOINT.limits.NAME` is always unambiguous. A tenant cannot change a limit of
//!   scope `vendor`, because all tenants share it.
//! - One vendor in two files, and one tenant twice at a vendor, are errors.
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
//! | another `credential` | the next exchange uses the new one, also for requests that the vendor refused with the old one |
//! | the secret behind a reference | it is read again after 60 s, or after a 401 |
//! | a secret's variable or file is missing | once the value that was read before is 60 s old, requests end with [`ErrorKind::Credential`](crate::ErrorKind::Credential) and are not sent |
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
mod load;
mod names;
mod oauth;
mod observed;
mod overlay;
mod parse;
mod pattern;
pub(crate) mod priority;
#[cfg(feature = "remote-config")]
mod remote;
mod report;
mod resets;
mod resolve;
mod retry;
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
pub use copies::{CopiedFuture, CopyFuture, CopyPlace};
pub use costs::Costs;
pub(crate) use costs::MAX_COSTS;
pub use credential::CredentialRef;
#[cfg(any(test, feature = "testing"))]
pub(crate) use dialects::dialects;
pub use entry::{LimitEntry, OAuthEntry, TenantEntry};
pub use file::FileSource;
pub(crate) use file::run_blocking;
pub use idempotency::{Idempotency, KeyCarrier, OnUnsendable};
pub(crate) use joined::JoinedSource;
pub use limit::{Algorithm, Limit, LimitKind, Rate, Scope, Source, Unit};
pub use oauth::{ClientAuth, JwtAlgorithm, OAuth, OAuthGrant};
#[cfg(feature = "remote-config")]
pub use remote::RemoteSource;
pub use report::Finding;
pub use resets::{Period, Resets};
pub use resolve::{Vendors, resolve_tenant};
pub use retry::{AtRest, Keep, OnAmbiguous, RetryPolicy, Throttle};
pub use shape::Shape;
pub(crate) use sharing::{Holds, LEASES};
pub use sharing::{Sharing, SharingFloor};
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
