use super::*;

/// The number and the sum of the waits until a job is given up, and the longest of them.
fn waits(is_alone: bool) -> (u32, Duration, Duration) {
    let (mut unfit, mut random) = (Unfit::default(), fastrand::Rng::with_seed(1));
    let (mut count, mut sum, mut longest) = (0, Duration::ZERO, Duration::ZERO);
    while let Some(wait) = unfit.wait(is_alone, &mut random) {
        assert!(wait >= SHORTEST, "{wait:?}");
        (count, sum, longest) = (count + 1, sum + wait, longest.max(wait));
    }
    (count, sum, longest)
}

#[test]
fn unfit_job_waits_minutes_or_days() {
    let (count, sum, _) = waits(true);
    assert!(count <= 20 && sum >= MISSING && sum < MISSING + 2 * SHORTEST + SHORTEST, "{count}, {sum:?}");
    let (count, sum, longest) = waits(false);
    assert!(count < 600 && sum >= OUTAGE && sum < OUTAGE + 2 * LONGEST, "{count}, {sum:?}");
    assert!(longest >= LONGEST && longest < LONGEST + Duration::from_secs(6), "{longest:?}");
}

#[test]
fn ten_minutes_begin_anew_after_other_processes() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut unfit = Unfit { waited_ms: 3_600_000, alone_ms: 590_000 };
    assert!(unfit.wait(false, &mut random).is_some());
    assert_eq!(unfit.alone_ms, 0);
    assert!(unfit.wait(true, &mut random).is_some() && unfit.alone_ms > 0);
}
