//! A host to which no connection can be made is left alone for a while.
//!
//! Connecting is tried for minutes, and each try may take the whole connect timeout. With hundreds of requests for one
//! dead host that is hundreds of sockets that wait for nothing. So after five failures in a row the host is *open*: no
//! request connects for a second. Then exactly one does, the *probe*; the others wait for what becomes of it. A failure
//! opens for twice as long, at most half a minute. A success makes the host *recover*: those who waited return in batches
//! of 2, 4, 8, … (see [`Ramp`]), because a host that has just come back would fall over under all of them at once. The
//! host is closed when a batch was not used up.
//!
//! Odd cases. Connections that began before the host was opened go on: their failures say nothing new and do not make
//! the wait longer, their success makes the host recover. A probe whose caller goes away leaves its place to the next, and
//! so does one whose exchange has not left within a second. A probe that is overtaken by another's success stays the only
//! one until it ends, even if the host is opened again meanwhile.
//!
//! Only hosts that fail have an entry, so that a healthy one costs nothing. There is room for ten thousand; when that
//! many fail at once, those beyond are not held back: to connect in vain is the lesser harm.

mod ramp;
#[cfg(test)]
mod tests;

use std::time::Duration;

use hashbrown::HashMap;

use self::ramp::{Next, Ramp};
use crate::clock::Time;

/// Failures in a row that open.
const FAILURES: u32 = 5;
/// How long a host is open for the first time.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// The doublings that lead from [`FIRST`] past [`LONGEST`].
const DOUBLINGS: u32 = 5;
/// A probe that has not left after this long is given to another.
const LAUNCH: Duration = Duration::from_secs(1);
const MAX_HOSTS: usize = 10_000;
/// After so long without a failure an entry may be forgotten, and so often such entries are looked for.
const STALE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_secs(1);

/// Connect and TLS failures of all hosts.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    hosts: HashMap<Box<str>, Host>,
    /// When stale entries are looked for again.
    next_look: Time,
    /// The number of the last pass that matters to its host.
    issued: u64,
}

#[derive(Debug, Default)]
struct Host {
    /// In a row; of no meaning while open.
    failures: u32,
    /// How often in a row it was opened; zero while closed.
    opened: u32,
    /// Open until then, and half open from then on.
    until: Time,
    /// It was open and can be connected to again; `None` while open or closed.
    ramp: Option<Ramp>,
    /// Only the probe's own end clears this, or that it does not leave, so that there never are two in flight.
    probe: Option<Probe>,
    last_failure: Time,
}

#[derive(Debug)]
struct Probe {
    number: u64,
    /// Another may be the probe from then on; [`Time::MAX`] once this one is in flight.
    leaves_by: Time,
}

/// Leave to connect. Given back to the breaker with how it ended.
#[derive(Debug)]
#[must_use = "a probe that is not given back keeps all others waiting"]
pub(crate) struct Pass {
    /// Counts up from 1 for probes and for passes of a recovering host; 0 for a host that is closed.
    number: u64,
    #[cfg(test)]
    probe: bool,
}

impl Pass {
    fn new(number: u64, probe: bool) -> Pass {
        let _ = probe;
        Pass {
            number,
            #[cfg(test)]
            probe,
        }
    }

    /// Whether this is the one connection by which an open host is tried.
    #[cfg(test)]
    pub(crate) fn is_probe(&self) -> bool {
        self.probe
    }
}

impl Host {
    fn is_closed(&self) -> bool {
        self.opened == 0
    }

    fn is_probe(&self, pass: &Pass) -> bool {
        self.probe.as_ref().is_some_and(|probe| probe.number == pass.number)
    }

    /// The pass has ended. Whether it was the probe.
    fn end(&mut self, pass: &Pass) -> bool {
        let was_probe = self.is_probe(pass);
        if was_probe {
            self.probe = None;
        }
        was_probe
    }

    /// When a connection may be made at the earliest; `Time::MAX` where that depends on how another one ends.
    fn ready_at(&self, now: Time) -> Time {
        match (&self.ramp, &self.probe) {
            _ if self.is_closed() => now,
            (Some(ramp), _) => ramp.ready_at(now),
            (None, _) if now < self.until => self.until,
            (None, Some(probe)) => probe.leaves_by,
            (None, None) => now,
        }
    }

    /// Opens the host. Returns whether it was not open before.
    fn open(&mut self, now: Time) -> bool {
        let was_open = self.opened > 0 && self.ramp.is_none();
        self.ramp = None;
        self.opened = self.opened.saturating_add(1);
        let doublings = (self.opened - 1).min(DOUBLINGS);
        self.until = now + (FIRST * (1 << doublings)).min(LONGEST);
        !was_open
    }

    fn close(&mut self) {
        *self = Host { probe: self.probe.take(), last_failure: self.last_failure, ..Host::default() };
    }

    /// Nothing is known that could hold a request back, and nothing is in flight that will tell.
    fn is_healthy(&self) -> bool {
        self.is_closed() && self.failures == 0 && self.probe.is_none()
    }

    /// It may be forgotten: no request is held back by it, and it has not failed for long.
    fn is_stale(&self, now: Time) -> bool {
        let busy = self.probe.is_some() || self.ramp.as_ref().is_some_and(Ramp::is_busy);
        let open = !self.is_closed() && self.ramp.is_none();
        !busy && !open && now.since(self.last_failure) >= STALE
    }
}

