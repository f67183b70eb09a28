//! Limit, remaining and reset in a header each, under one of several prefixes.
//!
//! The three belong together only within a prefix, and with several lines of each only by position: a gateway and the
//! application behind it may each have added theirs.

use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::moment::{Now, reset};
use super::number::{Decimal, bare};
use super::structured::{self, Quota};
use super::{Window, Windows};

/// The names of three headers that describe one window.
pub(super) struct Family {
    limit: HeaderName,
    remaining: HeaderName,
    reset: HeaderName,
}

/// In the order of trust: where two families describe one window, the first names it.
pub(super) static FAMILIES: [Family; 4] = [
    Family::new("ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"),
    Family::new("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"),
    Family::new("x-rate-limit-limit", "x-rate-limit-remaining", "x-rate-limit-reset"),
    Family::new("rate-limit-limit", "rate-limit-remaining", "rate-limit-reset"),
];

impl Family {
    const fn new(limit: &'static str, remaining: &'static str, reset: &'static str) -> Family {
        Family {
            limit: HeaderName::from_static(limit),
            remaining: HeaderName::from_static(remaining),
            reset: HeaderName::from_static(reset),
        }
    }

    /// Adds the windows that this family describes.
    pub(super) fn read(&self, headers: &HeaderMap, now: &Now, windows: &mut Windows) {
        let mut found = Windows::default();
        let names = [&self.limit, &self.remaining, &self.reset];
        let counts = names.map(|name| headers.get_all(name).iter().count());
        let lines = counts.into_iter().max().unwrap_or(0);
        let mut values = names.map(|name| headers.get_all(name).iter());
        if counts.iter().all(|count| *count == 0 || *count == lines) {
            for _ in 0..lines {
                let [limit, remaining, reset] = values.each_mut().map(Iterator::next);
                triple(limit, remaining, reset, now, &mut found);
            }
        } else {
            // Which belong together is anybody's guess: what stands alone is certain.
            let mut single = [None; 3];
            for ((single, values), count) in single.iter_mut().zip(&mut values).zip(counts) {
                *single = if count == 1 { values.next() } else { None };
            }
            let [limit, remaining, reset] = single;
            triple(limit, remaining, reset, now, &mut found);
        }
        windows.merge(found);
    }
}

type Line<'a> = Option<&'a HeaderValue>;

fn triple(limit: Line, remaining: Line, reset_at: Line, now: &Now, windows: &mut Windows) {
    let (Ok(limit), Ok(remaining)) = (Amount::read(limit), Amount::read(remaining)) else { return };
    let window = Window {
        limit: limit.count,
        remaining: remaining.count,
        reset_after: reset_at.and_then(|value| reset(value.as_bytes(), now)),
        window: limit.window.or(remaining.window),
    };
    if window != Window::default() {
        windows.push(window);
    }
    windows.bind(&limit.others);
}

/// Commas that may stand between the items of a list or between thousands.
struct Undecidable;

/// A limit or a remaining count, with what some vendors append to it.
#[derive(Default)]
struct Amount {
    count: Option<u64>,
    window: Option<std::time::Duration>,
    /// Further quotas: `10, 100;w=60, 1000;w=3600`.
    others: Vec<Quota>,
}

impl Amount {
    /// What cannot be read is nothing. Where a comma cannot be understood, nothing in the family can be trusted.
    fn read(line: Line) -> Result<Amount, Undecidable> {
        let Some(value) = line else { return Ok(Amount::default()) };
        let text = bare(value.as_bytes());
        if let Some(number) = Decimal::read(text) {
            return Ok(Amount { count: number.count(), ..Amount::default() });
        }
        let listed = text.contains(&b',');
        if !listed && !text.contains(&b';') {
            return Ok(Amount::default());
        }
        match structured::list(text).as_deref() {
            Some([first, rest @ ..]) => {
                let others: Vec<Quota> = rest.iter().filter_map(structured::quota).collect();
                if others.len() < rest.len() {
                    return Err(Undecidable);
                }
                let count = structured::count(Some(&first.bare_item));
                Ok(Amount { count, window: structured::window(&first.params), others })
            }
            _ if listed => Err(Undecidable),
            _ => Ok(Amount::default()),
        }
    }
}
