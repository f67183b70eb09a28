//! Every row of the decision table, for idempotent and other requests.

use super::*;
use crate::config::{Idempotency, KeyCarrier};
use ErrorKind::*;
use Sent::*;
use Verdict::{Again, Ambiguous, Done, GiveUp, Refresh, Refused, RetryUncounted};

const IDEMPOTENT: RetryInput =
    RetryInput { idempotent: true, replayable: true, had_credential: true, on_ambiguous: None };
const OTHER: RetryInput = RetryInput { idempotent: false, ..IDEMPOTENT };

fn answered(status: u16) -> Outcome {
    Outcome::Answered { status, class: None, retry_after: false }
}

fn with_wait(status: u16) -> Outcome {
    Outcome::Answered { status, class: None, retry_after: true }
}

fn classified(status: u16, class: Class) -> Outcome {
    Outcome::Answered { status, class: Some(class), retry_after: false }
}

fn failed(sent: Sent, kind: ErrorKind) -> Outcome {
    Outcome::Failed { sent, kind }
}

/// The default policy, changed by `change`.
fn policy(change: impl FnOnce(&mut RetryPolicy)) -> RetryPolicy {
    let mut policy = RetryPolicy::default();
    change(&mut policy);
    policy
}

#[track_caller]
fn check(outcome: Outcome, policy: &RetryPolicy, idempotent: Verdict, other: Verdict) {
    let tried = RetryHistory::default();
    assert_eq!(decide(&outcome, &IDEMPOTENT, &tried, policy, ms(0)), idempotent, "{outcome:?}, idempotent");
    assert_eq!(decide(&outcome, &OTHER, &tried, policy, ms(0)), other, "{outcome:?}, not idempotent");
}

#[test]
fn idempotent_requests_are_recognised() {
    let no_keys = || false;
    for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE] {
        assert!(idempotent(&method, no_keys, false), "{method}");
    }
    for method in [Method::POST, Method::PATCH, Method::from_bytes(b"COPY").unwrap()] {
        assert!(!idempotent(&method, no_keys, false), "{method}");
        assert!(idempotent(&method, no_keys, true), "{method} with a key");
    }
    let carrier = Some(KeyCarrier::Header("idempotency-key".to_owned()));
    let methods = vec!["PUT".to_owned(), "DELETE".to_owned()];
    let paths = vec!["/orders/**".to_owned()];
    let keys = Idempotency { carrier, methods, paths, ..Idempotency::default() };
    let is_repeatable = |method: Method, path: &str, knows_key| {
        let takes_key = || keys.covers(&method, path);
        idempotent(&method, takes_key, knows_key)
    };
    assert!(!is_repeatable(Method::PUT, "/orders/7", false), "the vendor takes keys with this PUT");
    assert!(is_repeatable(Method::PUT, "/orders/7", true) && is_repeatable(Method::DELETE, "/orders/7", false));
    assert!(is_repeatable(Method::PUT, "/labels/7", false), "the vendor takes no key with this path");
}

#[test]
fn unsent_requests_are_retried_uncounted() {
    let policy = RetryPolicy::default();
    check(failed(NotSent, Connect), &policy, RetryUncounted, RetryUncounted);
    check(failed(NotSent, Timeout), &policy, RetryUncounted, RetryUncounted);
    // The connection was closed before the request was written.
    check(failed(NotSent, Protocol), &policy, RetryUncounted, RetryUncounted);
    for kind in [Config, InvalidRequest, Credential, Shutdown] {
        check(failed(NotSent, kind), &policy, Done, Done);
    }
}

