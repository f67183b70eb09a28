//! Units in a log that are not ours: how many are left to their users, and how many more stay free.
//!
//! Where nothing is left, the others are refused as well, and what they hold falls although they want no less. A client that took
//! what they lost would drive them out and then be refused by their next calls. So the number that is left to them falls fast only
//! while there was room for them.
//!
//! Requests overtake each other, and others do not send evenly: how many units have to stay free is found out. One more does
//! whenever nothing was left, and two more after a refusal; after each window in which something was left all the time, a little less.

use crate::time::Time;

/// Windows in which the units that are left to others fall to 1/e: while others had room, and while they had none.
const FALLS: [f64; 2] = [1.5, 16.0];
/// There was room in a window if so many units were left at least.
const ROOM: u64 = 2;
/// After such a window, what stays free because nothing was left falls by this part, and what stays free because of refusals by
/// that.
const LESS: [f64; 2] = [0.125, 0.02];
/// So much more stays free after a refusal.
const REFUSED: f64 = 2.0;
/// At most one part in so many of the limit stays free.
const MOST: f64 = 8.0;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Foreign {
    /// Left to the others.
    held: f64,
    /// Stays free because nothing was left, and because of refusals.
    margins: [f64; 2],
    /// The last answer, and the last after which more stays free.
    at: Time,
    widened: Time,
    /// The least that was left since then, and when that began.
    least: (u64, Time),
}

impl Foreign {
    /// The vendor counts `units` that are not ours, and `remaining` of `limit` are left. `way`: how long a request takes, in
    /// nanoseconds.
    pub(super) fn seen(&mut self, now: Time, units: u32, remaining: u64, limit: u64, way: u64, window: u64) {
        let passed = now.since(self.at).as_nanos() as f64 / window.max(1) as f64;
        let room = remaining >= ROOM;
        self.held = (self.held * (-passed / FALLS[usize::from(!room)]).exp()).max(units.into());
        if passed > 1.0 {
            self.least = (remaining, now);
        }
        self.least.0 = self.least.0.min(remaining);
        if remaining == 0 && now.since(self.widened).as_nanos() >= u128::from(way) {
            self.margins[0] = (self.margins[0] + 1.0).min(limit as f64 / MOST);
            self.widened = now;
        }
        self.margins[1] = self.margins[1].min(limit as f64 / MOST);
        if now.since(self.least.1).as_nanos() >= u128::from(window) {
            if self.least.0 >= ROOM {
                self.margins = [0, 1].map(|number| self.margins[number] * (1.0 - LESS[number]));
            }
            self.least = (remaining, now);
        }
        self.at = now;
    }

    /// A request was refused while others were there.
    pub(super) fn refused(&mut self) {
        if self.held > 0.0 {
            self.margins[1] += REFUSED;
        }
    }

    /// Units that are left to the others.
    pub(super) fn held(&self) -> u32 {
        self.held.ceil() as u32
    }

    /// Units that stay free beside.
    pub(super) fn margin(&self) -> u32 {
        (self.margins[0].max(1.0) + self.margins[1]).round() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const WAY: u64 = 50_000_000;

    fn after(ms: u64) -> Time {
        Time::from_nanos(3_600 * SECOND + ms * 1_000_000)
    }

    /// Answers every 20 ms for `ms` milliseconds: others hold less and less, from 50 units to none in a second.
    fn falling(ms: u64, remaining: u64) -> Foreign {
        let mut foreign = Foreign::default();
        for at in (0..ms).step_by(20) {
            foreign.seen(after(at), 50_u32.saturating_sub(at as u32 / 20), remaining, 100, WAY, SECOND);
        }
        foreign
    }

    #[test]
    fn units_stay_with_others_who_were_refused() {
        assert!(falling(2_000, 0).held() >= 43, "{:?}", falling(2_000, 0));
        assert!(falling(2_000, 20).held() <= 25, "{:?}", falling(2_000, 20));
        assert_eq!(falling(20_000, 20).held(), 1);
    }

    #[test]
    fn more_stays_free_once_in_a_round_trip_and_less_after_a_window() {
        let mut foreign = Foreign::default();
        assert_eq!(foreign.margin(), 1);
        for ms in [0, 20, 50, 60, 110] {
            foreign.seen(after(ms), 50, 0, 100, WAY, SECOND);
        }
        assert_eq!(foreign.margin(), 3, "at 0, 50 and 110 ms");
        for ms in (200..30_000).step_by(20) {
            foreign.seen(after(ms), 50, 5, 100, WAY, SECOND);
        }
        assert_eq!(foreign.margin(), 1);
    }

    #[test]
    fn refusals_are_remembered_longer_and_bounded() {
        let mut foreign = Foreign::default();
        foreign.refused();
        assert_eq!(foreign.margin(), 1, "nobody else was there");
        foreign.seen(after(0), 50, 5, 100, WAY, SECOND);
        foreign.refused();
        for ms in (20..10_000).step_by(20) {
            foreign.seen(after(ms), 50, 5, 100, WAY, SECOND);
        }
        assert_eq!(foreign.margin(), 3);
        (0..1_000).for_each(|_| foreign.refused());
        foreign.seen(after(10_020), 50, 5, 100, WAY, SECOND);
        assert_eq!(foreign.margin(), 13, "an eighth of the limit, less a window's part, and one");
    }
}
