//! A circuit breaker for hosts to which no connection can be made.
//!
//! Requests try to connect for minutes, and each try may take the whole connect timeout. With hundreds of requests for
//! a dead host, that is hundreds of idle sockets. So after five failures in a row the circuit of the host is *open*: no
//! request connects for a second. Then exactly one does, the *probe*, and the others wait for its outcome. A failure
//! opens the circuit for twice as long, at most half a minute. A success lets the host *recover*: waiting requests
//! return in batches of 2, 4, 8, … (see [`Ramp`]), because all of them at once could overload a host that has just come
//! back. The circuit is closed once a batch is not used up.
//!
//! Special cases. Connections that began before the circuit was opened continue: their failure does not lengthen the
//! wait, and their success lets the host recover. A probe whose caller goes away, or whose exchange has not begun
//! within a second, hands over to the next request. A probe without a failure for as long as a connect may take has
//! connected: the host recovers, though the response, which may take minutes, has not come. A probe that another
//! connection's success overtakes remains the only probe for that time, even if the circuit is opened again meanwhile.
//!
//! Only failing hosts have an entry, so a healthy host costs nothing. There is room for ten thousand; further failing
//! hosts are not held back, which only costs useless attempts to connect.

mod ramp;
#[cfg(test)]
mod tests;

use std::time::Duration;

use hashbrown::HashMap;

use self::ramp::{Next, Ramp};
use crate::clock::Time;

/// Failures in a row that open the circuit.
const FAILURES: u32 = 5;
/// How long the circuit is open the first time.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// The doublings that lead from [`FIRST`] past [`LONGEST`].
const DOUBLINGS: u32 = 5;
/// A probe whose exchange has not begun after this long hands over to another request.
const LAUNCH: Duration = Duration::from_secs(1);
const MAX_HOSTS: usize = 10_000;
/// An entry without a failure for `STALE` may be dropped; such entries are looked for once every `LOOK`. It is longer
/// than the longest wait of a stored job in an outage (100 s) and a connect together: otherwise the failures of a single
/// job would never open the circuit.
const STALE: Duration = Duration::from_secs(150);
const LOOK: Duration = Duration::from_secs(1);
/// An open host is not counted after this time without a failure or a probe. While requests wait for it, a probe goes
/// every [`LONGEST`] and fails within its connect timeout.
const UNTRIED: Duration = Duration::from_secs(120);

/// Connect and TLS failures of all hosts.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    hosts: HashMap<Box<str>, Host>,
    /// When to look for stale entries again.
    next_look: Time,
    /// The number of the last numbered pass.
    issued: u64,
}

#[derive(Debug, Default)]
struct Host {
    /// Failures in a row; meaningless while open.
    failures: u32,
    /// How often in a row it was opened; zero while closed.
    opened: u32,
    /// The end of the open state; from then on the host is half open.
    until: Time,
    /// Set while the host recovers.
    ramp: Option<Ramp>,
    /// Cleared only by the probe's own end, or if it does not begin or connect in time, so that two never connect at
    /// once.
    probe: Option<Probe>,
    last_failure: Time,
}

#[derive(Debug)]
struct Probe {
    number: u64,
    step: Step,
}

#[derive(Debug)]
enum Step {
    /// It has not begun. Another request may become the probe from this moment on.
    LeavesBy(Time),
    /// It is on its way. From this moment on it has connected, unless it has failed.
    ConnectsBy(Time),
    /// It was on its way when the circuit was opened again, so it shows nothing. Another request may become the probe
    /// from this moment on.
    Outdated(Time),
}

impl Probe {
    fn ends_by(&self) -> Time {
        match self.step {
            Step::LeavesBy(moment) | Step::ConnectsBy(moment) | Step::Outdated(moment) => moment,
        }
    }

    fn has_connected(&self, now: Time) -> bool {
        matches!(self.step, Step::ConnectsBy(moment) if moment <= now)
    }
}

/// Permission to connect. Its holder returns it to the breaker together with the outcome.
#[derive(Debug)]
#[must_use = "a pass that is not returned keeps all other requests waiting"]
pub(crate) struct Pass {
    /// From 1 upwards for probes and for passes of a recovering host; 0 for a closed host.
    number: u64,
    /// Whether the host's recovery began when this pass was granted.
    begins_recovery: bool,
    #[cfg(test)]
    probe: bool,
}

impl Pass {
    fn new(number: u64, probe: bool) -> Pass {
        let _ = probe;
        Pass {
            number,
            begins_recovery: false,
            #[cfg(test)]
            probe,
        }
    }

    /// Whether the circuit was open until this pass was granted, and is open no longer, because the probe has connected.
    pub(crate) fn begins_recovery(&self) -> bool {
        self.begins_recovery
    }

    /// Whether this is the probe of an open host.
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

    /// Ends a pass. Returns whether it was the probe.
    fn end(&mut self, pass: &Pass) -> bool {
        let was_probe = self.is_probe(pass);
        if was_probe {
            self.probe = None;
        }
        was_probe
    }

    /// The earliest moment for a connection. If it depends on a probe that is on its way, the moment by which that has
    /// connected, unless it ends earlier ([`waits_for_probe`](Host::waits_for_probe)).
    fn ready_at(&self, now: Time) -> Time {
        match (&self.ramp, &self.probe) {
            _ if self.is_closed() => now,
            (Some(ramp), _) => ramp.ready_at(now),
            (None, _) if now < self.until => self.until,
            (None, Some(probe)) => probe.ends_by(),
            (None, None) => now,
        }
    }

