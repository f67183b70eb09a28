//! The status of a client for people and dashboards: why requests wait, until when, and how much of each limit is left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::Priority;
use crate::clock::{as_seconds, as_some_seconds};
pub use crate::config::SourceStatus;
pub use crate::core::status::lanes::{LanePage, LaneQuery, LaneSort, LaneState, LaneSummary};
pub use crate::telemetry::Flow;

/// A figure for each priority.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct ByPriority<T> {
    /// The figure of [`Priority::High`].
    pub high: T,
    /// The figure of [`Priority::Normal`].
    pub normal: T,
    /// The figure of [`Priority::Low`].
    pub low: T,
}

impl<T> From<ByPriority<T>> for [T; 3] {
    fn from(by: ByPriority<T>) -> [T; 3] {
        [by.high, by.normal, by.low]
    }
}

impl<T> From<[T; 3]> for ByPriority<T> {
    fn from([high, normal, low]: [T; 3]) -> ByPriority<T> {
        ByPriority { high, normal, low }
    }
}

/// The status of one tenant at one vendor: [`IntegrationClient::status`](crate::IntegrationClient::status).
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct TenantStatus {
    /// The tenant's id.
    pub tenant: Arc<str>,
    /// The vendor's name.
    pub vendor: Arc<str>,
    /// The tenant has no lane in memory: no request waits or is in flight, and all limits of the vendor's entry are
    /// fully available.
    pub resting: bool,
    /// The number of waiting requests.
    pub waiting: ByPriority<u32>,
    /// The number of exchanges in flight.
    pub in_flight: u32,
    /// The share of each priority while requests of all priorities wait; the shares add up to 1.
    pub shares: ByPriority<f64>,
    /// All limits that apply to the tenant's requests, those of endpoints included.
    pub limits: Vec<LimitStatus>,
    /// The smallest remaining share among the limits that apply to all requests, 0 to 1.
    pub headroom: Option<f64>,
    /// The pause during which no request is sent.
    pub pause: Option<PauseStatus>,
    /// The vendor's host, with its port unless that is 443, if no connection can be made to it: one request at a time
    /// tries to connect, and the others wait.
    pub unreachable: Option<Arc<str>>,
    /// Set if the tenant is slower than its limits allow, because of reports or refusals by the vendor.
    pub throttle: Option<ThrottleStatus>,
    /// The vendor's responses to all tenants.
    pub flow: Flow,
    /// What the first request of each priority waits for.
    pub waits: ByPriority<Option<WaitStatus>>,
    /// The tenant's access token, if it gets one by [OAuth](crate::config::OAuth).
    pub token: Option<TokenStatus>,
}

/// The state of an access token.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct TokenStatus {
    /// Whether there is one.
    pub state: TokenState,
    /// The time for which the token will still be used, in seconds.
    #[serde(rename = "fresh_for_s", serialize_with = "as_some_seconds")]
    pub fresh_for: Option<Duration>,
    /// Why the last refresh failed, or why a new refresh token is not kept.
    pub problem: Option<String>,
    /// The time until the next refresh may be attempted, in seconds, unless the secrets change before.
    #[serde(rename = "next_try_s", serialize_with = "as_some_seconds")]
    pub next_try: Option<Duration>,
}

/// Whether there is an access token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum TokenState {
    /// No token was needed yet, the last one has expired, or the last refresh failed and none was tried again within two
    /// minutes after it could have been.
    None,
    /// There is a token.
    Fresh,
    /// The last refresh failed and will be tried again.
    Failing,
    /// The vendor no longer accepts the grant (`invalid_grant`): the tenant's user must connect again.
    NeedsReconnect,
}

