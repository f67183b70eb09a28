use super::*;

#[test]
fn look_follows_a_clock_stepped_back() {
    const DAY: i64 = 86_400_000;
    let now = 20_000 * DAY;
    assert_eq!(seen_until(0, Chore::LookAtAll, now), now);
    assert_eq!(seen_until(now, Chore::Look, now + 250), now + 250);
    // A look that began earlier, and one that was not made.
    assert_eq!(seen_until(now, Chore::Look, now - OVERLAP_MS), now);
    assert_eq!(seen_until(now, Chore::LookAtAll, now - 60_000), now);
    assert_eq!(seen_until(now, Chore::Look, 0), now);
    // The clock was a day ahead for a while.
    assert_eq!(seen_until(now + DAY, Chore::Look, now + 500), now + 500);
}
