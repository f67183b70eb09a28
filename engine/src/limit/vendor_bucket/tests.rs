//! The mirror of a bucket: what is there, and when.

use super::*;

const SECOND: u64 = 1_000_000_000;

fn ms(n: u64) -> Time {
    Time::from_nanos(3_600 * SECOND + n * 1_000_000)
}

/// 10, which come back at 10 a second, 2 of them held back for the high tier, 100 ms in transit at most.
fn spec() -> VendorBucketSpec {
    VendorBucketSpec::new(10, 2, 10.0, SECOND, SECOND / 10)
}

#[test]
fn pending_units_do_not_refill() {
    let spec = spec();
    let mut mirror = VendorBucket::new(&spec);
    mirror.take(&spec, ms(0), 10, true);
    mirror.advance(&spec, ms(90));
    assert!(matches!(mirror.free(&spec, ms(90), 1, true), Free::OnSettle(_)));
    mirror.end(&spec, ms(90), ms(0), 10, true);
    let Free::At(free) = mirror.free(&spec, ms(90), 1, true) else { panic!() };
    // One unit at 0.999 of the rate, and a tick.
    assert!(free > ms(191) && free < ms(192), "{free:?}");
    assert!(!mirror.has_room(&spec, free.minus_nanos(1), 1, true));
    assert!(mirror.has_room(&spec, free, 1, true));
}

#[test]
fn lost_units_return_after_transit() {
    let spec = spec();
    let mut mirror = VendorBucket::new(&spec);
    mirror.take(&spec, ms(0), 10, true);
    let Free::OnSettle(latest) = mirror.free(&spec, ms(0), 1, true) else { panic!() };
    assert!(mirror.has_room(&spec, latest, 10, true));
    assert!(!mirror.has_room(&spec, ms(150), 1, true));
    assert!(mirror.has_room(&spec, ms(250), 1, true));
}

#[test]
fn lower_tiers_leave_the_unused_reserve() {
    let spec = spec();
    let mut mirror = VendorBucket::new(&spec);
    for _ in 0..8 {
        assert!(mirror.has_room(&spec, ms(0), 1, false));
        mirror.take(&spec, ms(0), 1, false);
        mirror.end(&spec, ms(0), ms(0), 1, false);
    }
    assert!(!mirror.has_room(&spec, ms(0), 1, false));
    assert!(mirror.only_reserve_lacks(&spec, ms(0), 2));
    let mut mirror = VendorBucket::new(&spec);
    mirror.take(&spec, ms(0), 2, true);
    mirror.end(&spec, ms(0), ms(0), 2, true);
    assert!(mirror.has_room(&spec, ms(0), 8, false), "the reserve is used up: the rest is for everybody");
    mirror.take(&spec, ms(0), 8, false);
    mirror.end(&spec, ms(0), ms(0), 8, false);
    // It comes back at a fifth of the rate, so that a lane of high alone leaves lower tiers their share.
    let Free::At(free) = mirror.free(&spec, ms(0), 1, false) else { panic!() };
    assert!(free > ms(125) && free < ms(128), "{free:?}");
    assert!(!mirror.has_room(&spec, free.minus_nanos(1_100_000), 1, false));
    assert!(mirror.has_room(&spec, free, 1, false), "{free:?}");
}

#[test]
fn returned_units_refill_and_owed_units_drain() {
    let spec = spec();
    let mut mirror = VendorBucket::new(&spec);
    mirror.take(&spec, ms(0), 10, true);
    mirror.give_back(&spec, ms(10), ms(0), 10, true);
    assert!(mirror.has_room(&spec, ms(10), 10, true));
    assert!(mirror.is_empty(ms(2_000)) && !mirror.is_empty(ms(10)));
    mirror.owe(&spec, ms(10), 4);
    assert!(mirror.has_room(&spec, ms(10), 6, true) && !mirror.has_room(&spec, ms(10), 7, true));
    assert_eq!(mirror.units(&spec, ms(10)), 4);
}

#[test]
fn changed_bucket_keeps_missing_units() {
    let (old, new) = (spec(), VendorBucketSpec::new(20, 0, 10.0, SECOND, SECOND / 10));
    let mut mirror = VendorBucket::new(&old);
    mirror.take(&old, ms(0), 8, false);
    mirror.end(&old, ms(0), ms(0), 8, false);
    mirror.change(&old, &new, ms(0));
    assert!(mirror.has_room(&new, ms(0), 12, false) && !mirror.has_room(&new, ms(0), 13, false));
}

/// Units are missing, are under way, or the reserve is.
#[test]
fn mirror_is_empty_when_nothing_is_missing() {
    let spec = spec();
    for (high, under_way, rests) in [(false, false, 102), (true, false, 501), (false, true, 208)] {
        let mut mirror = VendorBucket::new(&spec);
        assert!(mirror.is_empty(ms(0)));
        mirror.take(&spec, ms(0), 1, high);
        if !under_way {
            mirror.end(&spec, ms(0), ms(0), 1, high);
        }
        let is_empty = |at: &u64| {
            mirror.advance(&spec, ms(*at));
            mirror.is_empty(ms(*at))
        };
        assert_eq!((0..600).find(is_empty), Some(rests), "high: {high}, under way: {under_way}");
    }
}

