use super::*;

fn limit(name: &str, remaining: u32) -> LimitStatus {
    LimitStatus {
        name: name.into(),
        scope: "tenant",
        endpoint: None,
        limit: 100,
        guard: 50,
        remaining,
        ends_in: None,
        full_in: None,
        resets_in: None,
        paused_for: None,
        discovered: false,
    }
}

fn lane(number: usize) -> Name {
    (format!("t{number}").into(), "v".into())
}

#[test]
fn lane_is_sampled_while_somebody_looks() {
    let mut recent = Recent::default();
    let limits = [limit("minute", 50), limit("hour", 25)];
    assert_eq!(recent.look(Time::ZERO, lane(1), &limits), vec![Vec::<u8>::new(); 2]);
    assert_eq!(recent.lanes(Time::ZERO), [lane(1)]);
    recent.sample(&lane(1), &limits);
    recent.sample(&lane(1), &[limit("minute", 10), limit("hour", 25)]);
    assert_eq!(recent.look(Time::ZERO, lane(1), &limits), [[100, 20], [50, 50]]);
    recent.sample(&lane(1), &limits[..1]);
    assert_eq!(recent.look(Time::ZERO, lane(1), &limits), [vec![100, 20, 100], vec![]], "a limit that went");
    let later = Time::ZERO + FORGOTTEN;
    assert!(recent.lanes(later).is_empty());
    recent.sample(&lane(1), &limits);
    assert_eq!(recent.look(later, lane(1), &limits[..1]), [Vec::<u8>::new()], "nobody looked for a minute");
}

#[test]
fn lanes_and_samples_are_bounded() {
    let mut recent = Recent::default();
    for number in 0..MAX_LANES + 10 {
        recent.look(Time::ZERO, lane(number), &[]);
    }
    assert_eq!(recent.lanes(Time::ZERO).len(), MAX_LANES);
    for _ in 0..KEPT + 5 {
        recent.sample(&lane(0), &[limit("minute", 5)]);
    }
    assert_eq!(recent.look(Time::ZERO, lane(0), &[limit("minute", 5)])[0].len(), KEPT);
}
