use super::*;

fn at(millis: u64) -> Time {
    Time::from_nanos(3_600_000_000_000 + millis * 1_000_000)
}

#[test]
fn steady_rate_is_known_within_seconds() {
    let mut meter = Meter::default();
    assert_eq!(meter.flow(at(0)), Flow::default());
    for n in 0..6_000 {
        meter.answered(at(n * 20), Duration::from_millis(30));
        let flow = meter.flow(at(n * 20));
        if n >= 100 {
            assert!((48.0..=52.0).contains(&flow.per_second), "{n}: {flow:?}");
        }
        assert!(flow.per_second <= 52.0, "{n}: {flow:?}");
        assert!((0.0299..=0.0301).contains(&flow.mean.unwrap().as_secs_f64()), "{flow:?}");
    }
}

#[test]
fn old_rate_fades_and_new_rate_shows() {
    let mut meter = Meter::default();
    (0..1_000).for_each(|n| meter.answered(at(n * 10), Duration::from_millis(10)));
    let before = meter.flow(at(9_990)).per_second;
    let after = meter.flow(at(39_990)).per_second;
    assert!(after < before / 15.0, "{before} {after}");
    (4_000..8_000).for_each(|n| meter.answered(at(n * 10), Duration::from_millis(200)));
    let mean = meter.flow(at(80_000)).mean.unwrap();
    assert!((0.19..=0.2).contains(&mean.as_secs_f64()), "{mean:?}");
    // A day later the rate has faded to nothing, and no figure is absurd.
    let late = meter.flow(at(86_400_000));
    assert!(late.per_second < 1e-9 && late.mean.is_some(), "{late:?}");
}

#[test]
fn vendors_are_told_apart() {
    let meters = Meters::default();
    let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
    (0..10).for_each(|n| meters.answered(&a, at(n * 100), Duration::from_millis(5)));
    meters.answered(&b, at(0), Duration::from_secs(1));
    assert!(meters.flow("a", at(1_000)).per_second > 5.0);
    assert_eq!(meters.flow("b", at(1_000)).mean, Some(Duration::from_secs(1)));
    assert_eq!(meters.flow("c", at(1_000)), Flow::default());
}
