//! What a client is doing, for people and dashboards: why something waits, until when, and what is left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::Priority;
pub use crate::core::status::lanes::{LanePage, LaneQuery, LaneSort, LaneState, LaneSummary};

/// A figure for each priority.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct ByPriority<T> {
    /// Of [`Priority::High`].
    pub high: T,
    /// Of [`Priority::Normal`].
    pub normal: T,
    /// Of [`Priority::Low`].
    pub low: T,
}

impl<T> From<[T; 3]> for ByPriority<T> {
    fn from([high, normal, low]: [T; 3]) -> ByPriority<T> {
        ByPriority { high, normal, low }
    }
}

/// One tenant at one vendor: [`IntegrationClient::status`](crate::IntegrationClient::status).
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct TenantStatus {
    /// The tenant's id.
    pub tenant: Arc<str>,
    /// The vendor's name.
    pub vendor: Arc<str>,
    /// Nothing goes on: all limits that its vendor's entry states are free.
    pub resting: bool,
    /// Requests that wait.
    pub waiting: ByPriority<u32>,
    /// Exchanges in flight.
    pub in_flight: u32,
    /// Shares of the priorities while all of them wait; they add up to 1.
    pub shares: ByPriority<f64>,
    /// Every limit that holds for its requests, its endpoints' included.
    pub limits: Vec<LimitStatus>,
    /// The smallest share of a limit for all requests that is left, 0 to 1.
    pub headroom: Option<f64>,
    /// Nothing goes.
    pub pause: Option<PauseStatus>,
    /// The vendor's host, where no connection can be made to it: one request at a time tries, and the others wait.
    pub unreachable: Option<Arc<str>>,
    /// It is slower than its limits, because of what the vendor said or refused.
    pub throttle: Option<ThrottleStatus>,
    /// Answers of its vendor, to all tenants.
    pub flow: Flow,
    /// What the first request of each priority waits for.
    pub waits: ByPriority<Option<WaitStatus>>,
    /// Its access token, where it gets one by [OAuth](crate::config::OAuth).
    pub token: Option<TokenStatus>,
}

/// An access token.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct TokenStatus {
    /// Whether there is one.
    pub state: TokenState,
    /// It is used for so long still, in seconds.
    #[serde(rename = "fresh_for_s", serialize_with = "seconds")]
    pub fresh_for: Option<Duration>,
    /// Why the last refresh failed, or why a new refresh token is not kept.
    pub problem: Option<String>,
    /// Not asked for again before so long from now, in seconds, unless its secrets change.
    #[serde(rename = "next_try_s", serialize_with = "seconds")]
    pub next_try: Option<Duration>,
}

/// Whether there is an access token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum TokenState {
    /// None was needed yet, or the last one has expired.
    None,
    /// There is one.
    Fresh,
    /// The last refresh failed, and is tried again.
    Failing,
    /// The vendor takes the grant no more (`invalid_grant`): the tenant's user must connect again.
    NeedsReconnect,
}

/// One limit.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct LimitStatus {
    /// Its name.
    pub name: Arc<str>,
    /// The scope of the limit: `tenant`, `endpoint`, `account` or `vendor`.
    pub scope: &'static str,
    /// The endpoint, where the limit counts requests to one endpoint alone.
    pub endpoint: Option<Arc<str>>,
    /// What the vendor allows, in its units.
    pub limit: u32,
    /// What the client does not exceed of it.
    pub guard: u32,
    /// What is left of that now: by our own count, or by the vendor's last word of it, less what went since, where that is lower.
    pub remaining: u32,
    /// In how many seconds nothing will be left of it, if units go on to be taken at the rate of the last 24th of its window, or
    /// of the time since the first unit where that is shorter. Only for windows of an hour and longer; none where what is left
    /// lasts for a whole window.
    #[serde(rename = "ends_in_s", serialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub ends_in: Option<Duration>,
    /// In how many seconds the window ends that is counted now, and all of it is there again; only where an answer of the vendor's or
    /// a calendar (`resets`) says so.
    #[serde(rename = "resets_in_s", serialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub resets_in: Option<Duration>,
    /// In how many seconds all of it is there again if nothing else goes, 0 where it is; none where that depends on something in
    /// flight.
    #[serde(rename = "full_in_s", serialize_with = "seconds")]
    pub full_in: Option<Duration>,
    /// For how long still nothing that counts in it goes, because the vendor refused or has failed, in seconds; none where it
    /// is not paused.
    #[serde(rename = "paused_for_s", serialize_with = "seconds")]
    pub paused_for: Option<Duration>,
    /// The configuration does not know it: the vendor's answers state it, and the tenant keeps to it for as long as they do.
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

