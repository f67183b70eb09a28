//! Rewrites the URLs in a vendor's response to the form in which the caller addressed the gateway.
//!
//! Pagination follows `Link: <https://api.github.com/…?page=2>` to the URL it names. Unchanged, that URL would bypass
//! the gateway and go straight to the vendor, with the caller's token as its credential. So URLs below the vendor's
//! base URL are rewritten to the gateway.
//!
//! Resolved against the gateway's URL, a relative reference could mean another tenant or vendor, so it is resolved
//! against the URL that was sent to the vendor. If the result is not below the base URL, it becomes the vendor's
//! absolute URL, which bypasses the gateway. Other URLs stay.
//!
//! An absolute URL may lead into the gateway too. A client that follows it sends the caller's token along, because the
//! origin stays the same, and the gateway would call another vendor, or call for another tenant. A header value with
//! such a URL is removed, unless the URL leads to the lane of the request. A value that cannot be read is removed too,
//! because a client may read such a URL in it.
//!
//! A vendor that takes its key in the query may repeat the query in these URLs, also behind another scheme, host or
//! path. The key must reach neither the caller nor that host, so it is removed from the query of every URL. A value
//! that still holds the parameter is removed.

use std::sync::Arc;

use http::header::{CONTENT_LOCATION, HeaderMap, HeaderName, HeaderValue, LINK, LOCATION, REFRESH};
use percent_encoding::percent_decode;
use url::Url;

use crate::config::AuthScheme;
use crate::ingress::without_credential;
use crate::transport::target;

const OPERATION_LOCATION: HeaderName = HeaderName::from_static("operation-location");
/// How many times a value is decoded to find the vendor's key in it.
const DECODINGS: usize = 5;

/// What is needed to rewrite the URLs of a response.
pub(super) struct Back<'a> {
    /// The vendor's base URL.
    pub(super) base: &'a Url,
    /// The path and query of the request, below the base URL.
    pub(super) path: &'a str,
    pub(super) auth: &'a AuthScheme,
    pub(super) own: &'a Own,
}

/// How the caller addresses the request's lane at the gateway.
#[derive(Clone)]
pub(super) struct Own {
    /// The vendor's base URL at the gateway, without a trailing slash.
    pub(super) url: String,
    /// The length of the beginning of `url` that leads to the lane, whatever path follows.
    pub(super) lane: usize,
    /// Whether a client that follows this URL may reach the gateway, on any lane.
    pub(super) reaches_gateway: Arc<dyn Fn(&Url) -> bool + Send + Sync>,
}

/// Why a URL or a header value must not reach the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unfit(pub(super) &'static str);

const ELSEWHERE: Unfit = Unfit("it leads into the gateway, and not to the lane of the request");
const UNREADABLE: Unfit = Unfit("it cannot be read");
const WITH_KEY: Unfit = Unfit("it may hold the vendor's key");

impl Own {
    /// Returns a URL that leads to this lane in the caller's form, and `None` for one that does not lead into the
    /// gateway.
    fn on_lane(&self, url: &Url, auth: &AuthScheme) -> Result<Option<String>, Unfit> {
        let lane = &self.url[..self.lane];
        if let Ok(at) = Url::parse(lane)
            && let Ok(below) = target::relative(&at, url)
        {
            return Ok(Some(format!("{lane}{}", without_credential(below, auth))));
        }
        if (self.reaches_gateway)(url) { Err(ELSEWHERE) } else { Ok(None) }
    }
}

/// Rewrites the headers that hold URLs, and removes the values that must not reach the caller.
pub(super) fn rewrite(headers: &mut HeaderMap, back: &Back<'_>) {
    for name in [LOCATION, CONTENT_LOCATION, OPERATION_LOCATION] {
        each(headers, &name, back, |text| back.reference(text));
    }
    each(headers, &REFRESH, back, |text| back.refresh(text));
    each(headers, &LINK, back, |text| back.links(text));
}

fn each(
    headers: &mut HeaderMap,
    name: &HeaderName,
    back: &Back<'_>,
    rewritten: impl Fn(&str) -> Result<Option<String>, Unfit>,
) {
    if !headers.contains_key(name) {
        return;
    }
    let values: Vec<HeaderValue> = headers.get_all(name).iter().cloned().collect();
    headers.remove(name);
    for value in values {
        match back.value(value, &rewritten) {
            Ok(value) => {
                headers.append(name, value);
            }
            Err(Unfit(why)) => {
                let lane = &*back.own.url;
                tracing::warn!(header = %name, lane, why, "a header of a vendor's response was removed");
            }
        }
    }
}

