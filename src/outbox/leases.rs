//! Decides which processes' jobs may be taken over: a failure detector by observation. Pure.
//!
//! A working process writes a number that grows, four times in each lease. An observer takes over its jobs when it has
//! read the same number for a whole lease of its own monotonic time, in which the observer's own writes to the store
//! succeeded without a gap. After a gap, whatever its cause (the store stalled, the observer was stopped), the
//! observation of every process starts again: a stall of the store gives every process a new lease.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::{Clock, Time};
use crate::store::owners::{Seen, Silent};

/// What this process has observed of others, and the number of its own latest heartbeat.
pub(super) struct Leases {
    lease: Duration,
    beats: i64,
    /// When the latest observation ended.
    last: Option<Time>,
    seen: HashMap<Vec<u8>, Known>,
}

struct Known {
    number: Option<i64>,
    /// When this process first read this number.
    since: Time,
}

impl Leases {
    pub(super) fn new(lease: Duration) -> Leases {
        Leases { lease, beats: 0, last: None, seen: HashMap::new() }
    }

    /// The number of this process's next heartbeat.
    pub(super) fn next_beat(&mut self) -> i64 {
        self.beats = self.beats.saturating_add(1);
        self.beats
    }

    /// The interval between heartbeats.
    pub(super) fn every(&self) -> Duration {
        self.lease / 4
    }

    /// Whether other processes work on the store, as of the latest observation. A process that was killed counts until
    /// its jobs are taken over.
    pub(super) fn others_work(&self) -> bool {
        self.seen.values().any(|known| known.number.is_some())
    }

    /// Processes an observation that was `asked` for and ended `now`. Returns the processes whose jobs may be taken
    /// over.
    pub(super) fn observe(&mut self, asked: Time, now: Time, clock: Clock, seen: Vec<Seen>) -> Vec<Silent> {
        // Every process tries to write a heartbeat within a quarter of a lease. A stall of all processes that is
        // shorter than half a lease leaves each of them enough of the lease to be seen; a longer stall is noticed here.
        let gap = self.last.replace(now).is_none_or(|last| now.since(last) > self.lease / 2);
        if gap {
            self.seen.clear();
        }
        let mut before = std::mem::take(&mut self.seen);
        let mut silent = Vec::new();
        for Seen { owner, number, lease_ms } in seen {
            let known = before.remove(&owner).filter(|known| known.number == number);
            let known = known.unwrap_or(Known { number, since: now });
            // The other process may be configured with a longer lease, and then its heartbeats are further apart.
            let lease = self.lease.max(Duration::from_millis(u64::try_from(lease_ms).unwrap_or(0)));
            // The number was read at some moment after `asked`, and for the first time before `since`.
            if asked.since(known.since) >= lease {
                let not_after = now + self.every();
                silent.push(Silent { owner: owner.clone(), number, not_after, clock });
            }
            self.seen.insert(owner, known);
        }
        silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(20);
    const BEAT: Duration = Duration::from_secs(5);

    struct Observer {
        leases: Leases,
        now: Time,
    }

    impl Observer {
        fn new() -> Observer {
            Observer { leases: Leases::new(LEASE), now: Time::ZERO + LEASE }
        }

        /// Observes after `wait`. Returns how many processes may be taken over.
        fn observe_after(&mut self, wait: Duration, others: &[(u8, Option<i64>)]) -> usize {
            let asked = self.now + wait;
            // The store takes a while to answer.
            self.now = asked + Duration::from_millis(10);
            let seen =
                |(owner, number): &(u8, Option<i64>)| Seen { owner: vec![*owner], number: *number, lease_ms: 20_000 };
            let seen = others.iter().map(seen).collect();
            self.leases.observe(asked, self.now, Clock::system(), seen).len()
        }
    }

    #[test]
    fn silent_process_is_replaced_after_one_lease() {
        let mut observer = Observer::new();
        for number in 0..4 {
            assert_eq!(
                observer.observe_after(BEAT, &[(1, Some(7)), (2, None), (3, Some(number))]),
                0,
                "observation {number}"
            );
        }
        assert_eq!(
            observer.observe_after(BEAT, &[(1, Some(7)), (2, None), (3, Some(4))]),
            2,
            "and not the one whose heart beats"
        );
        // A process stays silent until its jobs are gone; one that writes heartbeats again is observed anew.
        assert_eq!(observer.observe_after(BEAT, &[(1, Some(7)), (2, Some(1))]), 1);
    }

    #[test]
    fn store_stall_renews_every_lease() {
        for stall in [11, 26, 3_600, 86_400] {
            let mut observer = Observer::new();
            for _ in 0..3 {
                assert_eq!(observer.observe_after(BEAT, &[(1, Some(7))]), 0);
            }
            assert_eq!(observer.observe_after(Duration::from_secs(stall), &[(1, Some(7))]), 0, "{stall} s");
            for _ in 0..3 {
                assert_eq!(observer.observe_after(BEAT, &[(1, Some(7))]), 0, "{stall} s");
            }
            assert_eq!(observer.observe_after(BEAT, &[(1, Some(7))]), 1, "{stall} s");
        }
    }

    #[test]
    fn store_stalls_never_expire_a_living_process() {
        // The store stalls now and then, for both processes at once; each tries to write a heartbeat every five
        // seconds.
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..2_000 {
            let mut observer = Observer::new();
            let (mut at, mut own, mut other, mut number) = (0u64, 0u64, random.u64(..5_000), 0);
            for _ in 0..60 {
                // The store answers at once, or when its stall ends.
                let stalled = if random.u8(..5) == 0 { random.u64(..30_000) } else { random.u64(..50) };
                let until = at + stalled;
                // A heartbeat that falls into the stall waits for its end; the order of those that waited is random.
                let first = random.bool();
                for turn in 0..2 {
                    if (turn == 0) == first {
                        if other <= until {
                            number += 1;
                            other = until + 5_000;
                        }
                    } else if own <= until {
                        let (asked, ended) = (own.max(at), until + 1);
                        let seen = vec![Seen { owner: vec![1], number: Some(number), lease_ms: 20_000 }];
                        let time = |at: u64| Time::from_nanos(at * 1_000_000);
                        let silent = observer.leases.observe(time(asked), time(ended), Clock::system(), seen);
                        assert!(silent.is_empty(), "at {ended} ms");
                        own = until + 5_000;
                    }
                }
                at = until.max(own.min(other)).max(at + 1);
            }
        }
    }

    #[test]
    fn others_work_until_they_leave() {
        let mut observer = Observer::new();
        assert!(!observer.leases.others_work());
        // A process that left claims behind works no more.
        observer.observe_after(BEAT, &[(1, None)]);
        assert!(!observer.leases.others_work());
        observer.observe_after(BEAT, &[(1, None), (2, Some(1))]);
        assert!(observer.leases.others_work());
        // The store stood still for a while.
        observer.observe_after(3 * BEAT, &[(2, Some(1))]);
        assert!(observer.leases.others_work());
        observer.observe_after(BEAT, &[]);
        assert!(!observer.leases.others_work());
    }

    #[test]
    fn longest_lease_counts() {
        let mut observer = Observer::new();
        observer.leases.lease = Duration::from_secs(2);
        let beat = Duration::from_millis(500);
        for number in 0..30 {
            assert_eq!(observer.observe_after(beat, &[(1, Some(7))]), 0, "{number}");
        }
    }
}
