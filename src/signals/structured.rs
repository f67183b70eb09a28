//! The structured fields `RateLimit` and `RateLimit-Policy` of the IETF drafts, read by the rules of RFC 9651.
//!
//! | drafts | `RateLimit` | `RateLimit-Policy` |
//! |---|---|---|
//! | 08 to 10 | `"daily";r=340;t=43200`: name, remaining, seconds to the reset | `"daily";q=1000;w=86400`: name, quota, window |
//! | 07 | `limit=100, remaining=50, reset=5` | `100;w=10` |
//! | 02 to 06 | none; `RateLimit-Limit` and so on | `100;w=10, 1000;w=3600` |
//!
//! A field that breaks the rules is no information, all of it. So is a member that lacks what it must have.

use std::borrow::Cow;
use std::time::Duration;

use http::header::{HeaderMap, HeaderName};
use sfv::{BareItem, Dictionary, FieldType, Item, List, ListEntry, Parameters, Parser};

use super::moment::{Now, SECOND, reset_number};
use super::number::Decimal;
use super::windows::Name;
use super::{Window, Windows};

/// Vendors with many policies send some hundred bytes.
const MAX_BYTES: usize = 4096;

const MAX_MEMBERS: usize = 32;

/// A quota without a name: it belongs to the window with the same limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quota {
    pub(super) limit: u64,
    pub(super) window: Duration,
}

/// What the two fields say, each as all its lines together. Quotas without names are left to the caller: their window
/// may be in another header.
pub(super) fn read(field: &[u8], policy_field: &[u8], now: &Now, windows: &mut Windows) -> Vec<Quota> {
    let mut policies = Vec::new();
    let mut quotas = Vec::new();
    for item in policy_items(policy_field) {
        match quota(&item) {
            Some(quota) => quotas.push(quota),
            None => policies.extend(policy(item)),
        }
    }
    match parsed::<List>(field) {
        Some(members) if members.len() <= MAX_MEMBERS => {
            for item in members.into_iter().filter_map(item) {
                let Some(mut window) = remaining(&item.params, now) else { continue };
                let Some(name) = name(&item.bare_item) else { continue };
                window.name = Name::new(name);
                if let Some((policy, used)) = policies.iter_mut().find(|(policy, _)| policy.name == window.name) {
                    (window.limit, window.window, *used) = (policy.limit, policy.window, true);
                }
                windows.push(window);
            }
        }
        Some(_) => {}
        None => {
            if let Some(window) = parsed::<Dictionary>(field).and_then(|members| draft_07(&members, now)) {
                windows.push(window);
            }
        }
    }
    policies.into_iter().filter(|(_, used)| !used).for_each(|(window, _)| windows.push(window));
    quotas
}

/// The members of a list such as `10, 100;w=60`, which drafts up to 06 put into `RateLimit-Limit` too.
pub(super) fn list(text: &[u8]) -> Option<Vec<Item>> {
    let members = if text.len() <= MAX_BYTES { parsed::<List>(text)? } else { return None };
    (members.len() <= MAX_MEMBERS).then(|| members.into_iter().filter_map(item).collect())
}

/// `100;w=60`. Some call the parameter `window`.
pub(super) fn quota(item: &Item) -> Option<Quota> {
    Some(Quota { limit: count(Some(&item.bare_item))?, window: window(&item.params)? })
}

pub(super) fn window(params: &Parameters) -> Option<Duration> {
    let seconds = count(params.get("w").or_else(|| params.get("window")))?;
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

pub(super) fn count(value: Option<&BareItem>) -> Option<u64> {
    match value? {
        BareItem::Integer(number) => u64::try_from(*number).ok(),
        BareItem::Decimal(number) => Some(u64::try_from(number.as_integer_scaled_1000()).ok()? / 1000),
        _ => None,
    }
}

fn policy_items(field: &[u8]) -> Vec<Item> {
    list(field).or_else(|| list(without_title(field)?)).unwrap_or_default()
}

/// Hugging Face writes a title in front of the name: `"fixed window";"api";q=500;w=300`.
fn without_title(field: &[u8]) -> Option<&[u8]> {
    let title = field.strip_prefix(b"\"")?;
    let end = title.iter().position(|b| *b == b'"')?;
    title[end + 1..].strip_prefix(b";").filter(|rest| rest.starts_with(b"\""))
}

/// A window, and whether a member of `RateLimit` has used it.
fn policy(item: Item) -> Option<(Window, bool)> {
    let limit = count(item.params.get("q"))?;
    let name = Name::new(name(&item.bare_item)?);
    Some((Window { name, limit: Some(limit), window: window(&item.params), ..Window::default() }, false))
}

/// The drafts demand a string; a token is harmless.
fn name(item: &BareItem) -> Option<&str> {
    item.as_string().map(|name| name.as_str()).or_else(|| item.as_token().map(|name| name.as_str()))
}

/// A member without a remaining count says nothing. One whose time is of another type is not understood at all.
fn remaining(params: &Parameters, now: &Now) -> Option<Window> {
    let BareItem::Integer(remaining) = params.get("r")? else { return None };
    let reset_in = match params.get("t") {
        Some(time) => reset_number(number(time)?, SECOND, now),
        None => None,
    };
    Some(Window { remaining: Some(u64::try_from(*remaining).ok()?), reset_in, ..Window::default() })
}

fn number(value: &BareItem) -> Option<Decimal> {
    match value {
        BareItem::Integer(number) => u64::try_from(*number).ok().map(Decimal::from),
        BareItem::Decimal(number) => u64::try_from(number.as_integer_scaled_1000()).ok().map(Decimal::thousandths),
        _ => None,
    }
}

/// Whole numbers, all of them: a dictionary with another is a mixture of drafts that nobody has described.
fn draft_07(members: &Dictionary, now: &Now) -> Option<Window> {
    let get = |key: &str| match members.get(key) {
        Some(ListEntry::Item(Item { bare_item: BareItem::Integer(number), .. })) => {
            u64::try_from(*number).ok().map(Some)
        }
        Some(_) => None,
        None => Some(None),
    };
    let (limit, remaining, reset) = (get("limit")?, get("remaining")?, get("reset")?);
    let reset_in = reset.and_then(|reset| reset_number(Decimal::from(reset), SECOND, now));
    remaining.map(|remaining| Window { limit, remaining: Some(remaining), reset_in, ..Window::default() })
}

fn item(member: ListEntry) -> Option<Item> {
    match member {
        ListEntry::Item(item) => Some(item),
        ListEntry::InnerList(_) => None,
    }
}

fn parsed<T: FieldType>(text: &[u8]) -> Option<T> {
    Parser::new(text).parse().ok()
}

/// Several lines of a field are one, with commas between. Empty if there is none, or too much of it.
pub(super) fn joined<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Cow<'a, [u8]> {
    let mut field = Cow::Borrowed(&b""[..]);
    for value in headers.get_all(name) {
        let line = value.as_bytes();
        if field.len() + line.len() > MAX_BYTES {
            return Cow::Borrowed(b"");
        }
        if field.is_empty() {
            field = Cow::Borrowed(line);
        } else if !line.is_empty() {
            field.to_mut().extend_from_slice(b", ");
            field.to_mut().extend_from_slice(line);
        }
    }
    field
}
