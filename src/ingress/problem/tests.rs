use super::*;
use crate::error::KINDS;

#[test]
fn kinds_have_their_status() {
    let of = |kind, delivery, safe| {
        let problem = Problem::of(&Error::new(kind, delivery, "why"), safe);
        (problem.status.as_u16(), problem.may_repeat)
    };
    for kind in KINDS {
        assert!(of(kind, Delivery::NotSent, false).0 >= 400);
        for open in [Delivery::Ambiguous, Delivery::Delivered] {
            assert_eq!(of(kind, open, false), (422, false), "{kind:?}: never again without a key");
            assert!(of(kind, open, true).0 >= 400);
        }
    }
    for (kind, expected) in [
        (ErrorKind::InvalidRequest, (400, false)),
        (ErrorKind::UnknownTenant, (403, false)),
        (ErrorKind::RetryLater, (429, true)),
        (ErrorKind::QueueFull, (503, true)),
        (ErrorKind::Deadline, (504, true)),
        (ErrorKind::Connect, (502, true)),
        (ErrorKind::Tls, (502, false)),
        (ErrorKind::Credential, (502, false)),
    ] {
        assert_eq!(of(kind, Delivery::NotSent, false), expected, "{kind:?}");
    }
    assert_eq!(of(ErrorKind::Timeout, Delivery::Ambiguous, true), (504, true));
}

#[test]
fn answer_says_all_that_sdks_read() {
    let error = Error::not_sent(ErrorKind::QueueFull, "too many wait").of_request(7);
    let answer = Problem::of(&error, false).answer(None);
    let body: serde_json::Value = serde_json::from_slice(answer.body()).unwrap();
    assert_eq!(body["error"]["message"], "too many wait");
    assert_eq!(
        (&body["kind"], &body["delivery"], &body["request_id"]),
        (&"queue_full".into(), &"not_sent".into(), &7.into())
    );
    assert_eq!(answer.headers()[CONTENT_TYPE], "application/problem+json");
    assert_eq!(answer.headers()[RETRY_AFTER], "1");
    assert_eq!(answer.headers()["proxy-status"], "integration-client; error=connection_limit_reached");
    assert!(!answer.headers().contains_key("x-should-retry"));
    let open = Error::new(ErrorKind::Timeout, Delivery::Ambiguous, "no answer\n");
    let accept = HeaderValue::from_static("application/vnd.github+json");
    let answer = Problem::of(&open, false).answer(Some(&accept));
    assert_eq!(answer.headers()[CONTENT_TYPE], "application/json");
    assert_eq!(answer.headers()["x-should-retry"], "false");
    assert_eq!(answer.headers()["integration-delivery"], "ambiguous");
}
