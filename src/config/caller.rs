//! Programs that may call through the gateway.

use std::fmt;
use std::sync::Arc;

use super::credential::CredentialRef;
use super::names::names;
use crate::config::priority::Priority;

/// A program that may call through the gateway, as `[[callers]]` states it.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Caller {
    /// The caller's name, for logs and messages.
    pub name: Arc<str>,
    /// The reference to the caller's token, never the token itself.
    pub token: CredentialRef,
    /// Patterns of the tenants on whose behalf the caller may call: `*` stands for any characters.
    pub tenants: Vec<String>,
    /// The vendors that the caller may call; empty means all.
    pub vendors: Vec<String>,
    /// The highest priority that the caller may ask for.
    pub priority: Priority,
    /// The caller's rights.
    pub may: Vec<May>,
    /// Where in a response the gateway rewrites URLs of the vendor so that they lead through the gateway.
    pub rewrite: Rewrite,
}

/// A right of a caller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum May {
    /// Send requests, and wait for their responses.
    Send,
    /// Leave requests in the store, to be sent later, and ask for their receipts.
    Async,
    /// Look at everything in the console, which shows all tenants and vendors.
    View,
    /// Look at everything in the console, pause lanes, and send dead letters again or delete them.
    Operate,
}

names!(May { Send = "send", Async = "async", View = "view", Operate = "operate" });

/// Where in a response the gateway rewrites URLs of the vendor so that they lead through the gateway.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Rewrite {
    /// In headers: `Link`, `Location` and the like.
    #[default]
    Headers,
    /// In headers, and in the strings of JSON bodies.
    Json,
}

names!(Rewrite { Headers = "headers", Json = "json" });

impl Caller {
    /// Whether the caller may call on behalf of this tenant.
    pub fn may_act_for(&self, tenant: &str) -> bool {
        self.tenants.iter().any(|pattern| matches(pattern, tenant))
    }

    /// Whether the caller may call this vendor.
    pub fn may_call(&self, vendor: &str) -> bool {
        self.vendors.is_empty() || self.vendors.iter().any(|name| name == vendor)
    }

    /// Whether the caller may act for every tenant, at every vendor.
    pub fn is_for_all(&self) -> bool {
        self.vendors.is_empty() && self.tenants.iter().any(|pattern| pattern == "*")
    }

    /// The only tenant on whose behalf the caller may call; `None` if there may be several.
    pub fn only_tenant(&self) -> Option<&str> {
        match &self.tenants[..] {
            [only] if !only.contains('*') => Some(only),
            _ => None,
        }
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller")
            .field("name", &self.name)
            .field("token", &format_args!("{}", self.token))
            .field("tenants", &self.tenants)
            .field("vendors", &self.vendors)
            .field("priority", &self.priority)
            .field("may", &self.may)
            .field("rewrite", &self.rewrite)
            .finish()
    }
}

/// Whether `pattern` matches `text`. The time is at most proportional to the product of their lengths, each of which is
/// at most 128 bytes.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where to resume if the characters after the last star do not match: the star then matches one character more.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Some(b) if *b == text[t] => (p, t) = (p + 1, t + 1),
            _ => match &mut retry {
                Some((after, from)) => {
                    *from += 1;
                    (p, t) = (*after, *from);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|b| *b == b'*')
}

#[cfg(test)]
mod tests;
