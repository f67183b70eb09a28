//! Sessions of browsers. A session begins with a login, is held in memory, and lasts 12 hours.
//!
//! A session holds the digest of the token that the user logged in with. Each request looks that digest up again, so
//! that the sessions of a token end when the token is changed or removed. Only the browser knows the id of a session;
//! this process holds the digest of the id.

use std::collections::HashMap;
use std::time::Duration;

use http::header::{COOKIE, HeaderMap};

use crate::clock::Time;

/// How long a session lasts.
pub(super) const LASTS: Duration = Duration::from_secs(12 * 3600);
/// The most sessions at the same time. A further session ends the oldest one.
const MOST: usize = 1_000;
/// The name of the cookie. The cookie states no path, so a browser sends it only to paths below `api/`, where the login
/// is.
pub(super) const NAME: &str = "ic_session";

type Digest = [u8; 32];

#[derive(Debug, Default)]
pub(super) struct Sessions {
    /// By the digest of a session's id: when the session was made, and the digest of its token.
    open: HashMap<Digest, (Time, Digest)>,
}

impl Sessions {
    /// Adds a session. Its id must be new, because an id that a browser has sent may be known to others.
    pub(super) fn add(&mut self, now: Time, id: Digest, token: Digest) {
        self.open.retain(|_, (made, _)| now.since(*made) < LASTS);
        if self.open.len() >= MOST
            && let Some(oldest) = self.open.iter().min_by_key(|(_, (made, _))| *made).map(|(id, _)| *id)
        {
            self.open.remove(&oldest);
        }
        self.open.insert(id, (now, token));
    }

    /// Returns the digest of the session's token; `None` if the session has ended or never existed.
    pub(super) fn find(&self, now: Time, id: &Digest) -> Option<Digest> {
        self.open.get(id).filter(|(made, _)| now.since(*made) < LASTS).map(|(_, token)| *token)
    }

    pub(super) fn end(&mut self, id: &Digest) {
        self.open.remove(id);
    }
}

/// Returns the id of the session in the cookies of a request: 32 hexadecimal digits.
pub(super) fn id_in(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let (_, id) = pairs.find(|(name, _)| *name == NAME)?;
    (id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit())).then_some(id)
}

#[cfg(test)]
mod tests {
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
        for bad in ["", "ic_session=", "ic_session=short", "xic_session=0123456789abcdef0123456789abcdef", "ic_session"]
        {
            assert_eq!(found(bad), None, "{bad}");
        }
        assert_eq!(found(&format!("ic_session={}", "z".repeat(32))), None);
    }
}
