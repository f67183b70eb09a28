use std::net::Ipv4Addr;

use super::*;

fn address(n: u32) -> Option<IpAddr> {
    Some(Ipv4Addr::from(n).into())
}

#[test]
fn eleventh_within_a_second_waits() {
    let (mut guesses, t0) = (Guesses::default(), Time::ZERO);
    for _ in 0..FREE {
        assert_eq!(guesses.wrong(t0, address(1)), Duration::ZERO);
    }
    assert_eq!(guesses.wrong(t0, address(1)), SECOND);
    assert_eq!(guesses.wrong(t0, address(2)), Duration::ZERO, "another address");
    assert_eq!(guesses.wrong(t0 + SECOND, address(1)), Duration::ZERO, "a second later");
    assert!((0..FREE).all(|_| guesses.wrong(t0, None) == Duration::ZERO));
    assert_eq!(guesses.wrong(t0, None), SECOND, "peers without an address");
}

#[test]
fn addresses_without_end_take_bounded_room() {
    let mut guesses = Guesses::default();
    for n in 0..2 * MOST as u32 {
        guesses.wrong(Time::ZERO, address(n));
    }
    assert_eq!(guesses.seen.len(), MOST);
    assert_eq!(guesses.wrong(Time::ZERO, address(99_999)), SECOND);
    assert_eq!(guesses.wrong(Time::ZERO + SECOND, address(99_999)), Duration::ZERO);
    assert_eq!(guesses.seen.len(), 1);
}
