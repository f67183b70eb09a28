//! Counts what the tiers below high were granted within one window.
//!
//! The high tier's reserve is our own rule and not the vendor's: in any window, the lower tiers get all units but the
//! reserve. So their units are counted from grant to grant. A guard counts a request until one window after its
//! response; if the lower tiers had to leave the whole reserve free there, the round trip would reduce their own share,
//! and they would never reach it.

use super::free::Free;
use super::transit::Transit;
use crate::time::Time;

/// Grants are counted in slots of the window divided by this, if a window may hold more grants than that.
const SLOTS: u32 = 256;

/// Units of a `reserve` that stay free of the lower tiers beside all that a guard counts, after the high tier has used
/// `used_high`: half of the reserve, rounded up, so that the high tier finds room however long responses take. The
/// other half is room for what the guard counts beyond one window.
pub(super) fn held_back(reserve: u32, used_high: u32) -> u32 {
    reserve.div_ceil(2).saturating_sub(used_high)
}

/// What a [`Lower`] allows.
#[derive(Clone, Copy)]
pub(super) struct Share {
    pub(super) limit: u32,
    /// Units of the limit that are not for the lower tiers.
    pub(super) reserve: u32,
    pub(super) window: u64,
}

impl Share {
    fn slot(self) -> u64 {
        if self.limit > SLOTS { (self.window / u64::from(SLOTS)).max(1) } else { 1 }
    }

    /// How long a grant counts after its slot, which contains at least the nanosecond of the grant.
    fn rest(self) -> u64 {
        self.window.saturating_sub(1)
    }
}

/// One limit's grants to the tiers below high.
#[derive(Clone, Debug, Default)]
pub(super) struct Lower {
    /// `None` before the first grant, and if nothing is reserved.
    grants: Option<Transit>,
}

impl Lower {
    pub(super) const NONE: &Lower = &Lower { grants: None };

    /// Counts `units` that were granted.
    #[inline]
    pub(super) fn take(&mut self, share: Share, granted: Time, units: u32, high: bool) {
        if !high && share.reserve > 0 {
            self.take_lower(share, granted, units);
        }
    }

    fn take_lower(&mut self, share: Share, granted: Time, units: u32) {
        let grants = self.grants.get_or_insert_with(|| Transit::in_slots_of(share.slot()));
        while grants.lose(share.rest(), granted).is_some() {}
        grants.take(granted, units.min(u32::MAX - grants.units), false);
    }

    /// Removes `units` that were granted at `granted` and never sent.
    pub(super) fn leave(&mut self, granted: Time, units: u32, high: bool) {
        if let Some(grants) = self.grants.as_mut().filter(|_| !high) {
            grants.leave(granted, units, false);
        }
    }

    /// Removes `units` that have ended and count in another process from now on.
    pub(super) fn withdraw(&mut self, units: u32) {
        if let Some(grants) = &mut self.grants {
            grants.drop_oldest(units);
        }
    }

    /// Removes all units granted up to `until`, because the vendor no longer counts them.
    pub(super) fn forget(&mut self, until: u64) {
        if let Some(grants) = &mut self.grants {
            while grants.lose(0, Time::from_nanos(until)).is_some() {}
        }
    }

    /// Whether no grant counts any more.
    pub(super) fn rests(&self, share: Share, now: Time) -> bool {
        self.grants.as_ref().is_none_or(|grants| grants.falls_to(0, share.rest()) <= now)
    }

    /// The first moment at which `units` may be granted: `now` if they may be granted now, and `Time::MAX` if they
    /// exceed the share.
    #[inline]
    pub(super) fn ready_at(&self, share: Share, now: Time, units: u32, high: bool) -> Time {
        if high {
            return now;
        }
        match (share.limit.saturating_sub(share.reserve).checked_sub(units), &self.grants) {
            (Some(most), Some(grants)) if share.reserve > 0 => now.max(grants.falls_to(most, share.rest())),
            (Some(_), _) => now,
            (None, _) => Time::MAX,
        }
    }

