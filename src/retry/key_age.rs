//! Decides for how long the idempotency key of a request keeps its vendor from acting twice.

use std::time::Duration;

use crate::clock::Moment;

/// Since when a vendor may have acted on a request. It is kept as an age at a moment, because an exchange of an earlier
/// process may have begun before the origin of this process's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Since {
    pub(crate) age: Duration,
    pub(crate) at: Moment,
}

impl Since {
    /// The first exchange with an unknown outcome had begun `age` before `at`.
    pub(crate) fn new(age: Duration, at: Moment) -> Since {
        Since { age, at }
    }

    /// How long ago that was, at `now`. The vendor's clock goes on while this machine is suspended. So this is too long
    /// rather than too short, where the clocks of the machine differ.
    pub(crate) fn age(self, now: Moment) -> Duration {
        self.age.saturating_add(now.since(self.at))
    }
}

/// Whether a vendor that keeps a key for `keeps`, and may have read it `age` ago, certainly still knows it when an
/// exchange ends that begins now and lasts for up to `longest`.
pub(crate) fn knows_key(keeps: Duration, age: Duration, longest: Duration) -> bool {
    age.saturating_add(longest) < keeps
}

/// Why a request is not sent again whose key the vendor may have forgotten.
pub(crate) const KEY_FORGOTTEN: &str = "the vendor may have acted on an earlier attempt, and may no longer know the \
                                        idempotency key that would keep it from acting again; look before you send it again";
