use super::*;

#[test]
fn headroom_stays_while_requests_wait() {
    let mut rolling = Rolling::default();
    assert_eq!(rolling.headroom(None, false, 0), None);
    assert_eq!(rolling.headroom(Some(50), false, 10), Some(0.05));
    // The limit is used up. Every minute a request comes and is turned away.
    for second in 0..1_000 {
        assert_eq!(rolling.headroom(None, false, 10 + second / 60), Some(0.05), "{second}");
    }
    for second in 0..1_000 {
        assert_eq!(rolling.headroom(None, true, 26), Some(0.05), "{second}");
    }
    // Nobody wants anything any more.
    for second in 1..HEADROOM_SECONDS {
        assert_eq!(rolling.headroom(None, false, 26), Some(0.05), "{second}");
    }
    assert_eq!(rolling.headroom(None, false, 26), Some(1.0));
    assert_eq!(rolling.headroom(Some(500), false, 27), Some(0.5));
}
