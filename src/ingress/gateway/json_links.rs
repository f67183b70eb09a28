//! Rewrites the vendor's URLs in JSON bodies to the form in which the caller addressed the gateway.
//!
//! Many vendors state the next page in the body (`"next": "https://api.example/items?page=2"`). An SDK that follows
//! this URL bypasses the gateway and sends the caller's token to the vendor. If a caller's configuration asks for it,
//! each string of a JSON response that is an absolute URL is rewritten like the URLs in headers. One that leads into
//! the gateway, and not to the lane of the request, becomes an empty string.
//!
//! The body is streamed, whatever its length: the rewriter holds back one string at a time, while the string may be
//! such a URL. Longer strings, and everything that is not JSON, pass unchanged. The body must not change anywhere
//! else, so it is not parsed and serialised again: the order of fields, the spelling of numbers and the white space
//! stay.

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use url::Url;

use super::links::{Back, Own, Unfit, absolute};
use crate::config::AuthScheme;

/// Longest string, in bytes, that is held back; no client follows a longer URL.
const LONGEST: usize = 16 * 1024;

/// Whether a response has a JSON body that can be rewritten.
pub(super) fn is_json(status: StatusCode, headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"));
    // Partial content may begin in the middle of a string.
    is_json && status != StatusCode::PARTIAL_CONTENT && !headers.contains_key(CONTENT_ENCODING)
}

/// Rewrites a body piece by piece.
pub(super) struct JsonLinks {
    base: Url,
    auth: AuthScheme,
    own: Own,
    state: State,
    /// The bytes of a string that may be a URL, from its opening quote on.
    held: Vec<u8>,
}

/// The parser's state at the end of the last piece.
#[derive(Clone, Copy)]
enum State {
    Outside,
    /// In a string that passes unchanged; `true` after a backslash.
    Passing(bool),
    /// In a string that may be a URL and is held back; `true` after a backslash.
    Held(bool),
}

impl JsonLinks {
    pub(super) fn new(back: &Back<'_>) -> JsonLinks {
        let (base, auth, own) = (back.base.clone(), back.auth.clone(), back.own.clone());
        JsonLinks { base, auth, own, state: State::Outside, held: Vec::new() }
    }

    /// Consumes the next piece of the body, and returns the bytes that can be sent on.
    pub(super) fn piece(&mut self, mut piece: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(piece.len() + self.held.len());
        while let Some((byte, rest)) = piece.split_first() {
            match self.state {
                State::Outside => {
                    let to = memchr::memchr(b'"', piece).unwrap_or(piece.len());
                    out.extend_from_slice(&piece[..to]);
                    piece = &piece[to..];
                    if !piece.is_empty() {
                        self.held.push(b'"');
                        (self.state, piece) = (State::Held(false), &piece[1..]);
                    }
                }
                State::Passing(true) => {
                    out.push(*byte);
                    (self.state, piece) = (State::Passing(false), rest);
                }
                State::Passing(false) => {
                    let to = memchr::memchr2(b'"', b'\\', piece).unwrap_or(piece.len());
                    let through = piece.len().min(to + 1);
                    out.extend_from_slice(&piece[..through]);
                    match piece.get(to) {
                        Some(b'"') => self.state = State::Outside,
                        Some(_) => self.state = State::Passing(true),
                        None => {}
                    }
                    piece = &piece[through..];
                }
                State::Held(is_escaped) => {
                    self.held.push(*byte);
                    piece = rest;
                    let ends = *byte == b'"' && !is_escaped;
                    let escapes = *byte == b'\\' && !is_escaped;
                    if ends {
                        self.state = State::Outside;
                        match self.rewritten() {
                            Some(new) => out.extend_from_slice(new.as_bytes()),
                            None => out.extend_from_slice(&self.held),
                        }
                        self.held.clear();
                    } else if may_be_url(&self.held) {
                        self.state = State::Held(escapes);
                    } else {
                        self.state = State::Passing(escapes);
                        out.append(&mut self.held);
                    }
                }
            }
        }
        out
    }

    /// Rewrites a complete body.
    pub(super) fn whole(mut self, body: &[u8]) -> Bytes {
        let mut out = self.piece(body);
        out.append(&mut self.held);
        out.into()
    }

    /// Returns the bytes still held back when the body has ended, even in the middle of a string.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    /// Returns the held string in the caller's form, with its quotes, or `None` if it must stay unchanged.
    fn rewritten(&self) -> Option<String> {
        let text: String = serde_json::from_slice(&self.held).ok()?;
        let new = match absolute(&self.base, &self.auth, &self.own, &text) {
            Ok(new) => new?,
            Err(Unfit(why)) => {
                tracing::debug!(lane = %self.own.url, why, "a URL in a vendor's JSON became an empty string");
                String::new()
            }
        };
        let new = serde_json::to_string(&new).ok()?;
        // PHP escapes slashes as `\/`: keep that form.
        let has_escaped_slash = memchr::memmem::find(&self.held, b"\\/").is_some();
        Some(if has_escaped_slash { new.replace('/', "\\/") } else { new })
    }
}

/// Whether a string with this beginning, opening quote included, may be a URL.
fn may_be_url(held: &[u8]) -> bool {
    const START: &[u8] = b"\"http";
    let compared = held.len().min(START.len());
    held.len() <= LONGEST && held[..compared].eq_ignore_ascii_case(&START[..compared])
}

#[cfg(test)]
mod tests;
