//! Hosts to which no connection can be made are left alone, by all tenants together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::Job;
use crate::breaker::{Breaker, Pass};
use crate::client::Inner;
use crate::clock::{Clock, Time};
use crate::error::{Error, ErrorKind};
use crate::transport::{Answer, Sent, TransportError};

/// The circuit breakers of all hosts.
pub(crate) struct Hosts {
    /// No host is remembered for failures: the breaker need not be asked.
    well: AtomicBool,
    breaker: Mutex<Breaker>,
    clock: Clock,
}

impl Hosts {
    pub(crate) fn new(clock: Clock) -> Hosts {
        Hosts { well: AtomicBool::new(true), breaker: Mutex::new(Breaker::new()), clock }
    }

    #[inline]
    pub(super) fn are_well(&self) -> bool {
        self.well.load(Ordering::Relaxed)
    }

    /// Hosts that are left alone now.
    pub(crate) fn open(&self) -> usize {
        if self.are_well() { 0 } else { self.breaker.lock().open() }
    }

    /// A connection failed that nobody asked for leave to make, because all were well. Whether that opened the host.
    pub(super) fn failed(&self, host: &str, now: Time) -> bool {
        self.tell(|breaker| breaker.allow(host, now).is_ok_and(|pass| breaker.failed(host, pass, now)))
    }

    fn tell<T>(&self, what: impl FnOnce(&mut Breaker) -> T) -> T {
        let mut breaker = self.breaker.lock();
        let result = what(&mut breaker);
        self.well.store(breaker.is_empty(), Ordering::Relaxed);
        result
    }
}

/// The right to connect to a host. Dropped without a word, it counts as if it had not been.
pub(super) struct HostPass {
    hosts: Arc<Hosts>,
    host: Box<str>,
    pass: Option<Pass>,
}

impl HostPass {
    /// What became of the connection. Whether the host is open now, if that has changed.
    pub(super) fn connected(mut self, result: &Result<Answer, TransportError>) -> Option<bool> {
        let pass = self.pass.take()?;
        let now = self.hosts.clock.now();
        self.hosts.tell(|breaker| match result {
            Err(error) if error.is_connect() => breaker.failed(&self.host, pass, now).then_some(true),
            Err(error) if error.sent() == Sent::NotSent => {
                breaker.dropped(&self.host, pass);
                None
            }
            _ => breaker.succeeded(&self.host, pass).then_some(false),
        })
    }
}

impl Drop for HostPass {
    fn drop(&mut self) {
        if let Some(pass) = self.pass.take() {
            self.hosts.tell(|breaker| breaker.dropped(&self.host, pass));
        }
    }
}

impl Job {
    /// Waits until the host may be connected to.
    pub(super) async fn pass_host(&self, inner: &Inner) -> Result<HostPass, Error> {
        let host = &*self.prepared.host(&self.tenant);
        loop {
            let now = inner.clock.now();
            let allowed = inner.hosts.breaker.lock().allow(host, now);
            let until = match allowed {
                Ok(pass) => return Ok(HostPass { hosts: inner.hosts.clone(), host: host.into(), pass: Some(pass) }),
                Err(until) => until,
            };
            if until > self.deadline || self.immediate {
                let wait = until.since(now);
                let message = format!(
                    "tenant {}, vendor {}: no connection could be made lately; the next try is {} ms away",
                    self.tenant.id,
                    self.tenant.vendor.name,
                    wait.as_millis()
                );
                return Err(Error::not_sent(ErrorKind::Connect, message).with_retry_after(wait));
            }
            // At least a moment: a probe under way has no end that is known.
            let until = until.max(now + std::time::Duration::from_millis(1));
            tokio::time::sleep_until(inner.clock.instant(until)).await;
        }
    }
}
