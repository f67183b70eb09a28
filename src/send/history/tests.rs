use super::*;
use crate::clock::{Moment, Time};

#[test]
fn moment_of_doubt_stays_over_claims() {
    let wall = std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let at = Moment { at: Time::from_nanos(3_600_000_000_000), wall };
    let clock = StoreTime { at, ms: 2_000_000 };
    let since = Since::new(clock.age(1_400_000), at);
    assert_eq!(since.age(at.after(Duration::from_micros(5_000_700))), Duration::from_micros(605_000_700));
    assert_eq!(clock.of(since), 1_400_000);
    assert_eq!(clock.of(Since::new(Duration::ZERO, at.after(Duration::from_secs(5)))), 2_005_000);
    let later_wall = Moment { wall: wall + Duration::from_secs(3_600), ..at };
    let why = "suspended, or a wall clock that was set forward: the doubt must not look younger to the next claim";
    assert_eq!(clock.of(Since::new(Duration::ZERO, later_wall)), 2_000_000, "{why}");
    assert_eq!(clock.age(3_000_000), Duration::ZERO, "the store's clock went back");
}

#[test]
fn time_without_worker_is_no_failure() {
    let at = |second| Timestamp::from_second(1_700_000_000 + second).unwrap();
    let failing = |due: Option<i64>, now| failing_for(at(0), due.map(at), at(now)).as_secs();
    assert_eq!(failing(None, 100), 100);
    assert_eq!(failing(Some(90), 95), 90);
    // The process was stopped for eight hours, 90 seconds after the first failure.
    assert_eq!(failing(Some(90), 8 * 3600), 90);
    // The job is tried early, or the clock was set back.
    assert_eq!(failing(Some(90), 80), 80);
    assert_eq!(failing(Some(90), -50), 0);
}
