//! A host to which no connection can be made is left alone for a while.
//!
//! Connecting is tried for minutes, and each try may take the whole connect timeout. With hundreds of requests for one
//! dead host that is hundreds of sockets that wait for nothing. So after five failures in a row the host is *open*: no
//! request connects for a second. Then exactly one does, the *probe*; the others wait for what becomes of it. A success
//! closes, a failure opens for twice as long, at most half a minute.
//!
//! Odd cases. Connections that began before the host was opened go on: their failures say nothing new and do not make
//! the wait longer, their success closes. A probe whose caller goes away leaves its place to the next. A probe that is
//! overtaken by another's success stays the only one until it ends, even if the host is opened again meanwhile.
//!
//! Only hosts that fail have an entry, so that a healthy one costs nothing. There is room for ten thousand; when that
//! many fail at once, those beyond are not held back: to connect in vain is the lesser harm.

#[cfg(test)]
mod tests;

use std::time::Duration;

use hashbrown::HashMap;

use crate::clock::Time;

/// Failures in a row that open.
const FAILURES: u32 = 5;
/// How long a host is open for the first time.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// The doublings that lead from [`FIRST`] past [`LONGEST`].
const DOUBLINGS: u32 = 5;
const MOST_HOSTS: usize = 10_000;
/// After so long without a failure an entry may be forgotten, and so often is looked for one when there is no room.
const STALE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_secs(1);

/// Connect and TLS failures of all hosts.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    hosts: HashMap<Box<str>, Host>,
    /// When stale entries are looked for again.
    next_look: Time,
}

#[derive(Debug, Default)]
struct Host {
    /// In a row; of no meaning while open.
    failures: u32,
    /// How often in a row it was opened; zero while closed.
    opened: u32,
    /// Open until then, and half open from then on.
    until: Time,
    /// A probe is under way. Only its own end clears this, so that there never are two.
    probing: bool,
    last_failure: Time,
}

/// Leave to connect. Given back to the breaker with how it ended.
#[derive(Debug)]
#[must_use = "a probe that is not given back keeps all others waiting"]
pub(crate) struct Pass {
    probe: bool,
}

impl Pass {
    /// Whether this is the one connection by which an open host is tried.
    #[cfg(test)]
    pub(crate) fn is_probe(&self) -> bool {
        self.probe
    }
}

impl Breaker {
    pub(crate) fn new() -> Breaker {
        Breaker::default()
    }

    /// No host has failed lately: nobody has to ask.
    pub(crate) fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Hosts that are left alone.
    pub(crate) fn open(&self) -> usize {
        self.hosts.values().filter(|entry| entry.opened > 0).count()
    }

    /// Leave to connect to `host`.
    ///
    /// # Errors
    /// When to ask again. While a probe is under way nobody knows: that moment is a guess, and its end may come first.
    pub(crate) fn allow(&mut self, host: &str, now: Time) -> Result<Pass, Time> {
        let Some(entry) = self.hosts.get_mut(host) else { return Ok(Pass { probe: false }) };
        if entry.opened == 0 {
            return Ok(Pass { probe: false });
        }
        if now < entry.until {
            return Err(entry.until);
        }
        if entry.probing {
            return Err(now + FIRST);
        }
        entry.probing = true;
        Ok(Pass { probe: true })
    }

    /// A connection was made. Whether that closed the host.
    pub(crate) fn succeeded(&mut self, host: &str, pass: Pass) -> bool {
        let Some(entry) = self.hosts.get_mut(host) else { return false };
        let closes = entry.opened > 0;
        let probing = entry.probing && !pass.probe;
        *entry = Host { probing, last_failure: entry.last_failure, ..Host::default() };
        self.forget_if_healthy(host);
        closes
    }

    /// No connection was made. Whether that opened the host, which was closed before.
    pub(crate) fn failed(&mut self, host: &str, pass: Pass, now: Time) -> bool {
        if !self.hosts.contains_key(host) {
            if !self.has_room(now) {
                return false;
            }
            self.hosts.insert(host.into(), Host::default());
        }
        let Some(entry) = self.hosts.get_mut(host) else { return false };
        entry.last_failure = entry.last_failure.max(now);
        if pass.probe {
            entry.probing = false;
        }
        if entry.opened > 0 && !pass.probe {
            return false;
        }
        entry.failures = entry.failures.saturating_add(1);
        if entry.opened > 0 || entry.failures >= FAILURES {
            entry.opened = entry.opened.saturating_add(1);
            let doublings = (entry.opened - 1).min(DOUBLINGS);
            entry.until = now + (FIRST * (1 << doublings)).min(LONGEST);
        }
        entry.opened == 1
    }

    /// Whoever had `pass` went away before it was known whether a connection can be made.
    pub(crate) fn dropped(&mut self, host: &str, pass: Pass) {
        if !pass.probe {
            return;
        }
        if let Some(entry) = self.hosts.get_mut(host) {
            entry.probing = false;
            self.forget_if_healthy(host);
        }
    }

    fn forget_if_healthy(&mut self, host: &str) {
        let healthy = |entry: &Host| entry.opened == 0 && entry.failures == 0 && !entry.probing;
        if self.hosts.get(host).is_some_and(healthy) {
            self.hosts.remove(host);
        }
    }

    /// Whether one more host can be remembered; forgets those that have not failed for long.
    fn has_room(&mut self, now: Time) -> bool {
        if self.hosts.len() >= MOST_HOSTS && now >= self.next_look {
            self.next_look = now + LOOK;
            self.hosts.retain(|_, entry| entry.probing || now.since(entry.last_failure) < STALE);
        }
        self.hosts.len() < MOST_HOSTS
    }
}
