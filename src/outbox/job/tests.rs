use super::*;

fn attempt(took_ms: u64, phase: Phase) -> AttemptRecord {
    AttemptRecord::new(jiff::Timestamp::UNIX_EPOCH, phase, took_ms)
}

#[test]
fn only_an_attempt_of_this_claim_leaves_its_outcome_open() {
    let (earlier, open) = (attempt(1, Phase::MaybeSent), attempt(2, Phase::MaybeSent));
    let refused = attempt(2, Phase::Answered);
    for (before, last, expected) in [
        (None, None, Some(7)),
        (None, Some(&open), None),
        (None, Some(&refused), Some(7)),
        (Some(&earlier), Some(&earlier), Some(7)),
        (Some(&earlier), Some(&open), None),
        (Some(&earlier), Some(&refused), Some(7)),
        (Some(&refused), Some(&open), None),
    ] {
        assert_eq!(known(7, before, last), expected, "{before:?}, {last:?}");
        assert_eq!(known(0, before, last), None, "the claim started no exchange");
    }
}