impl Breaker {
    pub(crate) fn new() -> Breaker {
        Breaker::default()
    }

    /// No host has failed lately: no request has to ask.
    pub(crate) fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Hosts that are left alone.
    pub(crate) fn open(&self) -> usize {
        self.hosts.values().filter(|entry| !entry.is_closed() && entry.ramp.is_none()).count()
    }

    /// When [`allow`](Breaker::allow) may say yes: not later than `now` if it may at once, [`Time::MAX`] where that depends
    /// on how another connection ends. The moment may come nearer whenever a pass of the same host ends.
    pub(crate) fn ready_at(&self, host: &str, now: Time) -> Time {
        self.hosts.get(host).map_or(now, |entry| entry.ready_at(now))
    }

    /// Leave to connect to `host`. A probe is to [leave](Breaker::leaves) within a second.
    ///
    /// # Errors
    /// When to ask again, as [`ready_at`](Breaker::ready_at) says.
    pub(crate) fn allow(&mut self, host: &str, now: Time) -> Result<Pass, Time> {
        self.forget_stale(now);
        let Some(entry) = self.hosts.get_mut(host) else { return Ok(Pass::new(0, false)) };
        if entry.is_closed() {
            return Ok(Pass::new(0, false));
        }
        let number = self.issued + 1;
        if let Some(ramp) = &mut entry.ramp {
            match ramp.take(now) {
                Next::Pass => {}
                Next::Wait(until) => return Err(until),
                Next::Closed => {
                    entry.close();
                    self.forget_if_healthy(host);
                    return Ok(Pass::new(0, false));
                }
            }
            self.issued = number;
            return Ok(Pass::new(number, false));
        }
        let ready_at = entry.ready_at(now);
        if ready_at > now {
            return Err(ready_at);
        }
        entry.probe = Some(Probe { number, leaves_by: now + LAUNCH });
        self.issued = number;
        Ok(Pass::new(number, true))
    }

    /// The connection that `pass` allows is being made. A probe that comes too late, when another has become the probe, goes
    /// as a connection that began before the host was opened.
    pub(crate) fn leaves(&mut self, host: &str, pass: &Pass) {
        let probe = self.hosts.get_mut(host).and_then(|entry| entry.probe.as_mut());
        if let Some(probe) = probe.filter(|probe| probe.number == pass.number) {
            probe.leaves_by = Time::MAX;
        }
    }

    /// A connection was made. Whether that made an open host one that can be connected to.
    pub(crate) fn succeeded(&mut self, host: &str, pass: Pass, now: Time) -> bool {
        let first = self.issued + 1;
        let Some(entry) = self.hosts.get_mut(host) else { return false };
        entry.end(&pass);
        entry.failures = 0;
        let was_open = !entry.is_closed() && entry.ramp.is_none();
        match &mut entry.ramp {
            Some(ramp) => ramp.succeeded(pass.number),
            None if was_open => entry.ramp = Some(Ramp::new(first, now)),
            None => self.forget_if_healthy(host),
        }
        was_open
    }

    /// No connection was made. Whether that opened the host, which was not open before.
    pub(crate) fn failed(&mut self, host: &str, pass: Pass, now: Time) -> bool {
        if !self.hosts.contains_key(host) {
            if !self.has_room(now) {
                return false;
            }
            self.hosts.insert(host.into(), Host::default());
        }
        let Some(entry) = self.hosts.get_mut(host) else { return false };
        entry.last_failure = entry.last_failure.max(now);
        let was_probe = entry.end(&pass);
        if let Some(ramp) = &mut entry.ramp {
            if !ramp.ended(pass.number) {
                // It began before the host was opened.
                return false;
            }
        } else if !entry.is_closed() {
            return was_probe && entry.open(now);
        }
        entry.failures = entry.failures.saturating_add(1);
        entry.failures >= FAILURES && entry.open(now)
    }

    /// The request with `pass` was dropped before it was known whether a connection can be made.
    pub(crate) fn dropped(&mut self, host: &str, pass: Pass) {
        let Some(entry) = self.hosts.get_mut(host) else { return };
        entry.end(&pass);
        if let Some(ramp) = &mut entry.ramp {
            ramp.dropped(pass.number);
        }
        self.forget_if_healthy(host);
    }

    fn forget_if_healthy(&mut self, host: &str) {
        if self.hosts.get(host).is_some_and(Host::is_healthy) {
            self.hosts.remove(host);
        }
    }

    /// Forgets hosts that no request went to since they came back: every request has to ask for as long as there is an entry.
    fn forget_stale(&mut self, now: Time) {
        if now >= self.next_look {
            self.next_look = now + LOOK;
            self.hosts.retain(|_, entry| !entry.is_stale(now));
        }
    }

    /// Whether one more host can be remembered; forgets open ones that have not failed for long, too.
    fn has_room(&mut self, now: Time) -> bool {
        if self.hosts.len() >= MAX_HOSTS && now >= self.next_look {
            self.next_look = now + LOOK;
            self.hosts.retain(|_, entry| entry.probe.is_some() || now.since(entry.last_failure) < STALE);
        }
        self.hosts.len() < MAX_HOSTS
    }
}
