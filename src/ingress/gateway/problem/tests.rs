use super::*;
use crate::error::{Error, ErrorKind};

#[test]
fn outcomes_of_problems_are_true() {
    let of = |kind, delivery| Problem::of(&Error::new(kind, delivery, "why"), false);
    for (problem, outcome) in [
        (Problem::refused(StatusCode::UNAUTHORIZED, "unauthorized", "no token"), Outcome::Unauthorized),
        (Problem::closing(), Outcome::NotSent),
        (Problem::repeated("no answer"), Outcome::NotSent),
        (of(ErrorKind::QueueFull, Delivery::NotSent), Outcome::NotSent),
        (of(ErrorKind::RetryLater, Delivery::Rejected), Outcome::Answered),
        (of(ErrorKind::ResponseTooLarge, Delivery::Delivered), Outcome::Answered),
        (of(ErrorKind::Timeout, Delivery::Ambiguous), Outcome::Ambiguous),
    ] {
        assert_eq!(problem.outcome(), outcome, "{problem:?}");
    }
}
