//! What a request waited for, in words.

use std::fmt;

use crate::engine;
use crate::engine::limit::BlockedBy;

/// What a request waited for. Its `Display` is a half sentence for people: "the budget of limit `rest` is used up".
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitReason(engine::WaitReason);

impl WaitReason {
    pub(crate) fn new(reason: engine::WaitReason) -> WaitReason {
        WaitReason(reason)
    }

    /// The limit's name; `None` if the request waited only because others were first.
    pub fn limit(&self) -> Option<&str> {
        self.0.limit.as_deref()
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.limit().unwrap_or_default();
        match self.0.lack {
            Some(BlockedBy::Budget) => write!(f, "the budget of limit `{limit}` is used up"),
            Some(BlockedBy::Window) => write!(f, "the vendor's window of limit `{limit}` is full"),
            Some(BlockedBy::Reserve) => write!(f, "what is left of limit `{limit}` is reserved for high priority"),
            Some(BlockedBy::NotHeld) => {
                write!(f, "this process holds too few units of limit `{limit}`, which several processes share")
            }
            Some(BlockedBy::OutOfReach) => write!(
                f,
                "this process cannot get so many units of limit `{limit}`: another process that shares it has a lower \
                 figure, or others keep some for when the store does not answer"
            ),
            Some(BlockedBy::Slots) => write!(f, "all slots of limit `{limit}` are taken"),
            Some(BlockedBy::Paused) => f.write_str("the vendor has refused requests and is left alone for a while"),
            Some(BlockedBy::Probe) => f.write_str("one request finds out whether the vendor takes requests again"),
            Some(BlockedBy::Reported) => f.write_str("the vendor says that nothing is left"),
            Some(BlockedBy::Scarce) => {
                f.write_str("the vendor says that little is left, and higher priorities are first")
            }
            Some(BlockedBy::Throttled) => f.write_str("requests are spaced out, because the vendor has little left"),
            Some(BlockedBy::Held) => f.write_str("an operator has paused requests to the vendor"),
            None => f.write_str("other requests are first"),
        }
    }
}
