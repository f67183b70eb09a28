//! Tests of whether a claimed job may be sent.

use super::*;
use crate::config::{Config, Sources};
use crate::store::jobs::Position;
use crate::store::{Id, LaneTier};

const ONCE: CanBeSent = CanBeSent { again: false, may_have_acted: false, is_readable: true, is_configured: true };
const AGAIN: CanBeSent = CanBeSent { again: true, ..ONCE };

fn claimed(started: i64, claims: i64, expires_ms: Option<i64>) -> Claimed {
    Claimed {
        id: Id::from_u128(1),
        lane: LaneTier { tenant: "a".to_owned(), vendor: "v".to_owned(), tier: 1 },
        position: Position::default(),
        fence: claims,
        claims,
        started,
        started_at: (started > 0).then_some(0),
        claimed_at: 0,
        expires_ms,
        expires_at: None,
        keep_result: false,
        request: Vec::new(),
        history: None,
    }
}

#[test]
fn possible_effect_comes_before_other_reasons() {
    let unknown = |can: CanBeSent| CanBeSent { is_configured: false, ..can };
    let unreadable = |can: CanBeSent| CanBeSent { is_readable: false, ..can };
    let acted = |can: CanBeSent| CanBeSent { may_have_acted: true, ..can };
    for (number, (can_be_sent, job, reason)) in [
        (ONCE, claimed(1, 1, None), Some(Reason::Ambiguous)),
        (ONCE, claimed(1, 1, Some(-1)), Some(Reason::Ambiguous)),
        (unknown(ONCE), claimed(1, 1, None), Some(Reason::Ambiguous)),
        (unreadable(ONCE), claimed(1, 1, None), Some(Reason::Ambiguous)),
        (ONCE, claimed(5, 26, None), Some(Reason::Ambiguous)),
        (acted(ONCE), claimed(0, 1, Some(-1)), Some(Reason::Ambiguous)),
        (ONCE, claimed(0, 1, Some(0)), Some(Reason::Expired)),
        (AGAIN, claimed(1, 1, Some(-1)), Some(Reason::Expired)),
        (AGAIN, claimed(5, 5, None), Some(Reason::Poison)),
        (ONCE, claimed(0, 26, None), Some(Reason::Poison)),
        (unreadable(ONCE), claimed(0, 1, None), Some(Reason::Poison)),
        (unknown(ONCE), claimed(0, 1, None), Some(Reason::NotConfigured)),
        (unknown(AGAIN), claimed(1, 1, None), Some(Reason::NotConfigured)),
        (ONCE, claimed(0, 25, Some(1)), None),
        (AGAIN, claimed(4, 4, None), None),
        (acted(AGAIN), claimed(0, 1, None), None),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(can_be_sent.reason_against(&job), reason, "{number}");
    }
}

#[test]
fn request_alone_decides_without_its_tenant() {
    for (method, more, again) in [
        ("GET", "", true),
        ("DELETE", ",\"resend\":false", true),
        ("POST", "", false),
        ("POST", ",\"key\":\"k\"", false),
        ("PUT", "", false),
        ("POST", ",\"resend\":true", true),
    ] {
        let text = format!(r#"{{"request":{{"whole":{{"method":"{method}","path":"/a"}}}}{more}}}"#);
        let stored: Stored = serde_json::from_str(&text).unwrap();
        assert_eq!(may_be_resent(&stored, None, Duration::ZERO), again, "{text}");
    }
}

#[test]
fn doubt_comes_before_a_missing_endpoint() {
    let stored = |method: &str, more: &str| {
        let text = format!(r#"{{"request":{{"whole":{{"method":"{method}","path":"/a"}}}}{more}}}"#);
        serde_json::from_str::<Stored>(&text).unwrap()
    };
    let keyed = stored("POST", ",\"key\":\"k\"");
    assert_eq!(not_configured(Some(&keyed), true), Reason::Ambiguous);
    assert_eq!(not_configured(None, true), Reason::Ambiguous);
    assert_eq!(not_configured(Some(&keyed), false), Reason::NotConfigured);
    assert_eq!(not_configured(Some(&stored("GET", "")), true), Reason::NotConfigured);
    assert_eq!(not_configured(Some(&stored("POST", ",\"resend\":true")), true), Reason::NotConfigured);
}

#[test]
fn put_may_be_repeated_where_the_vendor_takes_no_key() {
    let text = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n\
                [vendors.v.idempotency]\nheader = \"idempotency-key\"\nmethods = [\"PUT\"]\n\
                paths = [\"/orders/**\"]\n[[tenants]]\nid = \"a\"\nvendor = \"v\"\n";
    let config = Config::load(&Sources::new().without_catalogue().file("vendors.toml", text), 1).unwrap();
    let tenant = config.tenant("a", "v").unwrap();
    for (path, again) in [("/orders/7", false), ("/orders/7?a=b", false), ("/labels/7", true)] {
        let text = format!(r#"{{"request":{{"whole":{{"method":"PUT","path":"{path}"}}}}}}"#);
        let stored: Stored = serde_json::from_str(&text).unwrap();
        assert_eq!(may_be_resent(&stored, Some(&*tenant), Duration::ZERO), again, "{path}");
    }
}

#[test]
fn key_counts_for_as_long_as_the_vendor_keeps_it() {
    let text = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n\
                [vendors.v.idempotency]\nheader = \"idempotency-key\"\nkeeps = \"30m\"\n\
                [[tenants]]\nid = \"a\"\nvendor = \"v\"\n";
    let config = Config::load(&Sources::new().without_catalogue().file("vendors.toml", text), 1).unwrap();
    let tenant = config.tenant("a", "v").unwrap();
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    for (more, age, again) in [
        ("", minutes(20), true),
        ("", minutes(31), false),
        // The exchange itself may take half a minute, or as long as its request says.
        ("", minutes(30) - Duration::from_secs(30), false),
        (",\"attempt_timeout_ms\":600000", minutes(20), false),
        (",\"resend\":true", minutes(31), true),
    ] {
        let text = format!(r#"{{"request":{{"whole":{{"method":"POST","path":"/a"}}}},"key":"k"{more}}}"#);
        let stored: Stored = serde_json::from_str(&text).unwrap();
        assert_eq!(may_be_resent(&stored, Some(&*tenant), age), again, "{text} {age:?}");
    }
}
