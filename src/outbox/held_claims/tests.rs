use super::*;

const JOB: Id = Id::from_u128(1);

#[test]
fn early_outcome_is_held_until_it_is_written() {
    let mut held = HeldClaims::default();
    assert!(held.add(JOB, 10));
    held.has_outcome(JOB, 10);
    // The handler returns while the store is down, and the store comes back without the claim.
    assert!(!held.ends_with_task(JOB, 10));
    assert!(held.contains(&JOB) && !held.add(JOB, 20), "the second claim may not send");
    assert_eq!(held.remove(JOB, 10), Some(20), "the second claim goes back");
    assert!(!held.contains(&JOB) && held.add(JOB, 30));
}

#[test]
fn written_early_outcome_holds_no_redriven_job() {
    let mut held = HeldClaims::default();
    assert!(held.add(JOB, 10));
    held.has_outcome(JOB, 10);
    assert_eq!(held.remove(JOB, 10), None);
    assert!(held.add(JOB, 20), "the handler of the first claim still runs");
    // It returns, and the second claim is held as before.
    assert!(!held.ends_with_task(JOB, 10) && held.ends_with_task(JOB, 20));
    assert!(!held.add(JOB, 30));
    assert_eq!(held.remove(JOB, 20), Some(30));
    assert_eq!(held.ids().count(), 0);
}

#[test]
fn outcome_that_is_handed_on_is_held() {
    let mut held = HeldClaims::default();
    assert!(held.add(JOB, 10));
    assert_eq!(held.hand_on(JOB, 10), None, "there is no later claim");
    assert!(!held.add(JOB, 20) && !held.add(JOB, 30));
    assert_eq!(held.hand_on(JOB, 10), Some(30));
    assert_eq!(held.remove(JOB, 10), None);
    assert!(!held.add(JOB, 40), "the outcome of the claim 30 is not written yet");
    assert_eq!(held.remove(JOB, 30), Some(40));
}
