use super::*;

fn event(tenant: &str, kind: EventKind) -> Event {
    Event { request_id: None, tenant: Some(tenant.into()), vendor: Some("v".into()), kind }
}

#[test]
fn viewers_read_at_their_own_place() {
    let mut state = State::default();
    for number in 0..5 {
        state.add(event(if number % 2 == 0 { "a" } else { "b" }, EventKind::Paused));
    }
    state.add(event("a", EventKind::Breaker { host: "h".into(), open: true }));
    let wanted = |tenant: Option<&str>, kind: Option<&str>| Wanted {
        tenant: tenant.map(str::to_owned),
        kind: kind.map(str::to_owned),
        ..Wanted::default()
    };
    let read = |from, most, wanted: &Wanted| {
        let read = state.read(from, most, wanted);
        (read.events.len(), read.more)
    };
    assert_eq!(read(0, 50, &Wanted::default()), (6, 0));
    assert_eq!(read(4, 50, &Wanted::default()), (2, 0));
    assert_eq!(read(6, 50, &Wanted::default()), (0, 0));
    assert_eq!(read(0, 2, &Wanted::default()), (2, 4), "and 4 more");
    assert_eq!(read(0, 50, &wanted(Some("b"), None)), (2, 0));
    assert_eq!(read(0, 50, &wanted(None, Some("breaker"))), (1, 0));
    let nowhere = Wanted { vendor: Some("w".to_owned()), ..Wanted::default() };
    assert_eq!(read(0, 50, &nowhere), (0, 0));
}

#[test]
fn dropped_events_are_counted() {
    let mut state = State::default();
    for _ in 0..KEPT + 10 {
        state.add(event("a", EventKind::Paused));
    }
    state.add(Event { request_id: None, tenant: None, vendor: None, kind: EventKind::Missed { count: 7 } });
    let read = state.read(0, 50, &Wanted::default());
    assert_eq!((read.events.len(), read.more), (50, 11 + 7 + (KEPT as u64 - 1 - 50)));
}
