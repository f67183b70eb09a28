//! The form of an item in a list of windows: `{used}/{limit}`, `{limit}:{length}`, `{reset}:{name}:{name}`.

use std::time::Duration;

use crate::signals::moment::{self, Now};
use crate::signals::number::{Decimal, bare};
use crate::signals::windows::{Name, Window};

/// Placeholders and the text between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// Each placeholder, with the text before it.
    parts: Vec<(String, Field)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Limit,
    Remaining,
    Used,
    Reset,
    /// A reset that is also an instruction to wait.
    Wait,
    Length,
    Skip,
}

const FIELDS: [(&str, Field); 8] = [
    ("name", Field::Name),
    ("limit", Field::Limit),
    ("remaining", Field::Remaining),
    ("used", Field::Used),
    ("reset", Field::Reset),
    ("wait", Field::Wait),
    ("length", Field::Length),
    ("skip", Field::Skip),
];

/// The most windows of one header that are read.
const MAX_ITEMS: usize = 32;

impl Form {
    /// Parses a form from a vendor's entry.
    ///
    /// # Errors
    /// A description of what is wrong with the text.
    pub(crate) fn parse(text: &str) -> Result<Form, String> {
        const HELP: &str = "write for example \"{used}/{limit}\" or \"{limit}:{length}\"";
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or_else(|| format!("a `{{` is not closed; {HELP}"))?;
            let place = FIELDS.iter().find(|(known, _)| *known == name).ok_or_else(|| {
                let known: Vec<&str> = FIELDS.iter().map(|(known, _)| *known).collect();
                format!("{{{name}}} is unknown; known are {}", known.join(", "))
            })?;
            if before.is_empty() && !parts.is_empty() {
                return Err(format!("two placeholders need a character between them; {HELP}"));
            }
            parts.push((before.to_owned(), place.1));
            rest = after;
        }
        if parts.is_empty() || parts.len() > 8 || !rest.is_empty() {
            return Err(format!("a form has one to eight placeholders, and ends with one; {HELP}"));
        }
        Ok(Form { parts })
    }

    /// Calls `window` for each item of `text`, and returns the longest wait. Items without this form are ignored.
    pub(super) fn read(&self, text: &[u8], unit: u128, now: &Now, mut window: impl FnMut(Window)) -> Option<Duration> {
        let mut longest = None;
        let mut take = |item: &[u8]| {
            let Some((read, wait)) = self.item(item.trim_ascii(), unit, now) else { return false };
            window(read);
            longest = longest.max(wait);
            true
        };
        for item in text.split(|b| *b == b',').take(MAX_ITEMS) {
            // Some vendors have semicolons within an item, and some between the items.
            if !take(item) && item.contains(&b';') {
                for item in item.split(|b| *b == b';').take(MAX_ITEMS) {
                    take(item);
                }
            }
        }
        longest
    }

    fn item(&self, text: &[u8], unit: u128, now: &Now) -> Option<(Window, Option<Duration>)> {
        let mut window = Window::default();
        let mut wait = None;
        let mut name: Option<String> = None;
        let mut rest = std::str::from_utf8(text).ok()?;
        for (at, (before, place)) in self.parts.iter().enumerate() {
            rest = rest.strip_prefix(before.as_str())?;
            let next = self.parts.get(at + 1).map(|(before, _)| before.as_str());
            // The last value ends where a further field would begin, because a vendor may add fields.
            let last = before.as_str();
            let end = match next {
                Some(next) => rest.find(next)?,
                None if last.is_empty() => rest.len(),
                // The last value also ends before a remark in parentheses: `17/250(appName=reports)`.
                None => rest.find(last).into_iter().chain(rest.find('(')).min().unwrap_or(rest.len()),
            };
            let (value, after) = rest.split_at_checked(end)?;
            let bytes = value.as_bytes();
            let count = || Decimal::read(bare(bytes)).and_then(Decimal::count);
            match place {
                Field::Name => {
                    let word = if value.is_empty() { "*" } else { value };
                    name = Some(name.map_or_else(|| word.to_owned(), |name| format!("{name}/{word}")));
                }
                Field::Limit => window.limit = Some(count()?),
                Field::Remaining => window.remaining = Some(count()?),
                Field::Used => window.used = Some(count()?),
                Field::Reset => window.reset_in = moment::reset(bytes, unit, now),
                Field::Wait => {
                    wait = Some(moment::hint(bytes, unit, now)?);
                    window.reset_in = wait;
                }
                Field::Length => window.window = Some(moment::length(bytes, unit)?),
                Field::Skip => {}
            }
            rest = after;
        }
        window.name = name.as_deref().and_then(Name::new);
        Some((window, wait))
    }
}
