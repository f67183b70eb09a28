//! Tests of `select`.

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
