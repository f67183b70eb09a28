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
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Lane = (String, &'static str, Facts);

    fn lane(tenant: &str, state: LaneState, room: u16, waiting: u64) -> Lane {
        (tenant.to_owned(), "github", Facts { state, room, waiting })
    }

    fn of(lane: &Lane) -> (&str, &str, Facts) {
        (&lane.0, lane.1, lane.2)
    }

    fn names(all: &[Lane], query: &LaneQuery) -> Vec<String> {
        select(all, of, query).numbers.into_iter().map(|number| all[number].0.clone()).collect()
    }

    #[test]
    fn orders_are_what_they_say() {
        let all = [
            lane("idle", LaneState::Idle, 1_000, 0),
            lane("busy", LaneState::Waiting, 100, 9),
            lane("sends", LaneState::Sending, 50, 0),
            lane("held", LaneState::Held, 900, 0),
            lane("paused", LaneState::Paused, 800, 20),
            lane("lost", LaneState::Reconnect, 1_000, 0),
        ];
        for (sort, expected) in [
            (LaneSort::Worst, ["lost", "held", "paused", "sends", "busy", "idle"]),
            (LaneSort::Room, ["sends", "busy", "paused", "held", "idle", "lost"]),
            (LaneSort::Waiting, ["paused", "busy", "held", "idle", "lost", "sends"]),
            (LaneSort::Name, ["busy", "held", "idle", "lost", "paused", "sends"]),
        ] {
            assert_eq!(names(&all, &LaneQuery { sort, ..LaneQuery::default() }), expected, "{sort:?}");
        }
        let paused = LaneQuery { state: Some(LaneState::Paused), ..LaneQuery::default() };
        assert_eq!(names(&all, &paused), ["paused"]);
        let searched = |search: &str| names(&all, &LaneQuery { search: search.to_owned(), ..LaneQuery::default() });
        assert_eq!(searched(" EL "), ["held"]);
        assert_eq!(searched("GIT").len(), 6, "the vendor's name counts too");
        assert_eq!(searched("none of these").len(), 0);
        let other = LaneQuery { vendor: Some("stripe".to_owned()), ..LaneQuery::default() };
        assert_eq!(select(&all, of, &other), Selected { total: 0, numbers: vec![], next: None });
    }

    #[test]
    fn place_that_is_none_is_the_beginning() {
        let all = [lane("a", LaneState::Idle, 1_000, 0)];
        for after in ["", ":::", "1:2:3:a", "x:0:0:a:b", "0:0:0:a:b:c", "9999:0:0:a:b", "-1:0:0:a:b"] {
            let query = LaneQuery { after: Some(after.to_owned()), ..LaneQuery::default() };
            assert_eq!(names(&all, &query), ["a"], "{after}");
        }
    }

    fn lanes() -> impl Strategy<Value = Vec<Lane>> {
        let facts = (0..LaneState::ALL.len(), 0..=WHOLE, 0..5u64);
        let facts = facts.prop_map(|(state, room, waiting)| Facts { state: LaneState::ALL[state], room, waiting });
        let named = |(number, facts): (usize, Facts)| (format!("t{number}"), "v", facts);
        proptest::collection::vec(facts, 0..60).prop_map(move |all| all.into_iter().enumerate().map(named).collect())
    }

    proptest! {
        /// Lanes are changed, added and removed between two pages: each lane that stays the same is shown once.
        #[test]
        fn pages_show_each_lane_once(
            mut all in lanes(),
            limit in 1..9usize,
            sort in prop::sample::select(vec![LaneSort::Worst, LaneSort::Room, LaneSort::Waiting, LaneSort::Name]),
            changes in proptest::collection::vec((0..60usize, 0..=WHOLE), 0..20),
        ) {
            let calm: Vec<String> =
                all.iter().enumerate().filter(|(n, _)| changes.iter().all(|(m, _)| m != n)).map(|(_, l)| l.0.clone()).collect();
            let (mut query, mut seen) = (LaneQuery { sort, limit: Some(limit), ..LaneQuery::default() }, Vec::new());
            let mut changes = changes.into_iter();
            loop {
                let page = select(&all, of, &query);
                prop_assert_eq!(page.total, all.len());
                prop_assert!(page.numbers.len() <= limit);
                seen.extend(page.numbers.iter().map(|number| all[*number].0.clone()));
                if let Some((number, room)) = changes.next()
                    && let Some(lane) = all.get_mut(number)
                {
                    lane.2.room = room;
                }
                let Some(next) = page.next else { break };
                query.after = Some(next);
            }
            for name in calm {
                prop_assert_eq!(seen.iter().filter(|other| **other == name).count(), 1, "{}", name);
            }
        }
    }
}
