//! Reads headers by their shape alone, whatever vendor sent them.
//!
//! One pass over the headers sorts the relevant ones into groups, one for each window; then each group is read. A group
//! states only figures that are certain.

mod amount;
mod cue;
mod name;
mod words;

use std::borrow::Cow;
use std::time::Duration;

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::dialect::Dialect;
use super::found::Signals;
use super::moment::{self, Now};
use super::number::{Decimal, bare};
use super::structured;
use super::windows::Quotas;
use super::windows::{Name, Window, Windows};
use super::word::MILLISECOND;
use amount::Amount;
use cue::may_speak;
use name::Certainty;
pub(super) use name::unit;
use words::{Role, Title};

/// The most groups that are read: the vendor decides how many there are.
const MAX_GROUPS: usize = 32;

/// Kinds of figures that a header can state of a window: limit, remaining, reset, used, length.
const SLOTS: usize = 5;

/// The facts that headers state besides windows and costs.
#[derive(Debug)]
pub(super) struct StatedWaits {
    /// No header is relevant.
    pub(super) is_nothing: bool,
    /// The longest wait in a header that counts milliseconds, and the longest one in seconds or as a date.
    pub(super) wait_ms: Option<Duration>,
    pub(super) wait: Option<Duration>,
}

/// A header with one figure of a window, or a structured field.
#[derive(Clone, Copy)]
struct Slot<'h> {
    name: &'h HeaderName,
    first: &'h HeaderValue,
    lines: u32,
    unit: u64,
}

impl<'h> Slot<'h> {
    fn line(&self) -> (&'h [u8], u128) {
        (self.first.as_bytes(), u128::from(self.unit))
    }
}

/// The headers that describe one window.
struct Group<'h> {
    family: usize,
    name: Option<Title<'h>>,
    length: Option<Duration>,
    certainty: Certainty,
    /// The limit has the form `12/40`, which makes some groups certain.
    holds_use: bool,
    slots: [Option<Slot<'h>>; SLOTS],
}

/// The structured fields of a family.
struct Fields<'h> {
    family: usize,
    field: Option<Slot<'h>>,
    policy: Option<Slot<'h>>,
}

