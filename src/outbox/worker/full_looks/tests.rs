use super::*;

fn at(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

/// Thousands of jobs become due in each quarter of a second for ten minutes. A look at all lanes takes 100 ms for
/// 10,000 lanes, and 9 s for a million.
#[test]
fn bursts_cause_full_looks_for_a_tenth_of_the_time() {
    const STEP: u64 = 10;
    for took in [10, 100, 9_000] {
        let (mut looks, mut chore) = (FullLooks::default(), (Time::ZERO, false));
        let (mut began, mut asked, mut served) = (None, None, None);
        let (mut busy, mut longest) = (0, Duration::ZERO);
        for now in (0..600_000 / STEP).map(|step| at(step * STEP)) {
            if let Some(since) = began.take_if(|since| now.since(*since) >= Duration::from_millis(took)) {
                chore = (now + looks.end(since, now, true), false);
                longest = longest.max(served.take().map_or(Duration::ZERO, |asked| now.since(asked)));
            }
            if now.as_nanos().is_multiple_of(250_000_000) {
                looks.ask(looks.soonest(), &mut chore);
                asked.get_or_insert(now);
            }
            if began.is_none() && chore.0 <= now {
                (chore.1, began, served) = (true, Some(now), asked.take());
            }
            busy += if began.is_some() { STEP } else { 0 };
        }
        assert!(busy <= 60_000 + took, "looks of {took} ms took {busy} ms");
        assert!(longest <= Duration::from_millis(12 * took + 300), "{took} ms: found after {longest:?}");
    }
}

#[test]
fn full_look_that_was_under_way_is_made_again() {
    let (mut looks, mut chore) = (FullLooks::default(), (Time::ZERO, true));
    looks.ask(Time::ZERO, &mut chore);
    assert_eq!(chore, (Time::ZERO, true));
    assert_eq!(looks.end(at(0), at(100), true), Duration::from_secs(1), "it may have passed the lanes that are meant");
    assert_eq!(looks.soonest(), at(1_100));
    assert_eq!(looks.end(at(1_100), at(1_200), true), FULL);
    let mut chore = (at(6_200), false);
    looks.ask(looks.soonest(), &mut chore);
    assert_eq!(chore, (at(2_200), false));
    looks.ask(at(3_000), &mut chore);
    assert_eq!(chore, (at(2_200), false), "an earlier time stays");
}
