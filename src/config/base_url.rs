//! Base URLs with tenant variables, filled in such that no value can send a credential to another host.
//!
//! The rule: the operator's template fixes the scheme, the port and every part of the host that it spells out. A
//! tenant's value consists of letters, digits, `-` and `_`, within one host label or one path segment. Dots are allowed
//! in a path segment, and in a host only if the variable is the whole host (`https://{host}/api`): with such a template
//! the operator leaves the choice of the host to the tenant's entry. A filled URL is parsed again, and the host that
//! the parser finds must equal the host as written.

use std::collections::BTreeMap;

use url::{Host, Url};

/// A piece of a template.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    Variable(&'a str),
}

/// The position of a variable in a template.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum VarPosition {
    Label,
    WholeHost,
    Path,
}

/// The names of the variables in `template`.
pub(super) fn variables(template: &str) -> Vec<&str> {
    let pieces = pieces(template).unwrap_or_default();
    pieces.into_iter().filter_map(|piece| if let Piece::Variable(name) = piece { Some(name) } else { None }).collect()
}

/// Whether a tenant's variables choose the host or a part of it.
pub(crate) fn host_varies(template: &str) -> bool {
    split(template).is_ok_and(|(_, host, _)| host.contains('{'))
}

/// Whether the host is in the vendor's own domain for any values of a tenant's variables: the template spells out the
/// whole host, or at least its last two labels.
pub(crate) fn host_is_the_vendors(template: &str) -> bool {
    let Ok((_, host, _)) = split(template) else { return false };
    if !host.contains('{') {
        return true;
    }
    let labels = host.split(':').next().unwrap_or(host);
    let written_out = labels.rsplit('.').take_while(|label| !label.contains('{'));
    written_out.count() >= 2
}

/// Checks a template; the error says what is wrong. `allow_http` permits plain `http` to any host.
pub(super) fn check(template: &str, allow_http: bool) -> Result<(), String> {
    if template.len() > 2048 {
        return Err("the base URL is longer than 2048 bytes".into());
    }
    let (scheme, host, _) = split(template)?;
    if host.starts_with('{') && host.ends_with('}') && host.matches('{').count() == 1 {
        // The whole host is a variable, so the template has no labels to check.
    } else if host.contains('{') {
        let labels = host.split(':').next().unwrap_or(host);
        if labels.rsplit('.').next().is_none_or(|last| last.contains('{')) {
            return Err("a variable cannot be the host's last label: a tenant would choose the domain; \
                        write it out, or make the variable the whole host (\"https://{host}\")"
                .into());
        }
    }
    let mut filled = String::new();
    for piece in pieces(template)? {
        match piece {
            Piece::Text(text) => filled.push_str(text),
            // A letter stands for the value: valid in a label and in a path.
            Piece::Variable(_) => filled.push('v'),
        }
    }
    let url =
        Url::parse(&filled).map_err(|error| format!("this is not a URL ({error}); write \"https://host/path\""))?;
    if !url.username().is_empty() || url.password().is_some() || host.contains('@') {
        return Err(
            "the base URL holds a user name or password (not repeated here); use `auth` and a tenant's `credential`"
                .into(),
        );
    }
    if url.query().is_some() {
        return Err("a base URL has no query (`?…`); send parameters with each request".into());
    }
    if url.fragment().is_some() {
        return Err("a base URL has no fragment (`#…`); remove it".into());
    }
    // Servlet containers ignore what follows a `;` in a segment: they read `..;x` as `..`.
    let climbs = |segment: &str| matches!(segment.split(';').next(), Some("." | ".."));
    if url.path().split('/').any(climbs) || filled.contains("/../") {
        return Err("the base URL's path holds `..`; write the path that it leads to".into());
    }
    if scheme == "http" && !allow_http && !is_loopback(&url) {
        return Err("plain http would send credentials readable to everyone on the way; write https, or set \
                    `connection.allow_http = true` for a host that you trust on a network that you trust"
            .into());
    }
    Ok(())
}