/// A pause.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct PauseStatus {
    /// Who paused.
    pub by: PausedBy,
    /// For how long still, in seconds; none where an operator's word must end it.
    #[serde(rename = "ends_in_s", serialize_with = "seconds")]
    pub ends_in: Option<Duration>,
}

/// How much slower than its limits a tenant is at a vendor.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct ThrottleStatus {
    /// Share of the full rate, 0 to 1.
    pub factor: f64,
    /// Requests a second that go at most.
    pub per_second: f64,
}

/// What a request waits for.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct WaitStatus {
    /// Why, in words.
    pub reason: String,
    /// The limit that it waits for; none while others are first, or the vendor's word is in the way.
    pub limit: Option<Arc<str>>,
    /// How long it has waited, in seconds.
    #[serde(rename = "waited_s", serialize_with = "some_seconds")]
    pub waited: Duration,
    /// Not before so long from now, in seconds, if nothing else happens; none where it depends on an exchange in flight.
    #[serde(rename = "not_before_s", serialize_with = "seconds")]
    pub not_before: Option<Duration>,
}

/// Whether a request could go now: [`IntegrationClient::check`](crate::IntegrationClient::check).
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// A request that asks for now or not at all would go.
    pub allowed: bool,
    /// The limit of which the next three speak: the one that stands in the way, or else the one of which the smallest share
    /// is left. None where there is no limit, and so none of the three.
    pub name: Option<Arc<str>>,
    /// What the vendor allows, in the limit's units: requests, points or bytes in its window, or requests at once.
    pub limit: Option<u32>,
    /// What is left of it now, in the same units: by our own count, or by the vendor's last word where that is lower.
    pub remaining: Option<u32>,
    /// After so long, in seconds, all of it is there again if nothing else goes; none where that depends on something under
    /// way.
    #[serde(rename = "reset_s", serialize_with = "seconds")]
    pub reset: Option<Duration>,
    /// Requests of the tenant that wait for this vendor, of all priorities.
    pub pending: u32,
    /// Why not now, in words; none where it is allowed.
    pub reason: Option<String>,
    /// Not before so long from now, in seconds, if nothing else happens; none where it is allowed, or where that depends on
    /// an exchange in flight or on an operator.
    #[serde(rename = "until_s", serialize_with = "seconds")]
    pub until: Option<Duration>,
}

/// All tenants at one vendor.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct VendorStatus {
    /// The vendor's name.
    pub vendor: Arc<str>,
    /// Tenants in memory: those that have sent lately, or wait.
    pub lanes: u64,
    /// Requests that wait.
    pub waiting: ByPriority<u64>,
    /// Exchanges in flight.
    pub in_flight: u64,
    /// Tenants that are paused.
    pub paused: u64,
    /// Tenants that are slower than their limits.
    pub throttled: u64,
    /// The smallest share of a limit that is left in any of them, 0 to 1.
    pub headroom: Option<f64>,
    /// Its answers.
    pub flow: Flow,
}

