//! What a response says about the remaining units of a limit, and which limit it means.

use std::fmt;

use crate::limit::spec::LimitSpec;
use crate::pace::Counting;
use crate::time::Time;

/// A reset nearer than this fits a window of any length, in nanoseconds: vendors round resets up, and their clocks are
/// off.
const RESET_ERROR: u64 = 5_000_000_000;

/// What a response says about one window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    pub about: About,
    pub limit: u64,
    pub remaining: u64,
    /// The time until the reset, in nanoseconds.
    pub reset_ns: Option<u64>,
    pub says: Says,
}

/// Which of its figures the vendor stated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Says {
    #[default]
    Both,
    /// What remains. The limit is the configured figure, or 0 if it is not known which limit is meant.
    Remaining,
    /// The limit. All of it counts as remaining if no other response has said what is left.
    Limit,
}

/// Which limit a report is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct About {
    pub name: Label,
    /// Whether the limit has a name, such as `tokens`, that is neither a period's name nor the word for requests.
    pub is_special: bool,
    /// The window's length, in nanoseconds.
    pub window_ns: Option<u64>,
    /// Whether the limit is one of requests at once, and no rate.
    pub is_parallel: bool,
}

impl About {
    /// The name to show for a limit that the configuration does not know.
    pub(crate) fn title(&self) -> &str {
        if self.name.is_empty() { "unnamed" } else { self.name.as_str() }
    }

    /// Whether the report names this limit.
    pub(crate) fn names(&self, spec: &LimitSpec) -> bool {
        !self.name.is_empty() && Label::of(&spec.name) == self.name
    }
}

/// Our own count of a limit, in units.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Books {
    /// The most that the vendor may count, including requests in flight.
    pub(crate) units: u32,
    /// Units granted and not answered yet.
    pub(crate) under_way: u32,
    /// Further units that a vendor which refills in lumps may count.
    pub(crate) behind: u32,
}

/// The first bytes of a limit's name, stored inline: a vendor may use any names, and remembering them allocates
/// nothing.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Label {
    len: u8,
    bytes: [u8; Label::MOST],
}

impl Label {
    const MOST: usize = 23;

    pub fn of(name: &str) -> Label {
        let mut len = name.len().min(Label::MOST);
        while !name.is_char_boundary(len) {
            len -= 1;
        }
        let mut bytes = [0; Label::MOST];
        for (to, from) in bytes.iter_mut().zip(&name.as_bytes()[..len]) {
            *to = from.to_ascii_lowercase();
        }
        Label { len: len as u8, bytes }
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether both are one name: headers write hyphens where entries write underscores.
    pub(crate) fn is_like(&self, other: &Label) -> bool {
        let plain = |byte: u8| if byte == b'_' { b'-' } else { byte };
        self.len == other.len && self.bytes.map(plain) == other.bytes.map(plain)
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// How surely a report is about a limit; the surest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Fit {
    /// The report has the limit's name.
    Name,
    /// The report has the limit's figure and its window.
    Figures,
    /// The report has the limit's figure, and does not say which window it means.
    Units,
    /// The report has the limit's window, and another figure.
    Window,
    /// Nothing contradicts that the report is about the limit.
    Perhaps,
}

impl Report {
    /// How surely this report is about the limit; `None` if it is about another.
    pub(crate) fn fits(&self, spec: &LimitSpec) -> Option<Fit> {
        let pace = &spec.pace;
        let same_window = self.about.window_ns.map(|window| window == pace.window_ns);
        let same_limit = self.limit == pace.limit;
        if self.about.names(spec) {
            return self.fits_by_name(spec);
        }
        // A reset far beyond this window belongs to a longer window.
        let is_far = self.reset_ns.is_some_and(|reset| reset > pace.window_ns.saturating_mul(2).max(RESET_ERROR));
        match same_window {
            Some(true) if same_limit => Some(Fit::Figures),
            None if same_limit && !is_far => Some(Fit::Units),
            None if same_limit => Some(Fit::Perhaps),
            // For a bucket, vendors state how often units come back, and not how long the bucket takes to fill.
            Some(false) if same_limit && pace.counting == Counting::Bucket => Some(Fit::Units),
            // Requests are not tokens: a report about another kind of unit says nothing about requests, even for the
            // same window.
            _ if self.about.is_special => None,
            Some(true) => Some(Fit::Window),
            None if is_far => None,
            None => Some(Fit::Perhaps),
            Some(false) => None,
        }
    }

    /// How surely a report with the limit's name is about it.
    pub(crate) fn fits_by_name(&self, spec: &LimitSpec) -> Option<Fit> {
        let is_other_window = self.about.window_ns.is_some_and(|window| window != spec.pace.window_ns);
        (!is_other_window).then_some(Fit::Name)
    }

    /// The report as one about a limit of this figure, if it does not say which limit it means.
    pub(crate) fn of_limit(&self, figure: u64) -> Report {
        let is_unknown = self.says == Says::Remaining && self.limit == 0;
        Report { limit: if is_unknown { figure } else { self.limit }, ..*self }
    }

    /// Whether the vendor says that more than half of the limit is left.
    pub(crate) fn says_room(&self) -> bool {
        self.says != Says::Limit && self.remaining > self.limit / 2
    }

    /// Whether enough units remain that this report, without an earlier one, does not slow the limit down.
    pub(crate) fn is_comfortable(&self, under_way: u32) -> bool {
        let left = self.remaining.saturating_sub(u64::from(under_way));
        u128::from(left) * 100 > u128::from(self.limit) * 30 || self.limit == 0
    }

    /// The share of the limit that remains, in percent, rounded down. Vendors state huge figures for "unlimited".
    pub(super) fn percent(&self) -> u64 {
        let left = u128::from(self.remaining.min(self.limit)) * 100;
        u64::try_from(left / u128::from(self.limit.max(1))).unwrap_or(100)
    }
}

/// The vendor's last report about a limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct VendorFigure {
    pub(super) limit: u64,
    /// Remaining units, less those granted since.
    pub(super) left: u64,
    pub(super) at: Time,
    /// The report holds until this moment: the reset that it states, or one window later.
    pub(super) until: Time,
    /// When the request was granted whose response had this report: a response to an earlier one is out of date.
    pub(super) of: Time,
}
