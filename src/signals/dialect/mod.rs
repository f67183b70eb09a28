//! A vendor's own way of stating limits, as data: only what the rules by header shape do not cover.

mod context;
mod form;
mod read;
mod source;
mod words;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::HeaderName;
use smallvec::SmallVec;

use super::json::Pointer;

pub(super) use context::Context;
pub(crate) use form::Form;
pub(super) use read::{costs, interval, throttled};
pub(super) use read::{default_wait, scope, waits, windows};
pub(crate) use source::{Figure, Source};

type Pointers<'d> = SmallVec<[&'d Pointer; 8]>;

/// A vendor's own way of stating its limits: `[vendors.NAME.dialect]`, validated.
///
/// [`Dialect::default`] adds nothing to the rules by shape, which are enough for most vendors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dialect {
    pub(crate) windows: Vec<WindowRule>,
    pub(crate) answers: Vec<AnswerRule>,
    pub(crate) waits: Vec<WaitRule>,
    pub(crate) costs: Vec<CostRule>,
    /// The place of a rate in requests a second.
    pub(crate) rate: Option<Source>,
    pub(crate) reset_means: ResetMeans,
    /// Headers whose names look like limits but are not.
    pub(crate) ignore: Vec<HeaderName>,
    /// Placeholder values, which count as absent.
    pub(crate) nothing: Vec<String>,
}

/// The kind of points that every vendor has without declaring it.
pub(crate) const POINTS: &str = "points";

/// Where a response states the cost of its request in one kind of points.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CostRule {
    /// The kind's name.
    pub(crate) kind: Arc<str>,
    /// Alternatives, of which the first with a number counts. Each is the sum of several places, some of which may be
    /// missing.
    pub(crate) places: Vec<Vec<Source>>,
}

impl CostRule {
    pub(super) fn sources(&self) -> impl Iterator<Item = &Source> {
        self.places.iter().flatten()
    }
}

/// Where a response states the figures of a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct WindowRule {
    /// May contain `{1}` for the text that matched the source's `*`, and `{member}` for a member of
    /// [`each`](Self::each).
    pub(crate) name: Option<String>,
    /// Applies the rule to each object here; the other sources may then be members of that object.
    pub(crate) each: Option<Source>,
    /// A list of windows in one header, its items in this form.
    pub(crate) items: Option<(HeaderName, Form)>,
    pub(crate) limit: Option<Figure>,
    pub(crate) remaining: Option<Figure>,
    pub(crate) used: Option<Figure>,
    pub(crate) reset: Option<Source>,
    /// A reset that an exhausted window states, which is also an instruction to wait.
    pub(crate) regain: Option<Source>,
    pub(crate) length_from: Option<Source>,
    pub(crate) length: Option<Duration>,
    /// The index of the comma-separated value to read.
    pub(crate) item: Option<usize>,
    /// The unit of times in nanoseconds; by default the one that the header's name states, or seconds.
    pub(crate) unit: Option<u128>,
}

/// What a response that matches means.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AnswerRule {
    /// Statuses that match; empty for all.
    pub(crate) status: Vec<u16>,
    /// The value that is compared; by default the text of the body.
    pub(crate) from: Option<Source>,
    pub(crate) is: Vec<String>,
    pub(crate) contains: Vec<String>,
    /// Matches only if the response states an exhausted window.
    pub(crate) exhausted: bool,
    pub(crate) throttled: Option<bool>,
    pub(crate) scope: Option<Scope>,
    pub(crate) wait: Option<Duration>,
    /// The wait ends at the next multiple of this period on the server's clock.
    pub(crate) wait_until_next: Option<Duration>,
}

/// Where a response states a wait.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct WaitRule {
    pub(crate) from: Option<Source>,
    /// The words that precede the wait in a text.
    pub(crate) after: Option<String>,
    pub(crate) unit: Option<u128>,
    /// Units that the request needs, units available, and units restored each second.
    pub(crate) bucket: Option<[Source; 3]>,
}

/// What a vendor means by the reset of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResetMeans {
    /// The window ends, and all units are available again.
    #[default]
    End,
    /// A bucket is completely full again; the first unit is available earlier.
    Full,
    /// The oldest request leaves the window, so one unit is available again.
    Oldest,
}