/// What a vendor answers, smoothed over the last ten seconds or so.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Flow {
    /// Answers a second, of whatever status.
    pub per_second: f64,
    /// From the start of an exchange to the headers of its answer, on average, in seconds; none before the first answer.
    #[serde(rename = "mean_s", serialize_with = "seconds")]
    pub mean: Option<Duration>,
}

/// An attempt of a send without an answer so far: [`IntegrationClient::under_way`](crate::IntegrationClient::under_way).
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct UnderWay {
    /// The number of the send, as its [events](crate::events::Event::request_id) state it.
    pub request_id: u64,
    /// The tenant.
    pub tenant: Arc<str>,
    /// At which vendor.
    pub vendor: Arc<str>,
    /// The vendor's endpoint; none where the path belongs to none.
    pub endpoint: Option<Arc<str>>,
    /// Its tier.
    pub priority: Priority,
    /// 1 for the first.
    pub attempt: u32,
    /// For how long, in seconds.
    #[serde(rename = "for_s", serialize_with = "some_seconds")]
    pub since: Duration,
}

/// A whole client: [`IntegrationClient::overview`](crate::IntegrationClient::overview).
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct ClientStatus {
    /// Version of the configuration in use: it counts the changes in this process.
    pub config_version: u64,
    /// Its hash, the same in every process on the same configuration.
    pub config_hash: String,
    /// Why the configuration's source cannot be used as it is now.
    pub config_problem: Option<String>,
    /// How long ago the source of the configuration last answered, in seconds.
    #[serde(rename = "config_checked_ago_s", serialize_with = "some_seconds")]
    pub config_checked_ago: Duration,
    /// Tenants at vendors that are configured.
    pub tenants: usize,
    /// Every vendor with tenants in memory.
    pub vendors: Vec<VendorStatus>,
    /// Dead letters since the start.
    pub dead_letters: DeadLetterCounts,
    /// Sends that ended in an error since the start, by [its kind](crate::ErrorKind::as_str).
    pub failed: BTreeMap<&'static str, u64>,
    /// What came of the [scheduled cleanups](crate::IntegrationClientBuilder::cleanup_every); none before the first.
    pub cleanup: Option<CleanupStatus>,
}

/// What came of scheduled cleanups since the client was built.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct CleanupStatus {
    /// How often the source of active tenants was asked.
    pub runs: u64,
    /// How often the source failed, hung, panicked or returned an empty set, so that no tenant was retired.
    pub failures: u64,
    /// Tenants at vendors that were retired.
    pub retired: u64,
    /// Why the last cleanup retired no tenant; none where it went well.
    pub problem: Option<String>,
}

/// When more requests would be done: [`IntegrationClient::estimate`](crate::IntegrationClient::estimate). Each is none
/// where that is never, as while an operator's pause lasts.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Estimate {
    /// If no other tenant sends: from the limits, what is used of them, the pause, and what waits in the same priority.
    #[serde(rename = "earliest_s", serialize_with = "seconds")]
    pub earliest: Option<Duration>,
    /// With all that waits now, and retries at the rate of the last minute.
    #[serde(rename = "expected_s", serialize_with = "seconds")]
    pub expected: Option<Duration>,
    /// With the other priorities, and all tenants that wait for the same limits, sending without end.
    #[serde(rename = "guaranteed_s", serialize_with = "seconds")]
    pub guaranteed: Option<Duration>,
}

#[expect(clippy::ref_option, reason = "serde hands a reference to the field")]
pub(crate) fn seconds<S: serde::Serializer>(after: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    after.map(|after| after.as_secs_f64()).serialize(serializer)
}

pub(crate) fn some_seconds<S: serde::Serializer>(after: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(after.as_secs_f64())
}

/// What has become of dead letters since the client was built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct DeadLetterCounts {
    /// In the queue before the sink.
    pub waiting: u64,
    /// Taken by the sink.
    pub written: u64,
    /// Not taken; each is in the log.
    pub lost: u64,
}
