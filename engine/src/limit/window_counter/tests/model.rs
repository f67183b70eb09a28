//! The counter beside a model that keeps every request and tries every moment at which the vendor's window may begin.

use std::mem::discriminant;

use super::*;

#[derive(Clone, Copy, Debug)]
struct Held {
    /// Under way: when it was granted. Ended: when, rounded up.
    at: u64,
    under_way: bool,
    units: u32,
    high: bool,
}

#[derive(Clone, Debug)]
struct Model {
    spec: CounterSpec,
    held: Vec<Held>,
    /// What the lower tiers were granted, and when.
    lower: Vec<(u64, u32)>,
}

impl Model {
    fn rounded(&self, at: u64) -> u64 {
        at.div_ceil(self.spec.slot) * self.spec.slot
    }

    fn advance(&mut self, now: u64) {
        let (slot, transit) = (self.spec.slot, self.spec.transit);
        for held in &mut self.held {
            // Each is granted in a slot of its own.
            let lost_at = held.at + transit / 16 + transit;
            if held.under_way && lost_at <= now {
                *held = Held { at: lost_at.div_ceil(slot) * slot, under_way: false, ..*held };
            }
        }
        self.held.retain(|held| held.under_way || held.at + 2 * self.spec.window > now);
    }

    /// What a vendor whose window begins at `begin` may hold at `now`, beside what is under way.
    fn held_from(&self, begin: u64, now: u64) -> f64 {
        let window = self.spec.window;
        let sum = |from: u64, to: u64| -> f64 {
            let ended = self.held.iter().filter(|held| !held.under_way && (from..to).contains(&held.at));
            ended.map(|held| f64::from(held.units)).sum()
        };
        let left = 1.0 - now.saturating_sub(begin) as f64 / window as f64;
        sum(begin, u64::MAX) + left * sum(begin - window, begin)
    }

    /// The moments at which what a vendor holds that begins there can be the most: ends, a window after them, and now.
    fn begins(&self, now: u64) -> impl Iterator<Item = u64> {
        let window = self.spec.window;
        let ended = self.held.iter().filter(|held| !held.under_way).flat_map(move |held| [held.at, held.at + window]);
        ended.chain([now]).filter(move |at| *at + window > now)
    }

    /// The most of all that, where a window may begin at any moment.
    fn most(&self, now: u64) -> f64 {
        let begins = self.begins(now).filter(|at| *at <= now + self.spec.slot);
        begins.map(|begin| self.held_from(begin, now)).fold(0.0, f64::max)
    }

    /// The same where windows begin between these moments, and whole windows before and after.
    fn most_of(&self, Phase { from, to }: Phase, now: u64) -> f64 {
        let window = self.spec.window;
        let is_inside = |at: &u64| (*at + 100 * window - from) % window <= to - from;
        let grid = (0..20).map(|part| from + (to - from) * part / 19);
        let grid = grid.flat_map(|at| (0..24).map(move |number| at + number * window - 12 * window));
        let begins = self.begins(now).filter(is_inside).chain(grid.filter(|at| *at + window > now));
        begins.filter(|at| *at <= now).map(|begin| self.held_from(begin, now)).fold(0.0, f64::max)
    }

    fn under_way(&self) -> u32 {
        self.held.iter().filter(|held| held.under_way).map(|held| held.units).sum()
    }

    fn held_back(&self, now: u64, high: bool) -> u32 {
        let recent = |held: &&Held| held.high && (held.under_way || held.at + self.spec.window > now);
        let used: u32 = self.held.iter().filter(recent).map(|held| held.units).sum();
        if high { 0 } else { self.spec.reserve.div_ceil(2).saturating_sub(used) }
    }

    /// By how much `units` fit, or do not.
    fn left(&self, now: u64, units: u32, high: bool) -> f64 {
        let wanted = units + self.held_back(now, high) + self.under_way();
        let left = f64::from(self.spec.limit) - f64::from(wanted) - self.most(now);
        left.min(self.lower_left(now, units, high))
    }

    /// By how much `units` leave all of the reserve beside what the lower tiers were granted within a window.
    fn lower_left(&self, now: u64, units: u32, high: bool) -> f64 {
        let counts = |granted: u64| granted + self.spec.window > now;
        let used: u32 = self.lower.iter().filter(|(granted, _)| counts(*granted)).map(|(_, units)| units).sum();
        let left = f64::from(self.spec.limit - self.spec.reserve) - f64::from(used + units);
        if high || self.spec.reserve == 0 { f64::INFINITY } else { left }
    }

