//! Reads tenant, vendor and the rest from a path: `/TENANT/VENDOR/…`. `aim.rs` combines this way with all others.
//!
//! Nothing is decoded or repaired: names are compared as written, and the rest of the path is forwarded byte for byte
//! once it has been checked ([`target::check`]). So no path leads to another host or above the base URL, and the
//! gateway and the vendor cannot read the same path differently.

use std::borrow::Cow;

use url::Url;

use crate::transport::target;

/// In place of a tenant: the tenant of the caller's token. No tenant has this name.
const OF_TOKEN: &str = "@";
/// Prefix of the gateway's own paths. No tenant is named `~`.
pub(super) const CONTROL: &str = "/~/";

/// The parts of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Named<'p> {
    /// `None` if the path names the tenant of the caller's token.
    pub(super) tenant: Option<&'p str>,
    pub(super) vendor: &'p str,
    /// Path and query after tenant and vendor: empty, or beginning with `/` or `?`.
    pub(super) rest: &'p str,
}

/// Splits a path with its query into tenant, vendor and rest.
///
/// # Errors
/// The error says what to write instead, and repeats nothing of the path.
pub(super) fn by_path(path: &str) -> Result<Named<'_>, &'static str> {
    const FORM: &str = "the path must be /TENANT/VENDOR/…, or /@/VENDOR/… for the tenant of the caller's token; \
                        names have 1 to 128 of A-Z a-z 0-9 . _ -";
    let (tenant, rest) = segment(path).ok_or(FORM)?;
    let (vendor, rest) = segment(rest).ok_or(FORM)?;
    if !is_name(vendor) || !(tenant == OF_TOKEN || is_name(tenant)) {
        return Err(FORM);
    }
    Ok(Named { tenant: Some(tenant).filter(|name| *name != OF_TOKEN), vendor, rest })
}

/// Splits off the first segment after the leading slash.
fn segment(path: &str) -> Option<(&str, &str)> {
    let path = path.strip_prefix('/')?;
    let end = path.find(['/', '?']).unwrap_or(path.len());
    Some(path.split_at(end))
}

/// Whether `text` can be the name of a tenant or a vendor in a path. `.` and `..` may be configured as names, but
/// cannot be used in a path.
fn is_name(text: &str) -> bool {
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=128).contains(&text.len()) && text.bytes().all(fine) && !matches!(text, "." | "..")
}

/// Returns path and query below the vendor's base URL, checked, and whether the caller's path began with the base
/// URL's own path. That prefix is removed once, because SDKs differ in whether their base URL ends with it (`…/openai`
/// and `…/openai/v1`).
///
/// # Errors
/// The error names the broken rule, and the byte if a single byte breaks it.
pub(super) fn below<'r>(base: &Url, rest: &'r str) -> Result<(Cow<'r, str>, bool), Cow<'static, str>> {
    let prefix = base.path().trim_end_matches('/');
    let without = rest.strip_prefix(prefix).filter(|after| after.is_empty() || after.starts_with(['/', '?']));
    let (path, had_base) = match without {
        Some(after) if !prefix.is_empty() => (after, true),
        _ => (rest, false),
    };
    let path: Cow<'_, str> = if path.starts_with('/') { path.into() } else { format!("/{path}").into() };
    target::check(&path)?;
    Ok((path, had_base))
}

#[cfg(test)]
mod tests;
