use super::*;
use crate::clock::Time;

#[test]
fn job_that_did_not_wait_is_blocked_by_known_waits_alone() {
    let at_once = [Refusal::TooLate { earliest: Time::ZERO }, Refusal::RetryLater { at: Time::ZERO }];
    for refusal in &at_once {
        assert!(blocks(refusal, || Outlook::Closed));
        assert!(!blocks(refusal, || Outlook::Unknown), "it would be claimed again at once");
        assert!(!blocks(refusal, || Outlook::Open));
    }
    assert!(blocks(&Refusal::Deadline, || Outlook::Closed) && blocks(&Refusal::Deadline, || Outlook::Unknown));
    assert!(!blocks(&Refusal::Deadline, || Outlook::Open) && !blocks(&Refusal::Retired, || Outlook::Closed));
}
