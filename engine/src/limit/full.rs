//! When all units of a limit are free again.

use super::free::Free;
use super::{Cell, LimitKind, LimitSpec, State, in_force};
use crate::time::Time;

impl Cell {
    /// When all units are free again if nothing else is taken, at `now` or later; `None` if that depends on a request
    /// in flight. Works on a copy of the guard, so that asking changes nothing.
    pub(crate) fn full_at(&self, spec: &LimitSpec, now: Time) -> Option<Time> {
        let spec = in_force(&self.beside, spec);
        match (&self.state, &spec.kind) {
            (State::Rate { bucket, guard }, LimitKind::Rate { bucket: shape, guard: mirrored }) => {
                let refilled = bucket.ready_at(shape, shape.capacity).max(now);
                let free = guard.clone().map(|mut guard| guard.free(mirrored, now, mirrored.limit(), true));
                match free.unwrap_or(Free::Now) {
                    Free::Now => Some(refilled),
                    Free::At(at) => Some(at.max(refilled)),
                    Free::OnSettle(_) => None,
                }
            }
            (State::Slots { used, .. }, _) => (*used == 0).then_some(now),
            _ => Some(now),
        }
    }
}
