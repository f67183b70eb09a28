//! What is written of pauses, and when, and which lanes are looked at.

use std::sync::Arc;

use super::*;
use crate::clock::Clock;
use crate::dispatch::{LaneRef, Shard};
use crate::engine::keys::LaneKey;
use crate::engine::{Bound, Engine};

#[cfg(feature = "testing")]
mod moved;

/// All requests, in a row.
const ALL: &str = "*";
const SECOND: Duration = Duration::from_secs(1);

fn holder() -> Holder {
    Holder { vendor: "v".into(), environment: "live".into(), scope: "tenant", name: "a".into() }
}

fn limit(name: &str) -> Paused {
    Paused { limit: name.into(), limit_of: ALL.into(), endpoint: ALL.into() }
}

/// Compares with the limits that are paused now, writes the differences, and returns how many seconds each begun and
/// each shortened pause lasts.
fn write(pauses: &mut Pauses, standing: &[(&str, Time)], now: Time) -> (Vec<u64>, Vec<u64>) {
    let changes = compare(pauses, standing, now);
    let seconds = |pause: &Begun| pause.until.since(now).as_secs();
    let begun = changes.begun.iter().map(seconds).collect();
    let shortened = changes.shortened.iter().map(|shortened| seconds(&shortened.pause)).collect();
    pauses.are_written(changes, now);
    (begun, shortened)
}

fn compare(pauses: &Pauses, standing: &[(&str, Time)], now: Time) -> Changes {
    let standing = standing.iter().map(|(name, until)| ((holder(), limit(name)), *until)).collect();
    differences(pauses.rows.clone(), standing, now)
}

