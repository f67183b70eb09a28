use super::http::address;
use super::*;

fn s(seconds: f64) -> Duration {
    Duration::from_millis((seconds * 1_000.0) as u64)
}

#[test]
fn waits_double_up_to_thirty_seconds() {
    let waits: Vec<Duration> = (1..=8).map(|times| wait_after(times, None, 0.0)).collect();
    assert_eq!(waits, [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0].map(s));
    assert_eq!((wait_after(0, None, 1.0), wait_after(u32::MAX, None, 1.0)), (s(0.75), s(22.5)));
}

#[test]
fn asked_wait_is_a_floor_and_capped() {
    assert_eq!(wait_after(1, Some(s(12.0)), 0.5), s(12.0));
    assert_eq!(wait_after(6, Some(s(1.0)), 0.0), s(30.0));
    assert_eq!(wait_after(1, Some(Duration::MAX), 0.0), LONGEST_ASKED);
}

#[test]
fn addresses_without_secrets_are_taken() {
    assert!(address("https://config.example.com/a?sig=x").is_ok());
    for (url, expected) in [
        ("vendors.toml", "no address"),
        ("file:///etc/vendors.toml", "must begin with https://"),
        ("https://user:hunter2@config.example.com/", "holds a user or a password"),
    ] {
        let why = address(url).unwrap_err().why;
        assert!(why.contains(expected) && !why.contains("hunter2"), "{why}");
    }
}

#[test]
fn debug_output_and_names_hold_no_secret() {
    let source = RemoteSource::http("https://c.example.com/v.toml?sig=hunter2").bearer("env:TOKEN");
    let shown = format!("{source:?} {}", source.name());
    assert!(shown.contains("https://c.example.com/v.toml") && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn empty_answers_are_failures() {
    let found = |texts: &[&str]| Found {
        tag: None,
        texts: texts.iter().map(|text| ("a".to_owned(), (*text).to_owned())).collect(),
    };
    assert!(check(found(&["# nothing"])).is_ok());
    for texts in [&[][..], &[" \n"], &["x = 1", ""]] {
        assert!(check(found(texts)).is_err(), "{texts:?}");
    }
}
