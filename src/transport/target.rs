//! Joins the vendor's base URL and the caller's path, and checks both.
//!
//! The operator chooses the host, in `vendors.toml`; the caller chooses the path, which may hold a tenant's data. So a
//! path must not change the host, leave the base path, or be read differently by this client and by the vendor: a path
//! is refused unless it is already in the form in which it will be sent. Refusing instead of repairing ensures that
//! the bytes sent are the bytes checked.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use url::Url;

use crate::config::base_url::is_loopback;

/// The characters to encode: all but the unreserved ones of RFC 3986.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Percent-encodes `value`, so that it is plain data in a path segment, a query or a form.
pub(crate) fn encode(value: &str) -> impl std::fmt::Display + '_ {
    utf8_percent_encode(value, ENCODED)
}

/// Checks a base URL, with its variables filled in. The message of an error holds no part of the URL.
#[cfg(test)]
pub(crate) fn base(text: &str, allow_http: bool) -> Result<Url, &'static str> {
    let url = Url::parse(text).map_err(|_| "the base URL is not a URL")?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the base URL holds a user name or password; state a credential instead");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("the base URL holds a query or fragment");
    }
    origin_allowed(&url, allow_http)?;
    Ok(url)
}

/// Allows `https` to any host, and `http` to loopback or if the operator allows it.
pub(crate) fn origin_allowed(url: &Url, allow_http: bool) -> Result<(), &'static str> {
    match url.scheme() {
        "https" => Ok(()),
        "http" if allow_http || is_loopback(url) => Ok(()),
        "http" => Err("plain http to a host that is not loopback; use https, or set allow_http for this vendor"),
        _ => Err("the scheme is neither https nor http"),
    }
}

/// Checks a caller's path and query. An error says which rule was broken, never the path itself.
pub(crate) fn check(target: &str) -> Result<(), Cow<'static, str>> {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    if !path.starts_with('/') {
        return Err("the path must start with \"/\"; the scheme and host come from the vendor's entry".into());
    }
    if path.starts_with("//") {
        return Err("the path starts with \"//\", which names another host".into());
    }
    check_bytes(path, "path", &IN_PATH)?;
    if let Some(query) = query {
        check_bytes(query, "query", &IN_QUERY)?;
    }
    if path.contains('.') || path.contains('%') {
        check_segments(path)?;
    }
    Ok(())
}

/// The characters that RFC 3986 allows unencoded in a path.
const IN_PATH: [bool; 256] = allowed(b"/:@");
/// The characters allowed unencoded in a query: those of RFC 3986, and `[` and `]`.
const IN_QUERY: [bool; 256] = allowed(b"/:@?[]");

const fn allowed(also: &[u8]) -> [bool; 256] {
    const PLAIN: &[u8] = b"-._~!$&'()*+,;=";
    let mut allowed = [false; 256];
    let mut b = 0;
    while b < 128 {
        allowed[b] = (b as u8).is_ascii_alphanumeric();
        b += 1;
    }
    let mut n = 0;
    while n < PLAIN.len() {
        allowed[PLAIN[n] as usize] = true;
        n += 1;
    }
    n = 0;
    while n < also.len() {
        allowed[also[n] as usize] = true;
        n += 1;
    }
    allowed
}

/// Refuses bytes outside `allowed`, and a `%` that is not followed by two hex digits.
fn check_bytes(text: &str, part: &str, allowed: &[bool; 256]) -> Result<(), Cow<'static, str>> {
    let bytes = text.as_bytes();
    let hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    let is_bad = |&(at, &b): &(usize, &u8)| !(allowed[b as usize] || (b == b'%' && hex(at + 1) && hex(at + 2)));
    match bytes.iter().enumerate().find(is_bad) {
        None => Ok(()),
        Some((at, b)) => Err(format!(
            "byte 0x{b:02x} at offset {at} of the {part} is not allowed as it is; \
             percent-encode it, or use `segment` and `query`, which do"
        )
        .into()),
    }
}

/// Refuses `.` and `..` segments (plain, encoded, after an encoded slash or before a path parameter, as in `..;x=1`),
/// and encoded control bytes.
fn check_segments(path: &str) -> Result<(), Cow<'static, str>> {
    for segment in path.split('/') {
        let decoded: Cow<'_, [u8]> = percent_decode_str(segment).into();
        if decoded.iter().any(|b| b.is_ascii_control()) {
            return Err("the path holds an encoded control byte".into());
        }
        // Some servers decode `%2f` and `%5c` before they resolve dots. Servlet containers remove path parameters
        // before that, so that they read `..;x=1` as `..`.
        let names = decoded.split(|b| matches!(b, b'/' | b'\\')).map(|part| part.split(|b| *b == b';').next());
        if names.into_iter().flatten().any(|name| name == b"." || name == b"..") {
            return Err("the path holds a \".\" or \"..\" segment".into());
        }
    }
    Ok(())
}

/// Appends `target` (checked) and `query` (encoded pairs, may be empty) to `base`.
pub(crate) fn join(base: &Url, target: &str, query: &str) -> Result<Url, Cow<'static, str>> {
    let (path, in_target) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    // Parsing the whole URL again would cost more than all other work on a request before it is sent.
    let mut url = base.clone();
    match base.path().trim_end_matches('/') {
        "" => url.set_path(path),
        prefix => url.set_path(&[prefix, path].concat()),
    }
    match (in_target, query) {
        (None, "") => {}
        (None, query) | (Some(query), "") => url.set_query(Some(query)),
        (Some(first), second) => url.set_query(Some(&[first, "&", second].concat())),
    }
    // Second line of defence: whatever the checks above missed, the setter must not have rewritten the path. (In a
    // query the setter encodes an apostrophe, which means the same.)
    let kept = url.path().strip_prefix(base.path().trim_end_matches('/'));
    if !(kept == Some(path) || (path.is_empty() && kept == Some("/"))) {
        return Err("the path is not in the form in which it would be sent".into());
    }
    Ok(url)
}

fn same_origin(a: &Url, b: &Url) -> bool {
    a.scheme() == b.scheme()
        && a.host_str() == b.host_str()
        && a.port_or_known_default() == b.port_or_known_default()
        && b.username().is_empty()
        && b.password().is_none()
}

/// Returns the part of `url` below `base`: path and query. Fails if `url` is not below `base`.
pub(crate) fn relative<'a>(base: &Url, url: &'a Url) -> Result<&'a str, Cow<'static, str>> {
    if !same_origin(base, url) {
        return Err("the URL's scheme, host or port is not the vendor's, or it holds a user name".into());
    }
    if url.fragment().is_some() {
        return Err("the URL holds a fragment".into());
    }
    let rest = url.path().len() + url.query().map_or(0, |query| query.len() + 1);
    let below = &url.as_str()[url.as_str().len() - rest..];
    let prefix = base.path().trim_end_matches('/');
    match below.strip_prefix(prefix) {
        Some(rest) if rest.is_empty() || rest.starts_with(['/', '?']) => Ok(rest),
        _ => Err("the URL's path is not below the vendor's base URL".into()),
    }
}

#[cfg(test)]
mod tests;
