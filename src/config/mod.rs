//! Configuration: vendors, their limits, and tenants; validated as a whole before any of it is used.
//!
//! # The format
//! `vendors.toml` in the repository is the shipped catalogue, built into the library, and the example of the format
//! that users write:
//!
//! ```toml
//! [vendors.example]
//! base_url = "https://{region}.api.example.com/v1"   # {variables} come from the tenant
//! auth = { scheme = "header", name = "x-api-key" }   # none | bearer | basic | header (name, prefix) | query (name)
//! headers = { accept = "application/json" }
//! safety = 0.8                # the share of every limit that is used
//! connect_timeout = "10s"
//! attempt_timeout = "30s"
//! max_transit = "11s"         # connect_timeout + 1 s unless stated
//! max_response_bytes = 8388608
//! throttle = "adaptive"       # adaptive (by what others take) | bands (slower in steps near a limit) | pace (what is
//!                             # left is spread until the reset) | off
//! unpublished = true          # no figures are published, or known: no warning that no limit is stated
//! quirks = ["…"]              # what a developer must know about it
//! also = ["…"]                # other names by which people look for it: `integration-client vendors NAME`
//! dead_letters = "redacted"   # what is kept of a request given up on: redacted | no_answer | whole
//! at_rest = "plain"           # accepted requests in the store: plain | sealed (with the store's key) | redacted (not kept
//!                             # beyond their end, and neither is an answer)
//!
//! [vendors.example.connection] # proxy, extra_ca, client_certificate, allow_http
//! proxy = "http://proxy.internal:3128"
//! allow_private = false       # true where hosts made of tenants' variables (`https://{host}`) are in a private network
//!
//! [vendors.example.retry]     # all of it may be left out; these are the defaults
//! max_retries = 5             # 0 to 20, on top of the first exchange
//! first_wait = "5s"           # waits of 5-10, 10-20, 20-40, 40-80, 80-120 s
//! longest_wait = "120s"       # shortens no wait that the vendor states
//! default_wait = "60s"        # after a refusal that states no wait; by default a part of the window is tried, and longer each time
//! max_age = "5m"              # how long a connection is tried again that cannot be made, or a stream it did not process
//! max_hold = "15m"            # a longer pause is handed back to the caller
//! max_pause = "1h"            # the longest pause after an answer that was no refusal
//! max_shared_pause = "15m"    # the longest that one tenant's refusal stops others who share the limit
//! on_ambiguous = "fail"       # the outcome is unknown: fail (the caller decides) | park (that, and a dead
//!                             # letter is kept) | resend (it may act twice)
//! unavailable_is_safe = false # its 408, 425 and 503 with Retry-After mean that it did not act
//! unprocessed_is_safe = true  # its refused HTTP/2 streams, and those that its GOAWAY disowns, mean so too
//! max_replay_bytes = 1048576  # a larger body is not kept for retries
//!
//! [vendors.example.idempotency] # without it no key is sent, and a request that states one fails before it is sent
//! header = "idempotency-key"  # or query = "requestid", or body = "idempotency_key" (a member of a JSON object)
//! methods = ["POST", "PATCH"] # the requests that carry a key; these two by default
//! paths = ["/v2/payments/**"] # all by default
//! max_length = 255            # the longest key, 32 to 255 bytes
//! on_unsendable = "fail"      # a stated key that cannot be sent: fail | warn (the request goes without it, a warning once)
//!
//! [vendors.example.oauth]     # for tenants with `oauth` in place of `credential`
//! grant = "refresh_token"     # refresh_token | client_credentials | jwt_bearer | github_app
//! token_url = "https://login.example.com/token"
//! client_auth = "basic"       # basic | body
//! client_id = "env:EXAMPLE_ID" # this one, client_secret, private_key and key_id may stand in the tenant too
//! client_secret = "env:EXAMPLE_SECRET"
//! scopes = ["read"]
//! params = { audience = "https://api.example.com" } # further parameters of the token request
//! rotates = true              # an answer may bring a new refresh token, which must be kept: see GUIDE
//! # for grants with a JWT: private_key, key_id, algorithm = "RS256" | "ES256", audience (the token URL unless stated)
//!
//! [vendors.example.costs]     # kinds of points that limits may count beside `points`, at most three, and what a request
//! input_tokens = 1000         # takes of each that states nothing else
//!
//! [[vendors.example.limits]]  # for every request
//! name = "minute"
//! limit = 600
//! window = "1m"
//! algorithm = "sliding_window" # fixed_window sliding_window sliding_counter token_bucket leaky_bucket quota
//!                             # unknown
//! scope = "account"           # tenant (default here), account, vendor; endpoint (default in an endpoint)
//! shared = true               # false: processes that share limits leave this one alone
//!
//! [[vendors.example.limits]]
//! name = "day"
//! limit = 10000
//! resets = "daily America/Los_Angeles" # in place of a window: a quota that begins anew by a calendar. hourly daily weekly
//!                             # monthly, perhaps a time (07:00), and a time zone, else UTC; or "rolling", as by default
//!
//! [[vendors.example.limits]]
//! name = "parallel"
//! concurrency = 10
//!
//! [vendors.example.endpoints.search]
//! paths = ["/search/*", "/v2/search/**"]
//! methods = ["GET"]
//! costs = { points = 5 }      # what its requests cost that state nothing else
//! [[vendors.example.endpoints.search.limits]]
//! name = "search"
//! limit = 30
//! window = "1m"
//! unit = "points"
//! largest_request = 10        # the largest that the vendor takes: a warning where it never fits the bucket
//!
//! # What shape alone does not tell about its answers; most vendors need none of it.
//! [vendors.example.dialect]
//! costs = { points = "body#/extensions/cost" } # a place: HEADER, HEADER#/json/pointer, body#/json/pointer, or body for all
//! [[vendors.example.dialect.windows]]
//! name = "day"
//! limit = "x-day-quota"       # where the figures of a window stand; limit and remaining may be numbers
//! used = "x-day-spent"
//! length = "24h"
//! [[vendors.example.dialect.windows]]
//! items = "x-quotas"          # a list: 100:120,20:1
//! form = "{limit}:{length}"
//! [[vendors.example.dialect.answers]]
//! status = [200, 403]         # any unless stated
//! from = "body#/errors/*/code"
//! is = ["THROTTLED"]          # or contains = ["too many"]
//! throttled = true            # false: a 429 that is no limit
//! scope = "account"           # endpoint, tenant, account, vendor
//! wait = "30s"                # where the answer states none; or wait_until_next = "15m"
//! [[vendors.example.dialect.waits]]
//! from = "body#/message"      # only of refusals
//! after = "try again in "
//!
//! [vendors.example.environments.sandbox]
//! base_url = "https://sandbox.example.com/v1"
//! [[vendors.example.environments.sandbox.limits]]
//! name = "minute"             # overrides the figures of `minute`; another name adds a limit
//! limit = 60
//! source = "https://docs.example.com/limits" # where the figure comes from
//! as_of = "2026-03"           # when that was read
//! confidence = "documented"   # documented | seen in code | from memory (not confirmed)
//!
//! [[tenants]]
//! id = "acme"
//! vendor = "example"
//! environment = "live"
//! account = "acme-org"        # tenants of one account share its limits; the tenant's id unless stated
//! credential = "env:ACME_KEY" # or "file:PATH", or "RESOLVER:KEY"; never the secret
//!                             # or oauth = { refresh_token = "env:ACME_TOKEN" }: see `[vendors.example.oauth]`
//! vars = { region = "eu" }
//! weight = 1
//! share = 0.5                 # this process's part of every limit
//! [tenants.limits.minute]     # another figure for one limit
//! limit = 1200
//! [tenants.endpoints.search.limits.search]
//! limit = 10
//!
//! [[callers]]                 # a program that calls through the gateway (feature `gateway`)
//! name = "billing"
//! token = "env:BILLING_TOKEN" # or "file:PATH", or "RESOLVER:KEY"; never the token
//! tenants = ["acme", "eu-*"]  # on whose behalf it may call; `*` stands for any characters
//! vendors = ["example"]       # whom it may call; all without it
//! priority = "normal"         # the highest that it may ask for; high without it
//! may = ["send"]              # the default; `async`, to leave requests in the store, is taken and not used yet;
//!                             # `view` and `operate` for the console, with tenants = ["*"] and no vendors
//! rewrite = "json"            # the vendor's URLs in JSON bodies lead through the gateway too; "headers" without it: only those there
//!
//! [sharing]                   # limits are shared with other processes, through a store that all of them reach
//! through = "env:SHARING_URL" # a variable with its URL (postgres, redis, sqlite); or the URL without a password; or "store"
//! lease = "10s"               # for how long a process goes on without an answer of the store
//! when_away = "floor"         # what follows: "stop" (the default), or a part of each limit for ten minutes more
//! floor = 0.1                 # the part of all processes together
//! max_processes = 16          # which is divided among so many
//! ```
//!
//! A bucket is stated by its size and the time it takes to fill: 40 requests at once, 2 more each second, is
//! `limit = 40`, `window = "20s"`.
//!
//! What a limit counts is its `unit`: `requests` (the default), `points` or another kind of points that `costs` declares,
//! `request_bytes`, `response_bytes` or `bytes` (both). A request's points of each kind are those that it states
//! ([`Request::cost`](crate::Request::cost)), or its endpoint's, or the vendor's default; they are put right by what the
//! answer says, where `dialect.costs` tells the place: of several places the first that is there, `A + B` for a sum. In an
//! event stream the last value counts. Bytes are those of bodies, decoded, without heads. How long an
//! answer will be is not known when its request goes: it is believed to be as long as answers of that vendor were of
//! late, or as [`Request::expect_bytes`](crate::Request::expect_bytes) says, and put right when it was read.
//!
//! An endpoint without `paths` is used by requests that name it. An environment is also the way to state what another
//! plan of the vendor's allows: a tenant on it says `environment = "PLAN"`.
//!
//! # What replaces what
//! - A vendor in a user's file that has the name of one in the catalogue says what it is: with `extends = "catalogue"` it
//!   changes that entry, and fields stated replace fields, limits and endpoints go by name, lists are replaced whole. With
//!   `extends = "none"` it **replaces** the entry, limits and dialect included. To state neither is an error.
//! - An environment changes its vendor in the same way. `live` is the entry itself.
//! - A tenant changes limits by name. `limits.NAME` means the vendor's limit `NAME` or, if there is none, that of the one
//!   endpoint that has it; `endpoints.ENDPOINT.limits.NAME` is always unambiguous. Limits of scope `vendor` cannot be
//!   changed by a tenant.
//! - One vendor in two files, and one tenant twice at a vendor, are errors.
//!
//! # Changes while running
//! A client looks at its files every second ([`watch_config`](crate::IntegrationClientBuilder::watch_config)) and goes over to what they
//! say as a whole, or not at all. Write a new file beside the old one and rename it, or swap a symbolic link: then no process
//! ever sees half of it. A file that is written in place is taken once it reads the same twice, 200 ms apart; half a file
//! that stays like that, and happens to be valid up to there, cannot be told from a whole one.
//!
//! | what happens | what comes of it |
//! |---|---|
//! | limits, weights, `safety`, `share` | what waits goes on by the new figures; what was used stays used, nothing is credited |
//! | a tenant is added | it can be used at once |
//! | a tenant goes, or a vendor with its tenants | nothing more is admitted; what waits still goes, by the last figures, or is refused ([`on_remove`](crate::IntegrationClientBuilder::on_remove)) |
//! | a vendor goes that a tenant still uses | refused, as every contradiction |
//! | another `credential` | the next exchange uses it, also of requests that were refused with the old one |
//! | a secret behind a reference | read again after 60 s, or after a 401 |
//! | a secret's variable or file is gone | requests end with [`ErrorKind::Credential`](crate::ErrorKind::Credential), not sent, once what was read before is 60 s old |
//! | a file is gone, unreadable, empty, half there or wrong | the configuration in use stays; the log says once what to do, and [`config_problem`](crate::LiveConfig::problem) as long as it lasts |
//! | a server of a `RemoteSource` is away, or says nothing that can be read | the same; it is asked again less and less often, at least every 30 s |
//!
//! # Errors
//! Unknown keys, values out of range, names that do not exist: all are errors that name file, line and column, and all
//! of a load (the first 20) are reported at once. Secrets and file contents are not repeated in messages.

