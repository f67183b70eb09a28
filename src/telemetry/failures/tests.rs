use super::*;

#[test]
fn failure_log_is_rate_limited() {
    let mut lines = Lines::default();
    let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
    let said = (0..1_000).filter(|step| lines.allow(at(5_000 + step / 2)).is_some()).count();
    assert_eq!(said, 10);
    assert_eq!(lines.allow(at(6_000)), Some(990));
    assert_eq!(lines.allow(at(6_001)), Some(0));
    // If the clock goes back nevertheless, the limit of the latest second still applies.
    assert!((0..20).filter(|_| lines.allow(at(5_500)).is_some()).count() <= 10);
}

#[test]
fn failures_are_counted_even_unlogged() {
    let failures = Failures::new();
    let said = |kind: ErrorKind| {
        failures.count(kind);
        failures.line(Time::ZERO)
    };
    assert_eq!((0..100).filter(|_| said(ErrorKind::QueueFull).is_some()).count(), 10);
    assert_eq!(said(ErrorKind::RetryLater), None);
    assert_eq!(failures.by_kind(), BTreeMap::from([("queue_full", 100), ("retry_later", 1)]));
}
