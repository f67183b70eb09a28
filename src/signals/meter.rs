//! Reads the cost of a request from its response's body while the caller reads that body.
//!
//! Vendors of language models state the usage of a response at its end or, in an event stream, in its last events. The
//! body is not kept for this: a stream is parsed one line at a time, and a JSON body is parsed only if the caller reads
//! it as a whole.

use std::sync::Arc;

use http::header::{CONTENT_TYPE, HeaderMap};

use super::dialect::{CostRule, Dialect, Source};
use super::json::{self, Pointer};
use super::number::{Decimal, bare, total};
use super::{MAX_BODY, Stated};

/// Reads the costs that one body states.
#[derive(Debug)]
pub(crate) struct Meter {
    dialect: Arc<Dialect>,
    form: Form,
    /// The last number found at each place, in the order of the rules' places in the body.
    found: Vec<Option<Decimal>>,
}

#[derive(Debug)]
enum Form {
    /// One JSON text, of which nothing has been read yet.
    Json,
    /// One JSON text per line, possibly after `data:`.
    Lines(Lines),
    /// The rest of the body is not parsed.
    Over,
}

#[derive(Debug, Default)]
struct Lines {
    /// The beginning of a line whose end has not arrived.
    begun: Vec<u8>,
    /// The current line is too long and is skipped.
    skips: bool,
}

impl Meter {
    /// `None` if the vendor's bodies state no costs, or if the type of this body cannot state any.
    pub(crate) fn new(dialect: &Arc<Dialect>, headers: &HeaderMap) -> Option<Meter> {
        let places = places(dialect).count();
        if places == 0 {
            return None;
        }
        let media = headers.get(CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or("application/json");
        let media = media.to_ascii_lowercase();
        let is_lines = ["text/event-stream", "ndjson", "jsonl", "json-seq"].iter().any(|form| media.contains(form));
        let form = match is_lines {
            true => Form::Lines(Lines::default()),
            false if media.contains("json") => Form::Json,
            false => return None,
        };
        Some(Meter { dialect: dialect.clone(), form, found: vec![None; places] })
    }

    /// Reads a piece of the body; more may follow.
    pub(crate) fn piece(&mut self, data: &[u8]) {
        match &mut self.form {
            Form::Json if !data.is_empty() => self.form = Form::Over,
            Form::Lines(_) => self.lines(data),
            Form::Json | Form::Over => {}
        }
    }

    /// Reads the whole body, or the rest of it.
    pub(crate) fn rest(&mut self, data: &[u8]) {
        match &mut self.form {
            Form::Json => {
                self.form = Form::Over;
                self.text(data);
            }
            Form::Lines(_) => self.lines(data),
            Form::Over => {}
        }
    }

    /// The costs that the body stated: for each kind of points, the first place with a number.
    pub(crate) fn costs(mut self) -> Vec<Stated> {
        self.lines(b"\n");
        let (dialect, mut found) = (self.dialect.clone(), self.found.iter());
        let costs = dialect.costs.iter().filter_map(|rule| {
            let mut sums = rule.places.iter().map(|sum| {
                let parts = sum.iter().filter(|source| matches!(source, Source::Body(_)));
                total(parts.map(|_| found.next().copied().flatten()))
            });
            // Each sum takes its places from `found` in order, so all sums have to be computed, even after the first
            // hit.
            let first = sums.by_ref().fold(None, |first: Option<f64>, sum| first.or(sum))?;
            Some(Stated { kind: rule.kind.clone(), units: first })
        });
        costs.collect()
    }

    /// The number of bytes of the body that are in memory.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        match &self.form {
            Form::Lines(lines) => lines.begun.capacity(),
            Form::Json | Form::Over => 0,
        }
    }

    fn lines(&mut self, mut data: &[u8]) {
        while let Form::Lines(lines) = &mut self.form {
            let Some(end) = memchr::memchr(b'\n', data) else {
                lines.skips |= lines.begun.len() + data.len() > MAX_BODY;
                match lines.skips {
                    true => lines.begun = Vec::new(),
                    false => lines.begun.extend_from_slice(data),
                }
                return;
            };
            let (last, rest) = data.split_at(end);
            data = rest.get(1..).unwrap_or_default();
            let skips = std::mem::take(&mut lines.skips) || lines.begun.len() + last.len() > MAX_BODY;
            let mut begun = std::mem::take(&mut lines.begun);
            if !skips {
                let line = match begun.is_empty() {
                    true => last,
                    false => {
                        begun.extend_from_slice(last);
                        &begun
                    }
                };
                self.text(line.strip_prefix(b"data:").unwrap_or(line).trim_ascii());
            }
        }
    }

    fn text(&mut self, json: &[u8]) {
        if json.trim_ascii_start().first() != Some(&b'{') {
            return;
        }
        let dialect = self.dialect.clone();
        let pointers: Vec<&Pointer> = places(&dialect).collect();
        for (at, found) in json::find(&pointers, json) {
            let number = json::text(&found.value).and_then(|text| Decimal::read(bare(text.as_bytes())));
            if let (Some(place), Some(number)) = (self.found.get_mut(at), number) {
                *place = Some(number);
            }
        }
    }
}

/// The places in bodies that state costs.
fn places(dialect: &Dialect) -> impl Iterator<Item = &Pointer> {
    dialect.costs.iter().flat_map(CostRule::sources).filter_map(|source| match source {
        Source::Body(pointer) => Some(pointer),
        _ => None,
    })
}
