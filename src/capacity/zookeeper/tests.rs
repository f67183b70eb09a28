use super::*;

#[test]
fn urls_are_read() {
    let (address, prefix) = read("zk://app:p%40s:s@a.internal:2182,b,[::1]:2183,[::2]/shop/live/").unwrap();
    assert_eq!(address.servers, ["a.internal:2182", "b:2181", "[::1]:2183", "[::2]:2181"]);
    assert_eq!(address.user, Some(("app".to_owned(), "p@s:s".to_owned())));
    assert_eq!(prefix, "/shop/live");
    let (address, prefix) = read("zk://host").unwrap();
    assert_eq!((address.servers, address.user, &*prefix), (vec!["host:2181".to_owned()], None, PREFIX));
}

#[test]
fn wrong_url_is_refused_without_password() {
    for wrong in [
        "zk://",
        "zk:host",
        "zk://hunter2@host",
        "zk://:hunter2@host",
        "zk://app:hunter2@host,",
        "zk://app:hunter2@host:port",
        "zk://app:hunter2@host?timeout=1",
        "zk://app:hunter2@host/a//b",
        "zk://app:hunter2@host/../b",
        "zk://app:hunter2@host/zookeeper",
        "zks://app:hunter2@host",
    ] {
        let error = read(wrong).unwrap_err();
        assert!(!error.contains("hunter2") && error.contains("the URL"), "{wrong}: {error}");
    }
}

#[test]
fn date_advances_from_the_last_write() {
    let epoch = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let dated = Dated { written_ms: 1_700_000_000_900, asked: Time::from_nanos(1_000_000_000), epoch };
    let now = |seconds: u64| Time::from_nanos(1_000_000_000) + Duration::from_secs(seconds);
    let at = |seconds: u64| dated.date(now(seconds), epoch);
    assert_eq!((at(0), at(10)), (Some(1_700_000_000), Some(1_700_000_010)));
    assert_eq!(at(3_601), None, "it is learnt anew");
    let suspended = epoch + Duration::from_secs(30);
    assert_eq!(dated.date(now(10), suspended), None, "our clock stood still for half a minute");
    assert_eq!(dated.date(now(10), epoch - Duration::from_secs(30)), None, "the wall clock was set back");
}
