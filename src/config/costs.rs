//! The kinds of points that a vendor counts, and a request's default cost in each.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::signals::POINTS;

/// The most kinds of points of one vendor, including `points`.
pub(crate) const MAX_COSTS: usize = 4;

/// The default cost of a request in each kind of points that a vendor counts. A request may state its own cost
/// ([`Request::cost`](crate::Request::cost)).
///
/// `points` is always the first kind. The vendor's entry declares the others in `costs`; they are sorted by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// The names of the kinds, at most [`MAX_COSTS`].
    names: Arc<[Arc<str>]>,
    /// The cost in each kind, in the order of `names`; 1 beyond the last kind.
    units: [u32; MAX_COSTS],
}

impl Default for Costs {
    /// The kind `points` alone, with a cost of 1.
    fn default() -> Costs {
        Costs { names: Arc::new([POINTS.into()]), units: [1; MAX_COSTS] }
    }
}

impl Costs {
    /// `points` and the kinds that `costs` declares, with their default costs; at most [`MAX_COSTS`] in total.
    pub(super) fn declared(costs: &BTreeMap<&str, u32>) -> Costs {
        let mut all = Costs::default();
        let others = costs.iter().filter(|(name, _)| **name != POINTS).take(MAX_COSTS - 1);
        let names = all.names.iter().cloned().chain(others.map(|(name, _)| Arc::from(*name)));
        all.names = names.collect();
        all.replace(costs);
        all
    }

    /// Replaces the costs of the kinds in `costs`; ignores names that are not kinds of the vendor.
    pub(super) fn replace(&mut self, costs: &BTreeMap<&str, u32>) {
        for (name, units) in costs {
            if let Some(own) = self.place(name).and_then(|place| self.units.get_mut(place)) {
                *own = *units;
            }
        }
    }

    /// The kinds' names and default costs.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u32)> + Clone {
        self.names.iter().map(|name| &**name).zip(self.units)
    }

    /// The default cost in this kind; `None` if the vendor does not count it.
    pub fn get(&self, kind: &str) -> Option<u32> {
        self.iter().find(|(name, _)| *name == kind).map(|(_, units)| units)
    }

    /// The index of a kind, by which limits refer to it.
    pub(crate) fn place(&self, kind: &str) -> Option<usize> {
        self.names.iter().position(|name| **name == *kind)
    }

    /// The shared copy of a kind's name; `None` if the vendor does not count it.
    pub(super) fn name(&self, kind: &str) -> Option<Arc<str>> {
        self.names.iter().find(|name| ***name == *kind).cloned()
    }

    /// The costs, by index, of a request that states none.
    pub(crate) fn usual(&self) -> [u32; MAX_COSTS] {
        self.units
    }

    /// The costs, by index, of a request that states the costs in `stated`. A stated cost of zero counts as 1.
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
