//! The states of a circuit (open, half open, closed), and that there is one probe at a time.

use proptest::prelude::*;

use super::*;

fn ms(n: u64) -> Time {
    Time::from_nanos(3_600_000_000_000) + Duration::from_millis(n)
}

/// Makes a request to `host` that fails at once.
#[track_caller]
fn fail(breaker: &mut Breaker, host: &str, now: Time) {
    let pass = breaker.allow(host, now).unwrap();
    breaker.failed(host, pass, now);
}

/// A breaker that is open for `host` since `ms(0)`.
fn open_breaker(host: &str) -> Breaker {
    let mut breaker = Breaker::new();
    (0..5).for_each(|_| fail(&mut breaker, host, ms(0)));
    assert_eq!(breaker.allow(host, ms(0)).unwrap_err(), ms(1000));
    breaker
}

/// Starts a probe.
fn start_probe(breaker: &mut Breaker, host: &str, now: Time) -> Pass {
    let pass = breaker.allow(host, now).unwrap();
    assert!(pass.is_probe());
    breaker.leaves(host, &pass, Time::MAX);
    pass
}

/// Takes all passes that are granted at `now`, at most `most`.
fn take_passes(breaker: &mut Breaker, host: &str, now: Time, most: usize) -> Vec<Pass> {
    std::iter::from_fn(|| breaker.allow(host, now).ok()).take(most).collect()
}

#[test]
fn five_failures_open_one_host() {
    let mut breaker = Breaker::new();
    (0..4).for_each(|_| fail(&mut breaker, "a", ms(0)));
    let pass = breaker.allow("a", ms(0)).unwrap();
    breaker.succeeded("a", pass, ms(0));
    assert!(breaker.hosts.is_empty(), "a healthy host is not remembered");
    (0..5).for_each(|_| fail(&mut breaker, "a", ms(10)));
    assert_eq!(breaker.allow("a", ms(10)).unwrap_err(), ms(1010));
    assert!(!breaker.allow("b", ms(10)).unwrap().is_probe(), "another host is another matter");
}

#[test]
fn breaker_opens_twice_as_long_each_time() {
    let mut breaker = open_breaker("a");
    let mut now = 1000;
    for seconds in [2, 4, 8, 16, 30, 30, 30] {
        let pass = start_probe(&mut breaker, "a", ms(now));
        breaker.failed("a", pass, ms(now));
        assert_eq!(breaker.allow("a", ms(now)).unwrap_err(), ms(now + seconds * 1000));
        now += seconds * 1000;
    }
    for n in 0..100 {
        now += 30_000;
        let pass = start_probe(&mut breaker, "a", ms(now));
        breaker.failed("a", pass, ms(now));
        assert_eq!(breaker.allow("a", ms(now)).unwrap_err(), ms(now + 30_000), "{n}");
    }
}

#[test]
fn half_open_breaker_admits_one_probe() {
    let mut breaker = open_breaker("a");
    let pass = start_probe(&mut breaker, "a", ms(1000));
    assert_eq!(breaker.allow("a", ms(1500)).unwrap_err(), Time::MAX, "only its end tells");
    assert_eq!(breaker.ready_at("a", ms(1500)), Time::MAX);
    assert!(breaker.succeeded("a", pass, ms(1500)), "it is open no longer");
    assert_eq!((breaker.open(ms(1500)), breaker.ready_at("a", ms(1500))), (0, ms(1500)));
    // Only one of the two passes of the batch was used, so no other request waits.
    let pass = breaker.allow("a", ms(1500)).unwrap();
    assert!(!pass.is_probe());
    assert!(!breaker.succeeded("a", pass, ms(1510)), "that is told once");
    let ordinary = breaker.allow("a", ms(1750)).unwrap();
    assert!(breaker.hosts.is_empty(), "closed");
    breaker.dropped("a", ordinary);
    (0..5).for_each(|_| fail(&mut breaker, "a", ms(2000)));
    assert_eq!(breaker.allow("a", ms(2000)).unwrap_err(), ms(3000), "it starts again from one second");
}

/// All waiting requests at once could overload a host that has just come back.
#[test]
fn passes_double_with_each_batch_that_connects() {
    let mut breaker = open_breaker("a");
    let pass = start_probe(&mut breaker, "a", ms(1000));
    breaker.succeeded("a", pass, ms(1000));
    let (mut now, mut sizes) = (1000, Vec::new());
    while !breaker.hosts.is_empty() {
        let passes = take_passes(&mut breaker, "a", ms(now), 5000);
        sizes.push(passes.len());
        for pass in passes {
            breaker.succeeded("a", pass, ms(now + 1));
        }
        now += 250;
        if !breaker.hosts.is_empty() && sizes.len() < 13 {
            assert_eq!(breaker.ready_at("a", ms(now - 1)), ms(now), "not earlier, and not later");
        }
    }
    // The last batch was not used up, which closes the circuit.
    assert_eq!(sizes, [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 5000, 5000]);
}

