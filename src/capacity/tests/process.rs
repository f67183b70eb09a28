//! What a process says in its next call, after a call of which some lines were answered.

use std::time::Duration;

use crate::capacity::call::Answer;
use crate::capacity::ledger::{All, Got, State};
use crate::capacity::process::Process;
use crate::clock::Time;
use crate::engine::limit::{Figures, Floor, Wish};

const SECOND: u64 = 1_000_000_000;

fn wish(returned: Vec<(u64, u32)>) -> Wish {
    Wish {
        claim: 4,
        returned,
        want: [0, 4, 0],
        need: 1,
        figures: Figures { units: 10, again_ns: 60 * SECOND, transit_ns: SECOND, travels: false },
        floor: Floor::default(),
        paused_ns: 0,
        is_starved: false,
    }
}

fn got() -> Got {
    Got {
        units: vec![(0, 2)],
        keep: 10,
        weights: [60, 30, 10],
        travels: false,
        floor: 0,
        free: 0,
        state: State::Kept,
        paused_us: 0,
        all: All::default(),
        is_stale: false,
    }
}

#[test]
fn failed_line_counts_as_unanswered() {
    let at = |second: u64| Time::from_nanos(second * SECOND);
    let wishes = |returned: &[(u64, u32)]| ["a", "b"].map(|name| (name.to_owned(), wish(returned.to_vec()))).to_vec();
    let mut process = Process::new(1, Duration::from_secs(10));
    let call = process.call(at(100), wishes(&[(5 * SECOND, 3)]), false);
    let answer = Answer { clock_us: 7_000_000, got: vec![Err("the disk fails".to_owned()), Ok(Some(got()))] };
    let received = process.answered(at(100), at(101), &call, &answer);
    let units: Vec<_> = received.into_iter().map(|got| got.map(|got| got.units)).collect();
    assert_eq!(units, [None, Some(vec![(0, 2)])]);
    let next = process.call(at(102), wishes(&[]), false);
    let [failed, answered] = &next.lines[..] else { panic!("two lines") };
    assert_eq!((failed.known_seq, failed.expected_us), (0, None));
    assert_eq!(failed.line.returned, [(3_000_000, 3)], "with the time that is left");
    assert_eq!((answered.known_seq, answered.expected_us), (1, Some(8_000_000)));
    assert!(answered.line.returned.is_empty());
}
