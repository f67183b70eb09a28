//! What is written of pauses, and when.

use super::*;

#[cfg(feature = "testing")]
mod moved;

const SECOND: Duration = Duration::from_secs(1);

fn holder() -> Holder {
    Holder { vendor: "v".into(), environment: "live".into(), scope: "tenant", name: "a".into() }
}

fn limit(name: &str) -> Paused {
    Paused { limit: name.into(), limit_of: ALL.into(), endpoint: ALL.into() }
}

/// Compares with the limits that are paused now, writes the differences, and returns how many seconds each begun and
/// each shortened pause lasts.
fn write(pauses: &Pauses, standing: &[(&str, Time)], now: Time) -> (Vec<u64>, Vec<u64>) {
    let changes = compare(pauses, standing, now);
    let (begun, shortened) = changes.rows();
    pauses.are_written(changes, now);
    let seconds = |pause: &Begun| pause.until.since(now).as_secs();
    (begun.iter().map(seconds).collect(), shortened.iter().map(|shortened| seconds(&shortened.pause)).collect())
}

fn compare(pauses: &Pauses, standing: &[(&str, Time)], now: Time) -> Changes {
    let written = BTreeMap::from([(holder(), pauses.rows_of(&[holder()]).remove(0))]);
    let standing = standing.iter().map(|(name, until)| ((holder(), limit(name)), *until)).collect();
    differences(&written, standing, now)
}

#[test]
fn pause_is_written_once_and_when_longer() {
    let (pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
    let (none, until) = (Vec::new(), now + 60 * SECOND);
    assert_eq!(write(&pauses, &[("a", until), ("brief", now + LEAST)], now), (vec![61], none.clone()));
    // Another refusal, which came a little later, states the same wait.
    let later = until + Duration::from_millis(300);
    assert_eq!(write(&pauses, &[("a", later)], now + SECOND), (none.clone(), none.clone()));
    assert_eq!(write(&pauses, &[("a", until + 30 * SECOND)], now + 2 * SECOND), (vec![89], none.clone()));
    // It has passed, and the row with it.
    assert_eq!(write(&pauses, &[], now + 100 * SECOND), (none.clone(), none));
}

#[test]
fn early_end_is_written() {
    let (pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
    write(&pauses, &[("a", now + 60 * SECOND), ("b", now + 90 * SECOND)], now);
    let (begun, shortened) = write(&pauses, &[("b", now + 30 * SECOND)], now + SECOND);
    assert_eq!((begun, shortened), (Vec::new(), vec![0, 30]));
    assert_eq!(write(&pauses, &[("b", now + 30 * SECOND)], now + 2 * SECOND), (Vec::new(), Vec::new()));
}

#[test]
fn failed_write_is_found_again() {
    let (pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
    let standing = [("a", now + 60 * SECOND)];
    // This one is not written.
    assert!(!compare(&pauses, &standing, now).is_empty());
    assert_eq!(write(&pauses, &standing, now + SECOND), (vec![60], Vec::new()));
    // Nor is the early end.
    assert!(!compare(&pauses, &[], now + 2 * SECOND).is_empty());
    assert_eq!(write(&pauses, &[], now + 3 * SECOND), (Vec::new(), vec![0]));
    assert!(compare(&pauses, &[], now + 4 * SECOND).is_empty());
}

#[test]
fn standing_pause_is_written_each_minute() {
    let (pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
    let standing = [("a", now + 600 * SECOND)];
    assert_eq!(write(&pauses, &standing, now), (vec![601], Vec::new()));
    assert_eq!(write(&pauses, &standing, now + 59 * SECOND), (Vec::new(), Vec::new()));
    // Another process may have ended the row, which belongs to both.
    assert_eq!(write(&pauses, &standing, now + 60 * SECOND), (vec![541], Vec::new()));
}

#[test]
fn row_that_ends_too_late_is_shortened() {
    let (pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
    let (year, month) = (365 * 86_400 * SECOND, 31 * 86_400 * SECOND);
    pauses.is_restored((&holder(), &limit("a"), now + year), None, now);
    assert_eq!(write(&pauses, &[("a", now + month)], now), (Vec::new(), vec![31 * 86_400 + 1]));
}

#[test]
fn restored_pause_is_not_written_again() {
    let (pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
    let until = now + 60 * SECOND;
    pauses.is_restored((&holder(), &limit("a"), until), None, now);
    assert!(pauses.is_known(&holder(), &limit("a"), until) && !pauses.is_known(&holder(), &limit("b"), until));
    assert_eq!(write(&pauses, &[("a", until)], now), (Vec::new(), Vec::new()));
    // An operator ends it.
    assert_eq!(write(&pauses, &[], now + SECOND), (Vec::new(), vec![0]));
}

/// The pause ends when the row does, which was written later than the vendor said.
#[test]
fn restored_pause_is_written_no_longer() {
    let (pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
    let until = now + 600 * SECOND;
    pauses.is_restored((&holder(), &limit("a"), until), None, now);
    assert_eq!(write(&pauses, &[("a", until)], now + 60 * SECOND), (vec![540], Vec::new()));
}

/// A holder is remembered as resumed while lanes wait to be read, and then for a minute.
#[test]
fn resumed_holder_is_forgotten_later() {
    let (pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
    let knows = |after: u32| {
        pauses.take(now + after * SECOND, true);
        pauses.resumed().contains(&holder())
    };
    pauses.lanes_wait(true, now);
    pauses.resumed().add(holder(), now);
    assert!(knows(600));
    pauses.lanes_wait(false, now + 600 * SECOND);
    assert!(!knows(601));
    pauses.resumed().add(holder(), now + 700 * SECOND);
    assert!(knows(759) && !knows(760));
}

#[test]
fn new_pause_of_resumed_holder_counts() {
    let (pauses, now) = (Pauses::default(), Time::ZERO + 1_000 * SECOND);
    pauses.resumed().add(holder(), now);
    write(&pauses, &[], now + SECOND);
    assert!(pauses.resumed().contains(&holder()));
    write(&pauses, &[("a", now + 60 * SECOND)], now + 2 * SECOND);
    assert!(!pauses.resumed().contains(&holder()));
}

#[test]
fn rows_name_endpoints_and_all_requests() {
    let until = Time::ZERO + SECOND;
    for (limit, endpoint) in [
        (None, None),
        (Some(("day".into(), None)), Some("search".into())),
        (Some(("day".into(), Some("search".into()))), None),
        (Some(("day".into(), Some("".into()))), Some("".into())),
    ] {
        let pause = StatedPause { who: Waits::Account, limit, endpoint, until };
        assert_eq!(stated(Waits::Account, &paused(&pause), until), pause);
    }
}
