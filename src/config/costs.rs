//! The kinds of points that a vendor counts: what a request takes of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::signals::POINTS;

/// The most kinds of points of one vendor, `points` included.
pub(crate) const MAX_COSTS: usize = 4;

/// What a request takes of each kind of points that a vendor counts, unless the request says otherwise
/// ([`Request::cost`](crate::Request::cost)).
///
/// `points` is always the first. The others are those that the vendor's entry declares in `costs`, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// At most [`MAX_COSTS`].
    names: Arc<[Arc<str>]>,
    /// By place; one where there is no kind.
    units: [u32; MAX_COSTS],
}

impl Default for Costs {
    /// One point.
    fn default() -> Costs {
        Costs { names: Arc::new([POINTS.into()]), units: [1; MAX_COSTS] }
    }
}

impl Costs {
    /// The kinds that are declared beside `points`, with their defaults; at most [`MAX_COSTS`] with it.
    pub(super) fn declared(costs: &BTreeMap<&str, u32>) -> Costs {
        let mut all = Costs::default();
        let others = costs.iter().filter(|(name, _)| **name != POINTS).take(MAX_COSTS - 1);
        let names = all.names.iter().cloned().chain(others.map(|(name, _)| Arc::from(*name)));
        all.names = names.collect();
        all.replace(costs);
        all
    }

    /// Replaces what is stated; names that are no kinds of the vendor are left out.
    pub(super) fn replace(&mut self, costs: &BTreeMap<&str, u32>) {
        for (name, units) in costs {
            if let Some(own) = self.place(name).and_then(|place| self.units.get_mut(place)) {
                *own = *units;
            }
        }
    }

    /// The names, and what a request takes of each unless it says otherwise.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u32)> + Clone {
        self.names.iter().map(|name| &**name).zip(self.units)
    }

    /// What a request takes of this kind unless it says otherwise; `None` where the vendor does not count it.
    pub fn get(&self, kind: &str) -> Option<u32> {
        self.iter().find(|(name, _)| *name == kind).map(|(_, units)| units)
    }

    /// The place of a kind.
    pub(crate) fn place(&self, kind: &str) -> Option<usize> {
        self.names.iter().position(|name| **name == *kind)
    }

    /// The kind's name, shared.
    pub(super) fn name(&self, kind: &str) -> Option<Arc<str>> {
        self.names.iter().find(|name| ***name == *kind).cloned()
    }

    /// What a request takes, by place, that states nothing itself.
    pub(crate) fn usual(&self) -> [u32; MAX_COSTS] {
        self.units
    }

    /// What a request takes, by place, that states these kinds itself. Nothing counts as less than one.
    pub(crate) fn of<'s>(&self, stated: impl Iterator<Item = (&'s str, u32)>) -> [u32; MAX_COSTS] {
        let mut units = self.units;
        for (kind, stated) in stated {
            if let Some(own) = self.place(kind).and_then(|place| units.get_mut(place)) {
                *own = stated.max(1);
            }
        }
        units
    }
}
