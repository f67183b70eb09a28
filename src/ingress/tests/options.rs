use proptest::prelude::*;

use super::*;

fn headers(given: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    headers
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn headers_are_options_and_are_removed() {
    let mut given = headers(&[
        ("Integration-Priority", "high"),
        ("Integration-Deadline", "30s"),
        ("Integration-Max-Wait", "500ms"),
        ("Integration-Cost", "7, input_tokens=1800"),
        ("Integration-Endpoint", "search"),
        ("Integration-Idempotency-Key", "order-17"),
        ("Integration-On-Ambiguous", "park"),
        ("accept", "*/*"),
    ]);
    let options = SendOptions::take(&mut given).unwrap();
    let expected = SendOptions::new()
        .priority(Priority::High)
        .deadline(ms(30_000))
        .max_wait(ms(500))
        .cost("points", 7)
        .cost("input_tokens", 1800)
        .endpoint("search")
        .idempotency_key("order-17")
        .on_ambiguous(OnAmbiguous::Park);
    assert_eq!(options, expected);
    assert_eq!(given.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    assert_eq!(SendOptions::take(&mut given), Ok(SendOptions::new()));
}

#[test]
fn zero_wait_means_immediate_or_refused() {
    for zero in ["0", "0s", "0ms"] {
        let options = SendOptions::take(&mut headers(&[("integration-max-wait", zero)])).unwrap();
        assert!(options.is_immediate(), "{zero}");
    }
    assert!(!SendOptions::new().is_immediate());
}

#[test]
fn unreadable_values_give_helpful_errors() {
    for (name, value, help) in [
        ("integration-priority", "urgent", "write high, normal or low"),
        ("integration-priority", "High", "write high, normal or low"),
        ("integration-deadline", "30", "\"60s\""),
        ("integration-deadline", "0s", "zero"),
        ("integration-deadline", "-5s", "negative"),
        ("integration-max-wait", "soon", "\"500ms\""),
        ("integration-cost", "many", "KIND=NUMBER"),
        ("integration-cost", "+5", "KIND=NUMBER"),
        ("integration-cost", "4294967296", "KIND=NUMBER"),
        ("integration-cost", "=5", "KIND=NUMBER"),
        ("integration-cost", "5,6", "KIND=NUMBER"),
        ("integration-cost", "", "1 to 1024"),
        ("integration-on-ambiguous", "again", "write fail, park or resend"),
        ("integration-prioriti", "high", "there are integration-priority"),
    ] {
        let mut given = headers(&[(name, value)]);
        let why = SendOptions::take(&mut given).unwrap_err();
        assert!(why.contains(help) && why.contains(name), "{name}: {value}: {why}");
        assert!(given.is_empty());
    }
    let twice = [("integration-endpoint", "a"), ("integration-endpoint", "b")];
    assert!(SendOptions::take(&mut headers(&twice)).unwrap_err().contains("twice"));
}

#[test]
fn first_stated_option_counts() {
    let first = SendOptions::new().priority(Priority::High).cost("a", 1);
    let second = SendOptions::new().priority(Priority::Low).deadline(ms(5)).cost("a", 2).cost("b", 3);
    let both = first.or(&second);
    assert_eq!(both, SendOptions::new().priority(Priority::High).deadline(ms(5)).cost("a", 1).cost("b", 3));
    assert_eq!(both.clone().before(Some(ms(2))).stated_deadline(), Some(ms(2)));
    assert_eq!(both.clone().before(Some(ms(9))).stated_deadline(), Some(ms(5)));
    assert_eq!(both.before(None).stated_deadline(), Some(ms(5)));
    assert_eq!(SendOptions::new().before(Some(ms(2))).stated_deadline(), Some(ms(2)));
}

#[test]
fn timeouts_of_callers() {
    for (given, expected) in [
        (&[][..], None),
        (&[("x-stainless-read-timeout", "600")], Some(599_750)),
        (&[("x-stainless-timeout", "59.5")], Some(59_250)),
        (&[("x-stainless-timeout", "600"), ("x-stainless-read-timeout", "5")], Some(4_750)),
        (&[("x-envoy-expected-rq-timeout-ms", "1000")], Some(750)),
        (&[("x-envoy-expected-rq-timeout-ms", "300")], Some(150)),
        (&[("grpc-timeout", "2S")], Some(1_750)),
        (&[("grpc-timeout", "1M")], Some(59_750)),
        (&[("grpc-timeout", "100000000S")], None),
        (&[("grpc-timeout", "5")], None),
        (&[("grpc-timeout", "")], None),
        (&[("grpc-timeout", "1\u{e9}")], None),
        (&[("x-stainless-timeout", "inf")], None),
        (&[("x-stainless-timeout", "NaN")], None),
        (&[("x-stainless-timeout", "-1")], None),
        (&[("x-stainless-timeout", "0")], None),
        (&[("x-stainless-timeout", "1e300")], None),
    ] {
        let given: HeaderMap = given
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap()))
            .collect();
        assert_eq!(callers_timeout(&given), expected.map(ms), "{given:?}");
    }
}

proptest! {
    /// Any value is read without a panic, its header is removed, and the options that result are bounded.
    #[test]
    fn header_values_are_understood_or_refused(
        name in prop::sample::select(KNOWN.to_vec()),
        value in prop::collection::vec(0x20_u8..=0xff, 0..80),
    ) {
        let mut given = HeaderMap::new();
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            given.append(HeaderName::from_static(name), value.clone());
            for other in ["x-stainless-timeout", "x-envoy-expected-rq-timeout-ms", "grpc-timeout"] {
                given.append(HeaderName::from_static(other), value.clone());
            }
            let timeout = callers_timeout(&given);
            prop_assert!(timeout.is_none_or(|timeout| !timeout.is_zero()));
            let options = SendOptions::take(&mut given);
            prop_assert!(!given.contains_key(name));
            if let Ok(options) = options {
                prop_assert!(options.costs.len() <= 80);
                prop_assert!(options.deadline.is_none_or(|total| total <= Duration::from_secs(366 * 86_400)));
            }
        }
    }
}
