//! The structured fields `RateLimit` and `RateLimit-Policy` of the IETF drafts, read by the rules of RFC 9651.
//!
//! | drafts | `RateLimit` | `RateLimit-Policy` |
//! |---|---|---|
//! | 08 to 10 | `"daily";r=340;t=43200`: name, remaining, seconds to the reset | `"daily";q=1000;w=86400`: name, quota, window |
//! | 07 | `limit=100, remaining=50, reset=5` | `100;w=10` |
//! | 02 to 06 | none; `RateLimit-Limit` and so on | `100;w=10, 1000;w=3600` |
//!
//! A malformed field is ignored as a whole, and so is a member without its required parameters.

use std::borrow::Cow;
use std::convert::Infallible;
use std::time::Duration;

use http::header::{HeaderMap, HeaderName};
use sfv::visitor::{
    DictionaryVisitor, EntryVisitor, Ignored, InnerListVisitor, ItemVisitor, ListVisitor, ParameterVisitor,
};
use sfv::{BareItemFromInput as BareItem, KeyRef, Parser};
use smallvec::SmallVec;

use super::moment::{MAX_LENGTH, Now, SECOND, reset_number};
use super::number::Decimal;
use super::windows::Name;
use super::windows::{Quota, Quotas, Window, Windows};

/// The longest field that is read, in bytes. Vendors with many policies send a few hundred.
pub(super) const MAX_BYTES: usize = 4096;

const MAX_MEMBERS: usize = 32;

/// A member of a list or a dictionary, with the parameters that some draft defines. All are `None` for an inner list.
#[derive(Default)]
pub(super) struct Member<'f> {
    pub(super) bare: Option<BareItem<'f>>,
    quota: Option<BareItem<'f>>,
    window: Option<BareItem<'f>>,
    window_in_full: Option<BareItem<'f>>,
    remaining: Option<BareItem<'f>>,
    time: Option<BareItem<'f>>,
}

pub(super) type Members<'f> = SmallVec<[Member<'f>; 2]>;

/// Reads the two fields, each with all its lines joined. Returns the quotas without names: their window may be in
/// another header.
pub(super) fn read(field: &[u8], policy_field: &[u8], now: &Now, windows: &mut Windows) -> Quotas {
    let mut policies: SmallVec<[(Window, bool); 2]> = SmallVec::new();
    let mut quotas = Quotas::new();
    let mut members = Members::new();
    read_policy(policy_field, &mut members);
    for member in &members {
        match quota(member) {
            Some(quota) => quotas.push(quota),
            None => policies.extend(policy(member)),
        }
    }
    members.clear();
    match parse(field, &mut members) {
        Some(()) if members.len() <= MAX_MEMBERS => {
            for member in &members {
                let Some(mut window) = remaining(member, now) else { continue };
                let Some(name) = member.bare.as_ref().and_then(name) else { continue };
                window.name = Name::new(name);
                if let Some((policy, used)) = policies.iter_mut().find(|(policy, _)| policy.name == window.name) {
                    (window.limit, window.window, *used) = (policy.limit, policy.window, true);
                }
                windows.push(window);
            }
        }
        Some(()) => {}
        None => {
            let members = Parser::new(field).parse_dictionary_with_visitor(Draft07::default()).ok();
            if let Some(window) = members.and_then(|members| members.window(now)) {
                windows.push(window);
            }
        }
    }
    policies.into_iter().filter(|(_, used)| !used).for_each(|(window, _)| windows.push(window));
    quotas
}

/// Parses a list such as `10, 100;w=60`, which drafts up to 06 also allow in `RateLimit-Limit`, into the empty
/// `members`.
/// `members` stays empty if the list is malformed.
pub(super) fn list<'t>(text: &'t [u8], members: &mut Members<'t>) -> Option<()> {
    let read = if text.len() <= MAX_BYTES { parse(text, members) } else { None };
    if read.is_none() || members.len() > MAX_MEMBERS {
        members.clear();
        return None;
    }
    members.retain(|member| member.bare.is_some());
    Some(())
}

/// Reads `100;w=60`. Some vendors call the parameter `window`.
pub(super) fn quota(member: &Member<'_>) -> Option<Quota> {
    Some(Quota { limit: count(member.bare.as_ref())?, window: window(member)? })
}

/// The length of a window. `None` if it is zero or longer than a year, as for all other lengths.
pub(super) fn window(member: &Member<'_>) -> Option<Duration> {
    let seconds = count(member.window.as_ref().or(member.window_in_full.as_ref()))?;
    Some(Duration::from_secs(seconds)).filter(|length| !length.is_zero() && *length <= MAX_LENGTH)
}

pub(super) fn count(value: Option<&BareItem<'_>>) -> Option<u64> {
    match value? {
        BareItem::Integer(number) => u64::try_from(*number).ok(),
        BareItem::Decimal(number) => Some(u64::try_from(number.as_integer_scaled_1000()).ok()? / 1000),
        _ => None,
    }
}

fn read_policy<'t>(field: &'t [u8], members: &mut Members<'t>) {
    if list(field, members).is_none()
        && let Some(rest) = without_title(field)
    {
        list(rest, members);
    }
}

/// Hugging Face writes a title in front of the name: `"fixed window";"api";q=500;w=300`.
fn without_title(field: &[u8]) -> Option<&[u8]> {
    let title = field.strip_prefix(b"\"")?;
    let end = title.iter().position(|b| *b == b'"')?;
    title[end + 1..].strip_prefix(b";").filter(|rest| rest.starts_with(b"\""))
}

