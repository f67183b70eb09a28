use super::*;

fn at(seconds: u64) -> Time {
    Time::from_nanos((3_600 + seconds) * 1_000_000_000)
}

fn tenants() -> [Arc<str>; 2] {
    ["a".into(), "b".into()]
}

#[test]
fn little_headroom_causes_advice_once_an_hour() {
    let [a, b] = tenants();
    let mut headroom = RecentHeadroom::default();
    let mut advised = Vec::new();
    for second in 0..8_000 {
        advised.extend(headroom.seen(at(second), &b, (90, 100)).map(|advice| (second, advice)));
        advised.extend(headroom.seen(at(second), &a, (15, 100)).map(|advice| (second, advice)));
    }
    let advice = Advice { average_pct: 15, tenant: a };
    assert_eq!(advised, [30, 3_630, 7_230].map(|second| (second, advice.clone())));
}

#[test]
fn enough_headroom_causes_no_advice() {
    let [a, _] = tenants();
    let mut headroom = RecentHeadroom::default();
    for second in 0..1_000 {
        // A fifth of the seconds have nothing left.
        let left = if second % 5 == 0 { 0 } else { 30 };
        assert_eq!(headroom.seen(at(second), &a, (left, 100)), None, "{second}");
    }
}

#[test]
fn seconds_are_forgotten_after_five_minutes() {
    let [a, _] = tenants();
    let mut headroom = RecentHeadroom::default();
    for second in 0..29 {
        assert_eq!(headroom.seen(at(second), &a, (0, 100)), None);
    }
    // Twenty-nine seconds a day are too few, however many days.
    for second in 86_400..86_429 {
        assert_eq!(headroom.seen(at(second), &a, (0, 100)), None);
    }
    assert_eq!(headroom.past.len(), 28);
    // A limit of no units is not divided by.
    assert_eq!(headroom.seen(at(86_428), &a, (5, 0)), None);
}
