//! The windows of a response, from all its headers and its body.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use compact_str::CompactString;
use smallvec::SmallVec;

/// A quota without a name, which is matched to the window with the same limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quota {
    pub(super) limit: u64,
    pub(super) window: Duration,
}

pub(super) type Quotas = SmallVec<[Quota; 2]>;

/// The most windows that are kept of one response: more than any vendor sends. It bounds the memory that a hostile
/// vendor can make the client use.
const MAX_WINDOWS: usize = 16;

/// The difference of two resets that still count as equal: two headers for one window may round differently.
const ROUNDING: Duration = Duration::from_secs(1);

/// The longest window name in bytes; longer names are cut.
const MAX_NAME: usize = 96;

/// A vendor's name for a window. Dereferences to `str`.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(CompactString);

impl Name {
    /// A trimmed text as a name; `None` if nothing is left.
    pub(super) fn new(text: &str) -> Option<Name> {
        let mut name = Name::default();
        name.add(text.trim());
        (!name.is_empty()).then_some(name)
    }

    /// Part of a header's name, which holds no character that has to be replaced. `None` if it is empty.
    pub(super) fn of_header(part: &str) -> Option<Name> {
        if part.len() > MAX_NAME {
            return Name::new(part);
        }
        (!part.is_empty()).then(|| Name(CompactString::new(part)))
    }

