//! What `eras.rs` writes to a store that can compare and swap.

use crate::capacity::call::{Call, Entry};
use crate::capacity::eras::{Round, Seen, round};
use crate::capacity::ledger::{Figures, Line, State};

const S: u64 = 1_000_000;

/// A process that wants 10 units of a limit of 16.
pub(super) fn call(process: u64, seq: u64) -> Call {
    let figures = Figures { units: 16, again_us: S, transit_us: S, takes_used: false };
    let line = Line::of(figures, 0, 10);
    let entry = Entry { limit: "github/core".into(), known_seq: 0, expected_us: None, line };
    Call { process, seq, lease_us: 10 * S, leaves: false, witness: None, lines: vec![entry] }
}

fn seen_by_store(run: &str, seconds: u64, before: Option<&Round>) -> Seen {
    let era = before.map(|round| round.era.clone()).unwrap_or_default();
    let kept = vec![before.map(|round| round.writes[0].text.clone()).unwrap_or_default()];
    Seen { run: run.into(), clock_us: seconds * S, waited_us: 0, era, kept }
}

fn units(round: &Round) -> u32 {
    let got = round.writes[0].got.as_ref().unwrap();
    got.units.iter().map(|(_, units)| units).sum()
}

fn state(round: &Round) -> State {
    round.writes[0].got.as_ref().unwrap().state
}

/// A server that has run for long, so that its first era has learnt which process holds what.
fn settled_round() -> Round {
    let first = round(&call(1, 1), &[0], &seen_by_store("a", 1_000, None), 7);
    round(&Call { lines: Vec::new(), ..call(1, 2) }, &[], &seen_by_store("a", 2_000, Some(&first)), 8)
}

#[test]
fn empty_store_waits_for_every_lease() {
    let first = round(&call(1, 1), &[0], &seen_by_store("a", 1_000, None), 7);
    assert_eq!((units(&first), state(&first)), (0, State::Learning));
    let early = round(&call(1, 2), &[0], &seen_by_store("a", 1_013, Some(&first)), 8);
    assert_eq!(units(&early), 0, "the lease, its slack and three seconds have not passed");
}

#[test]
fn new_limit_of_settled_era_is_free() {
    let settled = settled_round();
    let seen = Seen {
        run: "a".into(),
        clock_us: 2_001 * S,
        waited_us: 0,
        era: settled.era.clone(),
        kept: vec![String::new()],
    };
    let first = round(&call(1, 1), &[0], &seen, 9);
    assert_eq!((units(&first), state(&first)), (10, State::Kept));
    assert_eq!(first.era, settled.era, "the era goes on");
    let second = Seen { kept: vec![first.writes[0].text.clone()], ..seen };
    assert_eq!(units(&round(&call(2, 1), &[0], &second, 9)), 6, "the first has the others");
}

#[test]
fn server_restart_ends_the_old_ledgers() {
    let settled = settled_round();
    let here = Seen { run: "a".into(), clock_us: 2_001 * S, waited_us: 0, era: settled.era, kept: vec![String::new()] };
    let first = round(&call(1, 1), &[0], &here, 9);
    let kept = vec![first.writes[0].text.clone()];
    let restarted = Seen { run: "b".into(), clock_us: 2_002 * S, waited_us: 0, era: first.era.clone(), kept };
    let again = round(&call(2, 1), &[0], &restarted, 10);
    assert_ne!(again.era, first.era);
    assert_eq!((units(&again), state(&again)), (0, State::Learning));
    // The first server comes back with its old ledgers: their era has ended, so they do not count.
    let back = Seen { run: "a".into(), era: again.era, ..restarted };
    assert_eq!(state(&round(&call(2, 2), &[0], &back, 11)), State::Learning);
}

#[test]
fn unreadable_era_counts_as_lost() {
    for text in ["{", "null", "{\"name\":1}", "\u{0}", "[]"] {
        let seen = Seen { run: "a".into(), clock_us: S, waited_us: 0, era: text.into(), kept: vec!["7 {}".into()] };
        assert_eq!(state(&round(&call(1, 1), &[0], &seen, 7)), State::Learning, "{text}");
    }
}

#[test]
fn ledger_expires_when_it_states_nothing_new() {
    let first = round(&call(1, 1), &[0], &seen_by_store("a", 1_000, None), 7);
    // Learning takes 10 s, one second of slack and three seconds; after that come transit, window and slack.
    assert!(first.writes[0].keep_ms >= 3_600_000 + 16_000, "{}", first.writes[0].keep_ms);
    assert!(first.writes[0].keep_ms <= 3_600_000 + 17_000, "{}", first.writes[0].keep_ms);
}
