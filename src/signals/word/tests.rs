use super::*;

#[test]
fn words_are_all_found() {
    assert!(WORDS.is_sorted_by_key(|(word, _)| *word));
    for (text, word) in &WORDS {
        assert_eq!(Word::of(text), *word, "{text}");
    }
    for text in ["", "-", "A", "limi", "limited", "zz", "µ", "{"] {
        assert_eq!(Word::of(text), Word::Other, "{text}");
    }
    // Few words collide.
    assert!(WORDS.iter().zip(0..).filter(|((word, _), at)| PLACES[place(word.as_bytes())] != *at).count() < 10);
}

#[test]
fn names_state_window_lengths() {
    for (text, expected) in [
        ("daily", Some(Some(DAY))),
        ("24hour", Some(Some(DAY))),
        ("1m", Some(Some(60))),
        ("10s", Some(Some(10))),
        ("highcostget30min", Some(Some(1800))),
        ("month", Some(None)),
        ("0s", None),
        ("tokens", None),
        ("5", None),
        ("", None),
        ("99999999999999999999d", None),
        ("9999999d", None),
        ("µs", None),
    ] {
        let expected = expected.map(|length| length.map(Duration::from_secs));
        assert_eq!(period(text), expected, "{text}");
    }
}