#[test]
fn pause_is_written_once_and_when_longer() {
    let (mut pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
    let (none, until) = (Vec::new(), now + 60 * SECOND);
    assert_eq!(write(&mut pauses, &[("a", until), ("brief", now + LEAST)], now), (vec![61], none.clone()));
    // Another refusal, which came a little later, states the same wait.
    let later = until + Duration::from_millis(300);
    assert_eq!(write(&mut pauses, &[("a", later)], now + SECOND), (none.clone(), none.clone()));
    assert_eq!(write(&mut pauses, &[("a", until + 30 * SECOND)], now + 2 * SECOND), (vec![89], none.clone()));
    // It has passed, and the row with it.
    assert_eq!(write(&mut pauses, &[], now + 100 * SECOND), (none.clone(), none));
}

#[test]
fn early_end_is_written() {
    let (mut pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
    write(&mut pauses, &[("a", now + 60 * SECOND), ("b", now + 90 * SECOND)], now);
    let (begun, shortened) = write(&mut pauses, &[("b", now + 30 * SECOND)], now + SECOND);
    assert_eq!((begun, shortened), (Vec::new(), vec![0, 30]));
    assert_eq!(write(&mut pauses, &[("b", now + 30 * SECOND)], now + 2 * SECOND), (Vec::new(), Vec::new()));
}

#[test]
fn failed_write_is_found_again() {
    let (mut pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
    let standing = [("a", now + 60 * SECOND)];
    // This one is not written.
    assert!(!compare(&pauses, &standing, now).is_empty());
    assert_eq!(write(&mut pauses, &standing, now + SECOND), (vec![60], Vec::new()));
    // Nor is the early end.
    assert!(!compare(&pauses, &[], now + 2 * SECOND).is_empty());
    assert_eq!(write(&mut pauses, &[], now + 3 * SECOND), (Vec::new(), vec![0]));
    assert!(compare(&pauses, &[], now + 4 * SECOND).is_empty());
}

#[test]
fn standing_pause_is_written_each_minute() {
    let (mut pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
    let standing = [("a", now + 600 * SECOND)];
    assert_eq!(write(&mut pauses, &standing, now), (vec![601], Vec::new()));
    assert_eq!(write(&mut pauses, &standing, now + 59 * SECOND), (Vec::new(), Vec::new()));
    // Another process may have ended the row, which belongs to both.
    assert_eq!(write(&mut pauses, &standing, now + 60 * SECOND), (vec![541], Vec::new()));
}

#[test]
fn row_that_ends_too_late_is_shortened() {
    let (mut pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
    let (year, month) = (365 * 86_400 * SECOND, 31 * 86_400 * SECOND);
    pauses.is_read(&holder(), &limit("a"), now + year, now);
    assert_eq!(write(&mut pauses, &[("a", now + month)], now), (Vec::new(), vec![31 * 86_400 + 1]));
}

#[test]
fn restored_pause_is_not_written_again() {
    let (mut pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
    let until = now + 60 * SECOND;
    pauses.is_read(&holder(), &limit("a"), until, now);
    assert!(pauses.is_known(&holder(), &limit("a"), until) && !pauses.is_known(&holder(), &limit("b"), until));
    assert_eq!(write(&mut pauses, &[("a", until)], now), (Vec::new(), Vec::new()));
    // An operator ends it.
    assert_eq!(write(&mut pauses, &[], now + SECOND), (Vec::new(), vec![0]));
}

/// The pause ends when the row does, which was written later than the vendor said.
#[test]
fn restored_pause_is_written_no_longer() {
    let (mut pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
    let until = now + 600 * SECOND;
    pauses.is_read(&holder(), &limit("a"), until, now);
    assert_eq!(write(&mut pauses, &[("a", until)], now + 60 * SECOND), (vec![540], Vec::new()));
}

/// A holder is remembered as resumed while lanes wait to be read, and then for a minute.
#[test]
fn resumed_holder_is_forgotten_later() {
    let (mut pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
    let knows = |pauses: &mut Pauses, after: u32| {
        pauses.take(now + after * SECOND, true);
        pauses.resumed.contains_key(&holder())
    };
    pauses.lanes_wait(true, now);
    pauses.resume([holder()], now);
    assert!(knows(&mut pauses, 600));
    pauses.lanes_wait(false, now + 600 * SECOND);
    assert!(!knows(&mut pauses, 601));
    pauses.resume([holder()], now + 700 * SECOND);
    assert!(knows(&mut pauses, 759) && !knows(&mut pauses, 760));
}

#[test]
fn new_pause_of_resumed_holder_counts() {
    let (mut pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
    pauses.resume([holder()], now);
    write(&mut pauses, &[], now + SECOND);
    assert!(pauses.resumed.contains_key(&holder()));
    write(&mut pauses, &[("a", now + 60 * SECOND)], now + 2 * SECOND);
    assert!(!pauses.resumed.contains_key(&holder()));
}

/// A lane of the vendor `v` and of the account `one`.
fn lane(tenant: &str) -> Looked {
    let shard = Shard::new(Engine::new(Bound::new(1), Default::default()), Clock::system(), Arc::default());
    let of = |scope, name: &str| Holder { scope, name: name.into(), ..holder() };
    Looked {
        lane: (tenant.into(), "v".into()),
        holders: Arc::new([of("tenant", tenant), of("account", "one"), of("vendor", "")]),
        place: LaneRef { shard: Arc::new(shard), lane: LaneKey::NONE },
    }
}

fn names(lanes: &[Looked]) -> Vec<&str> {
    let mut names: Vec<&str> = lanes.iter().map(|looked| &*looked.lane.0).collect();
    names.sort_unstable();
    names
}

/// The pause of a holder of the lane for a minute from `now` on.
fn minute(looked: &Looked, place: usize, now: Time) -> Seen {
    Seen::Pauses(vec![((looked.holders[place].clone(), limit("a")), now + 60 * SECOND)])
}

#[test]
fn lane_is_looked_at_while_it_shows_rows() {
    let (mut pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
    for tenant in ["a", "b", "c"] {
        pauses.list(lane(tenant), Why::Told);
    }
    assert_eq!(names(&pauses.take(now, false)), ["a", "b", "c"]);
    let seen = ["a", "b"].map(|tenant| (minute(&lane(tenant), 1, now), lane(tenant)));
    let lanes = seen.into_iter().chain([(Seen::Pauses(Vec::new()), lane("c"))]).collect();
    let changes = pauses.compare(Rows::new(), lanes, now);
    assert_eq!(changes.begun.len(), 1, "it is one pause");
    pauses.are_written(changes, now);
    assert!(pauses.take(now + SECOND, false).is_empty(), "no notice came");
    assert_eq!(pauses.lanes.len(), 2, "one shows nothing");
    assert_eq!(pauses.take(now + 10 * SECOND, false).len(), 1, "one lane shows the account's pause");
    assert!(pauses.take(now + 70 * SECOND, false).is_empty(), "the row is over");
    assert!(pauses.lanes.is_empty());
}

#[test]
fn failed_lane_is_looked_at_with_all_others() {
    let (mut pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
    pauses.list(lane("a"), Why::Told);
    assert_eq!(names(&pauses.take(now, false)), ["a"]);
    pauses.list(lane("a"), Why::Failed);
    assert!(pauses.take(now + SECOND, false).is_empty());
    // A notice brings it forward.
    pauses.list(lane("a"), Why::Told);
    pauses.list(lane("a"), Why::Failed);
    assert_eq!(names(&pauses.take(now + 2 * SECOND, false)), ["a"]);
    let changes = pauses.compare(Rows::new(), vec![(Seen::Earlier, lane("a"))], now);
    assert!(changes.is_empty());
    assert_eq!(names(&pauses.take(now + 12 * SECOND, false)), ["a"]);
}

#[test]
fn notice_waits_for_no_comparison() {
    let (pauses, told, now) = (Mutex::<Pauses>::default(), Told::default(), Time::ZERO + 1_000 * SECOND);
    told.add(lane("a"));
    assert_eq!(names(&take_lanes(&pauses, &told, now, false)), ["a"]);
    let mut compares = pauses.lock();
    told.add(lane("a"));
    told.add(lane("b"));
    compares.compare(Rows::new(), vec![(Seen::Pauses(Vec::new()), lane("a"))], now);
    drop(compares);
    assert_eq!(names(&take_lanes(&pauses, &told, now, false)), ["a", "b"], "the notice is of a later pause");
    assert!(take_lanes(&pauses, &told, now, false).is_empty());
}

#[test]
fn lane_that_is_gone_ends_no_row() {
    let (mut pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
    let look = |pauses: &mut Pauses, seen: Seen, after: u32| {
        pauses.list(lane("a"), Why::Told);
        let lanes = pauses.take(now, true);
        let rows = pauses.rows_of(&lanes);
        let changes = pauses.compare(rows, vec![(seen, lane("a"))], now + after * SECOND);
        let count = (changes.begun.len(), changes.shortened.len());
        pauses.are_written(changes, now + after * SECOND);
        count
    };
    assert_eq!(look(&mut pauses, minute(&lane("a"), 0, now), 0), (1, 0));
    assert_eq!(look(&mut pauses, Seen::Gone, 1), (0, 0));
    assert_eq!(pauses.lanes.len(), 1, "its tenant may come back");
    assert_eq!(look(&mut pauses, Seen::Pauses(Vec::new()), 2), (0, 1));
    assert_eq!(look(&mut Pauses::default(), Seen::Gone, 3), (0, 0));
}

/// An operator has ended the first one before it was read.
#[test]
fn pause_is_restored_unless_an_operator_ended_it() {
    for is_resumed in [true, false] {
        let (mut pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
        if is_resumed {
            pauses.resume([holder()], now);
        }
        let told = pauses.restore(lane("a"), (&holder(), &limit("a"), now + 60 * SECOND), now, || Some(()));
        assert_eq!(told.is_none(), is_resumed);
        assert_eq!(pauses.take(now + SECOND, true).len(), 1, "it shows the row");
        let (begun, shortened) = write(&mut pauses, &[], now + SECOND);
        assert_eq!((begun, shortened), (Vec::new(), vec![0]), "a row without a pause is ended");
    }
}
