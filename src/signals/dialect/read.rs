//! Applies a dialect's rules to a response.

use std::time::Duration;

use serde_json::Value;

use super::context::Context;
use super::{AnswerRule, Figure, Scope, Source, WaitRule, WindowRule};
use crate::signals::found::Stated;
use crate::signals::json::{self};
use crate::signals::message;
use crate::signals::moment::{self, MAX_WAIT, SECOND};
use crate::signals::number::{Decimal, bare, from_nanos, total};
use crate::signals::windows::{Name, Window, Windows};
use crate::signals::word::period;

/// The windows that the dialect finds, and the longest wait that they ask for.
pub(in crate::signals) fn windows(response: &Context<'_>, found: &mut Windows) -> Option<Duration> {
    let mut longest = None;
    for rule in &response.dialect.windows {
        let wait = match (&rule.each, &rule.items) {
            (Some(each), _) => {
                let mut longest = None;
                each.values(response, |keys, object| {
                    let (window, wait) = rule.window(response, Some(object), keys, None);
                    found.push(window);
                    longest = longest.max(wait);
                });
                longest
            }
            (None, Some((header, form))) => {
                let lines = response.headers.get_all(header).iter().take(16);
                let unit = rule.unit.unwrap_or(SECOND);
                let waits = lines.map(|line| {
                    form.read(line.as_bytes(), unit, response.now, |mut window| {
                        rule.complete(&mut window);
                        found.join(window);
                    })
                });
                waits.max().flatten()
            }
            (None, None) => rule.plain(response, found),
        };
        longest = longest.max(wait);
    }
    for window in found.iter_mut() {
        window.derive();
    }
    longest
}

impl WindowRule {
    /// Adds the constants of the rule to a window from a list.
    fn complete(&self, window: &mut Window) {
        let name = self.name.as_deref().and_then(Name::new);
        window.name = window.name.take().or(name);
        if window.window.is_none() {
            window.window = self.length.or_else(|| length_of(window.name.as_deref()?));
        }
        let is = |figure: &Option<Figure>| match figure {
            Some(Figure::Is(count)) => Some(*count),
            _ => None,
        };
        window.limit = window.limit.or(is(&self.limit));
        window.remaining = window.remaining.or(is(&self.remaining));
    }

    fn plain(&self, response: &Context<'_>, found: &mut Windows) -> Option<Duration> {
        // A source with a `*` makes one window of each header that matches.
        let figures = [&self.limit, &self.remaining, &self.used].into_iter().flatten().filter_map(Figure::source);
        let wild = figures.chain(&self.reset).find(|source| matches!(source, Source::Headers(_)));
        let Some(wild) = wild else {
            let (window, wait) = self.window(response, None, &[], None);
            found.push(window);
            return wait;
        };
        let mut longest = None;
        wild.texts(response, None, |keys, text| {
            let (window, wait) = self.window(response, None, keys, Some((wild, text)));
            found.push(window);
            longest = longest.max(wait);
        });
        longest
    }

    fn window(
        &self,
        response: &Context<'_>,
        object: Option<&Value>,
        keys: &[String],
        known_value: Option<(&Source, &[u8])>,
    ) -> (Window, Option<Duration>) {
        let unit = |source: &Source| self.unit.unwrap_or_else(|| unit_of(source));
        let figures = Figures { rule: self, response, object, known_value };
        let mut overdrawn = false;
        let mut count = |figure: &Option<Figure>| match figure.as_ref()? {
            Figure::Is(count) => Some(*count),
            Figure::At(source) => figures.value(source, |text| {
                overdrawn |= bare(text).strip_prefix(b"-").is_some_and(|rest| Decimal::read(rest).is_some());
                number(text)
            }),
        };
        let (limit, used, remaining) = (count(&self.limit), count(&self.used), count(&self.remaining));
        let reset = |source: &Source| figures.value(source, |text| moment::reset(text, unit(source), response.now));
        let length = |source: &Source| figures.value(source, |text| moment::length(text, unit(source)));
        let name = self.name.as_deref().and_then(|name| match name.contains('{') {
            true => Name::new(&named(name, keys, object)),
            false => Name::new(name),
        });
        let stated = self.length_from.as_ref().and_then(length);
        let mut window = Window {
            limit,
            remaining,
            used,
            reset_in: self.reset.as_ref().and_then(reset),
            overdrawn,
            ..Window::default()
        };
        if window == Window::default() && stated.is_none() && self.regain.is_none() {
            return (window, None);
        }
        let is_constant = |figure: &Option<Figure>| matches!(figure, Some(Figure::Is(_)));
        // A constant limit alone does not make a window: the response states nothing.
        if is_constant(&self.limit) && used.is_none() && remaining.is_none() && window.reset_in.is_none() {
            return (Window::default(), None);
        }
        window.is_share = matches!(self.limit, Some(Figure::Is(100))) && used.is_some();
        window.window = stated.or(self.length).or_else(|| length_of(name.as_deref()?));
        window.name = name;
        window.derive();
        let mut wait = None;
        if window.is_exhausted()
            && let Some(source) = &self.regain
        {
            wait = reset(source);
            window.reset_in = window.reset_in.max(wait);
        }
        (window, wait)
    }

