//! What an answer says is left of a limit, and of which.

use std::fmt;

use crate::limit::spec::LimitSpec;
use crate::pace::Counting;
use crate::time::Time;

/// A reset that is so near may be that of any window, in nanoseconds: vendors round it up, and their clocks are off.
const RESET_ERROR: u64 = 5_000_000_000;

/// What a response said about one window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    pub about: About,
    pub limit: u64,
    pub remaining: u64,
    /// Until the reset, in nanoseconds.
    pub reset_ns: Option<u64>,
}

/// Which limit a response speaks of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct About {
    pub name: Label,
    /// It has a name, and that is neither a period's nor the word for requests: `tokens`.
    pub is_special: bool,
    /// The window's length, in nanoseconds.
    pub window_ns: Option<u64>,
}

impl About {
    /// What to call a limit that the configuration does not know.
    pub(crate) fn title(&self) -> &str {
        if self.name.is_empty() { "unnamed" } else { self.name.as_str() }
    }

    /// Whether it calls a limit by its name.
    pub(crate) fn names(&self, spec: &LimitSpec) -> bool {
        !self.name.is_empty() && Label::of(&spec.name) == self.name
    }
}

/// Our own count of a limit, in units.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Books {
    /// What the vendor may count at most, what is in flight included.
    pub(crate) units: u32,
    /// Granted, and not answered yet.
    pub(crate) under_way: u32,
    /// A vendor that refills in lumps may count so many more.
    pub(crate) behind: u32,
}

/// The first bytes of a name. A vendor may call its windows what it likes: it takes no memory to remember.
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
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// How surely a report speaks of a limit; the surest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Fit {
    /// Both have one name.
    Name,
    /// Limit and window are those of the limit.
    Figures,
    /// The limit is, and nothing is said of a window.
    Units,
    /// The window is, and the limit another.
    Window,
    /// Nothing speaks against it.
    Perhaps,
}

impl Report {
    /// Whether this may be about a limit.
    pub(crate) fn fits(&self, spec: &LimitSpec) -> Option<Fit> {
        let pace = &spec.pace;
        let same_window = self.about.window_ns.map(|window| window == pace.window_ns);
        let same_limit = self.limit == pace.limit;
        if self.about.names(spec) {
            return (same_window != Some(false)).then_some(Fit::Name);
        }
        // A reset that is far beyond this window is that of a longer one.
        let is_far = self.reset_ns.is_some_and(|reset| reset > pace.window_ns.saturating_mul(2).max(RESET_ERROR));
        match same_window {
            Some(true) if same_limit => Some(Fit::Figures),
            None if same_limit && !is_far => Some(Fit::Units),
            None if same_limit => Some(Fit::Perhaps),
            // Of a bucket vendors state how often units come back, and not how long it takes to fill.
            Some(false) if same_limit && pace.counting == Counting::Bucket => Some(Fit::Units),
            // Requests are not tokens: a window of another name says nothing about them.
            _ if self.about.is_special => None,
            Some(true) => Some(Fit::Window),
            None if is_far => None,
            None => Some(Fit::Perhaps),
            Some(false) => None,
        }
    }

    /// Nothing needs to be done about it while nothing was done before.
    pub(crate) fn is_comfortable(&self, under_way: u32) -> bool {
        let left = self.remaining.saturating_sub(u64::from(under_way));
        left.saturating_mul(100) > self.limit.saturating_mul(30) || self.limit == 0
    }
}

/// The last report of a limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct VendorFigure {
    pub(super) limit: u64,
    /// Less what was granted since.
    pub(super) left: u64,
    pub(super) at: Time,
    /// It says nothing from here on: the reset that it states, or a window later.
    pub(super) until: Time,
    /// The grant whose answer said so: what is older has been overtaken.
    pub(super) of: Time,
}
