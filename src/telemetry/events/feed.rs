//! Delivers events from the client to its listeners.
//!
//! Events go through a ring of the latest ones (tokio's broadcast channel): a listener that falls behind loses the
//! oldest events and learns how many. The channel counts its listeners under a lock, so this module counts them as
//! well, without one. The ring is created for the first listener.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use futures_core::Stream;
use parking_lot::Mutex;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::broadcast::{Receiver, Sender};

use super::{Event, EventKind};
use crate::BoxFuture;
use crate::config::Tenant;

/// How many events a listener may fall behind by, unless the client's settings say otherwise.
pub(crate) const CAPACITY: usize = 1024;

/// Sends each event to all listeners.
pub(crate) struct Feed {
    capacity: usize,
    ring: OnceLock<Sender<Event>>,
    counts: Arc<Counts>,
    last_id: LastId,
}

/// On a cache line of its own: every send writes it, and the fields beside it are read by all sends.
#[derive(Default)]
#[repr(align(64))]
struct LastId(AtomicU64);

#[derive(Default)]
struct Counts {
    /// The number of all listeners.
    listeners: AtomicUsize,
    /// The number of listeners that want `dispatched` and `completed` too.
    of_all: AtomicUsize,
    missed: AtomicU64,
}

impl Feed {
    pub(crate) fn new(capacity: usize) -> Feed {
        Feed { capacity, ring: OnceLock::new(), counts: Arc::default(), last_id: LastId::default() }
    }

    /// Returns the number of a new send.
    #[inline]
    pub(crate) fn next_id(&self) -> u64 {
        self.last_id.0.fetch_add(1, Relaxed) + 1
    }

    /// Whether there is a listener.
    #[inline]
    pub(crate) fn is_heard(&self) -> bool {
        self.counts.listeners.load(Relaxed) > 0
    }

    /// Sends `dispatched` or `completed`, which each request that succeeds causes, if a listener wants them.
    #[inline]
    pub(crate) fn tell_ordinary(&self, request_id: u64, tenant: &Tenant, kind: impl FnOnce() -> EventKind) {
        if self.counts.of_all.load(Relaxed) > 0 {
            self.tell(request_id, tenant, kind);
        }
    }

    /// Sends an event of a request, if there is a listener.
    #[inline]
    pub(crate) fn tell(&self, request_id: u64, tenant: &Tenant, kind: impl FnOnce() -> EventKind) {
        if self.is_heard() {
            let (tenant, vendor) = (Some(tenant.id.clone()), Some(tenant.vendor.name.clone()));
            self.say(Event { request_id: Some(request_id), tenant, vendor, kind: kind() });
        }
    }

    /// Sends an event of a send, or, without a `request_id`, of an exchange that belongs to no send.
    pub(crate) fn tell_for(&self, request_id: Option<u64>, tenant: &Tenant, kind: impl FnOnce() -> EventKind) {
        match request_id {
            Some(id) => self.tell(id, tenant, kind),
            None => self.tell_of(&tenant.id, &tenant.vendor.name, kind),
        }
    }

    /// Sends an event that concerns no tenant and no request, if there is a listener.
    pub(crate) fn tell_all(&self, kind: impl FnOnce() -> EventKind) {
        if self.is_heard() {
            self.say(Event { request_id: None, tenant: None, vendor: None, kind: kind() });
        }
    }

    /// Sends an event that concerns a tenant at a vendor, and no request, if there is a listener.
    pub(crate) fn tell_of(&self, tenant: &str, vendor: &str, kind: impl FnOnce() -> EventKind) {
        if self.is_heard() {
            self.say(Event {
                request_id: None,
                tenant: Some(tenant.into()),
                vendor: Some(vendor.into()),
                kind: kind(),
            });
        }
    }

    /// Sends an event. Check [`is_heard`](Self::is_heard) first, so that the event is built only for a listener.
    pub(crate) fn say(&self, event: Event) {
        if let Some(ring) = self.ring.get() {
            // Sending fails if the last listener has gone in the meantime.
            let _ = ring.send(event);
        }
    }