#[test]
fn pending_units_bound_the_wait() {
    let spec = spec();
    let mut mirror = VendorBucket::new(&spec);
    mirror.take(&spec, ms(0), 10, true);
    let Free::OnSettle(latest) = mirror.free(&spec, ms(0), 1, true) else { panic!() };
    // Its slot and its transit time, a second at 0.999 of the rate, and a tick.
    assert_eq!(latest.since(ms(0)).as_millis(), 6 + 100 + 1_001 + 1);
}

/// Of 10 that come back at 10 a second, so many are held back for the high tier: when the low one may have one again.
#[test]
fn promised_moment_is_the_earliest() {
    let mut random = fastrand::Rng::with_seed(5);
    let mut promises = 0;
    for reserve in [0, 1, 3, 5, 9, 10] {
        let spec = VendorBucketSpec::new(10, reserve, 10.0, SECOND, SECOND / 10);
        let mut mirror = VendorBucket::new(&spec);
        let mut now = ms(0);
        for _ in 0..300 {
            let high = random.bool();
            let units = random.u32(1..4).min(if high { 10 } else { 10 - reserve });
            if units == 0 {
                continue;
            }
            match mirror.free(&spec, now, units, high) {
                Free::Now => {
                    mirror.take(&spec, now, units, high);
                    mirror.end(&spec, now, now, units, high);
                }
                Free::At(at) => {
                    promises += 1;
                    assert!(at > now && mirror.clone().has_room(&spec, at, units, high), "{reserve} {at:?} {mirror:?}");
                    let before = at.minus_nanos(1_100_000).max(now);
                    assert!(!mirror.clone().has_room(&spec, before, units, high), "{reserve} {at:?} {mirror:?}");
                    now = at;
                }
                other => panic!("{other:?}"),
            }
            now = now.plus_nanos(random.u64(0..100_000_000) * random.u64(0..2));
        }
    }
    assert!(promises > 300, "{promises}");
}

#[test]
fn slower_rate_refills_missing_units_later() {
    let (old, new) = (spec(), VendorBucketSpec::new(10, 2, 5.0, SECOND, SECOND / 10));
    let mut mirror = VendorBucket::new(&old);
    mirror.take(&old, ms(0), 8, true);
    mirror.end(&old, ms(0), ms(0), 8, true);
    mirror.change(&old, &new, ms(400));
    assert_eq!(mirror.units(&new, ms(400)), 5, "four have come back, but for a thousandth");
    let Free::At(free) = mirror.free(&new, ms(400), 10, true) else { panic!() };
    assert!(free > ms(1_400) && free < ms(1_403), "{free:?}");
}

#[test]
fn units_count_missing_and_pending() {
    let spec = spec();
    let mut mirror = VendorBucket::new(&spec);
    mirror.take(&spec, ms(0), 4, false);
    mirror.take(&spec, ms(0), 2, true);
    mirror.end(&spec, ms(0), ms(0), 4, false);
    // Six are missing at first; two of them cannot come back before they have arrived.
    for (at, units) in [(0, 6), (10, 6), (99, 6), (102, 5), (105, 5)] {
        mirror.advance(&spec, ms(at));
        assert_eq!(mirror.units(&spec, ms(at)), units, "{at}");
    }
    assert!(mirror.only_reserve_lacks(&spec, ms(105), 4) && !mirror.only_reserve_lacks(&spec, ms(105), 6));
}

/// Six units were lost, four of which the vendor had not taken, so its bucket was full by 307 ms. Four others went later:
/// the vendor has as little as these four leave.
#[test]
fn refund_is_at_most_what_was_lacking() {
    let spec = spec();
    for used_at in [550, 700, 720] {
        let mut mirror = VendorBucket::new(&spec);
        mirror.take(&spec, ms(0), 6, true);
        mirror.advance(&spec, ms(used_at));
        mirror.take(&spec, ms(used_at), 4, true);
        mirror.end(&spec, ms(used_at), ms(used_at), 4, true);
        mirror.refund(&spec, ms(used_at + 1), ms(0), 4, true);
        assert_eq!(mirror.units(&spec, ms(used_at + 1)), 4, "{used_at}");
    }
}

/// Two requests are lost one after the other, and of both the vendor has taken one unit: the guard has what it would have
/// had they taken one unit each.
#[test]
fn late_refunds_equal_exact_costs() {
    let spec = spec();
    for at in [250, 400] {
        let mirror = [3, 1].map(|units| {
            let mut mirror = VendorBucket::new(&spec);
            mirror.take(&spec, ms(0), units, true);
            mirror.take(&spec, ms(50), units, true);
            mirror.advance(&spec, ms(at));
            if units > 1 {
                mirror.refund(&spec, ms(at), ms(0), 2, true);
                mirror.refund(&spec, ms(at), ms(50), 2, true);
            }
            mirror
        });
        let [refunded, exact] = mirror.map(|mirror| mirror.full_at.max(ticks(ms(at).as_nanos())));
        assert_eq!(refunded, exact, "{at}");
    }
}