/// While no response to a batch has arrived, another batch of the same size is granted after a second, and no larger
/// one.
#[test]
fn batch_does_not_grow_before_something_connects() {
    let mut breaker = open_breaker("a");
    let pass = start_probe(&mut breaker, "a", ms(1000));
    breaker.succeeded("a", pass, ms(1000));
    let mut slow = Vec::new();
    for second in 1..=5 {
        let now = second * 1000;
        let passes = take_passes(&mut breaker, "a", ms(now), 5000);
        assert_eq!(passes.len(), 2, "second {second}");
        slow.extend(passes);
        assert_eq!(breaker.ready_at("a", ms(now + 250)), ms(now + 1000));
    }
    breaker.succeeded("a", slow.pop().unwrap(), ms(5100));
    assert_eq!(breaker.ready_at("a", ms(5100)), ms(5250), "whoever waits may go earlier now");
    slow.extend(take_passes(&mut breaker, "a", ms(5250), 5000));
    assert_eq!(slow.len(), 9 + 4);
    // A pass that was not used is granted to another request.
    breaker.dropped("a", slow.pop().unwrap());
    assert_eq!(take_passes(&mut breaker, "a", ms(5260), 5000).len(), 1);
}

#[test]
fn failure_during_recovery_opens_for_longer() {
    let mut breaker = open_breaker("a");
    let pass = start_probe(&mut breaker, "a", ms(1000));
    breaker.succeeded("a", pass, ms(1000));
    let mut now = 1000;
    let opened = loop {
        let passes = take_passes(&mut breaker, "a", ms(now), 100);
        assert!((1..=2).contains(&passes.len()), "a batch of failures is followed by none that is larger");
        let opened = passes.into_iter().filter_map(|pass| breaker.failed("a", pass, ms(now)).then_some(now)).next();
        if let Some(opened) = opened {
            break opened;
        }
        now += 250;
    };
    assert_eq!(opened, 1500, "at the fifth failure");
    assert_eq!(breaker.allow("a", ms(opened)).unwrap_err(), ms(opened + 2000));
    assert_eq!(breaker.open(ms(opened)), 1);
}

/// Whether it can be connected to is unknown by then.
#[test]
fn untried_host_is_not_counted_as_open() {
    let mut breaker = open_breaker("a");
    assert_eq!((breaker.open(ms(119_999)), breaker.open(ms(120_000))), (1, 0));
    assert!(breaker.is_open("a"), "the next request is a probe");
    let pass = breaker.allow("a", ms(200_000)).unwrap();
    breaker.leaves("a", &pass, ms(210_000));
    assert_eq!((breaker.open(ms(209_999)), breaker.open(ms(210_000))), (1, 0), "it has connected by then");
    breaker.failed("a", pass, ms(205_000));
    assert_eq!((breaker.open(ms(324_999)), breaker.open(ms(325_000))), (1, 0));
}

/// A probe that waits for something else, such as the store, hands over to another request.
#[test]
fn unsent_probe_is_taken_back() {
    let mut breaker = open_breaker("a");
    let stuck = breaker.allow("a", ms(1000)).unwrap();
    assert_eq!(breaker.allow("a", ms(1999)).unwrap_err(), ms(2000));
    let other = start_probe(&mut breaker, "a", ms(2000));
    breaker.leaves("a", &stuck, Time::MAX);
    assert_eq!(breaker.allow("a", ms(2500)).unwrap_err(), Time::MAX);
    assert!(!breaker.failed("a", stuck, ms(2600)), "as a connection that began before");
    assert_eq!(breaker.allow("a", ms(2600)).unwrap_err(), Time::MAX, "the probe is still in flight");
    breaker.failed("a", other, ms(3000));
    assert_eq!(breaker.allow("a", ms(3000)).unwrap_err(), ms(5000));
}