/// Returns an absolute URL in the caller's form, or `None` if it must stay unchanged. If the URL begins with the base
/// URL exactly as the vendor's entry writes it, the rest keeps its spelling, because it may be a template.
pub(super) fn absolute(base: &Url, auth: &AuthScheme, own: &Own, text: &str) -> Result<Option<String>, Unfit> {
    let (plain, fragment) = text.split_once('#').map_or((text, ""), |(plain, _)| (plain, &text[plain.len()..]));
    let Ok(url) = Url::parse(plain) else { return Ok(None) };
    let Ok(relative) = target::relative(base, &url) else {
        let new = match own.on_lane(&url, auth)? {
            Some(new) => Some(new),
            None if plain.contains("://") && !is_regular(plain) => {
                Some(without_credential(url.as_str(), auth).into_owned())
            }
            None => without_key(plain, &url, auth),
        };
        return Ok(new.map(|new| format!("{new}{fragment}")));
    };
    let written = plain.strip_prefix(base.as_str().trim_end_matches('/'));
    let is_below = |rest: &&str| (rest.is_empty() || rest.starts_with(['/', '?'])) && is_plain(rest);
    let rest = written.filter(is_below).unwrap_or(relative);
    Ok(Some(format!("{}{}{fragment}", own.url, without_credential(rest, auth))))
}

/// Returns an absolute URL, not below the base URL, without the vendor's key; `None` if it does not hold the key.
fn without_key(text: &str, url: &Url, auth: &AuthScheme) -> Option<String> {
    // URL parsers drop control bytes, and such a byte in the key's name would hide the key here.
    let text = if is_plain(text) { text } else { url.as_str() };
    let new = without_credential(text, auth);
    (new != text).then(|| new.into_owned())
}

/// Whether it means the same behind another base URL: it has no dot segment, which would lead to another tenant's path
/// of the gateway, and nothing that URL parsers drop or replace.
fn is_plain(rest: &str) -> bool {
    let is_dots = |part: &str| matches!(part.trim().to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..");
    let path = rest.split('?').next().unwrap_or_default();
    !rest.contains(|letter: char| letter.is_control() || letter == '\\') && !path.split('/').any(is_dots)
}

/// Whether all parsers find the same host in an absolute URL. They differ on `http:/a/b`, which some resolve as a path
/// of the gateway, and on `http://a\@b`.
fn is_regular(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
        && !authority.is_empty()
        && !authority.contains(|letter: char| letter.is_control() || letter.is_whitespace() || letter == '\\')
        && authority.matches('@').count() <= 1
}

/// Whether a parameter of this name, with a value, stands anywhere in the text, percent-encoded or not.
fn holds_parameter(text: &str, name: &str) -> bool {
    let parameter = format!("{name}=");
    // Clients drop control bytes from a URL, and backslashes from a quoted string.
    let mut bytes: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_control() && *byte != b'\\').collect();
    for _ in 0..DECODINGS {
        let begins = |at: usize| at > 0 && matches!(bytes[at - 1], b'?' | b'&' | b';' | b'#');
        if memchr::memmem::find_iter(&bytes, parameter.as_bytes()).any(begins) {
            return true;
        }
        let decoded: Vec<u8> = percent_decode(&bytes).collect();
        if decoded == bytes {
            return false;
        }
        bytes = decoded;
    }
    // It is encoded more often than any client would do.
    true
}