    fn units_since(&self, since: u64) -> u32 {
        self.held.iter().filter(|held| held.under_way || held.at > since).map(|held| held.units).sum()
    }

    fn take(&mut self, now: u64, units: u32, high: bool) {
        self.held.push(Held { at: now, under_way: true, units, high });
        self.take_lower(now, units, high);
    }

    fn take_lower(&mut self, now: u64, units: u32, high: bool) {
        self.lower.extend((!high).then_some((now, units)));
    }

    /// It never left, or leaves later.
    fn leave_again(&mut self, granted: u64) {
        if self.leave(granted) {
            self.lower.retain(|(at, _)| *at != granted);
        }
    }

    fn end(&mut self, now: u64, units: u32, high: bool) {
        self.held.push(Held { at: self.rounded(now), under_way: false, units, high });
    }

    /// Takes out what was granted at `granted`, if it is under way still.
    fn leave(&mut self, granted: u64) -> bool {
        let found = self.held.iter().position(|held| held.under_way && held.at == granted);
        found.map(|index| self.held.swap_remove(index)).is_some()
    }
}

/// What is said when the vendor tells when its windows begin.
fn knowing(guard: &WindowCounter, model: &Model, now: Time, random: &mut fastrand::Rng) {
    let (spec, at) = (&model.spec, now.as_nanos());
    let mut guard = guard.clone();
    guard.forget_known();
    let begin = now.plus_nanos(random.u64(0..10 * SECOND)).minus_nanos(5 * SECOND);
    guard.begins(spec, begin, begin.plus_nanos(random.u64(0..SECOND / 10)));
    let phase = guard.phase(spec, at).unwrap();
    let (held, most) = (guard.held(spec, at), model.most_of(phase, at));
    // Rounding never makes it less.
    assert!((-1e-12..1e-5).contains(&(held - most)), "{held} {most} {phase:?} {now:?} {model:?}");
    // From the promised moment on it fits, and not much earlier, by what is known now.
    let (units, high) = (random.u32(1..5), random.bool());
    if let Free::At(first) = guard.free(spec, now, units, high) {
        let fits = |at: Time| {
            let (mut later, at) = (model.clone(), at.as_nanos());
            later.advance(at);
            let wanted = units + later.held_back(at, high) + later.under_way();
            let fits = later.most_of(phase, at) + f64::from(wanted) < f64::from(spec.limit) + 1e-5;
            fits && later.lower_left(at, units, high) >= 0.0
        };
        let mut later = model.clone();
        later.advance(first.as_nanos());
        let lost = later.under_way() < model.under_way();
        // That a window may begin is heeded from the first moment at which it may.
        let earlier = first.minus_nanos(phase.to - phase.from + 20_000).max(now);
        assert!(fits(first) && (lost || !fits(earlier)), "{first:?} {phase:?} {now:?} {model:?}");
    }
}