    /// The value, or the item of it that the rule selects.
    fn item<'t>(&self, text: &'t [u8]) -> Option<&'t [u8]> {
        match self.item {
            Some(at) => text.split(|b| *b == b',').nth(at).map(<[u8]>::trim_ascii),
            None => Some(text),
        }
    }
}

/// Looks up the figures of one window.
struct Figures<'f, 'r> {
    rule: &'f WindowRule,
    response: &'f Context<'r>,
    object: Option<&'f Value>,
    /// A source whose value is already known.
    known_value: Option<(&'f Source, &'f [u8])>,
}

impl Figures<'_, '_> {
    /// Applies `read` to the first value at `source` that is no placeholder.
    fn value<T>(&self, source: &Source, mut read: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
        let mut found = None;
        let mut each = |text: &[u8]| {
            let item = self.rule.item(text).filter(|item| !self.response.dialect.is_nothing(item));
            if found.is_none() {
                found = item.map(&mut read);
            }
        };
        match self.known_value {
            Some((known, text)) if known == source => each(text),
            _ => source.texts(self.response, self.object, |_, text| each(text)),
        }
        found.flatten()
    }
}

/// Parses a count that may have commas between thousands: a rule names the value as one number, so it is no list.
fn number(text: &[u8]) -> Option<u64> {
    let text = bare(text);
    if let Some(number) = Decimal::read(text) {
        return number.count();
    }
    let (whole, rest) = match text.iter().position(|b| *b == b'.') {
        Some(at) => text.split_at_checked(at)?,
        None => (text, &b""[..]),
    };
    let mut parts = whole.split(|b| *b == b',');
    let first = parts.next()?;
    if !(1..=3).contains(&first.len()) || parts.any(|part| part.len() != 3) || text.len() > 32 {
        return None;
    }
    let plain: Vec<u8> = whole.iter().filter(|b| **b != b',').chain(rest).copied().collect();
    Decimal::read(&plain)?.count()
}

/// The window's name with its placeholders filled in.
fn named(name: &str, keys: &[String], object: Option<&Value>) -> String {
    let mut out = String::new();
    let mut rest = name;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let (place, after) = after.split_once('}').unwrap_or((after, ""));
        let key = place.parse::<usize>().ok().and_then(|at| keys.get(at.checked_sub(1)?));
        let member = || object.and_then(|object| object.get(place)).and_then(json::text);
        match key {
            Some(key) => out.push_str(key),
            None => out.push_str(&member().unwrap_or_default()),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// The length that the last word of a name states.
fn length_of(name: &str) -> Option<Duration> {
    let word = name.rsplit(['-', '/', '_']).next()?;
    let has_capitals = word.bytes().any(|b| b.is_ascii_uppercase());
    if has_capitals { period(&word.to_ascii_lowercase()).flatten() } else { period(word).flatten() }
}

/// The unit that the header's name states.
fn unit_of(source: &Source) -> u128 {
    match source {
        Source::Header(name) => crate::signals::shape::unit(name.as_str()),
        _ => SECOND,
    }
}

/// What the dialect says about whether a response is a refusal because of a limit.
pub(in crate::signals) struct Judged {
    /// The vendor refused the whole request, so it did not act on any of it.
    pub(in crate::signals) throttled: bool,
    /// The vendor refused some parts of the request and may have acted on others.
    pub(in crate::signals) in_part: bool,
    /// The number of the rule that decided.
    pub(in crate::signals) rule: usize,
}

/// What the first rule that fits says about whether the response is a refusal because of a limit.
pub(in crate::signals) fn throttled(response: &Context<'_>, windows: &Windows) -> Option<Judged> {
    let rules = response.dialect.answers.iter().enumerate();
    let mut fitting = rules.filter_map(|(number, rule)| match (rule.throttled?, rule.fit(response, windows)) {
        (_, Fit::No) => None,
        (throttled, Fit::Whole) => Some(Judged { throttled, in_part: false, rule: number }),
        (throttled, Fit::Part) => Some(Judged { throttled: false, in_part: throttled, rule: number }),
    });
    fitting.next()
}

/// How a rule fits a response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    No,
    /// A successful response has a value for each part of a batch. The rule fits some of them, and the vendor may have
    /// acted on another part: one whose value leaves that open, or one that is unknown, because the response is too long
    /// to be read whole or broke off.
    Part,
    Whole,
}

/// The scope of the limit that refused, if the dialect says so.
pub(in crate::signals) fn scope(response: &Context<'_>, windows: &Windows) -> Option<Scope> {
    let mut rules = response.dialect.answers.iter().filter(|rule| rule.scope.is_some());
    rules.find(|rule| rule.fits(response, windows))?.scope
}

/// How long to wait after a refusal that states no wait.
pub(in crate::signals) fn default_wait(response: &Context<'_>, windows: &Windows) -> Option<Duration> {
    let mut rules =
        response.dialect.answers.iter().filter(|rule| rule.wait.is_some() || rule.wait_until_next.is_some());
    let rule = rules.find(|rule| rule.fits(response, windows))?;
    let next = rule.wait_until_next.and_then(|period| moment::until_next(period, response.now));
    rule.wait.max(next).map(|wait| wait.min(MAX_WAIT))
}

impl AnswerRule {
    fn fits(&self, response: &Context<'_>, windows: &Windows) -> bool {
        self.fit(response, windows) != Fit::No
    }

    /// The status of an error is about the whole request, and so is a list of errors: one value that fits is enough.
    /// Another list in a successful response may answer a batch, and a batch that was done in part must not be sent again.
    fn fit(&self, response: &Context<'_>, windows: &Windows) -> Fit {
        if !self.may_fit(response.status.as_u16()) || (self.exhausted && !windows.any_exhausted()) {
            return Fit::No;
        }
        let is_asked = self.from.is_some() || !self.is.is_empty() || !self.contains.is_empty();
        if !is_asked {
            return Fit::Whole;
        }
        let source = self.from.as_ref().unwrap_or(&Source::Text);
        let (mut any_fits, mut may_be_done, mut all) = (false, false, 0);
        source.texts(response, None, |_, text| {
            let is = || self.is.iter().any(|value| value.as_bytes() == text.trim_ascii());
            let contains = || self.contains.iter().any(|part| contains(text, part.as_bytes()));
            let fits = (self.is.is_empty() && self.contains.is_empty()) || is() || contains();
            any_fits |= fits;
            may_be_done |= !fits && !is_undone(text.trim_ascii());
            all += 1;
        });
        let is_batch = || response.status.is_success() && source.lists_parts();
        let is_read_whole = || all < json::MAX_FOUND && json::is_whole(response.body);
        match any_fits {
            false => Fit::No,
            true if is_batch() && (may_be_done || !is_read_whole()) => Fit::Part,
            true => Fit::Whole,
        }
    }
}

/// Whether a value is the status of a part of a batch on which the vendor certainly did not act: an error of the client.
/// 408 and 425 leave it open, as they do for a whole request. Of values that are no HTTP statuses nothing is known.
fn is_undone(text: &[u8]) -> bool {
    matches!(text, [b'4', b'0'..=b'9', b'0'..=b'9']) && !matches!(text, b"408" | b"425")
}

/// Whether `text` contains `part`, ignoring ASCII case. The time is linear in the text, because parts are short.
fn contains(text: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && text.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part))
}

