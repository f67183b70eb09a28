use super::*;

#[test]
fn session_ends_at_logout_or_twelve_hours() {
    let (mut sessions, t0) = (Sessions::default(), Time::ZERO + Duration::from_secs(5));
    sessions.add(t0, [1; 32], [9; 32]);
    assert_eq!(sessions.find(t0, &[1; 32]), Some([9; 32]));
    assert_eq!(sessions.find(t0, &[2; 32]), None);
    assert_eq!(sessions.find(t0 + Duration::from_secs(12 * 3600 - 1), &[1; 32]), Some([9; 32]));
    assert_eq!(sessions.find(t0 + LASTS, &[1; 32]), None);
    sessions.end(&[1; 32]);
    assert_eq!(sessions.find(t0, &[1; 32]), None);
}

#[test]
fn sessions_take_bounded_room() {
    let mut sessions = Sessions::default();
    let id = |number: usize| {
        let mut id = [0; 32];
        id[..8].copy_from_slice(&number.to_be_bytes());
        id
    };
    for number in 0..MOST + 10 {
        sessions.add(Time::ZERO + Duration::from_secs(number as u64), id(number), [9; 32]);
    }
    assert_eq!(sessions.open.len(), MOST);
    let now = Time::ZERO + Duration::from_secs(2_000);
    assert!(sessions.find(now, &id(9)).is_none() && sessions.find(now, &id(10)).is_some());
    sessions.add(now + LASTS, id(5_000), [9; 32]);
    assert_eq!(sessions.open.len(), 1, "those that have ended go");
}

#[test]
fn id_is_read_from_the_cookies() {
    let id = "0123456789abcdef0123456789abcdef";
    let found = |cookie: &str| {
        let headers = [(COOKIE, cookie.parse().unwrap())].into_iter().collect::<HeaderMap>();
        id_in(&headers).map(str::to_owned)
    };
    assert_eq!(found(&format!("a=b; ic_session={id}; c=d")).as_deref(), Some(id));
    assert_eq!(found(&format!("ic_session={id}")).as_deref(), Some(id));
    for bad in ["", "ic_session=", "ic_session=short", "xic_session=0123456789abcdef0123456789abcdef", "ic_session"] {
        assert_eq!(found(bad), None, "{bad}");
    }
    assert_eq!(found(&format!("ic_session={}", "z".repeat(32))), None);
}
