//! The circuit breakers of all hosts, shared by all tenants.
//!
//! A request first waits until its host may be ready, then for its permit, and takes a pass of the breaker last: a pass
//! held while waiting for a permit or a secret would block all other requests to a healthy host. A permit without a
//! pass is returned unspent. A job takes its pass before its record is written; if the store stalls, the breaker
//! revokes the pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::{Clock, Time};
use crate::error::ErrorKind;
use crate::retry::breaker::{Breaker, Pass};
use crate::transport::{Answer, Sent, TransportError};

/// The circuit breakers of all hosts.
pub(crate) struct Breakers {
    /// No host has failed lately, so the breaker need not be asked.
    well: AtomicBool,
    state: Mutex<State>,
    clock: Clock,
}

struct State {
    breaker: Breaker,
    /// Wakes the requests that wait for a host, by host.
    waiting: HashMap<Box<str>, Arc<Notify>>,
}

impl Breakers {
    pub(crate) fn new(clock: Clock) -> Breakers {
        let state = State { breaker: Breaker::new(), waiting: HashMap::new() };
        Breakers { well: AtomicBool::new(true), state: Mutex::new(state), clock }
    }

    #[inline]
    pub(crate) fn are_well(&self) -> bool {
        self.well.load(Ordering::Relaxed)
    }

    /// The number of hosts whose circuit is open and that were tried lately.
    pub(crate) fn open(&self) -> usize {
        if self.are_well() { 0 } else { self.state.lock().breaker.open(self.clock.now()) }
    }

    /// Whether the circuit of `host` is open: no connection could be made, so one request at a time tries to connect.
    pub(crate) fn is_open(&self, host: &str) -> bool {
        !self.are_well() && self.state.lock().breaker.is_open(host)
    }

    /// Counts a failed connection that took no pass, because no host had failures then. Returns whether that opened the
    /// host's circuit.
    pub(crate) fn failed(&self, host: &str, now: Time) -> bool {
        self.tell(host, |breaker| breaker.allow(host, now).is_ok_and(|pass| breaker.failed(host, pass, now)))
    }

    /// Reports an outcome to the breaker, and wakes the requests that wait for `host` if it is now ready earlier.
    fn tell<T>(&self, host: &str, what: impl FnOnce(&mut Breaker) -> T) -> T {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let State { breaker, waiting } = &mut *state;
        let before = breaker.ready_at(host, now);
        let result = what(breaker);
        self.well.store(breaker.is_empty(), Ordering::Relaxed);
        if breaker.ready_at(host, now) < before
            && let Some(waiters) = waiting.get(host)
        {
            waiters.notify_waiters();
        }
        result
    }

    pub(crate) fn ready_at(&self, host: &str, now: Time) -> Time {
        self.state.lock().breaker.ready_at(host, now)
    }

    fn allow(&self, host: &str, now: Time) -> Result<Pass, Time> {
        let mut state = self.state.lock();
        let pass = state.breaker.allow(host, now);
        self.well.store(state.breaker.is_empty(), Ordering::Relaxed);
        pass
    }
}

/// One request's wait for a host. Dropping the last one removes the host's entry.
pub(crate) struct HostWait<'a> {
    hosts: &'a Breakers,
    host: &'a str,
    notify: Arc<Notify>,
}

impl<'a> HostWait<'a> {
    pub(crate) fn new(hosts: &'a Breakers, host: &'a str) -> HostWait<'a> {
        let mut state = hosts.state.lock();
        let notify = state.waiting.entry_ref(host).or_default().clone();
        HostWait { hosts, host, notify }
    }

    /// When the host may be ready, whether no probe on its way may end before, and a future that ends when the host is
    /// ready earlier than that.
    pub(crate) fn look(&self, now: Time) -> (Time, bool, tokio::sync::futures::Notified<'_>) {
        let state = self.hosts.state.lock();
        let is_known = !state.breaker.waits_for_probe(self.host, now);
        // The future is made under the lock, so that no change of the host is missed between the two.
        (state.breaker.ready_at(self.host, now), is_known, self.notify.notified())
    }
}

impl Drop for HostWait<'_> {
    fn drop(&mut self) {
        let mut state = self.hosts.state.lock();
        // The remaining references are the table's and this one.
        if Arc::strong_count(&self.notify) == 2 {
            state.waiting.remove(self.host);
        }
    }
}

/// The right to connect to a host. Dropping it without an outcome returns it unused.
pub(crate) struct HostPass {
    hosts: Arc<Breakers>,
    host: Box<str>,
    pass: Option<Pass>,
    /// The moment by which the connect has succeeded or failed.
    connects_by: Time,
}

impl HostPass {
    /// Takes the right to connect to `host` now, if the breaker grants it.
    pub(crate) fn take(hosts: &Arc<Breakers>, host: &str, now: Time) -> Option<HostPass> {
        let pass = hosts.allow(host, now).ok()?;
        Some(HostPass { hosts: hosts.clone(), host: host.into(), pass: Some(pass), connects_by: Time::ZERO })
    }

    /// Whether the host's recovery began when this pass was taken.
    pub(crate) fn begins_recovery(&self) -> bool {
        self.pass.as_ref().is_some_and(Pass::begins_recovery)
    }

    /// Reports that the connection begins, and that a connect takes `connect_timeout` at most.
    pub(crate) fn leaves(&mut self, connect_timeout: Duration) {
        self.connects_by = self.hosts.clock.now() + connect_timeout;
        if let Some(pass) = &self.pass {
            self.hosts.state.lock().breaker.leaves(&self.host, pass, self.connects_by);
        }
    }

    /// Reports the outcome of the connection. Returns whether the circuit is open now, if that has changed.
    pub(crate) fn connected(mut self, result: &Result<Answer, TransportError>) -> Option<bool> {
        let pass = self.pass.take()?;
        let now = self.hosts.clock.now();
        self.hosts.tell(&self.host, |breaker| match result {
            Err(error) if error.is_connect() => breaker.failed(&self.host, pass, now).then_some(true),
            // The request gave up before it was known whether it could connect.
            Err(error) if error.kind() == ErrorKind::Timeout && now < self.connects_by => {
                breaker.dropped(&self.host, pass);
                None
            }
            Err(error) if error.sent() == Sent::NotSent => {
                breaker.dropped(&self.host, pass);
                None
            }
            _ => breaker.succeeded(&self.host, pass, now).then_some(false),
        })
    }
}

impl Drop for HostPass {
    fn drop(&mut self) {
        if let Some(pass) = self.pass.take() {
            self.hosts.tell(&self.host, |breaker| breaker.dropped(&self.host, pass));
        }
    }
}