    /// Whether the next connection depends on a probe that is on its way.
    fn waits_for_probe(&self, now: Time) -> bool {
        let is_on_its_way =
            self.probe.as_ref().is_some_and(|probe| matches!(probe.step, Step::ConnectsBy(_) | Step::Outdated(_)));
        !self.is_closed() && self.ramp.is_none() && now >= self.until && is_on_its_way
    }

    /// Opens the circuit. Returns whether it was not open before.
    fn open(&mut self, now: Time) -> bool {
        let was_open = self.opened > 0 && self.ramp.is_none();
        self.ramp = None;
        if let Some(probe) = &mut self.probe
            && let Step::ConnectsBy(moment) = probe.step
        {
            probe.step = Step::Outdated(moment);
        }
        self.opened = self.opened.saturating_add(1);
        let doublings = (self.opened - 1).min(DOUBLINGS);
        self.until = now + (FIRST * (1 << doublings)).min(LONGEST);
        !was_open
    }

    fn close(&mut self) {
        *self = Host { probe: self.probe.take(), last_failure: self.last_failure, ..Host::default() };
    }

    /// Whether the entry can be removed: it holds no request back, and no probe is in flight.
    fn is_healthy(&self) -> bool {
        self.is_closed() && self.failures == 0 && self.probe.is_none()
    }

    /// Whether the entry may be dropped: it holds no request back, and its last failure is long ago.
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

    /// Whether no host has failed lately, so that requests need not ask.
    pub(crate) fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// The number of hosts whose circuit is open and that were tried lately: of a host to which nobody sends any more it
    /// is unknown whether it can be connected to.
    pub(crate) fn open(&self, now: Time) -> usize {
        let is_open = |entry: &&Host| !entry.is_closed() && entry.ramp.is_none();
        let is_probed = |entry: &Host| entry.probe.as_ref().is_some_and(|probe| !probe.has_connected(now));
        let was_tried = |entry: &&Host| is_probed(entry) || now.since(entry.last_failure) < UNTRIED;
        self.hosts.values().filter(is_open).filter(was_tried).count()
    }

    /// Whether the circuit of this host is open.
    pub(crate) fn is_open(&self, host: &str) -> bool {
        self.hosts.get(host).is_some_and(|entry| !entry.is_closed() && entry.ramp.is_none())
    }

    /// When [`allow`](Breaker::allow) may succeed: at most `now` if at once. The moment may move nearer whenever a pass
    /// of the same host ends, above all while a [probe is on its way](Breaker::waits_for_probe).
    pub(crate) fn ready_at(&self, host: &str, now: Time) -> Time {
        self.hosts.get(host).map_or(now, |entry| entry.ready_at(now))
    }

    /// Whether the next connection depends on a probe that is on its way, which may end long before
    /// [`ready_at`](Breaker::ready_at).
    pub(crate) fn waits_for_probe(&self, host: &str, now: Time) -> bool {
        self.hosts.get(host).is_some_and(|entry| entry.waits_for_probe(now))
    }

    /// Grants a pass to connect to `host`. A probe must [begin](Breaker::leaves) within a second.
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
        let mut begins_recovery = false;
        if entry.ready_at(now) <= now && entry.probe.as_ref().is_some_and(|probe| probe.has_connected(now)) {
            entry.probe = None;
            begins_recovery = entry.ramp.is_none();
            entry.ramp.get_or_insert_with(|| Ramp::new(number, now));
        }
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
            return Ok(Pass { begins_recovery, ..Pass::new(number, false) });
        }
        let ready_at = entry.ready_at(now);
        if ready_at > now {
            return Err(ready_at);
        }
        entry.probe = Some(Probe { number, step: Step::LeavesBy(now + LAUNCH) });
        self.issued = number;
        Ok(Pass::new(number, true))
    }

    /// Reports that the connection of `pass` begins, and that a connect takes until `connects_by` at most. If another
    /// request has become the probe meanwhile, this one counts as a connection that began before the circuit was opened.
    pub(crate) fn leaves(&mut self, host: &str, pass: &Pass, connects_by: Time) {
        let probe = self.hosts.get_mut(host).and_then(|entry| entry.probe.as_mut());
        if let Some(probe) = probe.filter(|probe| probe.number == pass.number) {
            probe.step = Step::ConnectsBy(connects_by);
        }
    }

    /// Reports that a connection was made. Returns whether the host was open and now recovers.
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

    /// Reports that no connection was made. Returns whether this opened the circuit, which was not open before.
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
                // The connection began before the circuit was opened.
                return false;
            }
        } else if !entry.is_closed() {
            return was_probe && entry.open(now);
        }
        entry.failures = entry.failures.saturating_add(1);
        entry.failures >= FAILURES && entry.open(now)
    }

    /// Reports that the request with `pass` was dropped before the outcome of its connection was known.
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

    /// Drops hosts without requests since they recovered: while there is an entry, every request has to ask.
    fn forget_stale(&mut self, now: Time) {
        if now >= self.next_look {
            self.next_look = now + LOOK;
            self.hosts.retain(|_, entry| !entry.is_stale(now));
        }
    }

    /// Whether there is room for one more host. Drops entries, open ones too, whose last failure is long ago.
    fn has_room(&mut self, now: Time) -> bool {
        if self.hosts.len() >= MAX_HOSTS && now >= self.next_look {
            self.next_look = now + LOOK;
            self.hosts.retain(|_, entry| entry.probe.is_some() || now.since(entry.last_failure) < STALE);
        }
        self.hosts.len() < MAX_HOSTS
    }
}
