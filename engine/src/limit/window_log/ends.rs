//! The end of a fixed window, as stated by a response of the vendor's or by a calendar.

use super::{Edge, LogSpec, WindowLog};
use crate::time::Time;

impl WindowLog {
    /// A response says that the vendor's fixed window ends between `from` and `to`. Requests that may have arrived in
    /// the next window continue to count. A stated end replaces that of the calendar.
    #[cold]
    pub(crate) fn ends(&mut self, spec: &LogSpec, now: Time, from: Time, to: Time) {
        let (from, to) = (from.as_nanos(), to.as_nanos());
        if to < from || to <= now.as_nanos() || to > now.as_nanos().saturating_add(2 * spec.window) {
            return;
        }
        // Intervals of two successive ends would overlap, and be mistaken for one end.
        if to - from >= spec.window / 2 {
            return;
        }
        self.advance(spec, now);
        let edge = &mut self.before.get_or_insert_default().edge;
        // This window is ending now, and the response states the end of the next one, which later responses state too.
        // If it replaced the end of this window or were merged with it, this window's units would not be freed.
        // One window lies between two ends; days and months differ in length by less than an eighth.
        let least = spec.window - spec.window / 8;
        let is_next =
            |known: Edge| known.from <= now.as_nanos() && from > known.to && to.saturating_sub(known.from) > least;
        if edge.is_some_and(is_next) {
            return;
        }
        let (from, to) = match edge.filter(|known| known.stated) {
            // Both intervals are about the same end.
            Some(known) if from <= known.to && known.from <= to => (from.max(known.from), to.min(known.to)),
            // One of the two is wrong. The union of both frees the fewest units, and those latest.
            Some(known) => (from.min(known.from), to.max(known.to)),
            None => (from, to),
        };
        *edge = Some(Edge { from, to, stated: true });
    }

    /// By the calendar, the window ends between `from` and `to`. An end that is known already is kept.
    pub(crate) fn ends_by_calendar(&mut self, spec: &LogSpec, now: Time, from: Time, to: Time) {
        self.advance(spec, now);
        let edge = &mut self.before.get_or_insert_default().edge;
        edge.get_or_insert(Edge { from: from.as_nanos(), to: to.as_nanos(), stated: false });
    }

    /// Forgets an end that only the calendar states.
    pub(crate) fn forget_calendar(&mut self) {
        if let Some(before) = &mut self.before {
            before.edge = before.edge.filter(|edge| edge.stated);
        }
    }

    /// When the window ends, if a response has stated it.
    pub(crate) fn stated_end(&self, now: Time) -> Option<Time> {
        let edge = self.edge().filter(|edge| edge.stated && edge.to > now.as_nanos())?;
        Some(Time::from_nanos(edge.to))
    }

    pub(super) fn edge(&self) -> Option<Edge> {
        self.before.as_ref()?.edge
    }
}
