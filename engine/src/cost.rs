//! The cost of a request, and the part of it that a limit counts.

/// How many kinds of points one vendor may count.
pub const KINDS: usize = 4;

/// A kind of points, by its index among the kinds that the vendor counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PointKind(u8);

impl PointKind {
    /// The kind that needs no declaration. Limits that the configuration does not know count in it.
    pub const POINTS: PointKind = PointKind(0);

    /// The kind with this index; `None` if `place` is not below [`KINDS`].
    pub fn at(place: usize) -> Option<PointKind> {
        u8::try_from(place).ok().filter(|_| place < KINDS).map(PointKind)
    }
}

/// What one request takes. Each limit counts one part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// Points of each kind.
    points: [u32; KINDS],
    /// Length of the request body in bytes.
    pub sent: u32,
    /// Length of the response body in bytes: an estimate at the grant, exact once the body was read.
    pub received: u32,
}

impl Cost {
    /// A cost of nothing, which no request has.
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

    /// The cost that a request's turn is weighed by: the most points that it takes of any kind. Requests of a vendor
    /// with several kinds are thus compared by the kind that each uses most.
    #[inline]
    pub(crate) fn turn(self) -> u32 {
        let [first, rest @ ..] = self.points;
        rest.into_iter().fold(first, u32::max)
    }

    /// Whether some part of the cost is more than one unit.
    #[inline]
    pub(crate) fn is_more_than_one(self) -> bool {
        self.turn().max(self.sent).max(self.received) > 1
    }

    /// The cost with the stated points, at least one of each kind, because the vendor counted a request that it
    /// answered.
    pub(crate) fn settled(self, stated: &Settled) -> Cost {
        let points = std::array::from_fn(|kind| stated.0[kind].map_or(self.points[kind], |points| points.max(1)));
        Cost { points, ..self }
    }

    /// The minimum of each part.
    pub(crate) fn min(self, other: Cost) -> Cost {
        Cost {
            points: std::array::from_fn(|kind| self.points[kind].min(other.points[kind])),
            sent: self.sent.min(other.sent),
            received: self.received.min(other.received),
        }
    }
}

/// The points of each kind that the requests of a batch take together.
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

    /// The cost of request `number`, counted from 0, if the total is split into nearly equal parts. The parts add up to
    /// the total, except that none is less than one.
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

/// The points of each kind that a response states for its request.
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

    /// Removes the kinds in `known`. Returns the rest, and the union of both sets of kinds.
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

/// The part of a cost that a limit counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    Requests,
    Points(PointKind),
    /// Points whose number is stated in the response body.
    Usage(PointKind),
    /// Bytes of request bodies.
    Sent,
    /// Bytes of response bodies.
    Received,
    /// Bytes of request and response bodies.
    Bytes,
}

impl Measure {
    /// The cost in this limit's units. At least one, so that a request with an empty body leaves an entry that can be
    /// corrected.
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

    /// Whether the vendor may go on counting after the response headers, until the body was read.
    #[inline]
    pub(crate) fn lasts_to_the_end(self) -> bool {
        matches!(self, Measure::Received | Measure::Bytes | Measure::Usage(_))
    }
}