/// The longest wait at the places that the dialect names: in headers or, with `in_body`, in the body.
pub(in crate::signals) fn waits(response: &Context<'_>, in_body: bool) -> Option<Duration> {
    let rules = response.dialect.waits.iter().filter(|rule| rule.reads_body() == in_body);
    // Vendors state a wait of zero on each response that needs none.
    rules.filter_map(|rule| rule.wait(response)).filter(|wait| !wait.is_zero()).max()
}

impl WaitRule {
    fn reads_body(&self) -> bool {
        self.from.as_ref().is_none_or(Source::is_body)
    }

    fn wait(&self, response: &Context<'_>) -> Option<Duration> {
        if let Some([needed, available, rate]) = &self.bucket {
            let [needed, available, rate] = [needed, available, rate].map(|source| source.number(response));
            return arithmetic(needed?, available?, rate?);
        }
        let source = self.from.as_ref()?;
        let unit = self.unit.unwrap_or_else(|| unit_of(source));
        let mut longest = None;
        source.texts(response, None, |_, text| {
            let wait = match &self.after {
                Some(after) => message::after(text, after, unit, response.now),
                None => moment::hint(text, unit, response.now),
            };
            longest = longest.max(wait);
        });
        longest
    }
}

/// The time until `needed` units are available, at `rate` units a second.
fn arithmetic(needed: Decimal, available: Decimal, rate: Decimal) -> Option<Duration> {
    let rate = rate.nanos(SECOND);
    let lacking = needed.nanos(SECOND).checked_sub(available.nanos(SECOND)).filter(|lacking| *lacking > 0)?;
    let nanos = if rate > 0 { lacking.saturating_mul(SECOND).div_ceil(rate) } else { return None };
    // Rounded up to whole milliseconds, the resolution of timers.
    Some(from_nanos(nanos.div_ceil(1_000_000).saturating_mul(1_000_000)).min(MAX_WAIT))
}

/// The cost of the request in each kind of points: for each kind, the first place with a number.
pub(in crate::signals) fn costs(response: &Context<'_>) -> Vec<Stated> {
    let costs = response.dialect.costs.iter().filter_map(|rule| {
        let mut sums = rule.places.iter().map(|sum| total(sum.iter().map(|source| source.number(response))));
        Some(Stated { kind: rule.kind.clone(), units: sums.find_map(|sum| sum)? })
    });
    costs.collect()
}

/// The time between two requests, if the vendor states a rate.
pub(in crate::signals) fn interval(response: &Context<'_>) -> Option<Duration> {
    let rate = response.dialect.rate.as_ref()?.number(response)?.nanos(SECOND);
    let nanos = SECOND.saturating_mul(SECOND).checked_div(rate)?;
    Some(from_nanos(nanos).min(MAX_WAIT))
}