use std::fmt;
use std::sync::Arc;

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
mod overlay;
mod parse;
mod pattern;
#[cfg(feature = "remote-config")]
mod remote;
mod report;
mod resets;
mod resolve;
mod retry;
mod shape;
mod sharing;
mod source;
mod suggest;
pub(crate) mod unknown;
mod validate;
mod vendor;

use crate::Error;
use load::Loaded;

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
pub use source::{ConfigSource, FingerprintFuture, LoadFuture, Sources, StaticSource, TakenFuture};
pub(crate) use validate::CONNECTION_HEADERS;
#[cfg(any(feature = "tower", feature = "gateway"))]
pub(crate) use validate::parse_duration;
pub use vendor::{AuthScheme, Connection, Endpoint, Tenant, Vendor};

/// A validated configuration: immutable, and consistent as a whole.
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
    /// Parses and validates `sources`; `version` is the caller's count of configurations.
    ///
    /// # Errors
    /// `Config`, with every problem (the first 20) on a line of its own: file, line, column, what is wrong, what to do.
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
    /// As [`load`](Config::load); this configuration stays as it is.
    pub fn reload(&self, sources: &Sources) -> Result<Config, Error> {
        Config::from_loaded(load::load(sources, Some(&self.vendors))?, self.version.saturating_add(1))
    }

    /// As [`load`](Config::load), for programs that show problems: up to a thousand of them, each with its place.
    ///
    /// # Errors
    /// What is wrong, in the order of the file or of the vendors' names. Syntax, vendors and tenants are looked at one
    /// after the other: what is wrong with the first hides what may be wrong with the next.
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

    /// The version given to [`load`](Config::load), one more after each [`reload`](Config::reload).
    pub fn version(&self) -> u64 {
        self.version
    }

    /// [`Sources::hash`] of what the configuration was made of: equal in every process that runs on the same.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// What is allowed but probably not meant.
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
    /// `UnknownVendor`, with the name that was probably meant.
    pub fn vendor(&self, name: &str, environment: &str) -> Result<Arc<Vendor>, Error> {
        self.vendors.get(name, environment)
    }

    /// The tenants, by id and then by vendor.
    pub fn tenants(&self) -> impl ExactSizeIterator<Item = &Arc<Tenant>> {
        self.tenants.iter()
    }

    /// The programs that may call through a gateway, in the order of the files.
    pub fn callers(&self) -> &[Arc<Caller>] {
        &self.callers
    }

    /// How processes share their limits, where a file says so.
    pub fn sharing(&self) -> Option<&Sharing> {
        self.sharing.as_ref()
    }

    /// The tenant `id` at `vendor`.
    ///
    /// # Errors
    /// `UnknownVendor` or `UnknownTenant`, with what was probably meant.
    pub fn tenant(&self, id: &str, vendor: &str) -> Result<Arc<Tenant>, Error> {
        if let Some(tenant) = self.find(id, vendor) {
            return Ok(tenant);
        }
        // A vendor that does not exist is the better explanation.
        self.vendors.get(vendor, resolve::LIVE)?;
        Err(unknown::unknown_tenant(id, vendor, &self.tenants))
    }

    /// The vendor of tenant `id` whose base URL `url` is below, as that tenant, and the path below it.
    ///
    /// # Errors
    /// `UnknownVendor` when the URL is at none of the tenant's vendors. The message names the host alone.
    pub fn vendor_for_url<'u>(&self, id: &str, url: &'u url::Url) -> Result<(Arc<Tenant>, &'u str), Error> {
        self.vendors.tenant_for_url(url, |vendor| self.find(id, vendor)).ok_or_else(|| {
            let id: String = id.chars().take(128).collect();
            let host = url.host_str().unwrap_or("(none)");
            let message = format!("tenant {id:?} has no vendor at host {host:?}; use one of its vendors' base URLs");
            Error::not_sent(crate::ErrorKind::UnknownVendor, message)
        })
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
