//! Open, half open, closed; one probe at a time.

use proptest::prelude::*;

use super::*;

fn ms(n: u64) -> Time {
    Time::from_nanos(3_600_000_000_000) + Duration::from_millis(n)
}

/// A request to `host` that fails at once.
#[track_caller]
fn fail(breaker: &mut Breaker, host: &str, now: Time) {
    let pass = breaker.allow(host, now).unwrap();
    breaker.failed(host, pass, now);
}

/// A breaker that is open for `host` since `ms(0)`.
fn open(host: &str) -> Breaker {
    let mut breaker = Breaker::new();
    (0..5).for_each(|_| fail(&mut breaker, host, ms(0)));
    assert_eq!(breaker.allow(host, ms(0)).unwrap_err(), ms(1000));
    breaker
}

fn probe(breaker: &mut Breaker, host: &str, now: Time) -> Pass {
    let pass = breaker.allow(host, now).unwrap();
    assert!(pass.is_probe());
    pass
}

#[test]
fn five_failures_in_a_row_open_one_host() {
    let mut breaker = Breaker::new();
    (0..4).for_each(|_| fail(&mut breaker, "a", ms(0)));
    let pass = breaker.allow("a", ms(0)).unwrap();
    breaker.succeeded("a", pass);
    assert!(breaker.hosts.is_empty(), "a healthy host is not remembered");
    (0..5).for_each(|_| fail(&mut breaker, "a", ms(10)));
    assert_eq!(breaker.allow("a", ms(10)).unwrap_err(), ms(1010));
    assert!(!breaker.allow("b", ms(10)).unwrap().is_probe(), "another host is another matter");
}

#[test]
fn it_opens_for_twice_as_long_each_time() {
    let mut breaker = open("a");
    let mut now = 1000;
    for seconds in [2, 4, 8, 16, 30, 30, 30] {
        let pass = probe(&mut breaker, "a", ms(now));
        breaker.failed("a", pass, ms(now));
        assert_eq!(breaker.allow("a", ms(now)).unwrap_err(), ms(now + seconds * 1000));
        now += seconds * 1000;
    }
    for n in 0..100 {
        now += 30_000;
        let pass = probe(&mut breaker, "a", ms(now));
        breaker.failed("a", pass, ms(now));
        assert_eq!(breaker.allow("a", ms(now)).unwrap_err(), ms(now + 30_000), "{n}");
    }
}

#[test]
fn half_open_admits_one_probe_and_a_success_closes() {
    let mut breaker = open("a");
    let pass = probe(&mut breaker, "a", ms(1000));
    let again = breaker.allow("a", ms(1500)).unwrap_err();
    assert!(again > ms(1500), "whoever asks again does not spin");
    breaker.succeeded("a", pass);
    assert!(!breaker.allow("a", ms(1500)).unwrap().is_probe());
    (0..5).for_each(|_| fail(&mut breaker, "a", ms(2000)));
    assert_eq!(breaker.allow("a", ms(2000)).unwrap_err(), ms(3000), "it starts again from one second");
}

#[test]
fn a_probe_that_goes_away_leaves_its_place() {
    let mut breaker = open("a");
    let pass = probe(&mut breaker, "a", ms(1000));
    breaker.dropped("a", pass);
    let pass = probe(&mut breaker, "a", ms(1000));
    assert!(breaker.allow("a", ms(1000)).is_err());
    breaker.succeeded("a", pass);
    let ordinary = breaker.allow("a", ms(1000)).unwrap();
    breaker.dropped("a", ordinary);
    assert!(breaker.hosts.is_empty());
}

/// Twenty connections are under way when five of them open the host. The others must not open it twenty times over, nor
/// end the probe that is not theirs.
#[test]
fn what_began_before_does_not_lengthen_the_wait() {
    let mut breaker = Breaker::new();
    let mut passes: Vec<Pass> = (0..20).map(|_| breaker.allow("a", ms(0)).unwrap()).collect();
    for pass in passes.drain(..15) {
        breaker.failed("a", pass, ms(0));
    }
    assert_eq!(breaker.allow("a", ms(0)).unwrap_err(), ms(1000));
    let first = probe(&mut breaker, "a", ms(1000));
    for pass in passes.drain(..4) {
        breaker.failed("a", pass, ms(1100));
    }
    assert!(breaker.allow("a", ms(5000)).is_err(), "the probe is still under way");
    for pass in passes {
        breaker.succeeded("a", pass);
    }
    (0..5).for_each(|_| fail(&mut breaker, "a", ms(2000)));
    assert!(breaker.allow("a", ms(60_000)).is_err(), "opened again, and the first probe is still under way");
    breaker.failed("a", first, ms(60_000));
    assert_eq!(breaker.allow("a", ms(60_000)).unwrap_err(), ms(62_000));
}

#[test]
fn memory_is_bounded() {
    let mut breaker = Breaker::new();
    for n in 0..MOST_HOSTS + 5_000 {
        fail(&mut breaker, &format!("h{n}"), ms(0));
    }
    assert_eq!(breaker.hosts.len(), MOST_HOSTS);
    for _ in 0..20 {
        fail(&mut breaker, "beyond", ms(500));
    }
    assert!(breaker.allow("beyond", ms(500)).is_ok(), "no room: not held back");
    for _ in 0..5 {
        fail(&mut breaker, "beyond", ms(61_000));
    }
    assert!(breaker.allow("beyond", ms(61_000)).is_err(), "those that have not failed for long made room");
    assert_eq!(breaker.hosts.len(), 1);
}

#[test]
fn a_probe_is_not_forgotten_for_room() {
    let mut breaker = open("a");
    let _pass = probe(&mut breaker, "a", ms(1000));
    for n in 0..MOST_HOSTS + 1 {
        fail(&mut breaker, &format!("h{n}"), ms(100_000));
    }
    assert!(breaker.allow("a", ms(200_000)).is_err());
}

#[test]
fn time_may_stand_still_go_back_or_end() {
    let mut breaker = open("a");
    assert_eq!(breaker.allow("a", Time::ZERO).unwrap_err(), ms(1000));
    let pass = probe(&mut breaker, "a", Time::MAX);
    breaker.failed("a", pass, Time::ZERO);
    let pass = probe(&mut breaker, "a", ms(0));
    breaker.failed("a", pass, Time::MAX);
    let pass = probe(&mut breaker, "a", Time::MAX);
    breaker.succeeded("a", pass);
    assert!(breaker.hosts.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn never_two_probes_and_a_success_closes(
        // The host, what to do, which pass to do it with, and the time, which jumps about.
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
                    Ok(pass) => passes.push(pass),
                    Err(until) => prop_assert!(until > now),
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
                        }
                        _ => {
                            let closed = breaker.succeeded(host, pass);
                            prop_assert_eq!(closed, std::mem::take(&mut open[index]), "what was opened is closed once");
                            let next = breaker.allow(host, now);
                            prop_assert!(matches!(&next, Ok(pass) if !pass.is_probe()), "a success closes");
                            passes.extend(next);
                        }
                    }
                }
            }
            prop_assert!(out[index].iter().filter(|pass| pass.is_probe()).count() <= 1);
            prop_assert!(breaker.hosts.len() <= 3);
        }
        // Whatever happened, once all have gone away the host can be reached again.
        for (host, passes) in ["a", "b", "c"].into_iter().zip(out) {
            passes.into_iter().for_each(|pass| breaker.dropped(host, pass));
            prop_assert!(breaker.allow(host, ms(200_000)).is_ok());
        }
    }
}