    /// Adds a word, with a `-` before it.
    pub(super) fn add(&mut self, word: &str) {
        if self.0.len() >= MAX_NAME {
            return;
        }
        if !self.0.is_empty() {
            self.0.push('-');
        }
        // Names are logged, so control characters are replaced.
        let is_plain = word.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
        if is_plain && self.0.len() + word.len() <= MAX_NAME {
            return self.0.push_str(word);
        }
        for c in word.chars() {
            // The replacement takes more bytes than the control character.
            let c = if c.is_control() { '\u{fffd}' } else { c };
            if self.0.len() + c.len_utf8() > MAX_NAME {
                return;
            }
            self.0.push(c);
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// One limit of a vendor, as far as a response describes it. Figures that the response does not state are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Window {
    /// The vendor's name for it; `None` if the response has a single unnamed window.
    pub name: Option<Name>,
    /// Units that may be used in one window: requests, or whatever the vendor counts.
    pub limit: Option<u64>,
    /// Units that are left. Some vendors state more than the limit. If a vendor states limit and use only, this is
    /// their difference.
    pub remaining: Option<u64>,
    /// Units that were used; may exceed the limit.
    pub used: Option<u64>,
    /// The time until the window ends or is full again, at most 31 days. Zero if that passed within the last two seconds;
    /// a moment before that is left out.
    pub reset_in: Option<Duration>,
    /// The window's length.
    pub window: Option<Duration>,
    /// The response states a negative remaining count: a placeholder in a success, and zero in a refusal.
    pub(super) overdrawn: bool,
    /// The figures are percentages: the vendor states a share, and not the limit.
    pub(crate) is_share: bool,
    /// The window is a limit of requests at once.
    pub(crate) is_parallel: bool,
}

impl Window {
    /// Whether no units are left.
    pub fn is_exhausted(&self) -> bool {
        self.remaining == Some(0)
    }

    /// Whether the window states anything besides its name.
    pub(super) fn says_something(&self) -> bool {
        let counts = self.limit.is_some() || self.remaining.is_some() || self.used.is_some();
        counts || self.reset_in.is_some() || self.window.is_some() || self.overdrawn
    }

    /// Sets the remaining count to limit minus use, if the response does not state it.
    pub(super) fn derive(&mut self) {
        if self.remaining.is_none()
            && let (Some(limit), Some(used)) = (self.limit, self.used)
        {
            self.remaining = Some(limit.saturating_sub(used));
        }
    }

    /// Whether two headers describe the same window: they share a figure, and no figure differs.
    fn agrees(&self, other: &Window) -> bool {
        fn same<T>(a: Option<T>, b: Option<T>, equal: impl Fn(T, T) -> bool) -> Option<bool> {
            Some(equal(a?, b?))
        }
        let name = same(self.name.as_ref(), other.name.as_ref(), |a, b| a == b);
        let limit = same(self.limit, other.limit, |a, b| a == b);
        let remaining = same(self.remaining, other.remaining, |a, b| a == b);
        let reset = same(self.reset_in, other.reset_in, |a, b| a.abs_diff(b) <= ROUNDING);
        let length = same(self.window, other.window, |a, b| a == b);
        let kind = Some(self.is_parallel == other.is_parallel);
        limit.or(remaining).is_some() && ![name, limit, remaining, reset, length, kind].contains(&Some(false))
    }

    /// Fills in figures from `other`. The later of two resets wins, so that a wait is never cut short.
    pub(super) fn complete(&mut self, other: Window) {
        self.name = self.name.take().or(other.name);
        self.limit = self.limit.or(other.limit);
        self.remaining = self.remaining.or(other.remaining);
        self.used = self.used.or(other.used);
        self.reset_in = self.reset_in.max(other.reset_in);
        self.window = self.window.or(other.window);
        self.overdrawn |= other.overdrawn;
        self.is_share |= other.is_share;
        self.is_parallel |= other.is_parallel;
    }

    /// Remaining count and limit as a fraction between 0 and 1; a limit of 0 counts as 1.
    fn share(&self) -> Option<(u128, u128)> {
        let (remaining, limit) = (self.remaining?, self.limit?);
        Some((u128::from(remaining.min(limit)), u128::from(limit.max(1))))
    }
}

/// The windows of one response, at most sixteen, in no particular order. Reads as a slice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Windows(SmallVec<[Window; 4]>);

impl Deref for Windows {
    type Target = [Window];

    fn deref(&self) -> &[Window] {
        &self.0
    }
}

impl<'a> IntoIterator for &'a Windows {
    type Item = &'a Window;
    type IntoIter = std::slice::Iter<'a, Window>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl Windows {
    /// The window with the smallest share left, among those that state a limit and a remaining count. Between equal
    /// shares, the one that resets last.
    pub fn tightest(&self) -> Option<&Window> {
        let shares = self.0.iter().filter_map(|window| Some((window, window.share()?)));
        let tightest = shares.min_by(|(one, (left, of)), (other, (other_left, of_other))| {
            // Cross-multiplied, because a vendor's number may be zero. Products of two u64 fit in a u128.
            let share = (left * of_other).cmp(&(other_left * of));
            share.then_with(|| other.reset_in.cmp(&one.reset_in))
        });
        tightest.map(|(window, _)| window)
    }

    /// Adds a window unless it is empty. When the list is full, exhausted windows that reset late are kept: they decide
    /// how long to wait.
    pub(super) fn push(&mut self, window: Window) {
        if !window.says_something() {
            return;
        }
        if self.0.len() < MAX_WINDOWS {
            self.0.push(window);
            return;
        }
        let weight = |window: &Window| (window.is_exhausted(), window.reset_in.filter(|_| window.is_exhausted()));
        if let Some(least) = self.0.iter_mut().min_by_key(|window| weight(window))
            && weight(least) < weight(&window)
        {
            *least = window;
        }
    }

    /// Adds the windows of another family of headers, and merges those that describe a known window.
    pub(super) fn beside(&mut self, read: impl FnOnce(&mut Windows)) {
        if self.0.is_empty() {
            // No window is known yet, so none can be merged.
            return read(self);
        }
        let mut others = Windows::default();
        read(&mut others);
        let before = self.0.len();
        for other in others.0 {
            let known = self.0.iter_mut().take(before).find(|window| window.agrees(&other));
            match known {
                Some(window) => window.complete(other),
                None => self.push(other),
            }
        }
    }

    /// Merges into the window of the same name and length, or adds it: some vendors list limits and uses separately.
    pub(super) fn join(&mut self, other: Window) {
        let same = |window: &&mut Window| window.name == other.name && window.window == other.window;
        match self.0.iter_mut().find(same) {
            Some(window) => window.complete(other),
            None => self.push(other),
        }
    }

    /// Gives each quota to the window with its limit whose length is not known, or makes it a window of its own.
    pub(super) fn bind(&mut self, quotas: &[Quota]) {
        for Quota { limit, window } in quotas {
            let (limit, length) = (Some(*limit), Some(*window));
            let unbound =
                |window: &&mut Window| window.limit == limit && (window.window.is_none() || window.window == length);
            match self.0.iter_mut().find(unbound) {
                Some(window) => window.window = length,
                None => self.push(Window { limit, window: length, ..Window::default() }),
            }
        }
    }

    /// Resolves negative remaining counts, to zero in a refusal and to unknown otherwise, and drops empty windows.
    pub(super) fn settle(&mut self, refused: bool) {
        for window in &mut self.0 {
            if window.overdrawn && refused && window.remaining.is_none() {
                window.remaining = Some(0);
            }
            window.overdrawn = false;
        }
        self.0.retain(|window| window.says_something());
    }

    /// Whether any window is exhausted or overdrawn.
    pub(super) fn any_exhausted(&self) -> bool {
        self.0.iter().any(|window| window.is_exhausted() || (window.overdrawn && window.remaining.is_none()))
    }

    /// The latest reset among exhausted windows.
    pub(super) fn latest_reset(&self) -> Option<Duration> {
        self.0.iter().filter(|window| window.is_exhausted()).filter_map(|window| window.reset_in).max()
    }

    /// The reset of the only window, if the response states nothing else of it.
    pub(super) fn lone_reset(&self) -> Option<Duration> {
        let [window] = &*self.0 else { return None };
        let (name, is_parallel) = (window.name.clone(), window.is_parallel);
        let lone = Window { name, reset_in: window.reset_in, is_parallel, ..Window::default() };
        window.reset_in.filter(|_| *window == lone)
    }

    /// Marks the windows with these names as exhausted: the vendor says that the request exceeded them.
    pub(super) fn exhaust(&mut self, names: &[String]) {
        let exceeded =
            |window: &&mut Window| window.name.as_ref().is_some_and(|name| names.iter().any(|own| *name == **own));
        self.0.iter_mut().filter(exceeded).for_each(|window| window.remaining = Some(0));
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Window> {
        self.0.iter_mut()
    }
}
