//! What a request takes, and what of it a limit counts.

/// How many kinds of points one vendor may count.
pub const KINDS: usize = 4;

/// A kind of points: its place among those that the vendor counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PointKind(u8);

impl PointKind {
    /// The kind that needs no declaration, and in which limits that are not known count.
    pub const POINTS: PointKind = PointKind(0);

    /// The kind at this place; none beyond the last.
    pub fn at(place: usize) -> Option<PointKind> {
        u8::try_from(place).ok().filter(|_| place < KINDS).map(PointKind)
    }
}

/// What one request takes: limits count one part of it each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// Of each kind of points.
    points: [u32; KINDS],
    /// Bytes of its body.
    pub sent: u32,
    /// Bytes of the answer's body: believed when it is granted, known when it was read.
    pub received: u32,
}

impl Cost {
    /// Nothing at all: no request costs so little.
    pub const NOTHING: Cost = Cost { points: [0; KINDS], sent: 0, received: 0 };

    /// A request with an empty body that takes this many points of each kind.
    pub fn of(points: [u32; KINDS]) -> Cost {
        Cost { points, sent: 0, received: 0 }
    }

    /// The same cost with `points` of the undeclared kind.
    #[inline]
    pub fn with_points(mut self, points: u32) -> Cost {
        self.points[0] = points;
        self
    }

    /// The same cost with `points` of `kind`.
    pub fn with(mut self, kind: PointKind, points: u32) -> Cost {
        if let Some(own) = self.points.get_mut(usize::from(kind.0)) {
            *own = points;
        }
        self
    }

    /// The same cost with a request body of `sent` bytes and a response body of `received` bytes.
    #[inline]
    pub fn with_bytes(self, sent: u32, received: u32) -> Cost {
        Cost { sent, received, ..self }
    }

    #[inline]
    pub fn points(self, kind: PointKind) -> u32 {
        self.points.get(usize::from(kind.0)).copied().unwrap_or(1)
    }

    /// What its turn counts for: the most that it takes of any kind of points. All requests of a vendor with several kinds
    /// are then compared by that which they use most of.
    #[inline]
    pub(crate) fn turn(self) -> u32 {
        let [first, rest @ ..] = self.points;
        rest.into_iter().fold(first, u32::max)
    }

    /// Something of it is more than one unit.
    #[inline]
    pub(crate) fn is_more_than_one(self) -> bool {
        self.turn().max(self.sent).max(self.received) > 1
    }

    /// With the points that are stated, at least one of each: an answered request was counted.
    pub(crate) fn settled(self, stated: &Settled) -> Cost {
        let points = std::array::from_fn(|kind| stated.0[kind].map_or(self.points[kind], |points| points.max(1)));
        Cost { points, ..self }
    }

    /// The lesser of each part.
    pub(crate) fn min(self, other: Cost) -> Cost {
        Cost {
            points: std::array::from_fn(|kind| self.points[kind].min(other.points[kind])),
            sent: self.sent.min(other.sent),
            received: self.received.min(other.received),
        }
    }
}

/// What the requests of a batch take together, of each kind of points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Total([u64; KINDS]);

impl Total {
    /// A total of the given points of each kind.
    pub fn of(points: [u64; KINDS]) -> Total {
        Total(points)
    }

    /// The total of `requests` requests that cost the same.
    pub fn same(requests: u64, each: Cost) -> Total {
        Total(each.points.map(|points| requests.saturating_mul(points.into())))
    }

    /// What the request with this number, from 0, takes if all of them take nearly the same: the sum is exact, and nothing takes less
    /// than one.
    pub(crate) fn share(&self, number: u64, requests: u64) -> Cost {
        let until = |points: u64, number: u64| u128::from(points) * u128::from(number) / u128::from(requests.max(1));
        let share = |points: u64| until(points, number.saturating_add(1)) - until(points, number);
        Cost::of(self.0.map(|points| u32::try_from(share(points)).unwrap_or(u32::MAX).max(1)))
    }
}

impl From<u32> for Cost {
    /// `points` of the undeclared kind, one point of each other kind, and empty bodies.
    fn from(points: u32) -> Cost {
        let mut all = [1; KINDS];
        all[0] = points;
        Cost::of(all)
    }
}

/// What an answer states that its request took, by kind of points.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Settled([Option<u32>; KINDS]);

impl Settled {
    pub fn set(&mut self, kind: PointKind, points: u32) {
        if let Some(stated) = self.0.get_mut(usize::from(kind.0)) {
            *stated = Some(points);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// Without the kinds of `known`; and both together.
    pub(crate) fn beside(self, known: Kinds) -> (Settled, Kinds) {
        let is_known = |kind: usize| known.0 & (1 << kind) != 0;
        let new = std::array::from_fn(|kind| self.0[kind].filter(|_| !is_known(kind)));
        let all = (0..KINDS).filter(|kind| new[*kind].is_some()).fold(known.0, |all, kind| all | 1 << kind);
        (Settled(new), Kinds(all))
    }
}

/// A set of kinds of points.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kinds(u8);

/// What a limit counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    Requests,
    Points(PointKind),
    /// Points of which the body of an answer tells how many there were.
    Usage(PointKind),
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
            Measure::Points(kind) | Measure::Usage(kind) => cost.points(kind),
            Measure::Sent => cost.sent.max(1),
            Measure::Received => cost.received.max(1),
            Measure::Bytes => cost.sent.saturating_add(cost.received).max(1),
        }
    }

    /// The vendor may still be counting when the answer's head is here: until its body was read.
    #[inline]
    pub(crate) fn lasts_to_the_end(self) -> bool {
        matches!(self, Measure::Received | Measure::Bytes | Measure::Usage(_))
    }
}
