//! What a request takes, and what of it a limit counts.

/// What one request takes: limits count one part of it each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cost {
    /// In points. Turns are counted in them too.
    pub(crate) points: u32,
    /// Bytes of its body.
    pub(crate) sent: u32,
    /// Bytes of the answer's body: believed when it is granted, known when it was read.
    pub(crate) received: u32,
}

impl Cost {
    /// Something of it is more than one unit.
    #[inline]
    pub(crate) fn is_more_than_one(self) -> bool {
        self.points.max(self.sent).max(self.received) > 1
    }

    /// The lesser of each part.
    pub(crate) fn min(self, other: Cost) -> Cost {
        Cost {
            points: self.points.min(other.points),
            sent: self.sent.min(other.sent),
            received: self.received.min(other.received),
        }
    }
}

impl From<u32> for Cost {
    fn from(points: u32) -> Cost {
        Cost { points, sent: 0, received: 0 }
    }
}

/// What a limit counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Measure {
    Requests,
    Points,
    /// Bytes of requests.
    Sent,
    /// Bytes of answers.
    Received,
    /// Both.
    Bytes,
}

impl Measure {
    /// In the limit's units. At least one, so that an empty body leaves its trace and can be corrected.
    #[inline]
    pub(crate) fn units(self, cost: Cost) -> u32 {
        match self {
            Measure::Requests => 1,
            Measure::Points => cost.points,
            Measure::Sent => cost.sent.max(1),
            Measure::Received => cost.received.max(1),
            Measure::Bytes => cost.sent.saturating_add(cost.received).max(1),
        }
    }

    /// The vendor may still be counting when the answer's head is here: until its body was read.
    #[inline]
    pub(crate) fn lasts_to_the_end(self) -> bool {
        matches!(self, Measure::Received | Measure::Bytes)
    }
}
