use super::*;

#[test]
fn soonest_free_units_go_first() {
    let mut pool = Pool::default();
    pool.put(30, 2);
    pool.put(10, 1);
    pool.put(20, 3);
    assert_eq!(pool.take(3, 20), [(10, 1), (20, 2)]);
    assert_eq!(pool.take(9, 20), [(20, 1)]);
    assert_eq!(pool.total(), 2);
}

#[test]
fn full_pool_merges_towards_the_later_time() {
    let mut pool = Pool::default();
    for at in 0..200 {
        pool.put(1_000 + at * at, 1);
    }
    pool.compact(0);
    assert!(pool.0.len() <= COMPACTED && pool.total() == 200, "{pool:?}");
    for time in 0..50_000 {
        let before = (0..200u64).filter(|at| 1_000 + at * at <= time).count();
        assert!(pool.until(time) as usize <= before);
    }
}

#[test]
fn compaction_leaves_free_units_free() {
    let mut pool = Pool::default();
    for at in 0..200 {
        pool.put(at, 1);
    }
    pool.compact(100);
    assert_eq!(pool.until(100), 101);
    let before = pool.clone();
    pool.compact(100);
    assert_eq!(pool, before);
}

/// Units come one by one, of which some count for a window and others for any part of it.
#[test]
fn repeated_compaction_delays_no_unit_for_long() {
    for (window, seed) in [(60_000_000, 1), (3_600_000_000, 2), (86_400_000_000, 3), (90_000_000_000, 4)] {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut pool, mut put, mut now) = (Pool::default(), Vec::new(), random.u64(1..1 << 50));
        let mut taken = 0;
        for count in 0..6_000 {
            now += random.u64(0..window / 700);
            let counts = if random.bool() { window } else { random.u64(1..window) };
            pool.put(now + counts, 1);
            put.push(now + counts);
            pool.compact(now);
            assert!(pool.0.len() <= ENTRIES);
            taken += pool.take(u32::MAX, now).iter().map(|(_, units)| *units as usize).sum::<usize>();
            if count % 20 == 0 {
                let free_at = |time: u64| put.iter().filter(|at| **at <= time).count();
                let (least, most) = (free_at(now.saturating_sub(window / 20)), free_at(now));
                assert!((least..=most).contains(&taken), "{window}: {taken} of {least} to {most}");
            }
        }
    }
}

#[test]
fn close_times_share_an_entry() {
    let mut pool = Pool::default();
    for at in 10_000..11_000 {
        pool.put_within(at, 100, 1);
    }
    assert_eq!((pool.0.len(), pool.total()), (10, 1_000));
    for passed in 0..1_000u32 {
        let (early, late) = (pool.until(9_999 + u64::from(passed)), pool.until(10_100 + u64::from(passed)));
        assert!(early <= passed && late > passed, "{passed}: {early} {late}");
    }
}

#[test]
fn free_units_are_one_entry() {
    let mut pool = Pool::default();
    for at in 0..10 {
        pool.put(at, 1);
    }
    pool.compact(7);
    assert_eq!(pool.0, [(7, 8), (8, 1), (9, 1)]);
}
