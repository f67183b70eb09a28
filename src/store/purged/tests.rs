use super::*;

#[test]
fn search_begins_anew_once_an_hour() {
    let (mut purged, began) = (Purged::default(), Time::ZERO + ANEW);
    assert!(purged.begin(began) && purged.from("a").is_none());
    purged.set("a", 7);
    for minutes in 1..60 {
        assert!(!purged.begin(began + Duration::from_secs(60 * minutes)), "{minutes}");
        assert_eq!((purged.from("a"), purged.from("b")), (Some(7), None), "{minutes}");
    }
    assert!(purged.begin(began + ANEW));
    purged.set("a", 9);
    assert!(!purged.begin(began + ANEW + Duration::from_secs(60)));
    assert_eq!(purged.from("a"), Some(9));
}

#[test]
fn failed_search_loses_no_position() {
    let (mut purged, began) = (Purged::default(), Time::ZERO + ANEW);
    purged.begin(began);
    purged.set("a", 7);
    assert!(purged.begin(began + ANEW));
    // The search from the beginning has not ended.
    assert!(!purged.begin(began + ANEW + Duration::from_secs(120)));
    assert_eq!(purged.from("a"), Some(7));
}
