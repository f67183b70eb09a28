//! Remembers requests of which nobody knows whether the vendor acted.
//!
//! Many SDKs repeat a POST after every error, whatever the response says. A request without an idempotency key that
//! the vendor reads is remembered for ten minutes if it ends with an unknown outcome; a repetition of it is answered
//! with 422 (`problem.rs`) and not sent, unless it has the header `Integration-Send-Again: true` or such a key
//! (`service.rs`).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use http::Method;

use crate::clock::Time;

/// How long a request is remembered.
const KEPT: Duration = Duration::from_secs(600);
/// The most requests that are remembered. Above it the oldest is forgotten.
const MOST: usize = 10_000;

/// A hash that identifies equal requests.
pub(super) type Fingerprint = [u8; 32];

/// Hashes the parts of a request (caller, tenant, vendor, method, path and body): equal only if all parts are equal.
fn fingerprint(parts: &[&[u8]]) -> Fingerprint {
    let mut digest = Context::new(&SHA256);
    for part in parts {
        // Each part is preceded by its length, so that "ab", "c" differs from "a", "bc".
        digest.update(&(part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    let mut out = [0; 32];
    out.copy_from_slice(digest.finish().as_ref());
    out
}

/// The parts of a request that its fingerprint covers. The fingerprint is computed only when needed: hashing a large
/// body costs more than all other work here, and few requests end with an unknown outcome.
#[derive(Debug)]
pub(super) struct Mark {
    pub(super) caller: Box<str>,
    pub(super) lane: (Arc<str>, Arc<str>),
    pub(super) method: Method,
    pub(super) path: Box<str>,
    pub(super) body: Bytes,
}

impl Mark {
    pub(super) fn fingerprint(&self) -> Fingerprint {
        let (tenant, vendor) = &self.lane;
        let names = [&*self.caller, tenant, vendor, self.method.as_str(), &self.path].map(str::as_bytes);
        let [caller, tenant, vendor, method, path] = names;
        fingerprint(&[caller, tenant, vendor, method, path, &self.body])
    }
}

/// The remembered requests. `T` is what is kept of each, to answer its repetitions.
#[derive(Debug)]
pub(super) struct Repeats<T> {
    kept: HashMap<Fingerprint, (Time, T)>,
    /// The remembered requests, next to expire first. A request that was remembered twice is listed twice.
    order: VecDeque<(Time, Fingerprint)>,
}

impl<T> Default for Repeats<T> {
    fn default() -> Self {
        Repeats { kept: HashMap::new(), order: VecDeque::new() }
    }
}

impl<T: Clone> Repeats<T> {
    /// Whether no request is remembered. Expired requests count until `find` or `remember` removes them.
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Returns what was kept of an equal request, if one is remembered at `now`.
    pub(super) fn find(&mut self, now: Time, request: &Fingerprint) -> Option<T> {
        self.forget_old(now);
        self.kept.get(request).map(|(_, answer)| answer.clone())
    }

    /// Remembers a request for ten minutes from `now`.
    pub(super) fn remember(&mut self, now: Time, request: Fingerprint, answer: T) {
        self.forget_old(now);
        while self.order.len() >= MOST {
            self.forget_first();
        }
        let until = now + KEPT;
        self.kept.insert(request, (until, answer));
        self.order.push_back((until, request));
    }

    fn forget_old(&mut self, now: Time) {
        while self.order.front().is_some_and(|(until, _)| *until <= now) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some((until, request)) = self.order.pop_front()
            && self.kept.get(&request).is_some_and(|(last, _)| *last == until)
        {
            self.kept.remove(&request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Time = Time::ZERO;

    fn number(n: u64) -> Fingerprint {
        fingerprint(&[&n.to_le_bytes()])
    }

    #[test]
    fn repetition_is_recognised_for_ten_minutes() {
        let mut repeats = Repeats::default();
        repeats.remember(T0, number(1), "first");
        assert_eq!(repeats.find(T0 + (KEPT - Duration::from_nanos(1)), &number(1)), Some("first"));
        assert_eq!(repeats.find(T0, &number(2)), None);
        repeats.remember(T0 + Duration::from_secs(300), number(1), "again");
        assert_eq!(repeats.find(T0 + KEPT, &number(1)), Some("again"), "ten minutes from the last time");
        assert_eq!(repeats.find(T0 + Duration::from_secs(900), &number(1)), None);
        assert_eq!((repeats.kept.len(), repeats.order.len()), (0, 0));
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes() {
        let mut repeats = Repeats::default();
        for n in 0..MOST as u64 + 10 {
            repeats.remember(T0 + Duration::from_millis(n), number(n), n);
        }
        assert_eq!((repeats.kept.len(), repeats.order.len()), (MOST, MOST));
        let now = T0 + Duration::from_secs(60);
        assert_eq!((repeats.find(now, &number(9)), repeats.find(now, &number(10))), (None, Some(10)));
        for _ in 0..2 * MOST {
            repeats.remember(now, number(10), 0);
        }
        assert!(repeats.order.len() <= MOST, "one request that is repeated for ever fills nothing");
    }

    #[test]
    fn clock_that_goes_back_forgets_nothing_early() {
        let mut repeats = Repeats::default();
        repeats.remember(T0 + KEPT, number(1), ());
        assert_eq!(repeats.find(T0, &number(1)), Some(()));
    }

    #[test]
    fn fingerprints_keep_parts_apart() {
        assert_ne!(fingerprint(&[b"ab", b"c"]), fingerprint(&[b"a", b"bc"]));
        assert_ne!(fingerprint(&[b"a", b""]), fingerprint(&[b"a"]));
        assert_eq!(fingerprint(&[b"a", b"b"]), fingerprint(&[b"a", b"b"]));
    }
}
