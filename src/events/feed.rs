//! From whoever has something to say to whoever listens.
//!
//! A ring of the last events (tokio's broadcast channel): a listener that falls behind loses the oldest and is told how
//! many. The channel counts its listeners under a lock, so they are counted here as well, and the ring is made for the
//! first of them.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use futures_core::Stream;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::broadcast::{Receiver, Sender};

use super::{Event, EventKind};
use crate::BoxFuture;
use crate::config::Tenant;

/// Events that a listener may be behind by, unless the client's settings say otherwise.
pub(crate) const CAPACITY: usize = 1024;

/// What is said goes to all that listen.
pub(crate) struct Feed {
    capacity: usize,
    ring: OnceLock<Sender<Event>>,
    counts: Arc<Counts>,
    last_id: LastId,
}

/// In a line of the cache of its own: every send writes it, and reads what else a client's sends share.
#[derive(Default)]
#[repr(align(64))]
struct LastId(AtomicU64);

#[derive(Default)]
struct Counts {
    listeners: AtomicUsize,
    missed: AtomicU64,
}

impl Feed {
    pub(crate) fn new(capacity: usize) -> Feed {
        Feed { capacity, ring: OnceLock::new(), counts: Arc::default(), last_id: LastId::default() }
    }

    /// A number for a new send.
    #[inline]
    pub(crate) fn next_id(&self) -> u64 {
        self.last_id.0.fetch_add(1, Relaxed) + 1
    }

    /// Somebody listens.
    #[inline]
    pub(crate) fn is_heard(&self) -> bool {
        self.counts.listeners.load(Relaxed) > 0
    }

    /// Says what happened to a request, if somebody listens.
    #[inline]
    pub(crate) fn tell(&self, request_id: u64, tenant: &Tenant, kind: impl FnOnce() -> EventKind) {
        if self.is_heard() {
            let (tenant, vendor) = (Some(tenant.id.clone()), Some(tenant.vendor.name.clone()));
            self.say(Event { request_id: Some(request_id), tenant, vendor, kind: kind() });
        }
    }

    /// Says what concerns no request.
    pub(crate) fn tell_all(&self, kind: impl FnOnce() -> EventKind) {
        if self.is_heard() {
            self.say(Event { request_id: None, tenant: None, vendor: None, kind: kind() });
        }
    }

    /// Says what concerns a tenant at a vendor, and no send.
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

    /// Ask [`is_heard`](Self::is_heard) first: the event need not be made otherwise.
    #[cold]
    pub(crate) fn say(&self, event: Event) {
        if let Some(ring) = self.ring.get() {
            // The last listener may have gone since.
            let _ = ring.send(event);
        }
    }

    /// Events that listeners have missed, all of them together.
    pub(crate) fn missed(&self) -> u64 {
        self.counts.missed.load(Relaxed)
    }

    pub(crate) fn listen(&self) -> Events {
        let ring = self.ring.get_or_init(|| Sender::new(self.capacity));
        let receiver = ring.subscribe();
        self.counts.listeners.fetch_add(1, Relaxed);
        Events { state: State::Ready(receiver), counts: self.counts.clone() }
    }
}

/// The events of a client from the moment of [`IntegrationClient::events`](crate::IntegrationClient::events) on, in order. It ends
/// when the client is gone.
///
/// A [`Stream`], and [`next`](Events::next) for whoever wants no more than that.
#[must_use = "events that nobody reads are dropped"]
pub struct Events {
    state: State,
    counts: Arc<Counts>,
}

enum State {
    Ready(Receiver<Event>),
    /// The channel knows whom to wake by a future alone; it takes the receiver along.
    Waiting(BoxFuture<'static, (Result<Event, RecvError>, Receiver<Event>)>),
    Ended,
}

impl Events {
    /// The next event; none when the client is gone. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    fn missed(&self, count: u64) -> Event {
        self.counts.missed.fetch_add(count, Relaxed);
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
                        self.state = State::Waiting(Box::pin(async move { (receiver.recv().await, receiver) }));
                    }
                },
                State::Waiting(mut waiting) => {
                    let Poll::Ready((received, receiver)) = waiting.as_mut().poll(context) else {
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
        self.counts.listeners.fetch_sub(1, Relaxed);
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}