/// The vendor did not act, so any request may be sent again. It has seen the request, but that concerns only the
/// limits.
#[test]
fn unprocessed_is_sent_again_without_counting() {
    let policy = RetryPolicy::default();
    check(failed(Unprocessed, Protocol), &policy, RetryUncounted, RetryUncounted);
    let used_up = RetryHistory { retries: 5, failing_since: Some(ms(0)), ..RetryHistory::default() };
    let outcome = failed(Unprocessed, Protocol);
    assert_eq!(decide(&outcome, &OTHER, &used_up, &policy, ms(299_999)), RetryUncounted);
    assert_eq!(decide(&outcome, &OTHER, &used_up, &policy, ms(300_000)), GiveUp(GiveUpReason::Age));
    let streamed = RetryInput { replayable: false, ..OTHER };
    assert_eq!(decide(&outcome, &streamed, &RetryHistory::default(), &policy, ms(0)), GiveUp(GiveUpReason::Body));
}

#[test]
fn refusals_are_retried() {
    let policy = RetryPolicy::default();
    check(answered(429), &policy, Refused, Refused);
    check(with_wait(429), &policy, Refused, Refused);
}

#[test]
fn unavailable_answers_are_retried_if_safe() {
    let careful = RetryPolicy::default();
    let safe = policy(|policy| policy.unavailable_is_safe = true);
    for status in [408, 425, 503] {
        check(with_wait(status), &careful, Again, Ambiguous);
        check(with_wait(status), &safe, Again, Again);
        check(answered(status), &careful, Again, Ambiguous);
        check(answered(status), &safe, Again, Ambiguous);
    }
}

#[test]
fn failures_in_the_middle_are_ambiguous() {
    // `unavailable_is_safe` does not apply to failures.
    let safe = policy(|policy| policy.unavailable_is_safe = true);
    for policy in [RetryPolicy::default(), safe] {
        for status in [500, 501, 502, 504, 505, 507, 520, 522, 599] {
            check(answered(status), &policy, Again, Ambiguous);
            check(with_wait(status), &policy, Again, Ambiguous);
        }
        for kind in [Timeout, Protocol, Connect] {
            check(failed(MaybeSent, kind), &policy, Again, Ambiguous);
        }
        // Another attempt would fail alike, and it is unknown whether the vendor acted.
        check(failed(MaybeSent, ResponseTooLarge), &policy, Done, Ambiguous);
        check(failed(MaybeSent, InvalidRequest), &policy, Done, Ambiguous);
    }
}

#[test]
fn everything_else_is_the_callers() {
    let policy = RetryPolicy::default();
    let refused = (400..500).filter(|status| ![401, 408, 425, 429].contains(status));
    for status in (100..400).chain(refused).chain(600..1000) {
        check(answered(status), &policy, Done, Done);
        check(with_wait(status), &policy, Done, Done);
    }
    for kind in [Timeout, Protocol, ResponseTooLarge] {
        check(failed(Answered, kind), &policy, Done, Done);
    }
}

#[test]
fn unauthorized_refreshes_the_credential_once() {
    let policy = RetryPolicy::default();
    let used_up = RetryHistory { retries: 5, ..RetryHistory::default() };
    check(answered(401), &policy, Refresh, Refresh);
    assert_eq!(decide(&answered(401), &OTHER, &used_up, &policy, ms(0)), Refresh, "it costs no retry");
    let refreshed = RetryHistory { refreshed: true, ..RetryHistory::default() };
    assert_eq!(decide(&answered(401), &IDEMPOTENT, &refreshed, &policy, ms(0)), Done);
    for request in [RetryInput { had_credential: false, ..IDEMPOTENT }, RetryInput { replayable: false, ..IDEMPOTENT }]
    {
        assert_eq!(decide(&answered(401), &request, &RetryHistory::default(), &policy, ms(0)), Done);
    }
}

#[test]
fn ambiguous_requests_are_sent_again_on_request() {
    let resend = policy(|policy| policy.on_ambiguous = OnAmbiguous::Resend);
    let own = |choice| RetryInput { on_ambiguous: Some(choice), ..OTHER };
    for outcome in [answered(500), with_wait(503), failed(MaybeSent, Timeout)] {
        check(outcome, &resend, Again, Again);
        let verdict = |request, policy| decide(&outcome, &request, &RetryHistory::default(), policy, ms(0));
        assert_eq!(verdict(own(OnAmbiguous::Fail), &resend), Ambiguous, "the request comes before the vendor");
        assert_eq!(verdict(own(OnAmbiguous::Resend), &RetryPolicy::default()), Again);
    }
    check(failed(MaybeSent, ResponseTooLarge), &resend, Done, Ambiguous);
}

