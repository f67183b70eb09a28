//! The types of a list of lanes: what is asked for, and a page of it.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::core::status::types::{ByPriority, LimitStatus, seconds};

/// The most lanes in one page.
pub(crate) const MAX_PAGE: usize = 200;

/// What a lane is doing, in one word. The order is that of urgency: what needs a person comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum LaneState {
    /// The vendor takes the tenant's grant no more: the tenant's user must connect again.
    Reconnect,
    /// An operator paused it.
    Held,
    /// A refusal or failures in a row paused it.
    Paused,
    /// No connection can be made to the vendor's host.
    Unreachable,
    /// It is slower than its limits, because of what the vendor said or refused.
    Throttled,
    /// Requests wait for its limits or for their turn.
    Waiting,
    /// Requests go as they come.
    Sending,
    /// Nothing goes on.
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

    /// The name in snake case.
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

/// In which order lanes are listed. Lanes that are equal by it are in the order of their names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum LaneSort {
    /// Those that need a person first ([`LaneState`]), and among these those with the least room.
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
    /// Their order.
    pub sort: LaneSort,
    /// Behind this place: [`LanePage::next`] of the page before.
    pub after: Option<String>,
    /// At most so many, 1 to 200; 50 where it is none.
    pub limit: Option<usize>,
}

/// A page of lanes.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct LanePage {
    /// All lanes that match, on whichever page.
    pub total: usize,
    /// The lanes of this page.
    pub lanes: Vec<LaneSummary>,
    /// Where the next page begins, for [`LaneQuery::after`]; none at the end.
    ///
    /// It is a place in the order and no number of lanes: a lane whose figures stay the same is on exactly one page, however
    /// many others come, go or change meanwhile.
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
    /// What it is doing.
    pub state: LaneState,
    /// For how long its pause still lasts, in seconds; none where it is not paused, or an operator's word must end it.
    #[serde(rename = "ends_in_s", serialize_with = "seconds")]
    pub ends_in: Option<Duration>,
    /// The limit for all its requests of which the smallest share is left.
    pub limit: Option<LimitStatus>,
    /// What is left of that limit, 0 to 1; none where it has no limits.
    pub room: Option<f64>,
    /// Requests that wait.
    pub waiting: ByPriority<u32>,
    /// Exchanges in flight.
    pub in_flight: u32,
    /// The vendor's host, where no connection can be made to it.
    pub unreachable: Option<Arc<str>>,
    /// Why the first request of the highest waiting priority waits.
    pub reason: Option<String>,
}
