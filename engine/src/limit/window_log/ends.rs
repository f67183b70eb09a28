//! What says when a fixed window ends: an answer of the vendor's, or a calendar.

use super::{Edge, LogSpec, WindowLog};
use crate::time::Time;

impl WindowLog {
    /// An answer says that the vendor's fixed window ends between `from` and `to`. What may have arrived in the next one as well
    /// counts on. The vendor's own word replaces that of the calendar.
    #[cold]
    pub(crate) fn ends(&mut self, spec: &LogSpec, now: Time, from: Time, to: Time) {
        let (from, to) = (from.as_nanos(), to.as_nanos());
        if to < from || to <= now.as_nanos() || to > now.as_nanos().saturating_add(2 * spec.window) {
            return;
        }
        // Of two ends one after the other the intervals would overlap, and be taken for one end.
        if to - from >= spec.window / 2 {
            return;
        }
        self.advance(spec, now);
        let edge = &mut self.before.get_or_insert_default().edge;
        let (from, to) = match edge.filter(|known| known.stated) {
            // The same end, heard of twice.
            Some(known) if from <= known.to && known.from <= to => (from.max(known.from), to.min(known.to)),
            // One of the two is not true. The later does less harm.
            Some(known) => (from.min(known.from), to.max(known.to)),
            None => (from, to),
        };
        *edge = Some(Edge { from, to, stated: true });
    }

    /// By the calendar the window ends between `from` and `to`. What is known of its end already stays.
    pub(crate) fn ends_by_calendar(&mut self, spec: &LogSpec, now: Time, from: Time, to: Time) {
        self.advance(spec, now);
        let edge = &mut self.before.get_or_insert_default().edge;
        edge.get_or_insert(Edge { from: from.as_nanos(), to: to.as_nanos(), stated: false });
    }

    /// Forgets an end that only the calendar knows of.
    pub(crate) fn forget_calendar(&mut self) {
        if let Some(before) = &mut self.before {
            before.edge = before.edge.filter(|edge| edge.stated);
        }
    }

    /// When the window ends, where an answer has said so.
    pub(crate) fn stated_end(&self, now: Time) -> Option<Time> {
        let edge = self.edge().filter(|edge| edge.stated && edge.to > now.as_nanos())?;
        Some(Time::from_nanos(edge.to))
    }

    pub(super) fn edge(&self) -> Option<Edge> {
        self.before.as_ref()?.edge
    }
}
