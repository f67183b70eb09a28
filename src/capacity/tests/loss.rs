//! After a loss, units that no process declares are withheld until they count nowhere, and the processes are told so.

use crate::capacity::call::{Call, Entry, Reading, Root};
use crate::capacity::ledger::{Figures, Got, Ledger, Line, State};

const S: u64 = 1_000_000;
const FIGURES: Figures = Figures { units: 16, again_us: 60 * S, transit_us: 2 * S, takes_used: false };

/// The store lost its ledgers at second 1,000, or was empty then.
struct Store {
    root: Root,
    ledger: Option<Ledger>,
    seq: u64,
}

impl Store {
    /// A process that holds six units wants some. Also returns whether the loss is why it lacks any.
    fn call(&mut self, after: u64, want: u32) -> (Got, bool) {
        self.seq += 1;
        let clock_us = (1_000 + after) * S;
        let (known_seq, line) = (self.seq - 1, Line::of(FIGURES, 6, want));
        let entry = Entry { limit: "v/minute".into(), known_seq, expected_us: Some(clock_us), line };
        let call =
            Call { process: 1, seq: self.seq, lease_us: 10 * S, leaves: false, witness: None, lines: vec![entry] };
        let (got, ledger) = call.exchange(&call.lines[0], self.ledger.take(), self.root.loss(), Reading::of(clock_us));
        self.ledger = Some(ledger);
        let got = got.expect("an answer");
        let lacks = call.lines[0].lacks_by_loss(&got);
        (got, lacks)
    }
}

/// The lease and its slack, then the longest way, the window and their slack.
#[test]
fn undeclared_units_are_withheld_for_window() {
    let mut store = Store { root: Root::new(true, 1_000 * S, 10 * S), ledger: None, seq: 0 };
    for after in (0..75).step_by(5) {
        // It has enough for a while.
        let want = if after == 20 { 6 } else { 10 };
        let (got, lacks) = store.call(after, want);
        let state = if after < 11 { State::Learning } else { State::Kept };
        let told = (got.state, got.all.withheld, got.units.len(), lacks);
        assert_eq!(told, (state, 10, 0, want == 10), "{after}");
    }
    let (got, lacks) = store.call(75, 10);
    assert_eq!((got.all.withheld, got.units, lacks), (0, vec![(0, 4)], false));
}
