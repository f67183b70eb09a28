//! The three priorities of requests, which the engine calls tiers; their weights are `engine::tier::Tier::WEIGHTS`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How urgent a request is: the tier that it waits in.
///
/// If requests of all three priorities wait, they share what the limits allow 60 / 30 / 10; a share that one priority
/// does not use goes to the others at once. The last fifth of a vendor's window (the part above the safety share) is
/// reserved for high priority, so that a burst of lower priority never locks it out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// A person or another system waits for the response.
    High,
    /// Most requests. The default.
    #[default]
    Normal,
    /// Bulk work that may take its time.
    Low,
}

impl Priority {
    /// The position among the priorities: 0 for high, 2 for low.
    pub(crate) fn rank(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Priority::High => "high",
            Priority::Normal => "normal",
            Priority::Low => "low",
        })
    }
}
