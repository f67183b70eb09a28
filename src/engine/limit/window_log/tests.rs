//! The log: what counts, and until when.

use super::*;

const SECOND: u64 = 1_000_000_000;

fn ms(n: u64) -> Time {
    Time::from_nanos(n * 1_000_000)
}

/// 10 per second, 2 of them held back for the high tier, 1.6 s in transit at most.
fn spec() -> LogSpec {
    LogSpec::new(10, 2, SECOND, 1_600_000_000)
}

fn free(log: &mut WindowLog, spec: &LogSpec, now: Time, units: u32, high: bool) -> Free {
    log.advance(spec, now);
    log.free(spec, units, high)
}

#[test]
fn an_answered_request_counts_for_one_window_after_its_answer() {
    let spec = spec();
    let mut log = WindowLog::new(&spec);
    log.take(&spec, ms(5000), 10, true);
    log.advance(&spec, ms(5300));
    log.end(&spec, ms(5300), ms(5000), 10, true);
    let freed = Time::from_nanos(ms(5300).as_nanos() + spec.window);
    assert!(freed > ms(6300));
    assert_eq!(free(&mut log, &spec, ms(6300), 1, true), Free::At(freed));
    assert_eq!(free(&mut log, &spec, freed.minus_nanos(1), 1, true), Free::At(freed));
    assert_eq!(free(&mut log, &spec, freed, 10, true), Free::Now);
    assert!(log.is_empty());
}

#[test]
fn a_lost_request_counts_for_one_window_after_its_transit_time() {
    let spec = spec();
    let mut log = WindowLog::new(&spec);
    log.take(&spec, ms(5000), 10, true);
    let Free::OnSettle(latest) = free(&mut log, &spec, ms(5000), 1, true) else { panic!() };
    assert!(latest >= ms(5000 + 1600 + 1000) && latest <= ms(5000 + 1600 + 100 + 1002));
    assert_eq!(free(&mut log, &spec, ms(7000), 1, true), Free::At(latest));
    log.end(&spec, ms(7000), ms(5000), 10, true);
    assert_eq!(free(&mut log, &spec, latest.minus_nanos(1), 1, true), Free::At(latest), "too late to count");
    assert_eq!(free(&mut log, &spec, latest, 10, true), Free::Now);
}

#[test]
fn lower_tiers_leave_the_reserve_unless_it_is_used() {
    let spec = spec();
    let mut log = WindowLog::new(&spec);
    log.take(&spec, ms(0), 8, false);
    assert_ne!(log.free(&spec, 1, false), Free::Now);
    assert!(log.only_reserve_lacks(&spec, 1));
    assert_eq!(log.free(&spec, 2, true), Free::Now);
    let mut log = WindowLog::new(&spec);
    log.take(&spec, ms(0), 2, true);
    assert_eq!(log.free(&spec, 8, false), Free::Now, "the reserve is used up: the rest is for everybody");
}

#[test]
fn what_never_left_counts_nowhere() {
    let spec = spec();
    let mut log = WindowLog::new(&spec);
    log.take(&spec, ms(0), 10, false);
    log.give_back(ms(0), 10, false);
    assert!(log.is_empty());
    assert_eq!(log.free(&spec, 8, false), Free::Now);
}

#[test]
fn a_late_start_moves_the_transit_time() {
    let spec = spec();
    let mut log = WindowLog::new(&spec);
    log.take(&spec, ms(0), 10, true);
    log.restart(&spec, ms(100), ms(0), 10, true);
    let Free::OnSettle(latest) = log.free(&spec, 1, true) else { panic!() };
    assert!(latest >= ms(100 + 1600 + 1000));
}

#[test]
fn a_start_after_the_transit_time_counts_again() {
    let spec = LogSpec::new(10, 0, SECOND, 20_000_000);
    let mut log = WindowLog::new(&spec);
    log.take(&spec, ms(0), 1, true);
    log.advance(&spec, ms(90));
    log.restart(&spec, ms(90), ms(0), 1, true);
    assert_eq!(log.units(), 2);
    log.end(&spec, ms(95), ms(90), 1, true);
    log.advance(&spec, ms(1_090));
    assert_eq!(log.units(), 1, "the second count lasts one window after the answer");
}

#[test]
fn what_is_in_a_window_that_ends_goes_with_it() {
    let spec = spec().fixed();
    let mut log = WindowLog::new(&spec);
    log.take(&spec, ms(5000), 6, true);
    log.end(&spec, ms(5100), ms(5000), 6, true);
    log.take(&spec, ms(5200), 4, true);
    // Between 5.6 and 5.61 s; what ends after the first counts in the next window as well.
    log.ends(&spec, ms(5200), ms(5600), ms(5610));
    assert_eq!(free(&mut log, &spec, ms(5200), 6, true), Free::At(ms(5610)));
    log.end(&spec, ms(5605), ms(5200), 4, true);
    assert_eq!(free(&mut log, &spec, ms(5609), 1, true), Free::At(ms(5610)));
    assert_eq!(free(&mut log, &spec, ms(5610), 6, true), Free::Now);
    let gone = Time::from_nanos(ms(5605).as_nanos() + spec.window);
    assert_eq!(free(&mut log, &spec, ms(5610), 7, true), Free::At(gone));
}

#[test]
fn of_two_ends_that_contradict_each_other_the_later_holds() {
    let spec = spec().fixed();
    let mut log = WindowLog::new(&spec);
    log.take(&spec, ms(5000), 10, true);
    log.end(&spec, ms(5000), ms(5000), 10, true);
    log.ends(&spec, ms(5000), ms(5600), ms(5610));
    log.ends(&spec, ms(5000), ms(5605), ms(5620));
    assert_eq!(free(&mut log, &spec, ms(5000), 1, true), Free::At(ms(5610)), "what both say");
    log.ends(&spec, ms(5000), ms(5800), ms(5810));
    assert_eq!(free(&mut log, &spec, ms(5000), 1, true), Free::At(ms(5810)));
    log.ends(&spec, ms(5000), ms(4000), ms(4900));
    log.ends(&spec, ms(5000), ms(90_000), ms(90_100));
    assert_eq!(free(&mut log, &spec, ms(5000), 1, true), Free::At(ms(5810)), "past, and too far away");
}

#[test]
fn what_every_decision_touches_is_a_cache_line() {
    assert_eq!(size_of::<WindowLog>(), 64);
}

#[test]
fn a_large_limit_is_merged_into_slots_and_stays_on_the_safe_side() {
    let spec = LogSpec::new(100_000, 0, SECOND, 0);
    let mut log = WindowLog::new(&spec);
    for n in 0..100_000 {
        let now = Time::from_nanos(n * 10_000);
        log.advance(&spec, now);
        log.take(&spec, now, 1, false);
        log.end(&spec, now, now, 1, false);
    }
    let slots = log.before.as_ref().map_or(0, |before| before.ended.len());
    assert!(slots <= 512, "{slots}");
    log.advance(&spec, Time::from_nanos(spec.window));
    assert!(log.units() > 100_000 - 200 && log.units() <= 100_000);
}
