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
mod tests;
