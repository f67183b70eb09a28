use std::time::Duration;

use super::*;

#[test]
fn tag_counts_once_its_text_is_settled() {
    let mut latest = Latest::default();
    let mut receive = |text: &str, tag: &str, second: u64| {
        let found = Found { tag: Some(tag.to_owned()), texts: vec![("v.toml".to_owned(), text.to_owned())] };
        latest.receive(found, Time::ZERO + Duration::from_secs(second));
        let texts = latest.texts().cloned();
        (latest.tag(texts.as_ref()).map(str::to_owned), latest.tag(None).map(str::to_owned))
    };
    let [none, a, b] = [None, Some("a"), Some("b")].map(|tag| (tag.map(str::to_owned), None::<String>));
    assert_eq!(receive("half", "a", 100), none);
    assert_eq!(receive("whole", "a", 105), none, "the tag was that of another text");
    assert_eq!(receive("whole", "a", 108), none, "the file may have changed within a second");
    assert_eq!(receive("whole", "a", 109), a);
    assert_eq!(receive("whole", "b", 120), none, "the file was written again");
    assert_eq!(receive("whole", "b", 124), b);
    assert_eq!(receive("half", "b", 130), none);
}
