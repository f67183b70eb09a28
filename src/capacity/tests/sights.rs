//! How processes, each by its own clock, read times that other processes have written.

use crate::capacity::call::{Call, Entry};
use crate::capacity::ledger::{Figures, Got, Line, State};
use crate::capacity::sights::{AllSights, Now};

const S: u64 = 1_000_000;
const FIGURES: Figures = Figures { units: 16, again_us: 60 * S, transit_us: S, takes_used: false };

/// A process with a clock that is unrelated to those of the others.
struct Peer {
    id: u64,
    clock_at_start: u64,
    seq: u64,
    sights: AllSights,
}

/// The store's text, and the true time in microseconds.
struct World {
    text: String,
    now: u64,
    writings: u64,
    /// Whether the store's answers have dates, and the error of these dates in seconds.
    dates: bool,
    date_error_s: i64,
}

impl World {
    fn new() -> World {
        World { text: String::new(), now: 0, writings: 0, dates: false, date_error_s: 0 }
    }

    fn call(&mut self, peer: &mut Peer, line: Line) -> Got {
        peer.seq += 1;
        let known_seq = peer.seq - 1;
        let entry = Entry { limit: "v/day".into(), known_seq, expected_us: None, line };
        let call = Call {
            process: peer.id,
            seq: peer.seq,
            lease_us: 10 * S,
            leaves: false,
            witness: None,
            lines: vec![entry],
        };
        self.writings += 1;
        let clock_us = peer.clock_at_start + self.now;
        let date = self.dates.then_some((1_000_000 + self.now / S).saturating_add_signed(self.date_error_s));
        let now = Now::new(clock_us, clock_us, date);
        let written = peer.sights.answer(&call, &call.lines[0], &self.text, &now, self.writings);
        self.text = written.text;
        written.got.expect("a process that stays is answered")
    }
}

fn peer(id: u64) -> Peer {
    Peer { id, clock_at_start: id * 100_000 * S, seq: 0, sights: AllSights::default() }
}

fn line(claim: u32, want: u32) -> Line {
    Line::of(FIGURES, claim, want)
}

fn line_returning(claim: u32, units: u32, free_in: u64) -> Line {
    Line { returned: vec![(free_in, units)], ..line(claim, 0) }
}

fn units(got: &Got) -> u32 {
    got.units.iter().map(|(_, units)| units).sum()
}

#[test]
fn free_units_go_to_any_process() {
    let mut world = World::new();
    assert_eq!(units(&world.call(&mut peer(1), line(0, 10))), 10);
    assert_eq!(units(&world.call(&mut peer(2), line(0, 10))), 6, "the first has the others");
}

#[test]
fn used_unit_is_timed_from_first_sight() {
    let mut world = World::new();
    let (mut one, mut two, mut late) = (peer(1), peer(2), peer(3));
    world.call(&mut one, line(0, 16));
    world.call(&mut one, line_returning(0, 16, 40 * S));
    world.now += 2 * S;
    assert_eq!(units(&world.call(&mut two, line(0, 8))), 0);
    // The slack of one second, and 200 millionths.
    for (at, free) in [(42, 0), (43, 0), (44, 8)] {
        world.now = at * S;
        assert_eq!(units(&world.call(&mut two, line(0, 8))), free, "{at}");
    }
    // Units that process 2 saw as free are written as free, so they are free for a newcomer too.
    assert_eq!(units(&world.call(&mut late, line(0, 8))), 8);
}

#[test]
fn dropped_units_count_for_every_process() {
    let mut world = World::new();
    let (mut one, mut two) = (peer(1), peer(2));
    world.call(&mut one, line(0, 16));
    let reduced = Figures { units: 8, ..FIGURES };
    world.call(&mut one, Line { figures: reduced, ..line_returning(8, 8, 40 * S) });
    // Process 2 sees this after two seconds. When the lease of process 1 has ended, the whole limit is in force.
    for (at, free) in [(2, 0), (20, 0), (43, 0), (44, 8)] {
        world.now = at * S;
        assert_eq!(units(&world.call(&mut two, line(0, 8))), free, "{at}");
    }
}

/// The text does not say since when units are free, so they may have been used just within the longer window.
#[test]
fn free_units_count_in_longer_window() {
    let mut world = World::new();
    let mut one = peer(1);
    world.call(&mut one, line(0, 16));
    world.call(&mut one, line_returning(0, 16, 60 * S));
    world.now = 62 * S;
    world.call(&mut one, line(0, 0));
    let hour = Figures { again_us: 3_600 * S, ..FIGURES };
    // The hour less the minute, and 200 millionths.
    for (at, free) in [(70, 0), (3_609, 0), (3_612, 16)] {
        world.now = at * S;
        assert_eq!(units(&world.call(&mut one, Line { figures: hour, ..line(0, 16) })), free, "{at}");
    }
}

#[test]
fn newcomer_waits_and_delays_nobody() {
    let mut world = World::new();
    let (mut one, mut two) = (peer(1), peer(2));
    world.call(&mut one, line(0, 16));
    world.call(&mut one, line_returning(0, 16, 40 * S));
    world.call(&mut two, line(0, 8));
    for at in 1..40 {
        world.now = at * S;
        assert_eq!(units(&world.call(&mut peer(100 + at), line(0, 0))), 0);
    }
    world.now = 42 * S;
    assert_eq!(units(&world.call(&mut peer(3), line(0, 8))), 0, "it saw them now");
    assert_eq!(units(&world.call(&mut two, line(0, 8))), 8);
}

