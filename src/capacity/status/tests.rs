use super::*;

#[test]
fn failing_limit_is_shown_and_logged_each_minute() {
    let at = |second: u64| Time::from_nanos(second * 1_000_000_000);
    let mut known = Known::default();
    known.saw("v", All::default(), 0, at(0));
    let logged = [2, 30, 61, 62].map(|second| known.missed("v", "the disk fails", at(second)));
    assert_eq!(logged, [true, false, false, true]);
    known.forget(at(63));
    assert_eq!(known.limits(at(63))[0].problem.as_deref(), Some("the disk fails"));
    known.saw("v", All::default(), 0, at(64));
    assert_eq!(known.limits(at(64))[0].problem, None);
}
