use Outlook::{Closed, Open, Unknown};

use super::*;

#[test]
fn lane_without_room_is_claimed_of_once_in_a_while() {
    let lane = LaneTier { tenant: "acme".to_owned(), vendor: "v".to_owned(), tier: 1 };
    let at = |ms: u64| Time::ZERO + Duration::from_millis(ms);
    let mut blocked = BlockedLanes::default();
    assert_eq!(blocked.room(&lane, at(0), || Closed), None, "no claimed job was refused");
    blocked.refused(lane.clone(), at(0));
    assert_eq!(blocked.room(&lane, at(0), || Closed), Some(0));
    assert_eq!(blocked.room(&lane, at(14_999), || Closed), Some(0));
    assert_eq!(blocked.room(&lane, at(15_000), || Closed), Some(1), "one job asks again");
    assert_eq!(blocked.room(&lane, at(15_000), || Closed), Some(0), "and no second one at once");
    blocked.refused(lane.clone(), at(15_100));
    assert_eq!(blocked.room(&lane, at(30_000), || Closed), Some(0));
    assert_eq!(blocked.room(&lane, at(30_000), || Open), None, "the limits allow more");
    assert_eq!(blocked.room(&lane, at(30_000), || Closed), None);
}

#[test]
fn one_job_waits_where_only_a_request_finds_out() {
    let lane = LaneTier { tenant: "acme".to_owned(), vendor: "v".to_owned(), tier: 1 };
    let at = |ms: u64| Time::ZERO + Duration::from_millis(ms);
    let mut blocked = BlockedLanes::default();
    assert_eq!(blocked.room(&lane, at(0), || Unknown), None, "no claimed job was refused");
    blocked.refused(lane.clone(), at(0));
    for ms in [0, 1, 60_000] {
        assert_eq!(blocked.room(&lane, at(ms), || Unknown), Some(1));
    }
    assert_eq!(blocked.room(&lane, at(60_000), || Open), None, "the store has given units");
    assert_eq!(blocked.room(&lane, at(60_000), || Unknown), None);
}

#[test]
fn lane_without_jobs_is_forgotten() {
    let lane = LaneTier { tenant: "acme".to_owned(), vendor: "v".to_owned(), tier: 1 };
    let mut blocked = BlockedLanes::default();
    blocked.refused(lane.clone(), Time::ZERO);
    blocked.forget(Time::ZERO + PROBE + FORGET);
    assert_eq!(blocked.room(&lane, Time::ZERO, || Closed), None);
    assert!(blocked.refused.is_empty());
}