    /// When `units` fit for which a guard has room at `free`: until then the counts only fall, at the vendor as well as
    /// here, so the later moment decides. While units `under_way` alone fill the share, their ends decide instead: a
    /// lower tier then waits for responses, and no turn is kept for it that would delay the high tier.
    pub(super) fn free(
        free: Free,
        share: Share,
        (ready, now): (Time, Time),
        units: u32,
        under_way: impl FnOnce() -> u32,
    ) -> Free {
        if ready == Time::MAX {
            return Free::OnSettle(Time::MAX);
        }
        if ready <= now {
            return free;
        }
        let later = match free {
            Free::Now => ready,
            Free::At(at) => at.max(ready),
            Free::OnSettle(latest) => return Free::OnSettle(latest.max(ready)),
        };
        let by_answers = under_way().saturating_add(units) > share.limit - share.reserve;
        if by_answers { Free::OnSettle(later) } else { Free::At(later) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const SHARE: Share = Share { limit: 60, reserve: 10, window: SECOND };
    const SLOT: u64 = SECOND / SLOTS as u64;

    fn at(ms: u64) -> Time {
        Time::from_nanos(3_600 * SECOND + ms * 1_000_000)
    }

    fn window_after(ms: u64) -> Time {
        at(ms + 1_000)
    }

    fn lower_with_grants(grants: &[(u64, u32)]) -> Lower {
        let mut lower = Lower::default();
        grants.iter().for_each(|(ms, units)| lower.take(SHARE, at(*ms), *units, false));
        lower
    }

    #[test]
    fn half_of_unused_reserve_is_held_back() {
        let held_back =
            [(0, 0), (1, 0), (2, 0), (9, 0), (9, 3), (9, 7)].map(|(reserve, used)| held_back(reserve, used));
        assert_eq!(held_back, [0, 1, 1, 5, 2, 0]);
    }

    #[test]
    fn window_grants_all_but_the_reserve() {
        let lower = lower_with_grants(&[(0, 20), (500, 30)]);
        let ready = [1, 20, 21, 50, 51].map(|units| lower.ready_at(SHARE, at(600), units, false));
        assert_eq!(ready, [window_after(0), window_after(0), window_after(500), window_after(500), Time::MAX]);
        assert_eq!(lower.ready_at(SHARE, window_after(0), 20, false), window_after(0));
        assert_eq!(lower.ready_at(SHARE, at(600), 60, true), at(600), "not of the high tier");
        assert_eq!([50, 51].map(|units| Lower::NONE.ready_at(SHARE, at(0), units, false)), [at(0), Time::MAX]);
        let unreserved = Share { reserve: 0, ..SHARE };
        let mut lower = Lower::default();
        lower.take(unreserved, at(0), 60, false);
        lower.take(SHARE, at(0), 60, true);
        assert!(lower.grants.is_none() && lower.ready_at(unreserved, at(0), 60, false) == at(0));
    }

    #[test]
    fn unsent_and_forgotten_grants_stop_counting() {
        let mut lower = lower_with_grants(&[(0, 20), (500, 30)]);
        lower.leave(at(500), 5, true);
        lower.leave(at(250), 5, false);
        assert_eq!(lower.ready_at(SHARE, at(600), 1, false), window_after(0), "nothing was granted then");
        lower.leave(at(500), 5, false);
        assert_eq!([5, 6].map(|units| lower.ready_at(SHARE, at(600), units, false)), [at(600), window_after(0)]);
        lower.forget(at(499).as_nanos());
        assert_eq!([25, 26].map(|units| lower.ready_at(SHARE, at(600), units, false)), [at(600), window_after(500)]);
    }

    #[test]
    fn later_of_mirror_and_share_decides() {
        let (now, soon, late) = (at(0), at(10), at(20));
        for (mirror, ready, both) in [
            (Free::Now, now, Free::Now),
            (Free::Now, soon, Free::At(soon)),
            (Free::At(late), soon, Free::At(late)),
            (Free::At(soon), late, Free::At(late)),
            (Free::OnSettle(soon), late, Free::OnSettle(late)),
            (Free::Now, Time::MAX, Free::OnSettle(Time::MAX)),
        ] {
            assert_eq!(Lower::free(mirror, SHARE, (ready, now), 1, || 49), both, "{mirror:?} {ready:?}");
        }
        for (mirror, ready, both) in [
            (Free::Now, now, Free::Now),
            (Free::Now, soon, Free::OnSettle(soon)),
            (Free::At(late), now, Free::At(late)),
            (Free::At(late), soon, Free::OnSettle(late)),
        ] {
            assert_eq!(Lower::free(mirror, SHARE, (ready, now), 1, || 50), both, "all of it is under way: {mirror:?}");
        }
    }

    /// Compares with a list of all grants, some of which are recorded late.
    #[test]
    fn share_is_kept_within_one_slot() {
        let large = Share { limit: 600, reserve: 550, ..SHARE };
        assert_eq!((SHARE.slot(), large.slot()), (1, SLOT));
        let (mut waits, mut most_slots) = (0, 0);
        for seed in 0..20 {
            let share = if seed % 4 < 2 { SHARE } else { large };
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut lower, mut grants, mut now, mut told_late) = (Lower::default(), Vec::new(), at(0), false);
            for _ in 0..2_000 {
                now = now.plus_nanos(random.u64(0..40_000_000) * random.u64(0..2));
                let used = |grants: &[(Time, u32)], now: Time, window: u64| -> u32 {
                    let recent = grants.iter().filter(|(granted, _)| granted.plus_nanos(window) > now);
                    recent.map(|(_, units)| units).sum()
                };
                if seed % 2 > 0 && random.u32(0..10) == 0 {
                    let past = now.minus_nanos(random.u64(0..SECOND));
                    lower.take(share, past, 1, false);
                    grants.push((past, 1));
                    told_late = true;
                }
                let units = random.u32(1..4);
                let ready = lower.ready_at(share, now, units, false);
                assert!(used(&grants, ready, SECOND) + units <= 50, "seed {seed}: {now:?} {ready:?}");
                if ready > now {
                    waits += 1;
                    let slow = used(&grants, ready.minus_nanos(1), SECOND + share.slot() - 1) + units > 50;
                    assert!(slow || told_late, "seed {seed}: {now:?} {ready:?}");
                } else {
                    lower.take(share, now, units, false);
                    grants.push((now, units));
                }
                most_slots = most_slots.max(lower.grants.as_ref().map_or(0, Transit::slots));
            }
        }
        assert!(waits > 1_000 && most_slots <= 50, "{waits} {most_slots}");
    }
}