/// A window, and whether a member of `RateLimit` has used it.
fn policy(member: &Member<'_>) -> Option<(Window, bool)> {
    let limit = count(member.quota.as_ref())?;
    let name = Name::new(name(member.bare.as_ref()?)?);
    Some((Window { name, limit: Some(limit), window: window(member), ..Window::default() }, false))
}

/// The name of a member. The drafts require a string; a token is accepted too.
fn name<'i>(item: &'i BareItem<'_>) -> Option<&'i str> {
    match item {
        BareItem::String(name) => Some(name.as_str()),
        BareItem::Token(name) => Some(name.as_str()),
        _ => None,
    }
}

/// The window of a `RateLimit` member. `None` without a remaining count, and if its time is not a number.
fn remaining(member: &Member<'_>, now: &Now) -> Option<Window> {
    let BareItem::Integer(remaining) = member.remaining.as_ref()? else { return None };
    let reset_in = match &member.time {
        Some(time) => reset_number(number(time)?, SECOND, now),
        None => None,
    };
    Some(Window { remaining: Some(u64::try_from(*remaining).ok()?), reset_in, ..Window::default() })
}

fn number(value: &BareItem<'_>) -> Option<Decimal> {
    match value {
        BareItem::Integer(number) => u64::try_from(*number).ok().map(Decimal::from),
        BareItem::Decimal(number) => u64::try_from(number.as_integer_scaled_1000()).ok().map(Decimal::thousandths),
        _ => None,
    }
}

/// Limit, remaining and reset, each as the last member of that name has it.
#[derive(Default)]
struct Draft07<'f>([Option<Member<'f>>; 3]);

impl Draft07<'_> {
    /// Requires whole numbers: no draft describes a dictionary with other values.
    fn window(&self, now: &Now) -> Option<Window> {
        let whole = |member: &Option<Member<'_>>| match member {
            Some(Member { bare: Some(BareItem::Integer(number)), .. }) => u64::try_from(*number).ok().map(Some),
            Some(_) => None,
            None => Some(None),
        };
        let [limit, remaining, reset] = &self.0;
        let (limit, remaining, reset) = (whole(limit)?, whole(remaining)?, whole(reset)?);
        let reset_in = reset.and_then(|reset| reset_number(Decimal::from(reset), SECOND, now));
        remaining.map(|remaining| Window { limit, remaining: Some(remaining), reset_in, ..Window::default() })
    }
}

impl<'f> DictionaryVisitor<'f> for Draft07<'f> {
    type Out = Self;
    type Error = Infallible;

    fn entry(&mut self, key: &'f KeyRef) -> Result<impl EntryVisitor<'f>, Infallible> {
        let at = ["limit", "remaining", "reset"].iter().position(|known| *known == key.as_str());
        Ok(at.and_then(|at| self.0.get_mut(at)).map(|slot| slot.insert(Member::default())))
    }

    fn finish(self) -> Result<Self, Infallible> {
        Ok(self)
    }
}

struct All<'a, 'f>(&'a mut Members<'f>);

impl<'f> ListVisitor<'f> for All<'_, 'f> {
    type Out = ();
    type Error = Infallible;

    /// Keeps one member more than the bound, which marks the list as too long.
    fn entry(&mut self) -> Result<impl EntryVisitor<'f>, Infallible> {
        if self.0.len() > MAX_MEMBERS {
            return Ok(None);
        }
        self.0.push(Member::default());
        Ok(self.0.last_mut())
    }

    fn finish(self) -> Result<(), Infallible> {
        Ok(())
    }
}

impl<'f> EntryVisitor<'f> for &mut Member<'f> {
    type Error = Infallible;

    fn item(self) -> Result<impl ItemVisitor<'f>, Infallible> {
        Ok(self)
    }

    fn inner_list(self) -> Result<impl InnerListVisitor<'f>, Infallible> {
        Ok(Ignored)
    }
}

impl<'f> ItemVisitor<'f> for &mut Member<'f> {
    type Out = ();
    type Error = Infallible;

    fn bare_item(self, item: BareItem<'f>) -> Result<impl ParameterVisitor<'f, Out = ()>, Infallible> {
        self.bare = Some(item);
        Ok(self)
    }
}

impl<'f> ParameterVisitor<'f> for &mut Member<'f> {
    type Out = ();
    type Error = Infallible;

    /// Of several parameters with the same name, the last one counts.
    fn parameter(&mut self, key: &'f KeyRef, value: BareItem<'f>) -> Result<(), Infallible> {
        let slot = match key.as_str() {
            "q" => &mut self.quota,
            "w" => &mut self.window,
            "window" => &mut self.window_in_full,
            "r" => &mut self.remaining,
            "t" => &mut self.time,
            _ => return Ok(()),
        };
        *slot = Some(value);
        Ok(())
    }

    fn finish(self) -> Result<(), Infallible> {
        Ok(())
    }
}

fn parse<'t>(text: &'t [u8], members: &mut Members<'t>) -> Option<()> {
    Parser::new(text).parse_list_with_visitor(All(members)).ok()
}

/// Joins all lines of a field with commas. Empty if there is no line, or if they exceed [`MAX_BYTES`].
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