/// `template` with `values` filled in.
pub(super) fn fill(template: &str, values: &BTreeMap<String, String>) -> Result<Url, String> {
    let (_, host, host_start) = split(template)?;
    let mut filled = String::with_capacity(template.len() + 16);
    let mut expected_host = String::new();
    let mut at = 0;
    for piece in pieces(template)? {
        let in_host = at >= host_start && at < host_start + host.len();
        match piece {
            Piece::Text(text) => {
                filled.push_str(text);
                // A text piece may begin before the host, end after the host, or both.
                let start = host_start.saturating_sub(at).min(text.len());
                let end = (host_start + host.len()).saturating_sub(at).min(text.len());
                expected_host.push_str(text.get(start..end).unwrap_or_default());
                at += text.len();
            }
            Piece::Variable(name) => {
                let value = values.get(name).ok_or_else(|| format!("the variable `{name}` has no value"))?;
                let whole = host.len() == name.len() + 2;
                let place = if !in_host {
                    VarPosition::Path
                } else if whole {
                    VarPosition::WholeHost
                } else {
                    VarPosition::Label
                };
                check_value(name, value, place)?;
                filled.push_str(value);
                if in_host {
                    expected_host.push_str(value);
                }
                at += name.len() + 2;
            }
        }
    }
    let url = Url::parse(&filled).map_err(|error| format!("the filled base URL is not a URL ({error})"))?;
    let expected = expected_host.to_ascii_lowercase();
    let expected = match (url.port(), expected.rsplit_once(':')) {
        (_, Some((host, port))) if !host.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => expected.as_str(),
    };
    let literal = !host.contains('{');
    if !literal && (url.domain() != Some(expected) || !url.username().is_empty() || url.password().is_some()) {
        return Err("with this value the base URL would name another host".into());
    }
    Ok(url)
}

/// The path of `url` relative to `base`, if scheme, host and port are equal and the path is below the base's path.
pub(super) fn below<'u>(base: &Url, url: &'u Url) -> Option<&'u str> {
    let same = base.scheme() == url.scheme()
        && base.host() == url.host()
        && base.port_or_known_default() == url.port_or_known_default()
        && url.username().is_empty()
        && url.password().is_none();
    if !same {
        return None;
    }
    let rest = url.path().strip_prefix(base.path().trim_end_matches('/'))?;
    if rest.is_empty() { Some("/") } else { rest.starts_with('/').then_some(rest) }
}

/// Scheme, authority, and the byte offset at which the authority starts.
fn split(template: &str) -> Result<(&str, &str, usize), String> {
    let (scheme, rest) = match template.split_once("://") {
        Some(("https", rest)) => ("https", rest),
        Some(("http", rest)) => ("http", rest),
        _ => return Err("a base URL starts with \"https://\" (or \"http://\" for a host on this machine)".into()),
    };
    // A URL parser ends the host at a backslash as at a slash.
    let host = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    if host.is_empty() {
        return Err("the base URL names no host; write \"https://host/path\"".into());
    }
    if template.chars().any(|c| c.is_whitespace() || c.is_control() || c == '\\') {
        return Err("the base URL holds white space, a control character or a backslash; remove it".into());
    }
    if host.rsplit_once(':').is_some_and(|(_, port)| port.contains(['{', '}'])) {
        return Err("a variable cannot be the port; write it out".into());
    }
    Ok((scheme, host, scheme.len() + 3))
}

fn pieces(template: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut out = Vec::new();
    let mut rest = template;
    while let Some(open) = rest.find(['{', '}']) {
        let (text, tail) = rest.split_at(open);
        if !text.is_empty() {
            out.push(Piece::Text(text));
        }
        let Some((name, tail)) = tail.strip_prefix('{').and_then(|tail| tail.split_once('}')) else {
            return Err("a `{` or `}` in the base URL has no partner; a variable is written {name}".into());
        };
        let valid =
            !name.is_empty() && name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !valid {
            return Err("a variable's name is 1 to 64 letters, digits and `_`".into());
        }
        out.push(Piece::Variable(name));
        rest = tail;
    }
    if !rest.is_empty() {
        out.push(Piece::Text(rest));
    }
    Ok(out)
}

fn check_value(name: &str, value: &str, place: VarPosition) -> Result<(), String> {
    let dots = place != VarPosition::Label;
    let longest = if place == VarPosition::Label { 63 } else { 253 };
    if value.is_empty() || value.len() > longest {
        return Err(format!("the value of `{name}` has {} bytes; 1 to {longest} are allowed there", value.len()));
    }
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_' || (dots && b == b'.');
    if !value.bytes().all(allowed) {
        let also = if dots { ", `.`" } else { "" };
        return Err(format!(
            "the value of `{name}` may hold letters, digits, `-`, `_`{also} and nothing else, or it could lead to another host"
        ));
    }
    let labels_fine =
        value.split('.').all(|label| !label.is_empty() && !label.starts_with('-') && !label.ends_with('-'));
    if place != VarPosition::Path && !labels_fine || place == VarPosition::Path && value.bytes().all(|b| b == b'.') {
        return Err(format!("the value of `{name}` is not a host label: it may not begin or end with `-` or `.`"));
    }
    // A host whose last label begins with a digit is an address: 169.254.169.254 serves a cloud's secrets.
    let number = value.rsplit('.').next().is_some_and(|last| last.starts_with(|c: char| c.is_ascii_digit()));
    if place == VarPosition::WholeHost && (number || !value.contains('.')) {
        return Err(format!(
            "the value of `{name}` must be a full host name such as \"acme.example.com\", not an address"
        ));
    }
    Ok(())
}

/// Whether a URL's host is certain to be this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        // The URL parser has already turned decimal, octal and short forms into addresses.
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests;
