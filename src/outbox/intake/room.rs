//! Checks whether the outbox has room for requests that are about to be accepted.

use std::collections::HashSet;
use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::outbox::OutboxState;
use crate::store::LaneTier;

/// A tenant at a vendor.
pub(super) type LaneName = (String, String);

pub(super) fn name_of(lane: &LaneTier) -> LaneName {
    (lane.tenant.clone(), lane.vendor.clone())
}

/// The bounds that were found reached during one pass over many jobs. A lane that was full once counts as full for the
/// rest of the pass, so that its jobs keep their order.
#[derive(Default)]
pub(super) struct Room {
    full: HashSet<LaneName>,
    is_full: bool,
}

impl Room {
    /// Counts a lane as full for the rest of the pass.
    pub(super) fn close(&mut self, lane: &LaneTier) {
        self.full.insert(name_of(lane));
    }

    /// Whether a lane counts as full.
    pub(super) fn is_closed(&self, lane: &LaneName) -> bool {
        self.full.contains(lane)
    }

    /// Whether any lane counts as full.
    pub(super) fn has_closed(&self) -> bool {
        !self.full.is_empty()
    }

    /// Whether the outbox as a whole has room.
    pub(super) fn is_open(&self) -> bool {
        !self.is_full
    }
}

/// Reserves a place in the backlog for a job of a lane; returns false if there is none. A caller that then writes no
/// job must give the place back with [`OutboxState::count_out`].
pub(super) async fn place(outbox: &Arc<OutboxState>, room: &mut Room, lane: &LaneTier) -> Result<bool, Error> {
    if room.is_full || (room.has_closed() && room.is_closed(&name_of(lane))) {
        return Ok(false);
    }
    match outbox.check_backlog(lane).await {
        Ok(()) => {
            outbox.count_in(lane);
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::QueueFull => {
            // If the whole outbox is full, the error names no tenant.
            match error.tenant() {
                Some(_) => room.close(lane),
                None => room.is_full = true,
            }
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