#[test]
fn newcomer_counts_dates_less_their_error() {
    for (wrong, waits) in [(0, 43 + 20), (10, 43 + 10), (-10, 43 + 30)] {
        let mut world = World { dates: true, ..World::new() };
        let mut one = peer(1);
        world.call(&mut one, line(0, 16));
        world.call(&mut one, line_returning(0, 16, 40 * S));
        world.date_error_s = wrong;
        world.now = 30 * S;
        let mut late = peer(2);
        assert_eq!(units(&world.call(&mut late, line(0, 8))), 0);
        world.now = (waits - 3) * S;
        assert_eq!(units(&world.call(&mut late, line(0, 8))), 0, "{wrong}");
        world.now = (waits + 1) * S;
        assert_eq!(units(&world.call(&mut late, line(0, 8))), 8, "{wrong}");
    }
}

#[test]
fn units_of_yesterday_are_free() {
    let mut world = World { dates: true, ..World::new() };
    let mut one = peer(1);
    world.call(&mut one, line(0, 16));
    world.call(&mut one, line_returning(0, 16, 40 * S));
    world.now = 86_400 * S;
    assert_eq!(units(&world.call(&mut peer(2), line(0, 8))), 8);
}

#[test]
fn units_stay_apart_despite_a_newcomer() {
    let mut world = World::new();
    let (mut one, mut two) = (peer(1), peer(2));
    world.call(&mut one, line(0, 16));
    world.call(&mut one, line_returning(8, 8, 40 * S));
    world.call(&mut two, line(0, 0));
    // Process 2 has waited 8 s for the first half when the second half is returned.
    world.now = 8 * S;
    world.call(&mut one, line_returning(0, 8, 40 * S));
    for at in [9, 10, 11] {
        world.now = at * S;
        world.call(&mut peer(100 + at), line(0, 0));
        world.call(&mut two, line(0, 0));
    }
    world.now = 45 * S;
    assert_eq!(units(&world.call(&mut two, line(0, 16))), 8, "the other half counts still");
    world.now = 51 * S;
    assert_eq!(units(&world.call(&mut two, line(8, 16))), 8);
}

#[test]
fn lease_ends_first_for_its_holder() {
    let mut world = World::new();
    let (mut one, mut two) = (peer(1), peer(2));
    world.call(&mut one, line(0, 16));
    world.now = 4 * S;
    // Process 2 first sees the lease of 10 s when 4 s of it are over. From then it counts 10 s, the slack, transit and
    // window.
    for (at, free) in [(4, 0), (14, 0), (60, 0), (75, 0), (80, 10)] {
        world.now = at * S;
        assert_eq!(units(&world.call(&mut two, line(0, 10))), free, "{at}");
    }
    assert_eq!(world.call(&mut one, line(16, 16)).state, State::Lost);
}

/// An outage that is longer than the lease.
#[test]
fn outage_takes_no_unused_units() {
    let mut world = World::new();
    let (mut one, mut two) = (peer(1), peer(2));
    world.call(&mut one, line(0, 16));
    world.now = 20 * S;
    let back = Line { returned: vec![(0, 10), (30 * S, 6)], ..line(0, 0) };
    assert_eq!(world.call(&mut one, back).state, State::Lost);
    // Process 2 sees at 21 s that the others are free in 31 s.
    for (at, held, more) in [(21, 0, 10), (31, 10, 0), (41, 10, 0), (51, 10, 0), (53, 10, 6)] {
        world.now = at * S;
        assert_eq!(units(&world.call(&mut two, line(held, 16))), more, "{at}");
    }
}

/// A unit that is used each minute of a day makes an entry of the pool, and each merged entry is a little later for all.
#[test]
fn steady_use_without_clock_leaves_no_unit_late() {
    let day = Figures { units: 1_440 * 9 / 8, again_us: 86_400 * S, ..FIGURES };
    let (mut world, mut peers) = (World { dates: true, ..World::new() }, [peer(1), peer(2)]);
    for minute in 0..2 * 1_440 {
        let peer = &mut peers[minute % 2];
        world.now = minute as u64 * 60 * S;
        assert_eq!(units(&world.call(peer, Line::of(day, 0, 1))), 1, "{minute}");
        world.now += 5 * S;
        world.call(peer, Line { returned: vec![(day.again_us - 5 * S, 1)], ..Line::of(day, 0, 0) });
    }
}

#[test]
fn unreadable_text_counts_as_lost() {
    let mut world = World::new();
    world.call(&mut peer(1), line(0, 16));
    let without_stamps = world.text.replacen("\"stamps\":[[", "\"stamps\":[],\"x\":[[", 1);
    let empty_stamps = {
        let mut kept: serde_json::Value = serde_json::from_str(&world.text).expect("a text of ours");
        kept["stamps"] = serde_json::json!([]);
        kept.to_string()
    };
    for text in ["?", "{}", "null", "[]", "{\"stamps\":[],\"ledger\":{}}", &without_stamps, &empty_stamps] {
        world.text = text.to_owned();
        let got = world.call(&mut peer(2), line(0, 10));
        assert_eq!((units(&got), got.state), (0, State::Learning), "{text}");
    }
}

#[test]
fn restored_store_is_recognised() {
    let mut world = World::new();
    let mut one = peer(1);
    world.call(&mut one, line(0, 4));
    let before = world.text.clone();
    world.call(&mut one, line(4, 10));
    world.text = before;
    assert_eq!(world.call(&mut one, line(10, 10)).state, State::Learning);
}
