//! What holds limits that several lanes share: an account, or a vendor.

use std::sync::Arc;

use compact_str::CompactString;

use super::endpoint::EndpointHash;
use super::keys::HolderKey;
use super::limit::Cell;
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
    pub(crate) specs: Arc<[SharedSpec]>,
    pub(crate) cells: Vec<Cell>,
    pub(crate) version: u32,
    /// The version of the configuration that the specs are from.
    pub(crate) config: u64,
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
            config: 0,
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
