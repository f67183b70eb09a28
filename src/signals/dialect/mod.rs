//! What a vendor says in a way of its own, as data: what no shape can tell.

mod context;
mod form;
mod read;
mod source;
mod words;

use std::time::Duration;

use http::StatusCode;
use http::header::HeaderName;
use smallvec::SmallVec;

use super::json::Pointer;

pub(super) use context::Context;
pub(crate) use form::Form;
pub(super) use read::{cost, interval, throttled};
pub(super) use read::{default_wait, scope, waits, windows};
pub(crate) use source::{Figure, Source};

type Pointers<'d> = SmallVec<[&'d Pointer; 8]>;

/// A vendor's own way of speaking about its limits: `[vendors.NAME.dialect]`, validated.
///
/// [`Dialect::default`] adds nothing to what headers say by their shape; most vendors need no more.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dialect {
    pub(crate) windows: Vec<WindowRule>,
    pub(crate) answers: Vec<AnswerRule>,
    pub(crate) waits: Vec<WaitRule>,
    pub(crate) cost: Option<Source>,
    /// Requests a second.
    pub(crate) rate: Option<Source>,
    pub(crate) reset_means: ResetMeans,
    /// Headers that look like what they are not.
    pub(crate) ignore: Vec<HeaderName>,
    /// Values that fill a place.
    pub(crate) nothing: Vec<String>,
}

/// Where the figures of a window stand.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct WindowRule {
    /// May hold `{1}` for what stands where the source has its `*`, and `{member}` for a member of [`each`](Self::each).
    pub(crate) name: Option<String>,
    /// The rule holds for each object here; the other sources may then be members of it.
    pub(crate) each: Option<Source>,
    /// A list of windows in one header, its items in this form.
    pub(crate) items: Option<(HeaderName, Form)>,
    pub(crate) limit: Option<Figure>,
    pub(crate) remaining: Option<Figure>,
    pub(crate) used: Option<Figure>,
    pub(crate) reset: Option<Source>,
    /// A reset that is stated where nothing is left, and asks to wait for it.
    pub(crate) regain: Option<Source>,
    pub(crate) length_from: Option<Source>,
    pub(crate) length: Option<Duration>,
    /// Which of the comma-separated values.
    pub(crate) item: Option<usize>,
    /// Nanoseconds of the times; as the name says it, or seconds, where it is not stated.
    pub(crate) unit: Option<u128>,
}

/// What an answer means.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AnswerRule {
    /// Any, if there are none.
    pub(crate) status: Vec<u16>,
    /// What is looked at; the body's text where nothing is stated.
    pub(crate) from: Option<Source>,
    pub(crate) is: Vec<String>,
    pub(crate) contains: Vec<String>,
    /// Whether a window with nothing left must have been stated.
    pub(crate) exhausted: bool,
    pub(crate) throttled: Option<bool>,
    pub(crate) scope: Option<Scope>,
    pub(crate) wait: Option<Duration>,
    /// Until the server's clock shows the next multiple of this.
    pub(crate) wait_until_next: Option<Duration>,
}

/// Where a wait is stated.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct WaitRule {
    pub(crate) from: Option<Source>,
    /// The words in front of it.
    pub(crate) after: Option<String>,
    pub(crate) unit: Option<u128>,
    /// What the request needs, what there is, and what comes back each second.
    pub(crate) bucket: Option<[Source; 3]>,
}

/// What a vendor means by the reset of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResetMeans {
    /// The window ends, and everything is there again.
    #[default]
    End,
    /// A bucket is completely full again; a unit is there earlier.
    Full,
    /// The oldest request is forgotten: one unit is there again.
    Oldest,
}

/// Whose limit has refused, as far as the vendor says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// That of the endpoint that was called.
    Endpoint,
    /// That of the tenant's own credential.
    Tenant,
    /// That of an account which several tenants may share.
    Account,
    /// That of all who call this vendor from here.
    Vendor,
}

impl Scope {
    pub(crate) const NAMES: &'static [&'static str] = &["endpoint", "tenant", "account", "vendor"];

    pub(crate) fn parse(text: &str) -> Option<Scope> {
        Some(match text {
            "endpoint" => Scope::Endpoint,
            "tenant" => Scope::Tenant,
            "account" => Scope::Account,
            "vendor" => Scope::Vendor,
            _ => return None,
        })
    }

    /// As it is written in a vendor's entry.
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Endpoint => "endpoint",
            Scope::Tenant => "tenant",
            Scope::Account => "account",
            Scope::Vendor => "vendor",
        }
    }
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl ResetMeans {
    pub(crate) const NAMES: &'static [&'static str] = &["end", "full", "oldest"];

    pub(crate) fn parse(text: &str) -> Option<ResetMeans> {
        Some(match text {
            "end" => ResetMeans::End,
            "full" => ResetMeans::Full,
            "oldest" => ResetMeans::Oldest,
            _ => return None,
        })
    }
}

