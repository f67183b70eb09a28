//! The forms of a letter, and the content that each must not show.

use super::super::writer::Writer;
use super::*;

#[test]
fn letter_ids_sort_by_time() {
    let letters: Vec<DeadLetter> = (0..1000).map(|_| letter(Priority::High, "")).collect();
    let ids: std::collections::BTreeSet<&str> = letters.iter().map(|letter| &*letter.id).collect();
    assert_eq!(ids.len(), 1000);
    for id in ids {
        assert!(id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{id}");
    }
    let id = |text| {
        let request = LetterRequest::outline(&Method::GET, "/", None);
        DeadLetter::new(at(text), "a", "v", Priority::High, Reason::Exhausted, request).id
    };
    assert!(id("2026-02-03T04:05:06.001Z") < id("2026-02-03T04:05:06.002Z"));
    // Every time gives an id, even before 1970.
    for text in ["-009999-01-03T00:00:00Z", "1969-12-31T23:59:59.5Z", "9999-12-30T00:00:00Z"] {
        assert_eq!(id(text).len(), 32);
    }
}

#[test]
fn letter_has_a_stable_json_form() {
    let mut letter = letter(Priority::Low, "7");
    letter.id = "id".into();
    let json = serde_json::to_string_pretty(&letter).unwrap();
    insta::assert_snapshot!(json, @r#"
    {
      "id": "id",
      "at": "2026-02-03T04:05:06.789Z",
      "tenant": "acme",
      "vendor": "shop",
      "endpoint": "orders",
      "priority": "low",
      "reason": "exhausted",
      "metadata": {
        "order": "7"
      },
      "idempotency_key": "key-1",
      "attempts": [
        {
          "at": "2026-02-03T04:05:00Z",
          "phase": "answered",
          "status": 429,
          "retry_after_ms": 3000,
          "took_ms": 12
        },
        {
          "at": "2026-02-03T04:05:04Z",
          "phase": "maybe_sent",
          "error": "no answer in time",
          "took_ms": 30000
        }
      ],
      "request": {
        "whole": {
          "method": "POST",
          "path": "/orders?name=hidden-query",
          "headers": [
            [
              "x-customer",
              "hidden-header"
            ],
            [
              "x-bytes",
              {
                "base64": "/2hpZGRlbg=="
              }
            ]
          ],
          "body": "hidden-body"
        }
      }
    }
    "#);
    assert_eq!(serde_json::from_str::<DeadLetter>(&json).unwrap(), letter);
    assert_eq!(
        serde_json::to_string(&letter.redacted().request).unwrap(),
        r#"{"redacted":{"method":"POST","path":"/orders","body_bytes":11}}"#
    );
}

#[test]
fn letter_round_trips_through_json() {
    let mut letter = letter(Priority::Normal, "a line\nand \u{2028} \"another\"");
    let bodies: [&[u8]; 4] = [b"", b"text \xc3\xa4", b"\xff\xfe\0", b"{\"base64\":\"AA==\"}"];
    for body in bodies {
        letter.request = LetterRequest::whole(&Method::PUT, "/", &HeaderMap::new(), body.to_vec());
        let json = serde_json::to_string(&letter).unwrap();
        assert!(!json.contains('\n'));
        assert_eq!(serde_json::from_str::<DeadLetter>(&json).unwrap(), letter);
    }
    // Fields of later versions are ignored.
    let json = serde_json::to_string(&letter).unwrap().replacen('{', "{\"later\":1,", 1);
    assert_eq!(serde_json::from_str::<DeadLetter>(&json).unwrap(), letter);
}

#[test]
fn letter_secrets_are_never_shown() {
    let letter = letter(Priority::High, "7");
    let outline = LetterRequest::Redacted {
        method: "GET".into(),
        path: "/orders?name=hidden-query#hidden".into(),
        body_bytes: None,
    };
    for text in [
        format!("{letter:?}"),
        format!("{letter:#?}"),
        format!("{:?}", letter.redacted()),
        serde_json::to_string(&letter.redacted()).unwrap(),
        format!("{outline:?}"),
        serde_json::to_string(&outline.redacted()).unwrap(),
        serde_json::to_string(&LetterRequest::outline(&Method::GET, "/orders?hidden", None)).unwrap(),
    ] {
        assert!(!text.contains("hidden"), "{text}");
        assert!(text.contains("/orders"), "{text}");
    }
    assert_eq!(letter.redacted().redacted(), letter.redacted());
}

#[tokio::test]
async fn log_event_names_tenant_and_reason() {
    let (events, _guard) = LogEvents::capture();
    // The log event does not depend on the sink: this one logs nothing itself.
    let (writer, task) = Writer::new(Arc::new(MemorySink::new(1)), 1);
    writer.offer(letter(Priority::High, "7"));
    drop(writer);
    task.await;
    let [event] = &events.with_message("dead-lettered")[..] else { panic!("one event") };
    let fields: Vec<(&str, &str)> = event.iter().map(|(name, value)| (&**name, &**value)).collect();
    let expected = [
        ("attempts", "2"),
        ("endpoint", "orders"),
        ("message", "dead-lettered"),
        ("reason", "exhausted"),
        ("tenant", "acme"),
        ("vendor", "shop"),
    ];
    assert_eq!(fields, expected);
}

#[tokio::test]
async fn memory_sink_keeps_the_newest() {
    let sink = Arc::new(MemorySink::new(3));
    for number in 0..5 {
        sink.write(&letter(Priority::High, &number.to_string())).await.unwrap();
    }
    let letters = sink.letters();
    assert_eq!(letters.iter().map(note).collect::<Vec<_>>(), ["2", "3", "4"]);
    assert_eq!(sink.dropped(), 2);
}