/// Requests come, start late, are answered, cost more than was believed, are given back or are never heard of again.
#[test]
fn counter_agrees_with_brute_force() {
    let mut waits = [0; 3];
    let mut most_late = 0;
    for seed in 0..6 {
        let mut random = fastrand::Rng::with_seed(seed);
        let limit = random.u32(10..60);
        let spec = CounterSpec::new(limit, limit, random.u32(0..9), SECOND, random.u64(1..3) * 160_000_000);
        let mut guard = WindowCounter::new(&spec);
        let mut model = Model { spec, held: Vec::new(), lower: Vec::new() };
        let mut open: Vec<(Time, u32, bool)> = Vec::new();
        let (mut now, mut asked) = (ms(10_000), (1, true));
        for step in 0..500 {
            if random.u32(0..50) == 0 {
                now = now.plus_nanos(random.u64(0..3 * SECOND));
            }
            // Further than a slot of what is under way.
            now = now.plus_nanos(20_000_001 + random.u64(0..4) * random.u64(0..20_000_000));
            guard.advance(&spec, now);
            model.advance(now.as_nanos());
            let (units, high) = (random.u32(1..5), random.bool());
            let picked = random.usize(0..open.len().max(1));
            match random.u32(0..20) {
                0..10 if guard.has_room(&spec, now, units, high) => {
                    guard.take(&spec, now, units, high);
                    model.take(now.as_nanos(), units, high);
                    open.push((now, units, high));
                }
                10..15 if !open.is_empty() => {
                    let (granted, units, high) = open.swap_remove(picked);
                    guard.end(&spec, now, granted, units, high);
                    if model.leave(granted.as_nanos()) {
                        model.end(now.as_nanos(), units, high);
                    }
                }
                15 if !open.is_empty() => {
                    let (granted, units, high) = open.swap_remove(picked);
                    guard.give_back(&spec, now, granted, units, high);
                    model.leave_again(granted.as_nanos());
                }
                16 if !open.is_empty() => {
                    let (granted, units, high) = &mut open[picked];
                    guard.restart(&spec, now, *granted, *units, *high);
                    model.leave_again(granted.as_nanos());
                    model.take(now.as_nanos(), *units, *high);
                    *granted = now;
                }
                17 => {
                    guard.owe(&spec, now, units);
                    model.take_lower(now.as_nanos(), units, false);
                    model.end(now.as_nanos(), units, false);
                }
                18 => guard.forget_known(),
                // Never heard of again.
                19 if !open.is_empty() => drop(open.swap_remove(picked)),
                _ => {}
            }
            let what = format!("seed {seed}, step {step}, {now:?}, {model:?}");
            let at = now.as_nanos();
            let (held, most) = (guard.held(&spec, at), model.most(at));
            assert!((-1e-12..1e-5).contains(&(held - most)), "{held} {most} {what}");
            let units = model.under_way() + (most - 1e-5).ceil() as u32;
            assert_eq!((guard.units(&spec, now), guard.is_empty()), (units, model.held.is_empty()), "{what}");
            // At times the very moment at which something ended.
            let end = model.held.iter().rfind(|held| !held.under_way).map(|held| Time::from_nanos(held.at));
            let since = end.filter(|_| step % 2 > 0).unwrap_or(now.minus_nanos(random.u64(0..SECOND)));
            assert_eq!(guard.units_since(since), model.units_since(since.as_nanos()), "{what}");
            if step % 5 == 0 {
                knowing(&guard, &model, now, &mut random);
            }
            // Often the same again, as the head of a queue asks.
            if random.u32(0..3) == 0 {
                let most = if step % 4 == 0 { limit - spec.reserve } else { 8.min(limit - spec.reserve) };
                asked = (random.u32(1..=most), random.bool());
            }
            let (units, high) = asked;
            let mut anew = guard.clone();
            (anew.wait, anew.known, anew.full) = (None, 0, false);
            let (free, anew) = (guard.free(&spec, now, units, high), anew.free(&spec, now, units, high));
            assert_eq!(discriminant(&free), discriminant(&anew), "{free:?} {anew:?} {what}");
            let later = |at: Time| {
                let mut later = model.clone();
                later.advance(at.as_nanos());
                later
            };
            let left = |at: Time| later(at).left(at.as_nanos(), units, high);
            match free {
                Free::Now => assert!(left(now) > -1e-5, "{what}"),
                Free::At(until) => {
                    assert!(left(now) < 1e-5 && until > now, "{what}");
                    assert!(left(until) > -1e-5, "{until:?} {what}");
                    // What is lost or answered before that counts for less than while it was under way.
                    let Free::At(first) = anew else { unreachable!() };
                    let lost = later(first).under_way() < model.under_way();
                    assert!(
                        left(first) > -1e-5 && (lost || left(first.minus_nanos(20_000)) < 1e-5),
                        "{first:?} {what}"
                    );
                    let late = until.as_nanos() - first.as_nanos();
                    most_late = most_late.max(late);
                }
                Free::OnSettle(until) => {
                    assert!(left(now) < 1e-5 && until > now && model.under_way() > 0, "{what}");
                    // Then all of the reserve may be held back again.
                    let held_back = if high { 0 } else { spec.reserve };
                    assert!(left(until) + f64::from(held_back) > -1e-5, "{until:?} {what}");
                }
            }
            waits[match free {
                Free::Now => 0,
                Free::At(_) => 1,
                Free::OnSettle(_) => 2,
            }] += 1;
        }
    }
    assert!(waits.iter().all(|count| *count > 100), "{waits:?}");
    // What was promised stays promised, though an answer since may allow it a little earlier.
    assert!(most_late < SECOND / 4, "{most_late}");
}