/// A vendor that is reachable and slow, or a long response, must not keep all other requests waiting.
#[test]
fn slow_probe_has_connected_after_the_connect_timeout() {
    let mut breaker = open_breaker("a");
    let slow = breaker.allow("a", ms(1000)).unwrap();
    breaker.leaves("a", &slow, ms(11_000));
    assert_eq!(breaker.allow("a", ms(2000)).unwrap_err(), ms(11_000));
    let batch = take_passes(&mut breaker, "a", ms(11_000), 10);
    assert_eq!(batch.len(), 2, "the host recovers");
    assert_eq!(batch.iter().map(Pass::begins_recovery).collect::<Vec<_>>(), [true, false], "which is told once");
    assert_eq!(breaker.open(ms(11_000)), 0);
    assert!(!breaker.succeeded("a", slow, ms(60_000)), "the host is open no longer");
    for pass in batch {
        assert!(!breaker.succeeded("a", pass, ms(60_000)));
    }
}

#[test]
fn failure_after_a_slow_probe_opens_again() {
    let mut breaker = open_breaker("a");
    let slow = breaker.allow("a", ms(1000)).unwrap();
    breaker.leaves("a", &slow, ms(2000));
    let pass = breaker.allow("a", ms(2000)).unwrap();
    assert!(breaker.failed("a", pass, ms(2100)));
    assert_eq!(breaker.ready_at("a", ms(2100)), ms(4100), "for twice as long");
    let probe = start_probe(&mut breaker, "a", ms(4100));
    breaker.dropped("a", slow);
    assert_eq!(breaker.ready_at("a", ms(4200)), Time::MAX, "the old probe says nothing of the new one");
    assert!(breaker.waits_for_probe("a", ms(4200)));
    breaker.dropped("a", probe);
}

/// A connection that began before the failures proves nothing about the time after them.
#[test]
fn probe_from_before_a_reopening_proves_nothing() {
    let mut breaker = open_breaker("a");
    let old = Pass::new(0, false);
    let probe = breaker.allow("a", ms(1000)).unwrap();
    breaker.leaves("a", &probe, ms(9000));
    assert!(breaker.succeeded("a", old, ms(1100)), "a connection from before the circuit was opened");
    for at in [1100, 1100, 1350, 1350, 1600] {
        let pass = breaker.allow("a", ms(at)).unwrap();
        breaker.failed("a", pass, ms(at));
    }
    assert_eq!(breaker.ready_at("a", ms(1600)), ms(3600), "opened again");
    assert_eq!(breaker.ready_at("a", ms(3600)), ms(9000), "the old probe may be connecting still");
    let next = breaker.allow("a", ms(9000)).unwrap();
    assert!(next.is_probe() && !next.begins_recovery());
    breaker.dropped("a", next);
    breaker.dropped("a", probe);
}

/// While the breaker has an entry, every request has to ask it, so entries of unused hosts are dropped.
#[test]
fn host_without_requests_is_forgotten() {
    let mut breaker = open_breaker("a");
    fail(&mut breaker, "b", ms(0));
    let pass = start_probe(&mut breaker, "a", ms(1000));
    breaker.succeeded("a", pass, ms(1000));
    for second in 0..=151 {
        let pass = breaker.allow("c", ms(second * 1000)).unwrap();
        breaker.dropped("c", pass);
    }
    assert!(breaker.is_empty());
}

#[test]
fn probe_that_goes_away_leaves_its_place() {
    let mut breaker = open_breaker("a");
    let pass = start_probe(&mut breaker, "a", ms(1000));
    breaker.dropped("a", pass);
    let pass = start_probe(&mut breaker, "a", ms(1000));
    assert!(breaker.allow("a", ms(1000)).is_err());
    breaker.succeeded("a", pass, ms(1000));
    let ordinary = breaker.allow("a", ms(1250)).unwrap();
    breaker.dropped("a", ordinary);
    assert!(breaker.hosts.is_empty());
}

/// Twenty connections are in flight when the failures of five of them open the circuit. The other failures must neither
/// lengthen the wait nor end the probe, which is another connection.
#[test]
fn earlier_exchange_does_not_lengthen_the_wait() {
    let mut breaker = Breaker::new();
    let mut passes: Vec<Pass> = (0..20).map(|_| breaker.allow("a", ms(0)).unwrap()).collect();
    for pass in passes.drain(..15) {
        breaker.failed("a", pass, ms(0));
    }
    assert_eq!(breaker.allow("a", ms(0)).unwrap_err(), ms(1000));
    let first = start_probe(&mut breaker, "a", ms(1000));
    for pass in passes.drain(..4) {
        breaker.failed("a", pass, ms(1100));
    }
    assert!(breaker.allow("a", ms(5000)).is_err(), "the probe is still under way");
    for pass in passes {
        breaker.succeeded("a", pass, ms(1200));
    }
    for _ in 0..5 {
        fail(&mut breaker, "a", ms(2000));
    }
    assert!(breaker.allow("a", ms(60_000)).is_err(), "opened again, and the first probe is still under way");
    breaker.failed("a", first, ms(60_000));
    let until = breaker.allow("a", ms(60_000)).unwrap_err();
    assert!([ms(62_000), ms(64_000)].contains(&until), "{until:?}");
}