/// Whether the status alone says that a request was refused for a limit: the standard's, one that it replaced, and that
/// of web hosts for too much traffic.
pub(crate) fn is_refusal(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 420 | 509)
}

impl Dialect {
    /// Whether the body of an answer with this status may say something about limits that [`read`](super::read) reads.
    /// If not, it need not be at hand.
    pub fn wants_body(&self, status: StatusCode) -> bool {
        let refused = is_refusal(status);
        let status = status.as_u16();
        let of_body = |source: &Option<Source>| source.as_ref().is_some_and(Source::is_body);
        let refuses = |rule: &AnswerRule| rule.throttled == Some(true) && rule.status.contains(&status);
        refused
            || self.answers.iter().any(|rule| rule.may_fit(status) && rule.reads_body() || refuses(rule))
            || (status < 300
                && (of_body(&self.cost) || of_body(&self.rate) || self.windows.iter().any(WindowRule::reads_body)))
    }

    /// Where something may stand in the body of an answer with this status.
    fn pointers(&self, status: StatusCode) -> Pointers<'_> {
        let status = status.as_u16();
        let answers = self.answers.iter().filter(|rule| rule.may_fit(status)).filter_map(|rule| rule.from.as_ref());
        let waits = self.waits.iter().flat_map(|rule| rule.from.iter().chain(rule.bucket.iter().flatten()));
        let sources = self.windows.iter().flat_map(WindowRule::sources).chain(&self.cost).chain(&self.rate);
        let mut pointers = Pointers::new();
        for source in sources.chain(answers).chain(waits) {
            if let Source::Body(pointer) = source
                && !pointers.contains(&pointer)
            {
                pointers.push(pointer);
            }
        }
        pointers
    }

    /// What the vendor means by the reset of a window.
    pub fn reset_means(&self) -> ResetMeans {
        self.reset_means
    }

    /// Shape alone decides.
    pub fn is_plain(&self) -> bool {
        let Dialect { windows, answers, waits, cost, rate, reset_means, ignore, nothing } = self;
        windows.is_empty()
            && answers.is_empty()
            && waits.is_empty()
            && cost.is_none()
            && rate.is_none()
            && *reset_means == ResetMeans::End
            && ignore.is_empty()
            && nothing.is_empty()
    }

    /// The dialect says what this header is; its shape does not.
    pub(super) fn claims(&self, name: &HeaderName) -> bool {
        let of = |source: &Option<Source>| source.as_ref().is_some_and(|source| source.names(name));
        let figure = |figure: &Option<Figure>| figure.as_ref().is_some_and(|figure| figure.names(name));
        self.ignore.contains(name)
            || of(&self.cost)
            || of(&self.rate)
            || self.windows.iter().any(|rule| {
                [&rule.each, &rule.reset, &rule.regain, &rule.length_from].into_iter().any(of)
                    || [&rule.limit, &rule.remaining, &rule.used].into_iter().any(figure)
                    || rule.items.as_ref().is_some_and(|(header, _)| header == name)
            })
            || self.waits.iter().any(|rule| rule.unit.is_some() && of(&rule.from))
    }

    /// The value is one that means nothing.
    pub(super) fn is_nothing(&self, value: &[u8]) -> bool {
        self.nothing.iter().any(|nothing| value.trim_ascii() == nothing.as_bytes())
    }
}

impl WindowRule {
    fn sources(&self) -> impl Iterator<Item = &Source> {
        let figures = [&self.limit, &self.remaining, &self.used].into_iter().flatten();
        let sources = [&self.each, &self.reset, &self.regain, &self.length_from].into_iter().flatten();
        figures.filter_map(Figure::source).chain(sources)
    }

    fn reads_body(&self) -> bool {
        self.sources().any(Source::is_body)
    }
}

impl AnswerRule {
    /// The body decides, or is looked at where nothing else is.
    pub(super) fn reads_body(&self) -> bool {
        match &self.from {
            Some(source) => source.is_body(),
            None => !(self.is.is_empty() && self.contains.is_empty()),
        }
    }

    pub(super) fn may_fit(&self, status: u16) -> bool {
        self.status.is_empty() || self.status.contains(&status)
    }
}
