//! The types of a list of lanes: the query, and a page of the result.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::as_some_seconds;
use crate::core::status::types::{ByPriority, LimitStatus};

/// The most lanes in one page.
pub(crate) const MAX_PAGE: usize = 200;

/// What a lane is doing, in one word. The states are in the order of urgency: those that need a person come first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum LaneState {
    /// The vendor no longer accepts the tenant's OAuth grant: the tenant's user must connect again.
    Reconnect,
    /// An operator paused the lane.
    Held,
    /// A refusal or several failures in a row paused the lane.
    Paused,
    /// No connection can be made to the vendor's host.
    Unreachable,
    /// The lane is slower than its limits allow, because of reports or refusals by the vendor.
    Throttled,
    /// Requests wait for the lane's limits or for their turn.
    Waiting,
    /// Requests are sent without waiting.
    Sending,
    /// No request waits or is in flight.
    Idle,
}

impl LaneState {
    /// Every state.
    pub const ALL: [LaneState; 8] = [
        LaneState::Reconnect,
        LaneState::Held,
        LaneState::Paused,
        LaneState::Unreachable,
        LaneState::Throttled,
        LaneState::Waiting,
        LaneState::Sending,
        LaneState::Idle,
    ];

    /// The state's name in snake case.
    pub const fn as_str(self) -> &'static str {
        match self {
            LaneState::Reconnect => "reconnect",
            LaneState::Held => "held",
            LaneState::Paused => "paused",
            LaneState::Unreachable => "unreachable",
            LaneState::Throttled => "throttled",
            LaneState::Waiting => "waiting",
            LaneState::Sending => "sending",
            LaneState::Idle => "idle",
        }
    }
}

/// The order in which lanes are listed. Lanes that are equal in it are ordered by tenant and vendor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum LaneSort {
    /// The most urgent first ([`LaneState`]), and among equals those with the least room.
    #[default]
    Worst,
    /// The least room first.
    Room,
    /// The most waiting requests first.
    Waiting,
    /// By tenant and vendor.
    Name,
}

/// Which lanes are listed: [`IntegrationClient::lanes_page`](crate::IntegrationClient::lanes_page).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Deserialize)]
#[non_exhaustive]
#[serde(default, deny_unknown_fields)]
pub struct LaneQuery {
    /// Only lanes in whose tenant or vendor this text occurs, without regard to case (of ASCII letters).
    pub search: String,
    /// Only lanes at this vendor.
    pub vendor: Option<String>,
    /// Only lanes in this state.
    pub state: Option<LaneState>,
    /// The order of the lanes.
    pub sort: LaneSort,
    /// Only lanes after this place: [`LanePage::next`] of the previous page.
    pub after: Option<String>,
    /// The most lanes on the page, 1 to 200; 50 if absent.
    pub limit: Option<usize>,
}

/// A page of lanes.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct LanePage {
    /// The number of lanes that match, on all pages.
    pub total: usize,
    /// The lanes of this page.
    pub lanes: Vec<LaneSummary>,
    /// The place after which the next page begins, for [`LaneQuery::after`]; `None` on the last page.
    ///
    /// This is a place in the order and not a number of lanes, so a lane whose figures stay the same is on exactly one
    /// page, however many other lanes are added, removed or changed meanwhile.
    pub next: Option<String>,
}

/// One lane in a list. [`IntegrationClient::status`](crate::IntegrationClient::status) says more.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct LaneSummary {
    /// The tenant's id.
    pub tenant: Arc<str>,
    /// The vendor's name.
    pub vendor: Arc<str>,
    /// What the lane is doing.
    pub state: LaneState,
    /// The time until the lane's pause ends, in seconds; `None` if the lane is not paused, or if an operator has to end
    /// the pause.
    #[serde(rename = "ends_in_s", serialize_with = "as_some_seconds")]
    pub ends_in: Option<Duration>,
    /// The limit with the smallest remaining share, among those that apply to all requests of the lane.
    pub limit: Option<LimitStatus>,
    /// The remaining share of that limit, 0 to 1; `None` if the lane has no limits.
    pub room: Option<f64>,
    /// The number of waiting requests.
    pub waiting: ByPriority<u32>,
    /// The number of exchanges in flight.
    pub in_flight: u32,
    /// The vendor's host, if no connection can be made to it.
    pub unreachable: Option<Arc<str>>,
    /// Why the first request of the highest waiting priority waits.
    pub reason: Option<String>,
}