#[test]
fn ambiguous_requests_are_parked_on_request() {
    let park = policy(|policy| policy.on_ambiguous = OnAmbiguous::Park);
    let none = RetryPolicy { max_retries: 0, ..park.clone() };
    for outcome in [answered(500), answered(503), failed(MaybeSent, Timeout), failed(MaybeSent, Protocol)] {
        check(outcome, &park, Again, Verdict::Park);
        check(outcome, &none, Done, Verdict::Park);
        let verdict = |choice, policy| {
            decide(&outcome, &RetryInput { on_ambiguous: choice, ..OTHER }, &RetryHistory::default(), policy, ms(0))
        };
        assert_eq!(verdict(Some(OnAmbiguous::Fail), &park), Ambiguous, "the request comes before the vendor");
        assert_eq!(verdict(Some(OnAmbiguous::Park), &RetryPolicy::default()), Verdict::Park);
    }
    check(failed(MaybeSent, ResponseTooLarge), &park, Done, Verdict::Park);
    // A request is not parked if it is known whether the vendor acted.
    check(answered(429), &park, Refused, Refused);
    check(failed(NotSent, Connect), &park, RetryUncounted, RetryUncounted);
    check(failed(Answered, Protocol), &park, Done, Done);
}

#[test]
fn classifier_comes_before_the_status() {
    let policy = RetryPolicy::default();
    for status in [200, 401, 403, 429, 500, 503] {
        check(classified(status, Class::Success), &policy, Done, Done);
        check(classified(status, Class::Rejected), &policy, Done, Done);
        check(classified(status, Class::RateLimited), &policy, Refused, Refused);
        check(classified(status, Class::Transient), &policy, Again, Ambiguous);
    }
}

#[test]
fn see_other_and_not_modified_are_deliveries() {
    for status in [200, 202, 204, 299, 303, 304] {
        assert!(is_delivery(status, None), "{status}");
        assert!(!is_delivery(status, Some(Class::Rejected)), "{status}, as the program says");
    }
    for status in [300, 301, 302, 305, 307, 308, 400, 401, 404, 422] {
        assert!(!is_delivery(status, None), "{status}");
        assert!(is_delivery(status, Some(Class::Success)), "{status}, as the program says");
    }
}

#[test]
fn only_refused_content_speaks_of_earlier_attempts() {
    assert!([200, 400, 402, 422].into_iter().all(is_about_content));
    assert!(![301, 401, 403, 404, 409, 410, 412, 413, 425, 429, 500].into_iter().any(is_about_content));
}

#[test]
fn ambiguous_outcomes_are_recognised() {
    let careful = RetryPolicy::default();
    let safe = policy(|policy| policy.unavailable_is_safe = true);
    let open = [answered(408), answered(425), answered(500), answered(503), classified(200, Class::Transient)];
    for outcome in open.into_iter().chain([failed(MaybeSent, Timeout), failed(MaybeSent, ResponseTooLarge)]) {
        assert!(is_ambiguous(&outcome, &careful) && is_ambiguous(&outcome, &safe), "{outcome:?}");
    }
    for status in [408, 425, 503] {
        assert!(is_ambiguous(&with_wait(status), &careful), "{status}");
        assert!(!is_ambiguous(&with_wait(status), &safe), "{status}");
    }
    let sure = [answered(200), answered(401), answered(404), answered(429), classified(500, Class::Rejected)];
    for outcome in sure.into_iter().chain([failed(NotSent, Connect), failed(Unprocessed, Protocol)]) {
        assert!(!is_ambiguous(&outcome, &careful) && !is_ambiguous(&outcome, &safe), "{outcome:?}");
    }
}