/// Whose limit refused a request, if the vendor says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// The limit of the endpoint that was called.
    Endpoint,
    /// The limit of the tenant's own credential.
    Tenant,
    /// The limit of an account, which several tenants may share.
    Account,
    /// The limit of all calls to this vendor from this program.
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

    /// The scope's name in a vendor's entry.
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

/// Whether the status alone marks a refusal because of a limit: 429, its predecessor 420, and 509 (bandwidth limit
/// exceeded).
pub(crate) fn is_refusal(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 420 | 509)
}

impl Dialect {
    /// Whether [`read`](super::read) uses the body of a response with this status. If not, an empty prefix will do,
    /// unless the headers alone make it a refusal and state no wait: the body may state one.
    pub fn wants_body(&self, status: StatusCode) -> bool {
        let refused = is_refusal(status);
        let status = status.as_u16();
        let of_body = |source: &Option<Source>| source.as_ref().is_some_and(Source::is_body);
        let refuses = |rule: &AnswerRule| rule.throttled == Some(true) && rule.status.contains(&status);
        refused
            || self.answers.iter().any(|rule| rule.may_fit(status) && rule.reads_body() || refuses(rule))
            || (status < 300
                && (self.costs_in_body() || of_body(&self.rate) || self.windows.iter().any(WindowRule::reads_body)))
    }

    /// Whether the dialect knows where responses state the cost of their requests.
    pub fn states_costs(&self) -> bool {
        !self.costs.is_empty()
    }

    /// Whether response bodies state the cost of their requests in this kind of points.
    pub(crate) fn is_cost_in_body(&self, kind: &str) -> bool {
        let rules = self.costs.iter().filter(|rule| *rule.kind == *kind);
        rules.flat_map(CostRule::sources).any(Source::is_body)
    }

    /// Whether response bodies state the cost of their requests in any kind of points.
    pub(crate) fn costs_in_body(&self) -> bool {
        self.costs.iter().flat_map(CostRule::sources).any(Source::is_body)
    }

    /// The pointers to look up in the body of a response with this status.
    fn pointers(&self, status: StatusCode) -> Pointers<'_> {
        self.pointers_with(|rule| rule.may_fit(status.as_u16()))
    }

    /// The number of different pointers into bodies, whatever the status.
    pub(crate) fn pointer_count(&self) -> usize {
        self.pointers_with(|_| true).len()
    }

    /// The pointers of all rules, but of answers only those that `counts` selects.
    fn pointers_with(&self, counts: impl Fn(&AnswerRule) -> bool) -> Pointers<'_> {
        let answers = self.answers.iter().filter(|rule| counts(rule)).filter_map(|rule| rule.from.as_ref());
        let waits = self.waits.iter().flat_map(|rule| rule.from.iter().chain(rule.bucket.iter().flatten()));
        let sources =
            self.windows.iter().flat_map(WindowRule::sources).chain(self.costs.iter().flat_map(CostRule::sources));
        let sources = sources.chain(&self.rate);
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

    /// Whether the dialect adds nothing to the rules by shape.
    pub fn is_plain(&self) -> bool {
        let Dialect { windows, answers, waits, costs, rate, reset_means, ignore, nothing } = self;
        windows.is_empty()
            && answers.is_empty()
            && waits.is_empty()
            && costs.is_empty()
            && rate.is_none()
            && *reset_means == ResetMeans::End
            && ignore.is_empty()
            && nothing.is_empty()
    }

    /// Whether the dialect defines this header, so that its shape is ignored.
    pub(super) fn claims(&self, name: &HeaderName) -> bool {
        let of = |source: &Option<Source>| source.as_ref().is_some_and(|source| source.names(name));
        let figure = |figure: &Option<Figure>| figure.as_ref().is_some_and(|figure| figure.names(name));
        self.ignore.contains(name)
            || self.costs.iter().flat_map(CostRule::sources).any(|source| source.names(name))
            || of(&self.rate)
            || self.windows.iter().any(|rule| {
                [&rule.each, &rule.reset, &rule.regain, &rule.length_from].into_iter().any(of)
                    || [&rule.limit, &rule.remaining, &rule.used].into_iter().any(figure)
                    || rule.items.as_ref().is_some_and(|(header, _)| header == name)
            })
            || self.waits.iter().any(|rule| rule.unit.is_some() && of(&rule.from))
    }

    /// Whether the value is a placeholder.
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
    /// Whether the rule reads the body.
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
