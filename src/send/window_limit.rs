//! Which configured limit a window of a response is about.

use std::time::Duration;

use smallvec::SmallVec;

use crate::config::{Limit, LimitKind, Rate, Unit};
use crate::signals::{self, Window};

/// The figure of the limit that a window is about, for a window that states none: that of the rate with the window's
/// name, or else of the only one whose name is part of that, or else of the only one with the window's length. A window
/// without a length fits any rate.
pub(super) fn configured<'l>(
    name: &str,
    length: Option<Duration>,
    limits: impl Iterator<Item = &'l Limit>,
) -> Option<u64> {
    let rates: SmallVec<[(String, &Rate); 4]> = limits
        .filter_map(|limit| match &limit.kind {
            LimitKind::Rate(rate) => Some((plain(&limit.name), rate)),
            LimitKind::Concurrency { .. } => None,
        })
        .collect();
    let only = |fits: &dyn Fn(&str, &Rate) -> bool| {
        let mut found = rates.iter().filter(|(limit, rate)| fits(limit, rate));
        match (found.next(), found.next()) {
            (Some((_, rate)), None) => Some(u64::from(rate.limit)),
            _ => None,
        }
    };
    let words = plain(name);
    if let Some(limit) = only(&|limit, _| limit == words).or_else(|| only(&|limit, _| words.contains(limit))) {
        return Some(limit);
    }
    if is_special(&name.to_ascii_lowercase()) {
        return None;
    }
    only(&|_, rate| length.is_none_or(|length| length == rate.window))
}

/// Headers write hyphens where entries write underscores.
fn plain(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

/// The configured limit that a window of a response is about: the one with the window's name, or else the one with its
/// length; or the only limit, if the response has a single window. Only limits on requests are compared, and a window
/// that is named after another unit, such as tokens, says nothing about requests.
pub(super) fn matching<'l>(window: &Window, limits: &'l [Limit], windows: usize) -> Option<(&'l Limit, &'l Rate, u64)> {
    let stated = window.limit.filter(|_| !window.is_parallel)?;
    let rates = limits.iter().filter_map(|limit| match &limit.kind {
        LimitKind::Rate(rate) if rate.unit == Unit::Requests => Some((limit, rate)),
        _ => None,
    });
    let name = window.name.as_deref().unwrap_or("requests");
    if let Some((limit, rate)) = rates.clone().find(|(limit, _)| limit.name.eq_ignore_ascii_case(name)) {
        let is_same =
            window.window.is_none_or(|length| length == rate.window) && (window.name.is_some() || windows == 1);
        return is_same.then_some((limit, rate, stated));
    }
    if is_special(name) {
        return None;
    }
    let is_only = windows == 1 && rates.clone().count() == 1;
    let mut fitting = rates.filter(|(_, rate)| window.window.map_or(is_only, |length| length == rate.window));
    match (fitting.next(), fitting.next()) {
        (Some((limit, rate)), None) => Some((limit, rate, stated)),
        _ => None,
    }
}

/// Whether a window's name is neither a period nor a word for requests, as in `tokens`.
pub(super) fn is_special(name: &str) -> bool {
    let means_requests = name.contains("request") || name.contains("call_count");
    !name.is_empty() && !means_requests && !signals::is_period(name)
}

#[cfg(test)]
mod tests;
