//! Selects the lanes of a page and their order. It is a pure function, so a million test cases are cheap.
//!
//! A page begins after a place in the order and not after a number of lanes. If lanes are added, removed or changed
//! between two pages, no lane that stays the same is shown twice or left out.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::core::status::lanes::{LaneQuery, LaneSort, LaneState, MAX_PAGE};

/// The lanes of a page, unless the query states another number.
const PAGE: usize = 50;
/// The room of a lane whose limits are unused: room is compared in steps of a thousandth.
pub(crate) const WHOLE: u16 = 1_000;

/// The facts about a lane by which lists are filtered and ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Facts {
    pub(crate) state: LaneState,
    /// The remaining share of the tightest limit, in thousandths.
    pub(crate) room: u16,
    pub(crate) waiting: u64,
}

/// The primary key of the order, before the names of tenant and vendor.
type Rank = (u8, u16, Reverse<u64>);

fn rank(sort: LaneSort, facts: &Facts) -> Rank {
    // Lanes in the less urgent states work as intended, so only their room decides their order.
    let urgency = (facts.state as u8).min(LaneState::Throttled as u8 + 1);
    match sort {
        LaneSort::Worst => (urgency, facts.room, Reverse(facts.waiting)),
        LaneSort::Room => (0, facts.room, Reverse(0)),
        LaneSort::Waiting => (0, 0, Reverse(facts.waiting)),
        LaneSort::Name => (0, 0, Reverse(0)),
    }
}

/// The lanes of a page, as indices into the list that was searched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Selected {
    pub(crate) total: usize,
    pub(crate) numbers: Vec<usize>,
    pub(crate) next: Option<String>,
}

/// The page of `all` that `query` asks for. `of` returns tenant, vendor and facts of a lane.
pub(crate) fn select<T>(all: &[T], of: impl Fn(&T) -> (&str, &str, Facts), query: &LaneQuery) -> Selected {
    let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let searched = query.search.trim().to_ascii_lowercase();
    let after = query.after.as_deref().and_then(place);
    // The heap holds the best lanes so far. Most other lanes rank after its last one, so their names are not read.
    let (mut total, mut candidates, mut page) = (0, 0, BinaryHeap::with_capacity(limit + 1));
    for (number, lane) in all.iter().enumerate() {
        let (tenant, vendor, facts) = of(lane);
        let fits = query.vendor.as_ref().is_none_or(|name| name == vendor)
            && query.state.is_none_or(|state| state == facts.state)
            && (searched.is_empty() || contains(tenant, &searched) || contains(vendor, &searched));
        if !fits {
            continue;
        }
        total += 1;
        let key = (rank(query.sort, &facts), tenant, vendor);
        if after.is_none_or(|after| key > after) {
            candidates += 1;
            if page.len() < limit {
                page.push((key, number));
            } else if let Some(mut last) = page.peek_mut().filter(|last| key < last.0) {
                *last = (key, number);
            }
        }
    }
    let is_last = candidates <= limit;
    let found = page.into_sorted_vec();
    let next = found.last().filter(|_| !is_last).map(|(key, _)| written(key));
    Selected { total, numbers: found.into_iter().map(|(_, number)| number).collect(), next }
}

/// Whether `text` contains `searched`, which is in lower case.
fn contains(text: &str, searched: &str) -> bool {
    let (text, searched) = (text.as_bytes(), searched.as_bytes());
    text.windows(searched.len()).any(|part| part.eq_ignore_ascii_case(searched))
}

type Key<'a> = (Rank, &'a str, &'a str);

fn written(((urgency, room, Reverse(waiting)), tenant, vendor): &Key<'_>) -> String {
    format!("{urgency}:{room}:{waiting}:{tenant}:{vendor}")
}

/// Parses a place as [`written`] makes it; `None` if the text is malformed. Names of tenants and vendors contain no
/// colon.
fn place(text: &str) -> Option<Key<'_>> {
    let mut parts = text.split(':');
    let rank = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, Reverse(parts.next()?.parse().ok()?));
    let key = (rank, parts.next()?, parts.next()?);
    parts.next().is_none().then_some(key)
}

#[cfg(test)]
mod tests;
