//! Tests of `leases`.

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
        let seen = |(owner, number): &(u8, Option<i64>)| {
            number.map(|number| Seen { owner: vec![*owner], number, lease_ms: 20_000 })
        };
        let unregistered = others.iter().filter(|(_, number)| number.is_none());
        self.leases.found(unregistered.map(|(owner, _)| vec![*owner]).collect());
        let seen = others.iter().filter_map(seen).collect();
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
                    let seen = vec![Seen { owner: vec![1], number, lease_ms: 20_000 }];
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

/// The search found the process before it wrote its first heartbeat, and is not repeated for long.
#[test]
fn first_heartbeat_ends_an_older_search() {
    let mut observer = Observer::new();
    observer.leases.found(vec![vec![1]]);
    let mut observe = |seen: Vec<Seen>| {
        observer.now = observer.now + BEAT;
        observer.leases.observe(observer.now, observer.now, Clock::system(), seen).len()
    };
    let with = |number| vec![Seen { owner: vec![1], number, lease_ms: 20_000 }];
    assert_eq!(observe(Vec::new()), 0);
    assert_eq!((0..8).map(|number| observe(with(number))).sum::<usize>(), 0);
    assert_eq!((0..4).map(|_| observe(with(9))).sum::<usize>(), 0);
    assert_eq!(observe(with(9)), 1, "it is silent as any other is");
    assert_eq!(observe(Vec::new()), 0, "it has left");
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

/// A process that gets another lock at the file of a SQLite store, because the lock file was removed, waits for the
/// heartbeat of the process that works there.
#[test]
fn heart_beats_twice_while_another_process_waits() {
    for seconds in [2, 20, 60, 120, 121, 300, 86_400] {
        let lease = Duration::from_secs(seconds);
        let (every, wait) = (Leases::new(lease).every(), owners::wait_for_beat(lease));
        assert!(2 * every < wait && every <= lease / 4, "a lease of {seconds} s: {every:?} within {wait:?}");
        assert!(wait < Duration::from_secs(31), "a start waits for {wait:?}");
    }
}
