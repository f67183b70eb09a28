//! The place of a value in a response: a header, JSON inside a header, or the body.

use http::header::HeaderName;
use serde_json::Value;

use super::context::Context;
use crate::signals::json::{self, Found, Pointer};
use crate::signals::number::{Decimal, bare};

/// The most lines of one header that are read.
const MAX_LINES: usize = 16;

/// The place of a value, written as `HEADER`, `HEADER-*`, `HEADER#/pointer`, `body`, `body#/pointer` or, below an
/// `each`,
/// `/pointer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Header(HeaderName),
    /// All headers whose names begin with this prefix.
    Headers(String),
    InHeader(HeaderName, Pointer),
    Text,
    Body(Pointer),
    Member(Pointer),
}

/// A constant count, or the place of a count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    Is(u64),
    At(Source),
}

impl Source {
    /// Parses a place from a vendor's entry.
    ///
    /// # Errors
    /// A description of what is wrong with the text.
    pub(crate) fn parse(text: &str) -> Result<Source, String> {
        const HELP: &str = "write a header's name, \"header#/json/pointer\", \"body#/json/pointer\" or \"body\"";
        if text.len() > 200 {
            return Err(format!("this is too long for a place in a response; {HELP}"));
        }
        let (place, pointer) = match text.split_once('#') {
            Some((place, pointer)) => (place, Some(pointer)),
            None if text.starts_with('/') => ("", Some(text)),
            None => (text, None),
        };
        let pointer = match pointer {
            Some(pointer) => Some(
                Pointer::parse(pointer)
                    .ok_or_else(|| format!("{pointer:?} is no JSON pointer such as \"/error/code\""))?,
            ),
            None => None,
        };
        if let Some(start) = place.strip_suffix('*')
            && pointer.is_none()
            && start.len() >= 4
            && HeaderName::from_bytes(start.as_bytes()).is_ok()
        {
            return Ok(Source::Headers(start.to_ascii_lowercase()));
        }
        match (place, pointer) {
            ("", Some(pointer)) => Ok(Source::Member(pointer)),
            ("body", None) => Ok(Source::Text),
            ("body", Some(pointer)) => Ok(Source::Body(pointer)),
            (name, pointer) => {
                let name = HeaderName::from_bytes(name.as_bytes())
                    .map_err(|_| format!("{name:?} is no header's name; {HELP}"))?;
                Ok(match pointer {
                    None => Source::Header(name),
                    Some(pointer) => Source::InHeader(name, pointer),
                })
            }
        }
    }

    pub(crate) fn is_body(&self) -> bool {
        matches!(self, Source::Text | Source::Body(_))
    }

    pub(crate) fn is_member(&self) -> bool {
        matches!(self, Source::Member(_))
    }

    pub(super) fn names(&self, header: &HeaderName) -> bool {
        match self {
            Source::Header(name) | Source::InHeader(name, _) => name == header,
            // A header whose name is the bare prefix repeats one of the others.
            Source::Headers(start) => {
                header.as_str().starts_with(start.as_str()) || start.trim_end_matches('-') == header.as_str()
            }
            _ => false,
        }
    }

    /// Whether the body may have a value here for each part of a batch.
    pub(super) fn lists_parts(&self) -> bool {
        matches!(self, Source::Body(pointer) if pointer.lists_parts())
    }

    /// Calls `each` with every value as text, and with the texts that matched the source's `*`. A member is looked up
    /// in
    /// `object`.
    pub(super) fn texts(&self, response: &Context<'_>, object: Option<&Value>, mut each: impl FnMut(&[String], &[u8])) {
        match self {
            Source::Header(name) => {
                let lines = response.headers.get_all(name).iter().take(MAX_LINES);
                lines.for_each(|value| each(&[], value.as_bytes()));
            }
            Source::Headers(start) => {
                let found = response.headers.iter().filter_map(|(name, value)| {
                    let end = name.as_str().strip_prefix(start.as_str()).filter(|end| !end.is_empty())?;
                    Some((end, value))
                });
                found.take(MAX_LINES).for_each(|(end, value)| each(&[end.to_owned()], value.as_bytes()));
            }
            Source::Text => each(&[], response.body),
            Source::Member(pointer) => {
                if let Some(text) = object.and_then(|object| pointer.get(object)).and_then(json::text) {
                    each(&[], text.as_bytes());
                }
            }
            Source::InHeader(..) | Source::Body(_) => self.values(response, |keys, value| {
                if let Some(text) = json::text(value) {
                    each(keys, text.as_bytes());
                }
            }),
        }
    }

    /// The first value that is a number.
    pub(super) fn number(&self, response: &Context<'_>) -> Option<Decimal> {
        let mut found = None;
        self.texts(response, None, |_, text| found = found.or_else(|| Decimal::read(bare(text))));
        found
    }

    /// Calls `each` with every JSON value, and with the keys that matched the source's `*`.
    pub(super) fn values(&self, response: &Context<'_>, mut each: impl FnMut(&[String], &Value)) {
        match self {
            Source::InHeader(name, pointer) => {
                for line in response.headers.get_all(name).iter().take(MAX_LINES) {
                    let found = json::find(&[pointer], line.as_bytes());
                    found.iter().for_each(|(_, Found { keys, value })| each(keys, value));
                }
            }
            Source::Body(pointer) => response.in_body(pointer).for_each(|Found { keys, value }| each(keys, value)),
            _ => {}
        }
    }
}

impl Figure {
    pub(super) fn source(&self) -> Option<&Source> {
        match self {
            Figure::At(source) => Some(source),
            Figure::Is(_) => None,
        }
    }

    pub(super) fn names(&self, header: &HeaderName) -> bool {
        self.source().is_some_and(|source| source.names(header))
    }
}
