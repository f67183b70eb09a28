//! The windows of a response, from all its headers.

use std::time::Duration;

use super::structured::Quota;

/// More than any vendor sends. Bounds what a hostile one can make the client keep.
const MAX_WINDOWS: usize = 8;

/// Two headers for one window may round its reset differently.
const ROUNDING: Duration = Duration::from_secs(1);

/// One limit of a vendor, as far as a response describes it. What it does not say is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Window {
    /// What may be used in one window; requests, or whatever the vendor counts.
    pub limit: Option<u64>,
    /// What is left of it. Some vendors state more than the limit.
    pub remaining: Option<u64>,
    /// The time until the window ends or is full again, at most 31 days. Zero if that has just passed.
    pub reset_after: Option<Duration>,
    /// The window's length.
    pub window: Option<Duration>,
}

impl Window {
    fn is_exhausted(&self) -> bool {
        self.remaining == Some(0)
    }

    /// Whether the two are one window under two names: they have a figure in common and none that differs.
    fn agrees(&self, other: &Window) -> bool {
        fn same<T>(a: Option<T>, b: Option<T>, equal: impl Fn(T, T) -> bool) -> Option<bool> {
            Some(equal(a?, b?))
        }
        let limit = same(self.limit, other.limit, |a, b| a == b);
        let remaining = same(self.remaining, other.remaining, |a, b| a == b);
        let reset = same(self.reset_after, other.reset_after, |a, b| a.abs_diff(b) <= ROUNDING);
        let length = same(self.window, other.window, |a, b| a == b);
        limit.or(remaining).is_some() && ![limit, remaining, reset, length].contains(&Some(false))
    }

    /// Takes over what the other knows. Of two resets the later: a wait is never cut short.
    fn complete(&mut self, other: &Window) {
        self.limit = self.limit.or(other.limit);
        self.remaining = self.remaining.or(other.remaining);
        self.reset_after = self.reset_after.max(other.reset_after);
        self.window = self.window.or(other.window);
    }

    /// Remaining and limit, of which the share is made. More than all is all, and nothing of nothing is nothing.
    fn share(&self) -> Option<(u128, u128)> {
        let (remaining, limit) = (self.remaining?, self.limit?);
        Some((u128::from(remaining.min(limit)), u128::from(limit.max(1))))
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Windows(Vec<Window>);

impl Windows {
    pub(super) fn as_slice(&self) -> &[Window] {
        &self.0
    }

    /// Adds a window. When there is no room, those with nothing left stay, and of those the last to reset: they decide
    /// how long to wait.
    pub(super) fn push(&mut self, window: Window) {
        if self.0.len() < MAX_WINDOWS {
            self.0.push(window);
            return;
        }
        let weight = |window: &Window| (window.is_exhausted(), window.reset_after.filter(|_| window.is_exhausted()));
        if let Some(least) = self.0.iter_mut().min_by_key(|window| weight(window))
            && weight(least) < weight(&window)
        {
            *least = window;
        }
    }

    pub(super) fn extend(&mut self, windows: impl IntoIterator<Item = Window>) {
        windows.into_iter().for_each(|window| self.push(window));
    }

    /// Adds what another family of headers says, often about the same windows.
    pub(super) fn merge(&mut self, others: Windows) {
        let before = self.0.len();
        for other in others.0 {
            match self.0[..before].iter_mut().find(|window| window.agrees(&other)) {
                Some(window) => window.complete(&other),
                None => self.push(other),
            }
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

    pub(super) fn tightest(&self) -> Option<&Window> {
        let shares = self.0.iter().filter_map(|window| Some((window, window.share()?)));
        let tightest = shares.min_by(|(one, (left, of)), (other, (other_left, of_other))| {
            // Crosswise, for nothing is divided by what a vendor sent. The products of two u64 fit.
            let share = (left * of_other).cmp(&(other_left * of));
            share.then_with(|| other.reset_after.cmp(&one.reset_after))
        });
        tightest.map(|(window, _)| window)
    }
}
