//! How a path names tenant, vendor and the rest: `/TENANT/VENDOR/…`. `aim.rs` puts this way and all others together.
//!
//! Nothing is decoded and nothing repaired: names are compared as they stand, and the rest of the path goes on byte for
//! byte, once it has been checked ([`target::check`]). So no path leads to another host or above the base URL, and none is
//! read one way here and another way by the vendor.

use std::borrow::Cow;

use url::Url;

use crate::transport::target;

/// Stands for the tenant of the caller's token. No tenant has this name.
const OF_TOKEN: &str = "@";
/// Stands before the gateway's own paths. No tenant has this name.
pub(super) const CONTROL: &str = "/~/";

/// What a path names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Named<'p> {
    /// None where it is that of the caller's token.
    pub(super) tenant: Option<&'p str>,
    pub(super) vendor: &'p str,
    /// Path and query below the two: empty, or beginning with `/` or `?`.
    pub(super) rest: &'p str,
}

/// Tenant, vendor and rest of a path with its query.
///
/// # Errors
/// What to write instead. It repeats nothing of the path.
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

/// The first segment after a slash, and what follows it.
fn segment(path: &str) -> Option<(&str, &str)> {
    let path = path.strip_prefix('/')?;
    let end = path.find(['/', '?']).unwrap_or(path.len());
    Some(path.split_at(end))
}

/// Whether a tenant or a vendor may have this name. `.` and `..` may be configured, and are no names in a path.
fn is_name(text: &str) -> bool {
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=128).contains(&text.len()) && text.bytes().all(fine) && !matches!(text, "." | "..")
}

/// Path and query below the vendor's base URL, checked; and whether the caller's path had the base URL's own path before
/// it, which is taken off once: SDKs differ in whether their base URL ends with it (`…/openai` and `…/openai/v1`).
///
/// # Errors
/// Which rule was broken, and the byte where it is one.
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_name_tenant_and_vendor() {
        let named = |tenant, vendor, rest| Ok(Named { tenant, vendor, rest });
        for (path, expected) in [
            ("/acme/stripe/v1/charges?limit=3", named(Some("acme"), "stripe", "/v1/charges?limit=3")),
            ("/acme/stripe", named(Some("acme"), "stripe", "")),
            ("/acme/stripe?x=/a", named(Some("acme"), "stripe", "?x=/a")),
            ("/@/stripe/", named(None, "stripe", "/")),
            ("/acme/stripe//host", named(Some("acme"), "stripe", "//host")),
        ] {
            assert_eq!(by_path(path), expected, "{path}");
        }
        for bad in [
            "",
            "/",
            "/acme",
            "/acme/",
            "/acme?x",
            "//stripe/x",
            "//evil.example/acme/stripe",
            "/%61cme/stripe",
            "/acme/@/x",
            "/~/livez",
            "/../stripe/x",
            "/acme/../x",
            "/a cme/stripe",
            "*",
            "acme/stripe",
            "/acme\\stripe/x",
            "/ü/stripe",
        ] {
            assert!(by_path(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn path_of_the_base_is_taken_off_once() {
        let base = Url::parse("https://api.example/v1").unwrap();
        for (rest, path, had_base) in [
            ("/chat", "/chat", false),
            ("/v1/chat", "/chat", true),
            ("/v1/v1/chat", "/v1/chat", true),
            ("/v10/chat", "/v10/chat", false),
            ("/v1", "/", true),
            ("/v1?x=1", "/?x=1", true),
            ("", "/", false),
            ("?x=1", "/?x=1", false),
        ] {
            assert_eq!(below(&base, rest), Ok((path.into(), had_base)), "{rest}");
        }
        let bare = Url::parse("https://api.example").unwrap();
        assert_eq!(below(&bare, "/v1/chat"), Ok(("/v1/chat".into(), false)));
        for bad in
            ["//evil.example/x", "/v1//evil.example", "/..%2fadmin", "/a/../b", "/..;/x", "/a\\b", "/a%0d%0ab", "/{a}"]
        {
            assert!(below(&base, bad).is_err(), "{bad}");
        }
    }

    proptest! {
        /// Whatever a caller writes: what is sent is at the vendor's host and below its base path.
        #[test]
        fn no_path_leaves_the_base(path in "(/acme/stripe)?[/.%;@\\\\?#a-f0-9v:~ü-]{0,40}", with_base: bool) {
            let base = Url::parse(if with_base { "https://api.example/v1" } else { "https://api.example" }).unwrap();
            if let Ok(named) = by_path(&path)
                && let Ok((below, _)) = below(&base, named.rest)
            {
                let url = target::join(&base, &below, "").unwrap();
                prop_assert_eq!(url.origin(), base.origin());
                let inside = url.path().strip_prefix(base.path().trim_end_matches('/'));
                prop_assert!(inside.is_some_and(|inside| inside.starts_with('/')), "{}", url);
                prop_assert!(url.as_str().ends_with(&*below), "{} {}", url, below);
            }
        }
    }
}
