//! What holds limits that several lanes share: an account, or a vendor.

use std::sync::Arc;

use compact_str::CompactString;
use smallvec::SmallVec;

use super::endpoint::EndpointHash;
use super::keys::HolderKey;
use super::limit::{Cell, one_less};
use super::plan::SharedSpec;
use super::waiting::{Branch, WaitPoint};
use crate::time::Time;

/// Names the account or vendor that holds shared limits.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct SharedKey {
    pub(crate) vendor: Arc<str>,
    pub(crate) environment: Arc<str>,
    /// None for the vendor-wide limits.
    pub(crate) account: Option<CompactString>,
}

/// The hosts of the lanes that share a limit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Hosts {
    /// The vendor's own.
    #[default]
    OfVendor,
    /// All tenants chose this one: scheme, host and port.
    One(Box<str>),
    /// They chose several. This is final: a response from a host that was left may still arrive.
    Several,
}

/// Limits that several lanes share, and their part of the tree while a request waits.
pub(crate) struct Shared {
    pub(crate) key: SharedKey,
    /// The limits in force: what its lanes state, and what they stated last if none is left.
    pub(crate) specs: Arc<[SharedSpec]>,
    pub(crate) cells: Vec<Cell>,
    pub(crate) version: u32,
    pub(super) stated: Statements,
    pub(crate) lanes: u32,
    pub(super) hosts: Hosts,
    pub(crate) wait_point: WaitPoint,
    /// Where requests wait for a limit that only their endpoint has.
    pub(crate) endpoint_wait_points: Vec<(EndpointHash, WaitPoint)>,
    /// Its places in the tree, one for each holder that stands above it there.
    pub(crate) branches: Vec<Branch>,
    /// Accounts that have tree nodes below the nodes of this vendor.
    pub(crate) accounts: Vec<HolderKey>,
    /// Waiting requests of all its lanes.
    pub(crate) waiting: u32,
}

impl Shared {
    pub(crate) fn new(key: SharedKey, specs: Arc<[SharedSpec]>, now: Time) -> Shared {
        let cells = specs.iter().map(|shared| Cell::new(&shared.spec, now, 1)).collect();
        Shared {
            key,
            specs,
            cells,
            version: 1,
            stated: Statements::default(),
            lanes: 0,
            hosts: Hosts::default(),
            wait_point: WaitPoint::default(),
            endpoint_wait_points: Vec::new(),
            branches: Vec::new(),
            accounts: Vec::new(),
            waiting: 0,
        }
    }

    pub(crate) fn endpoint_wait_point(&mut self, endpoint: EndpointHash) -> &mut WaitPoint {
        let at = self.endpoint_wait_points.iter().position(|(id, _)| *id == endpoint).unwrap_or_else(|| {
            self.endpoint_wait_points.push((endpoint, WaitPoint::default()));
            self.endpoint_wait_points.len() - 1
        });
        &mut self.endpoint_wait_points[at].1
    }
}

/// Whether two lanes mean the same limit of their holder. Its figures may differ.
pub(super) fn is_same(one: &SharedSpec, other: &SharedSpec) -> bool {
    one.spec.name == other.spec.name && one.endpoint == other.endpoint
}

/// What the lanes of a holder state of the limits that they share, without the lanes that are retired.
#[derive(Default)]
pub(crate) struct Statements {
    /// Lists that differ, each with the number of lanes that state it.
    lists: SmallVec<[(Arc<[SharedSpec]>, u32); 1]>,
}

impl Statements {
    /// A lane states these limits from now on.
    pub(super) fn add(&mut self, specs: &Arc<[SharedSpec]>) {
        match self.place(specs) {
            Some(at) => self.lists[at].1 += 1,
            None => self.lists.push((specs.clone(), 1)),
        }
    }

    /// A lane that stated these limits states them no more.
    pub(super) fn remove(&mut self, specs: &Arc<[SharedSpec]>) {
        let Some(at) = self.place(specs) else {
            debug_assert!(false, "limits that no lane stated");
            return;
        };
        one_less(&mut self.lists[at].1);
        if self.lists[at].1 == 0 {
            self.lists.remove(at);
        }
    }

    fn place(&self, specs: &Arc<[SharedSpec]>) -> Option<usize> {
        let is_equal = |(known, _): &(Arc<[SharedSpec]>, u32)| known[..] == specs[..];
        let is_it = |(known, _): &(Arc<[SharedSpec]>, u32)| Arc::ptr_eq(known, specs);
        self.lists.iter().position(is_it).or_else(|| self.lists.iter().position(is_equal))
    }

    /// All limits that any lane states, each with the strictest of its figures; `None` if no lane states any.
    pub(super) fn merged(&self) -> Option<Arc<[SharedSpec]>> {
        self.merged_without(None)
    }

    /// [`merged`](Self::merged), without the list at one place.
    fn merged_without(&self, place: Option<usize>) -> Option<Arc<[SharedSpec]>> {
        let others = self.lists.iter().enumerate().filter(|(at, _)| Some(*at) != place);
        others.map(|(_, (specs, _))| specs.clone()).reduce(|one, other| strictest(&one, &other))
    }

    /// Whether others share the limits, and other figures would be in force without a lane that states `specs`.
    pub(super) fn decides(&self, specs: &Arc<[SharedSpec]>) -> bool {
        if self.lists.len() < 2 {
            return false;
        }
        let Some(at) = self.place(specs).filter(|at| self.lists[*at].1 == 1) else { return false };
        self.merged_without(Some(at)) != self.merged()
    }
}

fn strictest(one: &Arc<[SharedSpec]>, other: &Arc<[SharedSpec]>) -> Arc<[SharedSpec]> {
    let stricter = |spec: &SharedSpec| match other.iter().find(|known| is_same(known, spec)) {
        Some(known) => SharedSpec { spec: spec.spec.stricter(&known.spec), ..spec.clone() },
        None => spec.clone(),
    };
    let more = other.iter().filter(|spec| !one.iter().any(|known| is_same(known, spec))).cloned();
    one.iter().map(stricter).chain(more).collect()
}
