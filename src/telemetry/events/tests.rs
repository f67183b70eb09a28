use super::*;

#[test]
fn events_are_flat_json() {
    let limit = || LimitOf { name: Some("rest".into()), scope: "tenant", endpoint: None };
    let ms = Duration::from_millis;
    let none = |kind| Event { request_id: None, tenant: None, vendor: None, kind };
    let one = |kind| Event { request_id: Some(7), tenant: Some("a".into()), vendor: Some("v".into()), kind };
    let endpoint = Some(Arc::from("/orders/*"));
    for (event, json) in [
        (
            one(EventKind::Dispatched { endpoint, priority: Priority::High, attempt: 1, waited: ms(20) }),
            r#"{"request_id":7,"tenant":"a","vendor":"v","event":"dispatched","endpoint":"/orders/*","priority":"high","attempt":1,"waited_ms":20}"#,
        ),
        (
            one(EventKind::Completed { status: StatusCode::CREATED, attempts: 1, elapsed: ms(30) }),
            r#"{"request_id":7,"tenant":"a","vendor":"v","event":"completed","status":201,"attempts":1,"elapsed_ms":30}"#,
        ),
        (
            one(EventKind::Failed {
                kind: ErrorKind::QueueFull,
                delivery: Delivery::NotSent,
                attempts: 0,
                elapsed: ms(0),
            }),
            r#"{"request_id":7,"tenant":"a","vendor":"v","event":"failed","kind":"queue_full","delivery":"not_sent","attempts":0,"elapsed_ms":0}"#,
        ),
        (
            one(EventKind::Refused { endpoint: None, retry_after: Some(ms(1_500)), attempt: 2 }),
            r#"{"request_id":7,"tenant":"a","vendor":"v","event":"refused","retry_after_ms":1500,"attempt":2}"#,
        ),
        (
            none(EventKind::Refused { endpoint: None, retry_after: None, attempt: 2 }),
            r#"{"event":"refused","attempt":2}"#,
        ),
        (
            none(EventKind::Exhausted { wait: ms(5), limit: limit() }),
            r#"{"event":"exhausted","wait_ms":5,"limit":{"name":"rest","scope":"tenant"}}"#,
        ),
        (none(EventKind::Paused), r#"{"event":"paused"}"#),
        (
            none(EventKind::DeadLettered { id: "x".into(), attempts: 6, reason: Reason::Exhausted }),
            r#"{"event":"dead_lettered","id":"x","attempts":6,"reason":"exhausted"}"#,
        ),
    ] {
        let written = serde_json::to_string(&event).unwrap();
        assert_eq!(written, json);
        assert!(written.contains(&format!(r#""event":"{}""#, event.kind.as_str())), "{written}");
    }
}

#[test]
fn event_names_match_their_json() {
    let limit = || LimitOf { name: None, scope: "vendor", endpoint: None };
    for kind in [
        EventKind::Throttled { remaining_pct: 1, delay: Duration::ZERO, limit: limit() },
        EventKind::Recovered { limit: limit() },
        EventKind::Yielded { per_window: 1 },
        EventKind::LimitStated { limit: "l".into(), configured: 1, stated: 2 },
        EventKind::CostIgnored { kind: "k".into(), cost: 1 },
        EventKind::Breaker { host: "h".into(), open: true },
        EventKind::ConfigAccepted { version: 1, added: 0, changed: 0, removed: 0 },
        EventKind::ConfigRejected { reason: "r".into() },
        EventKind::Missed { count: 1 },
    ] {
        assert_eq!(serde_json::to_value(&kind).unwrap()["event"], kind.as_str());
    }
}
