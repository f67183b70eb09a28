use super::*;

const T0: Time = Time::ZERO;

fn of_lane(lane: u64, n: u64) -> Fingerprint {
    Fingerprint { lane, request: digest(&[&lane.to_le_bytes(), &n.to_le_bytes()]) }
}

fn number(n: u64) -> Fingerprint {
    of_lane(0, n)
}

#[test]
fn repetition_is_recognised_for_ten_minutes() {
    let mut repeats = Repeats::default();
    repeats.remember(T0, number(1), "first");
    assert_eq!(repeats.find(T0 + (KEPT - Duration::from_nanos(1)), &number(1)), Some("first"));
    assert_eq!(repeats.find(T0, &number(2)), None);
    repeats.remember(T0 + Duration::from_secs(300), number(1), "again");
    assert_eq!(repeats.find(T0 + KEPT, &number(1)), Some("again"), "ten minutes from the last time");
    assert_eq!(repeats.find(T0 + Duration::from_secs(900), &number(1)), None);
    assert_eq!((repeats.kept.len(), repeats.order.len()), (0, 0));
    assert_eq!((repeats.lanes.len(), repeats.ranks.len()), (0, 0));
}

#[test]
fn request_remembered_anew_is_not_forgotten() {
    let mut repeats = Repeats::default();
    repeats.remember(T0, number(1), "first");
    repeats.remember(T0, number(1), "again");
    repeats.forget_if(&number(1), |kept| *kept == "first");
    repeats.forget_if(&number(2), |_| true);
    assert_eq!(repeats.find(T0, &number(1)), Some("again"));
    repeats.forget_if(&number(1), |kept| *kept == "again");
    assert_eq!(repeats.find(T0, &number(1)), None);
    assert!(repeats.is_empty() && repeats.order.is_empty() && repeats.lanes.is_empty() && repeats.ranks.is_empty());
}

#[test]
fn memory_is_bounded_and_the_oldest_goes() {
    let mut repeats = Repeats::default();
    for n in 0..MOST as u64 + 10 {
        repeats.remember(T0 + Duration::from_millis(n), number(n), n);
    }
    assert_eq!((repeats.kept.len(), repeats.order.len()), (MOST, MOST));
    let now = T0 + Duration::from_secs(60);
    assert_eq!((repeats.find(now, &number(9)), repeats.find(now, &number(10))), (None, Some(10)));
    for _ in 0..2 * MOST {
        repeats.remember(now, number(10), 0);
    }
    assert!(repeats.order.len() <= MOST, "one request that is repeated for ever fills nothing");
}

#[test]
fn full_lane_forgets_its_own_requests() {
    let mut repeats = Repeats::default();
    assert!(!repeats.remember(T0, of_lane(1, 0), 0));
    let most = MOST as u64;
    let at = |n: u64| T0 + Duration::from_millis(n);
    let warnings: Vec<u64> = (1..=3 * most).filter(|n| repeats.remember(at(*n), of_lane(2, *n), *n)).collect();
    assert_eq!(warnings, [most], "the first that was forgotten before its time, and no other");
    assert_eq!(repeats.find(at(3 * most), &of_lane(1, 0)), Some(0));
    assert_eq!((repeats.kept.len(), repeats.order.len(), repeats.ranks.len()), (MOST, MOST, 2));
    let first = 2 * most + 2;
    assert_eq!(repeats.find(at(3 * most), &of_lane(2, first - 1)), None);
    assert_eq!(repeats.find(at(3 * most), &of_lane(2, first)), Some(first));
    // A lane that comes later grows until it has as many as the other.
    for n in 0..most {
        repeats.remember(at(3 * most), of_lane(3, n), n);
    }
    let mut counts: Vec<usize> = repeats.lanes.values().map(BTreeSet::len).collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, MOST / 2 - 1, MOST / 2]);
}

#[test]
fn oldest_of_equal_lanes_is_forgotten() {
    let mut repeats = Repeats::default();
    for lane in 0..=MOST as u64 {
        repeats.remember(T0 + Duration::from_millis(lane), of_lane(lane, 0), lane);
    }
    let now = T0 + Duration::from_secs(60);
    assert_eq!((repeats.find(now, &of_lane(0, 0)), repeats.find(now, &of_lane(1, 0))), (None, Some(1)));
}

#[test]
fn clock_that_goes_back_forgets_nothing_early() {
    let mut repeats = Repeats::default();
    repeats.remember(T0 + KEPT, number(1), ());
    assert_eq!(repeats.find(T0, &number(1)), Some(()));
}

#[test]
fn fingerprints_keep_parts_apart() {
    assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
    assert_ne!(digest(&[b"a", b""]), digest(&[b"a"]));
    assert_eq!(digest(&[b"a", b"b"]), digest(&[b"a", b"b"]));
}
