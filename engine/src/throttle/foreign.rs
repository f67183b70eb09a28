//! Units in the vendor's sliding-window log that other clients took: how many units are reserved for those clients, and
//! how many more are kept free as a margin.
//!
//! While no units remain, the vendor refuses the other clients too, and the number of units that they hold falls
//! although their demand does not. A client that took those units would crowd the others out, and then be refused by
//! their next requests. So the reserve decays fast only while there was room for the others.
//!
//! Requests overtake each other and the other clients do not send evenly, so the size of the margin is found by trial:
//! it grows by one whenever no units remain and by two after a refusal, and shrinks a little after each window in which
//! some units remained all the time.

use crate::time::Time;

/// Number of windows in which the reserve decays to 1/e: if others had room, and if they had none.
const FALLS: [f64; 2] = [1.5, 16.0];
/// Others had room if at least this many units remained.
const ROOM: u64 = 2;
/// After a window with room, the margin from empty reports shrinks by the first share, the margin from refusals by the
/// second.
const LESS: [f64; 2] = [0.125, 0.02];
/// The growth of the margin after a refusal, in units.
const REFUSED: f64 = 2.0;
/// Each margin is at most the limit divided by this.
const MOST: f64 = 8.0;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Foreign {
    /// Units reserved for other clients.
    held: f64,
    /// Units kept free because none remained, and because of refusals.
    margins: [f64; 2],
    /// When the last response came, and when the margin last grew because no units remained.
    at: Time,
    widened: Time,
    /// The fewest remaining units in the present window, and when that window began.
    least: (u64, Time),
}

impl Foreign {
    /// Applies a report: the vendor counts `units` that are not ours, and `remaining` of `limit` are left. `way` is the
    /// round-trip time of a request, in nanoseconds.
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

    /// Widens the margin after a refusal, if other clients hold units.
    pub(super) fn refused(&mut self) {
        if self.held > 0.0 {
            self.margins[1] += REFUSED;
        }
    }

    /// Units reserved for other clients.
    pub(super) fn held(&self) -> u32 {
        self.held.ceil() as u32
    }

    /// Units kept free in addition to the reserve.
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

    /// Responses every 20 ms for `ms` milliseconds. The units of others fall from 50 to none within a second.
    fn foreign_after_falling_use(ms: u64, remaining: u64) -> Foreign {
        let mut foreign = Foreign::default();
        for at in (0..ms).step_by(20) {
            foreign.seen(after(at), 50_u32.saturating_sub(at as u32 / 20), remaining, 100, WAY, SECOND);
        }
        foreign
    }

    #[test]
    fn units_stay_with_others_who_were_refused() {
        assert!(foreign_after_falling_use(2_000, 0).held() >= 43, "{:?}", foreign_after_falling_use(2_000, 0));
        assert!(foreign_after_falling_use(2_000, 20).held() <= 25, "{:?}", foreign_after_falling_use(2_000, 20));
        assert_eq!(foreign_after_falling_use(20_000, 20).held(), 1);
    }

    #[test]
    fn margin_grows_by_round_trip() {
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