#[test]
fn memory_is_bounded() {
    let mut breaker = Breaker::new();
    for n in 0..MAX_HOSTS + 5_000 {
        fail(&mut breaker, &format!("h{n}"), ms(0));
    }
    assert_eq!(breaker.hosts.len(), MAX_HOSTS);
    for _ in 0..20 {
        fail(&mut breaker, "beyond", ms(500));
    }
    assert!(breaker.allow("beyond", ms(500)).is_ok(), "no room: not held back");
    for _ in 0..5 {
        fail(&mut breaker, "beyond", ms(151_000));
    }
    assert!(breaker.allow("beyond", ms(151_000)).is_err(), "those that have not failed for long made room");
    assert_eq!(breaker.hosts.len(), 1);
}

#[test]
fn probe_is_not_forgotten_for_room() {
    let mut breaker = open_breaker("a");
    let _pass = start_probe(&mut breaker, "a", ms(1000));
    for n in 0..MAX_HOSTS + 1 {
        fail(&mut breaker, &format!("h{n}"), ms(100_000));
    }
    assert!(breaker.allow("a", ms(200_000)).is_err());
}

#[test]
fn clock_steps_are_survived() {
    let mut breaker = open_breaker("a");
    assert_eq!(breaker.allow("a", Time::ZERO).unwrap_err(), ms(1000));
    let pass = start_probe(&mut breaker, "a", Time::MAX);
    breaker.failed("a", pass, Time::ZERO);
    let pass = start_probe(&mut breaker, "a", ms(0));
    breaker.failed("a", pass, Time::MAX);
    let pass = start_probe(&mut breaker, "a", Time::MAX);
    breaker.succeeded("a", pass, Time::MAX);
    while !breaker.hosts.is_empty() {
        let pass = breaker.allow("a", Time::MAX).unwrap();
        breaker.succeeded("a", pass, Time::ZERO);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn breaker_admits_one_probe_until_success(
        // Each step: the host, the operation, the pass that it uses, and the time, which is not monotonic.
        steps in proptest::collection::vec((0..3usize, 0..6u8, 0..64usize, 0..120_000u64), 1..400),
    ) {
        let mut breaker = Breaker::new();
        let mut out: [Vec<Pass>; 3] = Default::default();
        let mut open = [false; 3];
        for (index, action, which, at) in steps {
            let (host, now) = (["a", "b", "c"][index], ms(at));
            let passes = &mut out[index];
            match action {
                0..=2 => match breaker.allow(host, now) {
                    Ok(pass) => {
                        breaker.leaves(host, &pass, Time::MAX);
                        passes.push(pass);
                    }
                    Err(until) => {
                        prop_assert!(until > now);
                        prop_assert_eq!(breaker.ready_at(host, now), until);
                        prop_assert!(until < Time::MAX || !passes.is_empty(), "somebody's end will tell");
                    }
                },
                _ if passes.is_empty() => {}
                _ => {
                    let pass = passes.swap_remove(which % passes.len());
                    match action {
                        3 => breaker.dropped(host, pass),
                        4 => {
                            let opened = breaker.failed(host, pass, now);
                            prop_assert!(!(opened && open[index]), "it is opened once");
                            open[index] |= opened;
                            prop_assert_eq!(breaker.open(now), open.iter().filter(|open| **open).count());
                        }
                        _ => {
                            let closed = breaker.succeeded(host, pass, now);
                            prop_assert_eq!(closed, std::mem::take(&mut open[index]), "what was opened is closed once");
                            prop_assert_eq!(breaker.open(now), open.iter().filter(|open| **open).count());
                            let next = breaker.allow(host, now);
                            prop_assert!(!matches!(&next, Ok(pass) if pass.is_probe()), "a success ends the probing");
                            prop_assert!(next.is_ok() || !closed, "whoever waits may go");
                            passes.extend(next);
                        }
                    }
                }
            }
            prop_assert!(out[index].iter().filter(|pass| pass.is_probe()).count() <= 1);
            prop_assert!(breaker.hosts.len() <= 3);
        }
        // After any sequence of steps, once all requests have been dropped, the host can be connected to again.
        for (host, passes) in ["a", "b", "c"].into_iter().zip(out) {
            passes.into_iter().for_each(|pass| breaker.dropped(host, pass));
            prop_assert!(breaker.allow(host, ms(200_000)).is_ok());
        }
    }
}