/// The status of one limit.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct LimitStatus {
    /// The limit's name.
    pub name: Arc<str>,
    /// The scope of the limit: `tenant`, `endpoint`, `account` or `vendor`.
    pub scope: &'static str,
    /// The endpoint, if the limit counts only requests to one endpoint.
    pub endpoint: Option<Arc<str>>,
    /// The units that the vendor allows.
    pub limit: u32,
    /// The units that the client does not exceed.
    pub guard: u32,
    /// The units of `guard` that are left now: by the client's own count or, if lower, by the vendor's last report
    /// minus the units taken since.
    pub remaining: u32,
    /// The time until no units are left, in seconds, if they continue to be taken at the rate of the last 24th of the
    /// window, or of the time since the first unit if that is shorter. Only for windows of an hour or longer; `None` if
    /// the remaining units last for a whole window.
    #[serde(rename = "ends_in_s", serialize_with = "as_some_seconds", skip_serializing_if = "Option::is_none")]
    pub ends_in: Option<Duration>,
    /// The time until the current window ends and all units are available again, in seconds; `None` unless a response
    /// or a calendar (`resets`) states that end.
    #[serde(rename = "resets_in_s", serialize_with = "as_some_seconds", skip_serializing_if = "Option::is_none")]
    pub resets_in: Option<Duration>,
    /// The time until all units are available again if no further request is sent, in seconds; 0 if they are. `None` if
    /// that depends on an exchange in flight.
    #[serde(rename = "full_in_s", serialize_with = "as_some_seconds")]
    pub full_in: Option<Duration>,
    /// The time for which no request that counts in this limit is sent, in seconds, because the vendor refused or
    /// failed; `None` if the limit is not paused.
    #[serde(rename = "paused_for_s", serialize_with = "as_some_seconds")]
    pub paused_for: Option<Duration>,
    /// The limit is not configured. The vendor's responses state it, and the tenant obeys it for as long as they do.
    pub discovered: bool,
}

/// Who paused a tenant at a vendor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum PausedBy {
    /// [`Tenants::pause`](crate::Tenants::pause).
    Operator,
    /// A refusal, or failures in a row.
    Vendor,
}

/// A pause of a tenant at a vendor.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct PauseStatus {
    /// Who paused.
    pub by: PausedBy,
    /// Whose requests wait: `tenant`, `account` or `vendor`. A pause of one endpoint alone is shown at its limit
    /// ([`LimitStatus::paused_for`]).
    pub scope: &'static str,
    /// The paused limit; `None` if the pause is not about a limit that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Arc<str>>,
    /// The reason in words.
    pub reason: String,
    /// The time until the pause ends, in seconds; `None` if an operator has to end it.
    #[serde(rename = "ends_in_s", serialize_with = "as_some_seconds")]
    pub ends_in: Option<Duration>,
}

/// How much slower than its limits a tenant is at a vendor.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct ThrottleStatus {
    /// The current share of the full rate, 0 to 1.
    pub factor: f64,
    /// The most requests that are sent in a second.
    pub per_second: f64,
}

/// Why a request waits, and for how long.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct WaitStatus {
    /// The reason in words.
    pub reason: String,
    /// The limit that the request waits for; `None` while other requests are first, or while a response of the vendor
    /// holds the request back.
    pub limit: Option<Arc<str>>,
    /// How long the request has waited, in seconds.
    #[serde(rename = "waited_s", serialize_with = "as_seconds")]
    pub waited: Duration,
    /// The time until the request is sent at the earliest, in seconds, if nothing else happens; `None` if that depends
    /// on an exchange in flight.
    #[serde(rename = "not_before_s", serialize_with = "as_some_seconds")]
    pub not_before: Option<Duration>,
}

/// Whether a request could be sent now: [`IntegrationClient::check`](crate::IntegrationClient::check).
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// An immediate request, which never waits, would be sent.
    pub allowed: bool,
    /// The limit that the next three fields are about: the one that blocks the request, or else the one with the
    /// smallest remaining share. `None`, like the three, if there is no limit.
    pub name: Option<Arc<str>>,
    /// The units that the vendor allows: requests, points or bytes in the window, or concurrent requests.
    pub limit: Option<u32>,
    /// The units that are left now: by the client's own count or, if lower, by the vendor's last report.
    pub remaining: Option<u32>,
    /// The time until all units are available again if no further request is sent, in seconds; `None` if that depends
    /// on an exchange in flight.
    #[serde(rename = "reset_s", serialize_with = "as_some_seconds")]
    pub reset: Option<Duration>,
    /// The number of the tenant's waiting requests to this vendor, of all priorities.
    pub pending: u32,
    /// Why the request could not be sent now, in words; `None` if it is allowed.
    pub reason: Option<String>,
    /// The time until a request could be sent at the earliest, in seconds, if nothing else happens; `None` if it is
    /// allowed now, or if that depends on an exchange in flight or on an operator.
    #[serde(rename = "until_s", serialize_with = "as_some_seconds")]
    pub until: Option<Duration>,
}

