//! Events for all viewers. One listener of the client collects them in a ring, from which each viewer reads at its own
//! position. So ten viewers cost the senders as much as one does, and without viewers the console does not listen. It
//! listens to the events of requests that succeed only while a viewer wants them.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_core::Stream as _;
use parking_lot::Mutex;
use serde::Deserialize;

use crate::clock::Time;
use crate::core::Core;
use crate::telemetry::events::{Event, EventKind, Events};

/// The most events that are kept for viewers.
const KEPT: usize = 2_000;
/// How long the console goes on listening after the last read of a viewer.
const LINGERS: Duration = Duration::from_secs(60);
/// How long the console listens to `dispatched` and `completed` after the last read of a viewer who wants them: longer
/// than the time between two reads of one viewer.
const ALL_LINGERS: Duration = Duration::from_secs(3);

/// What a viewer wants to see.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Wanted {
    pub(super) tenant: Option<String>,
    pub(super) vendor: Option<String>,
    /// One kind of event, or `all`. Without it, all kinds but `dispatched` and `completed`.
    pub(super) kind: Option<String>,
}

impl Wanted {
    /// Whether the viewer wants `dispatched` or `completed`, which are two events of each request.
    fn is_all(&self) -> bool {
        matches!(self.kind.as_deref(), Some("all" | "dispatched" | "completed"))
    }

    fn fits(&self, event: &Event) -> bool {
        let is = |wanted: &Option<String>, there: &Option<Arc<str>>| {
            wanted.as_ref().is_none_or(|wanted| there.as_ref().is_some_and(|there| **there == **wanted))
        };
        let kind = event.kind.as_str();
        let of_kind = match self.kind.as_deref() {
            None => !matches!(event.kind, EventKind::Dispatched { .. } | EventKind::Completed { .. }),
            Some("all") => true,
            Some(wanted) => wanted == kind,
        };
        of_kind && is(&self.tenant, &event.tenant) && is(&self.vendor, &event.vendor)
    }
}

/// The result of one read.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) events: Vec<Arc<Event>>,
    /// The number of other events that fit, or may have fitted, and are not in `events`.
    pub(super) more: u64,
}

#[derive(Debug, Default)]
pub(super) struct Feed(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    events: Option<Events>,
    ring: VecDeque<Arc<Event>>,
    /// The number of the next event.
    next: u64,
    read_at: Time,
    /// When a viewer last asked for `dispatched` or `completed`.
    all_at: Option<Time>,
}

impl State {
    fn add(&mut self, event: Event) {
        if self.ring.len() == KEPT {
            self.ring.pop_front();
        }
        self.ring.push_back(Arc::new(event));
        self.next += 1;
    }

    /// Adds the events that have come since the last call to the ring.
    fn fill(&mut self, core: &Core, wants_all: bool) {
        self.read_at = core.clock.now();
        if wants_all {
            self.all_at = Some(self.read_at);
        }
        let mut events = self.events.take().unwrap_or_else(|| core.telemetry.feed.look_on());
        events.hear_all(self.all_at.is_some_and(|at| self.read_at.since(at) < ALL_LINGERS));
        // No task needs to be woken, because the viewers read at intervals.
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(event)) = Pin::new(&mut events).poll_next(&mut context) {
            self.add(event);
        }
        self.events = Some(events);
    }

    fn read(&self, from: u64, most: usize, wanted: &Wanted) -> Read {
        let first = self.next - self.ring.len() as u64;
        let mut read = Read { events: Vec::new(), more: first.saturating_sub(from) };
        let skip = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        for event in self.ring.iter().skip(skip) {
            match &event.kind {
                EventKind::Missed { count } => read.more += count,
                _ if !wanted.fits(event) => {}
                _ if read.events.len() < most => read.events.push(event.clone()),
                _ => read.more += 1,
            }
        }
        read
    }
}

impl Feed {
    /// Returns the position after the latest event, moved back over at most `back` of the events that are kept.
    pub(super) fn place(&self, core: &Core, back: usize, wanted: &Wanted) -> u64 {
        let mut state = self.0.lock();
        state.fill(core, wanted.is_all());
        state.next - state.ring.len().min(back) as u64
    }

    /// Returns the events from the position `from` on that fit, at most `most`, and the position from which to read
    /// next.
    pub(super) fn read(&self, core: &Core, from: u64, most: usize, wanted: &Wanted) -> (Read, u64) {
        let mut state = self.0.lock();
        state.fill(core, wanted.is_all());
        (state.read(from, most, wanted), state.next)
    }

    /// Stops listening if no viewer has read for a while.
    pub(super) fn tidy(&self, now: Time) {
        let mut state = self.0.lock();
        if state.events.is_some() && now.since(state.read_at) > LINGERS {
            *state = State { next: state.next, ..State::default() };
        }
    }
}

#[cfg(test)]
mod tests;
