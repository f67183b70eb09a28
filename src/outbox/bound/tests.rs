use super::*;

/// Writes with a bound while a transaction of more than `fit` items does not end in time. Returns the failures.
fn failures(bound: &mut Bound, now: &mut Time, fit: usize, writes: u32) -> u32 {
    let mut failures = 0;
    for _ in 0..writes {
        let items = bound.most().min(1_024);
        match items > fit {
            true => {
                *now = *now + Duration::from_secs(12);
                bound.failed(items, *now);
                failures += 1;
            }
            false => {
                *now = *now + Duration::from_secs(6) * items as u32 / fit as u32;
                bound.written(items, *now);
            }
        }
    }
    failures
}

#[test]
fn bound_finds_what_fits_and_stays() {
    for fit in [1, 3, 50, 700] {
        let (mut bound, mut now) = (Bound::default(), Time::ZERO);
        let first = failures(&mut bound, &mut now, fit, 20);
        assert!((1..=11).contains(&first) && bound.most() <= fit, "{fit}: {first} failures, {bound:?}");
        let began = now;
        let later = failures(&mut bound, &mut now, fit, 1_000);
        let minutes = now.since(began).as_secs() / 60;
        assert!(
            u64::from(later) <= minutes / 10 + 1,
            "{fit}: {later} failures in {minutes} minutes: a number that is known to be too large is tried again"
        );
    }
}

#[test]
fn bound_grows_back_after_an_outage() {
    let (mut bound, mut now) = (Bound::default(), Time::ZERO);
    (0..20).for_each(|_| bound.failed(bound.most().min(512), now));
    assert_eq!(bound.most(), 1);
    // However few they are, writes take two seconds, because each waits for others.
    for _ in 0..1_000 {
        now = now + Duration::from_secs(2);
        bound.written(bound.most().min(512), now);
    }
    assert!(bound.most() >= 512, "{bound:?}");
}

#[test]
fn second_outage_makes_no_number_too_large() {
    let (mut bound, now) = (Bound::default(), Time::ZERO);
    bound.failed(512, now);
    bound.written(256, now);
    (0..3).for_each(|_| bound.failed(bound.most().min(512), now));
    assert_eq!(bound.most(), 64);
    (0..4).for_each(|_| bound.written(bound.most().min(512), now));
    assert_eq!(bound.most(), 1_024);
    bound.written(1_023, now);
    assert_eq!(bound.most(), 1_024, "it was not reached");
}

#[test]
fn failure_of_few_items_bounds_nothing() {
    let mut bound = Bound::default();
    for items in [1, 2, FEW] {
        bound.failed(items, Time::ZERO);
        bound.written(items, Time::ZERO);
    }
    assert_eq!(bound.most(), usize::MAX);
    (0..2).for_each(|_| bound.failed(FEW, Time::ZERO));
    assert_eq!(bound.most(), FEW / 2, "they fail again and again");
}