/// The status of all tenants at one vendor.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct VendorStatus {
    /// The vendor's name.
    pub vendor: Arc<str>,
    /// Tenants in memory: those with waiting requests or recent ones.
    pub lanes: u64,
    /// The number of waiting requests.
    pub waiting: ByPriority<u64>,
    /// The number of exchanges in flight.
    pub in_flight: u64,
    /// Tenants that are paused.
    pub paused: u64,
    /// Tenants that are slower than their limits allow.
    pub throttled: u64,
    /// The smallest remaining share of a limit of any of these tenants, 0 to 1.
    pub headroom: Option<f64>,
    /// The vendor's responses.
    pub flow: Flow,
}

/// An attempt that has no response yet: [`IntegrationClient::under_way`](crate::IntegrationClient::under_way).
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct UnderWay {
    /// The number of the send, as its [events](crate::events::Event::request_id) state it.
    pub request_id: u64,
    /// The tenant.
    pub tenant: Arc<str>,
    /// The vendor.
    pub vendor: Arc<str>,
    /// The vendor's endpoint; `None` if the path belongs to none.
    pub endpoint: Option<Arc<str>>,
    /// The priority of the request.
    pub priority: Priority,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// How long the attempt has been in flight, in seconds.
    #[serde(rename = "for_s", serialize_with = "as_seconds")]
    pub since: Duration,
}

/// The status of a whole client: [`IntegrationClient::overview`](crate::IntegrationClient::overview).
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct ClientStatus {
    /// The version of the configuration in use, which counts the changes in this process.
    pub config_version: u64,
    /// The hash of the configuration, the same in every process that uses it.
    pub config_hash: String,
    /// Why the current content of the configuration's source cannot be used.
    pub config_problem: Option<String>,
    /// How long ago the source of the configuration last answered, in seconds.
    #[serde(rename = "config_checked_ago_s", serialize_with = "as_seconds")]
    pub config_checked_ago: Duration,
    /// Each source of the configuration, in the order in which they are read. Texts and tenants that the program states
    /// are no source.
    pub config_sources: Vec<SourceStatus>,
    /// The number of configured pairs of tenant and vendor.
    pub tenants: usize,
    /// The vendors with tenants in memory.
    pub vendors: Vec<VendorStatus>,
    /// Dead letters since the start.
    pub dead_letters: DeadLetterCounts,
    /// Sends that ended in an error since the start, by [its kind](crate::ErrorKind::as_str).
    pub failed: BTreeMap<&'static str, u64>,
    /// The results of the [scheduled cleanups](crate::IntegrationClientBuilder::cleanup_every); `None` before the
    /// first.
    pub cleanup: Option<CleanupStatus>,
}

/// The results of scheduled cleanups since the client was built.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct CleanupStatus {
    /// How often the source of active tenants was asked.
    pub runs: u64,
    /// How often the source failed, hung, panicked or returned an empty set, so that no tenant was retired.
    pub failures: u64,
    /// The number of retired pairs of tenant and vendor.
    pub retired: u64,
    /// Why the last cleanup failed, so that it retired no tenant; `None` if it succeeded.
    pub problem: Option<String>,
}

/// The time until further requests would be done: [`IntegrationClient::estimate`](crate::IntegrationClient::estimate).
/// A time is `None` if the requests would never be done, for example during an operator's pause.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Estimate {
    /// If no other tenant sends: from the limits, their used units, the pause, and the waiting requests of the same
    /// priority.
    #[serde(rename = "earliest_s", serialize_with = "as_some_seconds")]
    pub earliest: Option<Duration>,
    /// With all requests that wait now, and retries at the rate of the last minute.
    #[serde(rename = "expected_s", serialize_with = "as_some_seconds")]
    pub expected: Option<Duration>,
    /// If requests of the other priorities, and of all tenants that wait for the same limits, never end.
    #[serde(rename = "guaranteed_s", serialize_with = "as_some_seconds")]
    pub guaranteed: Option<Duration>,
}

/// The numbers of dead letters since the client was built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct DeadLetterCounts {
    /// Dead letters in the queue before the sink.
    pub waiting: u64,
    /// Dead letters that the sink has written.
    pub written: u64,
    /// Dead letters that the sink did not write; each is in the log.
    pub lost: u64,
}