#[derive(Default)]
struct Sorted<'h> {
    /// The common prefixes of header names that belong together. Other fields refer to them by index.
    families: SmallVec<[&'h str; 4]>,
    groups: SmallVec<[Group<'h>; 4]>,
    fields: SmallVec<[Fields<'h>; 1]>,
    /// Headers that name the window of a family: family, rank, value.
    labels: SmallVec<[(usize, u8, &'h HeaderValue); 2]>,
}

/// Whether any header may be relevant.
pub(super) fn may_be_in(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| may_speak(name.as_str()))
}

/// Reads all headers that the dialect does not claim. Adds windows and the cost to `signals`.
pub(super) fn read(headers: &HeaderMap, dialect: &Dialect, now: &Now, signals: &mut Signals) -> StatedWaits {
    let mut stated = StatedWaits { is_nothing: true, wait_ms: None, wait: None };
    let mut sorted = Sorted::default();
    let mut last: Option<&HeaderName> = None;
    for (name, value) in headers {
        let text = name.as_str();
        if !may_speak(text) || dialect.claims(name) {
            continue;
        }
        stated.is_nothing = false;
        // `HeaderMap` yields the lines of one header in a row, with the same reference to its name.
        let again = last.is_some_and(|last| std::ptr::eq(last, name));
        last = Some(name);
        let Some(meaning) = name::meaning(text) else { continue };
        match meaning.role {
            Role::Wait => {
                let wait = moment::hint(value.as_bytes(), u128::from(meaning.unit), now);
                let wait = wait.filter(|_| !dialect.is_nothing(value.as_bytes()));
                let longest = if meaning.unit == MILLISECOND { &mut stated.wait_ms } else { &mut stated.wait };
                *longest = (*longest).max(wait);
            }
            Role::Cost => {
                let cost = Decimal::read(bare(value.as_bytes()));
                signals.cost = signals.cost.or(cost.map(Decimal::approximately));
            }
            _ if dialect.is_nothing(value.as_bytes()) => {}
            _ => sorted.add(meaning, name, value, again),
        }
    }
    if !stated.is_nothing {
        sorted.read(headers, now, &mut signals.windows);
    }
    stated
}

impl<'h> Sorted<'h> {
    fn add(&mut self, meaning: name::Meaning<'h>, header: &'h HeaderName, value: &'h HeaderValue, again: bool) {
        let is_number = || Decimal::read(bare(value.as_bytes())).is_some();
        let role = match meaning.role {
            // `X-RateLimit: 100`
            Role::Field if is_number() || amount::is_use(value.as_bytes()) => Role::Limit,
            Role::Field if value.as_bytes().starts_with(b"{") => Role::Unknown,
            role => role,
        };
        let Some(family) = self.family(meaning.family) else { return };
        let slot = Slot { name: header, first: value, lines: 1, unit: meaning.unit };
        let at = match role {
            Role::Limit => 0,
            Role::Remaining => 1,
            Role::Reset => 2,
            Role::Used => 3,
            Role::Length => 4,
            Role::Field | Role::Policy => return self.field(family, role == Role::Policy, slot),
            Role::Label(rank) => return self.labels.push((family, rank, value)),
            Role::Unknown if !again && amount::is_pairs(value.as_bytes()) => 0,
            Role::Unknown | Role::Wait | Role::Cost => return,
        };
        self.group(family, meaning, at, slot);
    }

    /// The index of a family; `None` for new ones beyond [`MAX_GROUPS`].
    fn family(&mut self, name: &'h str) -> Option<usize> {
        let known = self.families.iter().position(|family| *family == name);
        if known.is_none() && self.families.len() < MAX_GROUPS {
            self.families.push(name);
            return Some(self.families.len() - 1);
        }
        known
    }

    fn field(&mut self, family: usize, is_policy: bool, new: Slot<'h>) {
        let known = self.fields.iter().position(|fields| fields.family == family);
        if known.is_none() {
            self.fields.push(Fields { family, field: None, policy: None });
        }
        let known = known.or(self.fields.len().checked_sub(1));
        if let Some(fields) = known.and_then(|at| self.fields.get_mut(at)) {
            match if is_policy { &mut fields.policy } else { &mut fields.field } {
                Some(known) if known.name == new.name => known.lines += 1,
                slot => *slot = Some(new),
            }
        }
    }

    fn group(&mut self, family: usize, meaning: name::Meaning<'h>, slot: usize, new: Slot<'h>) {
        let name::Meaning { name, length, certainty, .. } = meaning;
        let at = match self.groups.iter().position(|group| group.family == family && group.name == name) {
            Some(at) => at,
            None if self.groups.len() < MAX_GROUPS => {
                self.groups.push(Group { family, name, length, certainty, holds_use: false, slots: [None; SLOTS] });
                self.groups.len() - 1
            }
            None => return,
        };
        let Some(group) = self.groups.get_mut(at) else { return };
        group.length = group.length.or(length);
        match group.slots.get_mut(slot) {
            Some(Some(known)) if known.name == new.name => known.lines += 1,
            // `reset-after` replaces `reset`: a time from now does not depend on clocks.
            Some(slot @ Some(_)) if new.name.as_str().ends_with("after") => *slot = Some(new),
            Some(slot @ None) => *slot = Some(new),
            _ => {}
        }
        if slot == 0 && certainty != Certainty::Certain {
            let [limit, ..] = &group.slots;
            group.holds_use = limit.is_some_and(|limit| amount::is_use(limit.first.as_bytes()));
        }
    }

    fn read(&mut self, headers: &HeaderMap, now: &Now, windows: &mut Windows) {
        let mut quotas = Quotas::new();
        for fields in &self.fields {
            let line = |slot: &Option<Slot<'h>>| match slot {
                Some(slot) if slot.lines == 1 && slot.first.len() <= structured::MAX_BYTES => {
                    Cow::Borrowed(slot.first.as_bytes())
                }
                Some(slot) => structured::joined(headers, slot.name),
                None => Cow::default(),
            };
            windows.beside(|windows| {
                quotas.extend(structured::read(&line(&fields.field), &line(&fields.policy), now, windows));
            });
        }
        self.adopt();
        for (at, first) in self.groups.iter().enumerate() {
            let (before, rest) = self.groups.split_at(at);
            if before.iter().any(|group| group.family == first.family) {
                continue;
            }
            windows.beside(|windows| {
                for group in rest.iter().filter(|group| group.family == first.family && group.is_certain()) {
                    group.read(headers, self.label(group), now, windows);
                }
            });
        }
        windows.bind(&quotas);
    }

    /// The name that a label header gives to a group without a name.
    fn label(&self, group: &Group<'_>) -> Option<Name> {
        let labels = self.labels.iter().filter(|(family, ..)| group.name.is_none() && *family == group.family);
        let (_, _, value) = labels.min_by_key(|(_, rank, _)| *rank)?;
        Name::new(std::str::from_utf8(value.as_bytes()).ok().filter(|text| text.len() <= 128)?)
    }

    /// Moves an unnamed reset or length into the window that it belongs to: the only named one (`-daily-limit`,
    /// `-daily-remaining`, `-reset`), or among several the only exhausted one, for which the client has to wait.
    fn adopt(&mut self) {
        let Some(at) = self.groups.iter().position(|group| {
            let [limit, remaining, reset, used, length] = &group.slots;
            group.name.is_none()
                && [limit, remaining, used].iter().all(|slot| slot.is_none())
                && (reset.is_some() || length.is_some())
        }) else {
            return;
        };
        let Some(family) = self.groups.get(at).map(|group| group.family) else { return };
        let is_only = self.groups.iter().filter(|group| group.family == family).count() == 2;
        // A window that states its own reset needs no other.
        let takes = |group: &Group<'_>| {
            group.family == family
                && group.name.is_some()
                && (is_only || group.is_exhausted() && group.slots[2].is_none())
        };
        if self.groups.iter().filter(|group| takes(group)).count() != 1 {
            return;
        }
        let Some(owner) = self.groups.iter().position(takes) else { return };
        let Some([_, _, reset, _, length]) = self.groups.get(at).map(|group| group.slots) else { return };
        if let Some(group) = self.groups.get_mut(owner) {
            let [_, _, own_reset, _, own_length] = &mut group.slots;
            *own_reset = own_reset.or(reset);
            *own_length = own_length.or(length.filter(|_| is_only));
        }
        self.groups.remove(at);
    }
}

impl Group<'_> {
    /// Whether the group has one remaining count, and this is zero.
    fn is_exhausted(&self) -> bool {
        let [_, remaining, ..] = &self.slots;
        remaining
            .is_some_and(|slot| slot.lines == 1 && amount::plain(Some(slot.line())).is_ok_and(|left| left == Some(0)))
    }

    /// Whether the headers present prove that this is a limit on requests.
    fn is_certain(&self) -> bool {
        let [limit, remaining, reset, used, _] = self.slots.each_ref().map(Option::is_some);
        match self.certainty {
            Certainty::Certain => true,
            Certainty::Counted => remaining || (limit && used) || self.holds_use,
            Certainty::Parallel => limit || remaining,
            Certainty::Triple => (limit && remaining && reset) || self.holds_use,
        }
    }

    fn read(&self, headers: &HeaderMap, label: Option<Name>, now: &Now, windows: &mut Windows) {
        let lines = self.slots.iter().flatten().map(|slot| slot.lines).max().unwrap_or(0);
        // `acme-shop-api-call-limit: 12/40` names the vendor rather than a window.
        let is_only = self.certainty != Certainty::Certain && self.length.is_none() && self.holds_use;
        let name = self.name.as_ref().filter(|_| !is_only).and_then(Title::to_name).or(label);
        if lines == 1 {
            let lines = self.slots.each_ref().map(|slot| slot.as_ref().map(Slot::line));
            return self.window(lines, name, now, windows);
        }
        let all = |slot: &Slot<'_>| headers.get_all(slot.name).iter();
        let paired = self.slots.iter().flatten().all(|slot| slot.lines == lines);
        // A gateway and the application behind it may each have added a set. If the numbers of lines differ, it is
        // unknown which lines belong together, and only headers with a single line are certain.
        let most = if paired { usize::try_from(lines).unwrap_or(MAX_GROUPS).min(MAX_GROUPS) } else { 1 };
        for at in 0..most {
            let line = |slot: &Option<Slot<'_>>| {
                let slot = slot.as_ref().filter(|slot| paired || slot.lines == 1)?;
                all(slot).nth(at).map(|value| (value.as_bytes(), u128::from(slot.unit)))
            };
            let [a, b, c, d, e] = &self.slots;
            let lines = [line(a), line(b), line(c), line(d), line(e)];
            self.window(lines, name.clone(), now, windows);
        }
    }

    fn window(&self, lines: [Option<(&[u8], u128)>; SLOTS], name: Option<Name>, now: &Now, windows: &mut Windows) {
        let [limit, remaining, reset, used, length] = lines;
        let reset_in = |reset: Option<(&[u8], u128)>| reset.and_then(|(text, unit)| moment::reset(text, unit, now));
        let stated = || length.and_then(|(text, unit)| moment::length(text, unit));
        let is_parallel = self.certainty == Certainty::Parallel;
        // Plain digits: the quick path for nearly all vendors.
        if let [Ok(limit), Ok(remaining), Ok(used)] = [limit, remaining, used].map(amount::plain) {
            let window = stated().or(self.length);
            let overdrawn = false;
            let reset_in = reset_in(reset);
            let figures = Window { limit, remaining, used, reset_in, is_parallel, ..Window::default() };
            return windows.push(Window { name, window, overdrawn, ..figures });
        }
        if let Some((text, _)) = limit.filter(|(text, _)| amount::is_pairs(text)) {
            let described = amount::pairs(text, now);
            let name = described.name.clone().or(name);
            return windows.push(Window { name, ..described });
        }
        if let Some(parallel) = amount::parallel([limit, remaining, reset]) {
            let unit = reset.map_or(moment::SECOND, |(_, unit)| unit);
            for [limit, remaining, reset] in parallel {
                windows.push(Window {
                    name: name.clone(),
                    limit: Decimal::read(limit).and_then(Decimal::count),
                    remaining: Decimal::read(remaining).and_then(Decimal::count),
                    reset_in: reset_in(Some((reset, unit))),
                    ..Window::default()
                });
            }
            return;
        }
        let amounts = (Amount::read(limit), Amount::read(remaining), Amount::read(used));
        let (Ok(mut limit), Ok(remaining), Ok(used)) = amounts else { return };
        let reset_in = reset_in(reset);
        limit.put_first(reset_in);
        windows.push(Window {
            name,
            limit: limit.count,
            remaining: remaining.count,
            used: used.count.or(limit.used),
            reset_in,
            window: stated().or(limit.window).or(remaining.window).or(self.length),
            overdrawn: remaining.is_negative,
            is_share: false,
            is_parallel,
        });
        windows.bind(&limit.others);
    }
}