    /// The number of events that all listeners together have missed.
    pub(crate) fn missed(&self) -> u64 {
        self.counts.missed.load(Relaxed)
    }

    pub(crate) fn listen(&self) -> Events {
        self.listen_as(true, true)
    }

    /// Returns a listener that only displays events. Events that it misses are not counted, because nothing relies on
    /// them. It does not ask for `dispatched` and `completed` until [`Events::hear_all`].
    #[cfg_attr(not(feature = "console"), allow(dead_code, reason = "the console looks on"))]
    pub(crate) fn look_on(&self) -> Events {
        self.listen_as(false, false)
    }

    fn listen_as(&self, is_counted: bool, hears_all: bool) -> Events {
        let ring = self.ring.get_or_init(|| Sender::new(self.capacity));
        let receiver = ring.subscribe();
        self.counts.listeners.fetch_add(1, Relaxed);
        let mut events =
            Events { state: State::Ready(receiver), counts: self.counts.clone(), is_counted, hears_all: false };
        events.hear_all(hears_all);
        events
    }
}

/// The events of a client, in order, from the call of [`IntegrationClient::events`](crate::IntegrationClient::events)
/// on. The stream ends when the client is dropped.
///
/// This is a [`Stream`]; [`next`](Events::next) needs no further crate.
#[must_use = "events that are not read are dropped"]
pub struct Events {
    state: State,
    counts: Arc<Counts>,
    /// Whether the events that this listener misses are counted.
    is_counted: bool,
    /// Whether this listener wants `dispatched` and `completed` too.
    hears_all: bool,
}

/// A future that waits for an event and returns the receiver with it.
type Receiving = BoxFuture<'static, (Result<Event, RecvError>, Receiver<Event>)>;

enum State {
    Ready(Receiver<Event>),
    /// The channel registers a waker only through a future, which owns the receiver meanwhile. The lock makes the
    /// future `Sync`; it is never contended.
    Waiting(Mutex<Receiving>),
    Ended,
}

impl Events {
    /// The next event; `None` when the client is dropped. Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// Sets whether this listener wants `dispatched` and `completed` too. While another listener wants them, this one
    /// gets them in any case.
    pub(crate) fn hear_all(&mut self, hears_all: bool) {
        match (self.hears_all, hears_all) {
            (false, true) => self.counts.of_all.fetch_add(1, Relaxed),
            (true, false) => self.counts.of_all.fetch_sub(1, Relaxed),
            _ => return,
        };
        self.hears_all = hears_all;
    }

    fn missed(&self, count: u64) -> Event {
        if self.is_counted {
            self.counts.missed.fetch_add(count, Relaxed);
        }
        Event { request_id: None, tenant: None, vendor: None, kind: EventKind::Missed { count } }
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        loop {
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Ready(mut receiver) => match receiver.try_recv() {
                    Ok(event) => {
                        self.state = State::Ready(receiver);
                        return Poll::Ready(Some(event));
                    }
                    Err(TryRecvError::Lagged(count)) => {
                        self.state = State::Ready(receiver);
                        return Poll::Ready(Some(self.missed(count)));
                    }
                    Err(TryRecvError::Closed) => return Poll::Ready(None),
                    Err(TryRecvError::Empty) => {
                        let received: BoxFuture<'static, _> =
                            Box::pin(async move { (receiver.recv().await, receiver) });
                        self.state = State::Waiting(Mutex::new(received));
                    }
                },
                State::Waiting(mut waiting) => {
                    let Poll::Ready((received, receiver)) = waiting.get_mut().as_mut().poll(context) else {
                        self.state = State::Waiting(waiting);
                        return Poll::Pending;
                    };
                    match received {
                        Ok(event) => {
                            self.state = State::Ready(receiver);
                            return Poll::Ready(Some(event));
                        }
                        Err(RecvError::Lagged(count)) => {
                            self.state = State::Ready(receiver);
                            return Poll::Ready(Some(self.missed(count)));
                        }
                        Err(RecvError::Closed) => return Poll::Ready(None),
                    }
                }
                State::Ended => return Poll::Ready(None),
            }
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.hear_all(false);
        self.counts.listeners.fetch_sub(1, Relaxed);
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}
