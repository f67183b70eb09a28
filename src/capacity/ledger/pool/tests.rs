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
    assert_eq!((pool.0.len(), pool.total()), (ENTRIES, 200));
    for time in 0..50_000 {
        let before = (0..200u64).filter(|at| 1_000 + at * at <= time).count();
        assert!(pool.until(time) as usize <= before);
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