impl Back<'_> {
    /// Returns a header value as the caller may have it.
    fn value(
        &self,
        old: HeaderValue,
        rewritten: impl Fn(&str) -> Result<Option<String>, Unfit>,
    ) -> Result<HeaderValue, Unfit> {
        let text = std::str::from_utf8(old.as_bytes()).map_err(|_| UNREADABLE)?;
        let new = rewritten(text)?;
        if let AuthScheme::Query { name } = self.auth
            && holds_parameter(new.as_deref().unwrap_or(text), name)
        {
            return Err(WITH_KEY);
        }
        match new {
            Some(new) => HeaderValue::from_bytes(new.as_bytes()).map_err(|_| UNREADABLE),
            None => Ok(old),
        }
    }

    /// Returns a reference in the caller's form, or `None` if it must stay unchanged.
    fn reference(&self, text: &str) -> Result<Option<String>, Unfit> {
        let text = text.trim();
        let (plain, fragment) = text.split_once('#').map_or((text, ""), |(plain, _)| (plain, &text[plain.len()..]));
        if plain.is_empty() {
            return Ok(None);
        }
        let (url, keeps_spelling) = match Url::parse(plain) {
            Ok(url) => (url, is_regular(plain)),
            Err(_) => (self.sent().and_then(|sent| sent.join(plain).ok()).ok_or(UNREADABLE)?, false),
        };
        if let Ok(below) = target::relative(self.base, &url) {
            return Ok(Some(format!("{}{}{fragment}", self.own.url, without_credential(below, self.auth))));
        }
        let new = match self.own.on_lane(&url, self.auth)? {
            Some(new) => Some(new),
            None if keeps_spelling => without_key(plain, &url, self.auth),
            None => Some(without_credential(url.as_str(), self.auth).into_owned()),
        };
        Ok(new.map(|new| format!("{new}{fragment}")))
    }

    /// The URL that was sent, without the credential.
    fn sent(&self) -> Option<Url> {
        Url::parse(&format!("{}{}", self.base.as_str().trim_end_matches('/'), self.path)).ok()
    }

    /// Rewrites the URL of a `Refresh` header (`5; url=https://…`), which it finds as browsers do.
    fn refresh(&self, text: &str) -> Result<Option<String>, Unfit> {
        let is_after = |letter: char| !(letter.is_ascii_digit() || letter == '.' || letter.is_ascii_whitespace());
        let (time, rest) = text.split_at(text.find(is_after).unwrap_or(text.len()));
        if rest.is_empty() {
            return Ok(None);
        }
        let rest = rest.strip_prefix([';', ',']).unwrap_or(rest).trim();
        let is_name = rest.get(..3).is_some_and(|name| name.eq_ignore_ascii_case("url"));
        let named = if is_name { rest[3..].trim_start().strip_prefix('=') } else { None };
        let url = named.unwrap_or(rest).trim();
        let url = match url.chars().next() {
            Some(quote @ ('"' | '\'')) => url[1..].split(quote).next().unwrap_or_default().trim(),
            _ => url,
        };
        if url.is_empty() {
            return Ok(Some(time.trim().to_owned()));
        }
        let new = self.reference(url)?;
        Ok(Some(format!("{}; url={}", time.trim(), new.as_deref().unwrap_or(url))))
    }

    /// Rewrites the URL references of a `Link` header: the text between `<` and `>` outside quotes.
    fn links(&self, text: &str) -> Result<Option<String>, Unfit> {
        let (mut out, mut rest, mut is_quoted, mut changed) = (String::with_capacity(text.len()), text, false, false);
        while let Some(at) = rest.find(['<', '"', '\\']) {
            let (before, after) = rest.split_at(at);
            out.push_str(before);
            // All three marks have one byte.
            let (mark, after) = after.split_at(1);
            out.push_str(mark);
            rest = after;
            match mark {
                "\"" => is_quoted = !is_quoted,
                "\\" if is_quoted => {
                    let mut letters = rest.chars();
                    out.extend(letters.next());
                    rest = letters.as_str();
                }
                // Many clients search for `<` and `>` alone, and find them in quotes too.
                "<" if is_quoted => {
                    let inside = rest.split(['>', '"']).next().unwrap_or_default();
                    if self.reference(inside) == Err(ELSEWHERE) {
                        return Err(ELSEWHERE);
                    }
                }
                "<" => {
                    let (inside, after) = rest.split_once('>').ok_or(UNREADABLE)?;
                    match self.reference(inside)? {
                        Some(new) => {
                            changed = true;
                            out.push_str(&new);
                        }
                        None => out.push_str(inside),
                    }
                    out.push('>');
                    rest = after;
                }
                _ => {}
            }
        }
        if is_quoted {
            return Err(UNREADABLE);
        }
        out.push_str(rest);
        Ok(changed.then_some(out))
    }
}

#[cfg(test)]
impl Own {
    /// The lane of tenant `acme` at vendor `github`, of a gateway at `127.0.0.1:8099`.
    pub(super) fn sample() -> Own {
        let url = "http://127.0.0.1:8099/acme/github".to_owned();
        let reaches_gateway = Arc::new(|url: &Url| url.host_str() == Some("127.0.0.1") && url.port() == Some(8099));
        Own { lane: url.len(), url, reaches_gateway }
    }
}

#[cfg(test)]
mod tests;
