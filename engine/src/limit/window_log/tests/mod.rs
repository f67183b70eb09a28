//! The log: what counts, and until when.

mod model;

use std::time::Duration;

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
    log.free(spec, now, units, high)
}

#[test]
fn answered_request_counts_one_window_after_answer() {
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
fn lost_request_counts_one_window_after_transit() {
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
fn lower_tiers_leave_the_unused_reserve() {
    let spec = spec();
    let mut log = WindowLog::new(&spec);
    log.take(&spec, ms(0), 8, false);
    assert_ne!(log.free(&spec, ms(0), 1, false), Free::Now);
    assert!(log.only_reserve_lacks(&spec, 1));
    assert_eq!(log.free(&spec, ms(0), 2, true), Free::Now);
    let mut log = WindowLog::new(&spec);
    log.take(&spec, ms(0), 2, true);
    assert_eq!(log.free(&spec, ms(0), 8, false), Free::Now, "the reserve is used up: the rest is for everybody");
}

#[test]
fn returned_grant_counts_nowhere() {
    let spec = spec();
    let mut log = WindowLog::new(&spec);
    log.take(&spec, ms(0), 10, false);
    log.give_back(ms(0), 10, false);
    assert!(log.is_empty());
    assert_eq!(log.free(&spec, ms(0), 8, false), Free::Now);
}

#[test]
fn late_start_moves_the_transit_time() {
    let spec = spec();
    let mut log = WindowLog::new(&spec);
    log.take(&spec, ms(0), 10, true);
    log.restart(&spec, ms(100), ms(0), 10, true);
    let Free::OnSettle(latest) = log.free(&spec, ms(0), 1, true) else { panic!() };
    assert!(latest >= ms(100 + 1600 + 1000));
}

#[test]
fn start_after_transit_counts_again() {
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
fn fixed_window_end_frees_its_units() {
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
fn change_to_a_sliding_window_forgets_the_stated_end() {
    let sliding = LogSpec::new(100, 0, 60 * SECOND, 1_600_000_000);
    let fixed = sliding.fixed();
    let mut log = WindowLog::new(&fixed);
    log.take(&fixed, ms(5_000), 80, true);
    log.end(&fixed, ms(5_000), ms(5_000), 80, true);
    log.ends(&fixed, ms(5_000), ms(35_000), ms(39_000));
    log.change(&fixed, &sliding, ms(6_000));
    let gone = Time::from_nanos(ms(5_000).as_nanos() + sliding.window);
    assert_eq!(free(&mut log, &sliding, ms(40_000), 80, true), Free::At(gone));
    assert_eq!(free(&mut log, &sliding, gone, 80, true), Free::Now);
}

#[test]
fn later_of_contradicting_ends_holds() {
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
fn passing_end_is_not_merged_with_the_next() {
    let spec = spec().fixed();
    let mut log = WindowLog::new(&spec);
    log.take(&spec, ms(5000), 10, true);
    log.end(&spec, ms(5000), ms(5000), 10, true);
    log.ends(&spec, ms(5000), ms(5600), ms(5610));
    log.ends(&spec, ms(5605), ms(6600), ms(6610));
    assert_eq!(free(&mut log, &spec, ms(5605), 1, true), Free::At(ms(5610)));
    log.ends(&spec, ms(5605), ms(5620), ms(5630));
    assert_eq!(free(&mut log, &spec, ms(5605), 1, true), Free::At(ms(5630)), "the same end, a little later");
}

#[test]
fn vaguely_known_end_is_ignored() {
    let spec = spec().fixed();
    let mut log = WindowLog::new(&spec);
    log.take(&spec, ms(5000), 10, true);
    log.end(&spec, ms(5000), ms(5000), 10, true);
    // Two ends, a window apart, of which each is known to a whole window: together they would be one end between them.
    log.ends(&spec, ms(5000), ms(5100), ms(6100));
    log.ends(&spec, ms(5000), ms(6000), ms(7000));
    let gone = Time::from_nanos(ms(5000).as_nanos() + spec.window);
    assert_eq!(free(&mut log, &spec, ms(5000), 1, true), Free::At(gone));
}

#[test]
fn end_lies_at_most_two_windows_ahead() {
    let spec = spec().fixed();
    let farthest = ms(5000).plus_nanos(2 * spec.window);
    for (from, to, edge) in [
        (ms(5600), ms(5600), true),
        (ms(5601), ms(5600), false),
        (ms(5000), ms(5000), false),
        (farthest, farthest, true),
        (farthest, farthest.plus_nanos(1), false),
    ] {
        let mut log = WindowLog::new(&spec);
        log.ends(&spec, ms(5000), from, to);
        assert_eq!(log.before.is_some_and(|before| before.edge.is_some()), edge, "{from:?} {to:?}");
    }
}

#[test]
fn units_received_after_a_withdrawal_are_freed_in_order() {
    let spec = spec();
    let mut log = WindowLog::new(&spec);
    for (at, units) in [(5000, 2), (5400, 2), (5600, 2)] {
        log.replay(&spec, ms(5600), ms(at), units, false);
    }
    let withdrawn: Vec<u32> = log.withdraw(&spec, ms(5700), ms(5500), 2).iter().map(|(_, units)| *units).collect();
    assert_eq!(withdrawn, [2], "the newest entry");
    for (at, units) in [(5200, 3), (5300, 3)] {
        log.replay(&spec, ms(5700), ms(at), units, false);
    }
    let freed_after = |at| Time::from_nanos(ms(at).as_nanos() + spec.window);
    for (at, left) in [(5000, 8), (5200, 5), (5300, 2), (5400, 0)] {
        log.advance(&spec, freed_after(at));
        assert_eq!(log.units(), left, "one window after {at} ms");
    }
}

#[test]
fn window_log_fits_one_cache_line() {
    assert_eq!(size_of::<WindowLog>(), 64);
}

#[test]
fn merged_slots_are_few_and_safe() {
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

#[test]
fn window_is_longer_than_the_vendors() {
    let spec = |limit| LogSpec::new(limit, 2_000, SECOND, 0);
    assert_eq!(spec(10).window, SECOND + SECOND / 10_000 + 1_000_000);
    assert_eq!((spec(10).reserve, spec(5_000).reserve), (10, 2_000));
    assert_eq!([1_000, 1_001].map(|limit| (spec(limit).slot_bits, spec(limit).wide_bits)), [(0, 0), (21, 25)]);
    assert_eq!(LogSpec::new(2_000, 0, 100, 0).slot_bits, 0);
}

/// Units of a large limit one by one: the log counts each as long as a log without slots would, and a slot longer at
/// most.
#[test]
fn merged_units_count_one_slot_longer() {
    for (per_step, slot_bits, entries) in [(1, 25, 32), (10, 21, 512)] {
        let spec = LogSpec::new(10_000, 0, SECOND, 0);
        let mut log = WindowLog::new(&spec);
        let inside = |now: u64, window: u64| (now / 1_000_000 + 1).min(window.div_ceil(1_000_000)) as u32 * per_step;
        for step in 0..2_500 {
            let now = ms(5_000 + step);
            log.advance(&spec, now);
            log.take(&spec, now, per_step, step % 2 > 0);
            log.end(&spec, now, now, per_step, step % 2 > 0);
            // At first it was far from its limit.
            let slot = 1 << if step < 1_300 { 25 } else { slot_bits };
            let (least, most) = (inside(step * 1_000_000, spec.window), inside(step * 1_000_000, spec.window + slot));
            assert!((least..=most).contains(&log.units()), "{step}: {} of {least} to {most}", log.units());
            assert!(log.high.abs_diff(log.units() / 2) <= per_step * 40, "{step}");
            let kept = log.before.as_ref().map_or(0, |before| before.ended.len());
            assert!(kept <= entries, "{kept}");
        }
    }
}

#[test]
fn unread_log_takes_no_more_memory() {
    let spec = LogSpec::new(1_000, 0, SECOND, 1_600_000);
    let mut log = WindowLog::new(&spec);
    for n in 0..10_000 {
        // Ten inside at a time, which always fit.
        let now = ms(n * 100);
        assert!(log.has_room(&spec, now, 1, true));
        log.take(&spec, now, 1, true);
        log.end(&spec, now, now, 1, true);
    }
    let ended = &log.before.as_ref().unwrap().ended;
    assert!(ended.capacity() <= 32, "{ended:?}");
    // When there is no room for one more, all that is past goes, the newest too.
    let room = ended.capacity() - ended.len();
    for n in 0..room as u64 + 2 {
        let now = ms(2_000_000 + n / (room as u64 + 1) * 100_000 + n);
        log.take(&spec, now, 1, true);
        log.end(&spec, now, now, 1, true);
    }
    assert!(log.before.unwrap().ended.iter().all(|entry| entry.units > 0));
}

#[test]
fn changed_transit_time_applies_to_pending_units() {
    let (old, new) = (spec(), LogSpec::new(10, 2, SECOND, 16_000_000));
    let mut log = WindowLog::new(&old);
    log.take(&old, ms(5_000), 10, true);
    log.change(&old, &new, ms(5_000));
    let lost = Time::from_nanos(ms(5_116).as_nanos() + new.window);
    assert_eq!(free(&mut log, &new, ms(5_200), 1, true), Free::At(lost));
}

#[test]
fn shorter_transit_time_leaves_ends_in_order() {
    let (old, new) = (spec(), LogSpec::new(10, 2, SECOND, 16_000_000));
    let mut log = WindowLog::new(&old);
    log.take(&old, ms(5_000), 4, true);
    log.take(&old, ms(5_100), 4, true);
    log.end(&old, ms(5_300), ms(5_100), 4, true);
    // By the new transit time, the first request was lost before the second one ended.
    log.change(&old, &new, ms(5_400));
    log.take(&new, ms(5_400), 2, true);
    log.end(&new, ms(5_410), ms(5_400), 2, true);
    for now in 5_410..6_500 {
        for units in 1..=10 {
            let free = free(&mut log, &new, ms(now), units, true);
            assert!(!matches!(free, Free::At(at) if at <= ms(now)), "{units} at {now} ms: {free:?}");
        }
    }
    assert!(log.is_empty());
}

#[test]
fn small_use_counts_in_a_changed_share() {
    let (old, new) = (LogSpec::new(100, 20, SECOND, 1_600_000_000), LogSpec::new(20, 4, SECOND, 1_600_000_000));
    let mut log = WindowLog::new(&old);
    log.take(&old, ms(5_000), 15, false);
    log.end(&old, ms(5_010), ms(5_000), 15, false);
    assert!(log.before.is_none(), "at most a quarter of the share: nothing is counted for it");
    log.change(&old, &new, ms(5_100));
    let back = Time::from_nanos(ms(5_010).as_nanos() + new.window);
    let waits = [1, 2].map(|units| free(&mut log, &new, ms(5_100), units, false));
    assert_eq!(waits, [Free::Now, Free::At(back)], "sixteen of twenty are for the lower tiers");
}

#[test]
fn lower_tiers_keep_share_with_long_slots() {
    // A slot of what is under way is longer than half of a window.
    let spec = LogSpec::new(100, 20, SECOND, 11 * SECOND);
    let mut log = WindowLog::new(&spec);
    let mut granted: Vec<Time> = Vec::new();
    let mut grant = |log: &mut WindowLog, at: Time, most: usize| {
        for _ in 0..most {
            if !log.has_room(&spec, at, 1, false) {
                return;
            }
            log.take(&spec, at, 1, false);
            granted.push(at);
        }
    };
    grant(&mut log, ms(5_000), 1);
    grant(&mut log, ms(5_680), 79);
    (1..999).for_each(|after| grant(&mut log, ms(5_680 + after), 5));
    for first in &granted {
        let within = granted.iter().filter(|at| *first <= **at && at.since(*first) < Duration::from_secs(1)).count();
        assert!(within <= 80, "{within} from {first:?} on");
    }
}

#[test]
fn sequential_requests_allocate_no_entries() {
    for limit in [10, 5_000] {
        let spec = LogSpec::new(limit, 0, SECOND, 160_000_000);
        let mut log = WindowLog::new(&spec);
        for n in 1..10 {
            let now = ms(n * 2_000);
            log.advance(&spec, now);
            assert_eq!((log.is_empty(), log.lost_due), (true, u64::MAX));
            log.take(&spec, now, 1, true);
            assert_eq!(log.lost_due, now.as_nanos() + log.width + spec.transit);
            if n % 2 > 0 {
                log.end(&spec, now, now, 1, true);
            }
        }
        assert!(log.before.is_none());
    }
}