#[test]
fn failures_without_retry_end_by_delivery() {
    for (sent, kind, idempotent, other) in [
        (NotSent, InvalidRequest, FailedEnd::Invalid, FailedEnd::Invalid),
        (MaybeSent, InvalidRequest, FailedEnd::Invalid, FailedEnd::Invalid),
        (NotSent, Tls, FailedEnd::NotPossibleNow, FailedEnd::NotPossibleNow),
        (Unprocessed, Protocol, FailedEnd::NotPossibleNow, FailedEnd::NotPossibleNow),
        (Unprocessed, Timeout, FailedEnd::Rejected, FailedEnd::Rejected),
        (MaybeSent, Timeout, FailedEnd::Exhausted, FailedEnd::Ambiguous),
        (Answered, Protocol, FailedEnd::Ambiguous, FailedEnd::Ambiguous),
    ] {
        assert_eq!(failed_end(sent, kind, true), idempotent, "{sent:?} {kind:?}, idempotent");
        assert_eq!(failed_end(sent, kind, false), other, "{sent:?} {kind:?}, not idempotent");
    }
}

#[test]
fn retries_end() {
    let policy = policy(|policy| policy.max_retries = 3);
    let counted = [
        (answered(429), Refused),
        (answered(500), Again),
        (failed(MaybeSent, Protocol), Again),
        (with_wait(503), Again),
    ];
    for (outcome, verdict) in counted {
        for retries in 0..6 {
            let tried = RetryHistory { retries, ..RetryHistory::default() };
            let expected = if retries < 3 { verdict } else { GiveUp(GiveUpReason::Retries) };
            assert_eq!(decide(&outcome, &IDEMPOTENT, &tried, &policy, ms(0)), expected, "{outcome:?} {retries}");
        }
        let streaming = RetryInput { replayable: false, ..IDEMPOTENT };
        assert_eq!(decide(&outcome, &streaming, &RetryHistory::default(), &policy, ms(0)), GiveUp(GiveUpReason::Body));
    }
    let used_up = RetryHistory { retries: 3, ..RetryHistory::default() };
    assert_eq!(decide(&answered(500), &OTHER, &used_up, &policy, ms(0)), Ambiguous, "used up or not");
    assert_eq!(decide(&failed(NotSent, Connect), &OTHER, &used_up, &policy, ms(0)), RetryUncounted);
}

#[test]
fn without_retries_every_answer_is_the_callers() {
    let none = policy(|policy| policy.max_retries = 0);
    for outcome in [answered(429), with_wait(503), answered(500), failed(MaybeSent, Timeout)] {
        assert_eq!(decide(&outcome, &IDEMPOTENT, &RetryHistory::default(), &none, ms(0)), Done, "{outcome:?}");
    }
    check(answered(500), &none, Done, Ambiguous);
}

#[test]
fn connecting_ends_by_age() {
    let policy = policy(|policy| policy.max_age = Some(Duration::from_secs(10)));
    let verdict = |since: Option<Time>, now: Time| {
        let tried = RetryHistory { failing_since: since, retries: 2, ..RetryHistory::default() };
        decide(&failed(NotSent, Connect), &OTHER, &tried, &policy, now)
    };
    assert_eq!(verdict(None, Time::MAX), RetryUncounted, "the first failure is never too old");
    assert_eq!(verdict(Some(ms(0)), ms(9_999)), RetryUncounted);
    assert_eq!(verdict(Some(ms(0)), ms(10_000)), GiveUp(GiveUpReason::Age));
    assert_eq!(verdict(Some(ms(10_000)), ms(0)), RetryUncounted, "time that goes back makes nothing old");
    let streaming = RetryInput { replayable: false, ..OTHER };
    let failure = failed(NotSent, Connect);
    assert_eq!(decide(&failure, &streaming, &RetryHistory::default(), &policy, ms(0)), GiveUp(GiveUpReason::Body));
}
