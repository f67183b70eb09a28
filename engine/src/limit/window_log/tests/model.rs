//! The log beside a model that keeps every request by itself and works everything out anew.

use super::*;

#[derive(Clone, Copy, Debug)]
struct Held {
    /// Under way: since when its slot. Ended: when.
    at: u64,
    under_way: bool,
    units: u32,
    high: bool,
}

#[derive(Debug)]
struct Model {
    spec: LogSpec,
    held: Vec<Held>,
    edge: Option<(u64, u64)>,
    /// What the lower tiers were granted, at which moments.
    lower: Vec<(u64, u32)>,
}

impl Model {
    fn width(&self) -> u64 {
        self.spec.transit / 16
    }

    fn lost_at(&self, held: &Held) -> u64 {
        held.at + self.width() + self.spec.transit
    }

    fn advance(&mut self, now: u64) {
        for index in 0..self.held.len() {
            let lost_at = self.lost_at(&self.held[index]);
            if self.held[index].under_way && lost_at <= now {
                self.held[index] = Held { at: lost_at, under_way: false, ..self.held[index] };
            }
        }
        let gone: Vec<bool> = self.held.iter().map(|held| !held.under_way && self.gone_at(held.at) <= now).collect();
        let mut gone = gone.into_iter();
        self.held.retain(|_| !gone.next().unwrap());
        if let Some((from, _)) = self.edge.filter(|(_, to)| *to <= now) {
            self.edge = None;
            self.lower.drain(..self.count_lower(|slot| slot.0 < from));
        }
    }

    /// The first of them that are empty or for which it is true.
    fn count_lower(&self, gone: impl Fn(&(u64, u32)) -> bool) -> usize {
        self.lower.iter().take_while(|slot| slot.1 == 0 || gone(slot)).count()
    }

    fn take_lower(&mut self, now: u64, units: u32, high: bool) {
        let window = self.spec.window;
        if high || self.spec.reserve == 0 || self.is_far_from_share(units) {
            return;
        }
        if self.is_far_from_share(0) {
            self.lower = self.counted_lower(now);
        }
        self.lower.drain(..self.count_lower(|(at, _)| at + window <= now));
        match self.lower.last_mut() {
            Some((at, in_slot)) if now <= *at => *in_slot += units,
            _ => self.lower.push((now, units)),
        }
    }

    fn of_lower(&self) -> u32 {
        self.held.iter().filter(|held| !held.high).map(|held| held.units).sum()
    }

    /// Nothing is counted for the lower tiers while they have used, with these units, at most a quarter of their share.
    fn is_far_from_share(&self, units: u32) -> bool {
        self.of_lower() + units <= (self.spec.limit - self.spec.reserve) / 4
    }

    /// What ended in the order of the ends, and then what is under way, in which nothing is earlier than the one before. What is under
    /// way was granted within a slot.
    fn counted_lower(&self, now: u64) -> Vec<(u64, u32)> {
        let mut held: Vec<&Held> = self.held.iter().filter(|held| !held.high).collect();
        held.sort_by_key(|held| (held.under_way, held.at));
        let mut counted: Vec<(u64, u32)> = Vec::new();
        for held in held {
            let granted = if held.under_way { now.min(held.at + self.width() - 1) } else { held.at };
            match counted.last_mut() {
                Some((at, in_slot)) if granted <= *at => *in_slot += held.units,
                _ => counted.push((granted, held.units)),
            }
        }
        counted
    }

    fn leave_lower(&mut self, granted: u64, units: u32, high: bool) {
        let found = self.lower.iter_mut().find(|(at, _)| *at == granted);
        found.filter(|found| !high && found.1 >= units).into_iter().for_each(|found| found.1 -= units);
    }

    /// The first moment at which a window holds so many more of the lower tiers.
    fn lower_ready_at(&self, now: u64, units: u32, high: bool) -> Option<u64> {
        let (share, window) = (self.spec.limit - self.spec.reserve, self.spec.window);
        let lower = match () {
            () if self.of_lower() + units <= share => Vec::new(),
            () if self.spec.reserve > 0 && self.is_far_from_share(0) => self.counted_lower(now),
            () => self.lower.clone(),
        };
        let ends = lower.iter().map(|(at, _)| at + window).filter(|end| *end > now);
        let fits = |now: u64| {
            let used: u32 = lower.iter().filter(|(at, _)| at + window > now).map(|(_, units)| units).sum();
            high || used + units <= share
        };
        [now].into_iter().chain(ends).find(|at| fits(*at))
    }

    fn gone_at(&self, at: u64) -> u64 {
        let gone = at + self.spec.window;
        self.edge.filter(|(from, _)| at <= *from).map_or(gone, |(_, to)| gone.min(to))
    }

    fn ends(&mut self, now: u64, from: u64, to: u64) {
        let is_narrow = from <= to && to - from < self.spec.window / 2;
        // One that is passing, while the next is stated, is kept.
        let least = self.spec.window - self.spec.window / 8;
        let is_next = |(a, b): (u64, u64)| a <= now && from > b && to.saturating_sub(a) > least;
        if is_narrow && !self.edge.is_some_and(is_next) && to > now && to <= now + 2 * self.spec.window {
            self.edge = Some(match self.edge {
                Some((a, b)) if a <= to && from <= b => (from.max(a), to.min(b)),
                Some((a, b)) => (from.min(a), to.max(b)),
                None => (from, to),
            });
        }
    }

    fn units(&self) -> u32 {
        self.held.iter().map(|held| held.units).sum()
    }

    fn fits(&self, held: &[Held], units: u32, high: bool) -> bool {
        let used: u32 = held.iter().map(|held| held.units).sum();
        let used_high: u32 = held.iter().filter(|held| held.high).map(|held| held.units).sum();
        let held_back = if high { 0 } else { self.spec.reserve.div_ceil(2).saturating_sub(used_high) };
        used + units + held_back <= self.spec.limit
    }

    fn free(&self, now: u64, units: u32, high: bool) -> Free {
        let Some(lower) = self.lower_ready_at(now, units, high) else { return Free::OnSettle(Time::MAX) };
        let lower = Time::from_nanos(lower);
        let under_way: u32 = self.held.iter().filter(|held| held.under_way).map(|held| held.units).sum();
        let by_answers = lower.as_nanos() > now && under_way + units > self.spec.limit - self.spec.reserve;
        match self.mirror_free(units, high) {
            Free::Now if lower.as_nanos() == now => Free::Now,
            Free::Now if by_answers => Free::OnSettle(lower),
            Free::At(at) if by_answers => Free::OnSettle(at.max(lower)),
            Free::Now => Free::At(lower),
            Free::At(at) => Free::At(at.max(lower)),
            Free::OnSettle(at) => Free::OnSettle(at.max(lower)),
        }
    }

    fn mirror_free(&self, units: u32, high: bool) -> Free {
        if self.fits(&self.held, units, high) {
            return Free::Now;
        }
        let mut held = self.held.clone();
        held.sort_by_key(|held| (held.under_way, held.at));
        for gone in 1..=held.len() {
            if self.fits(&held[gone..], units, high) {
                let last = held[gone - 1];
                return match last.under_way {
                    true => Free::OnSettle(Time::from_nanos(self.gone_at(self.lost_at(&last)))),
                    false => Free::At(Time::from_nanos(self.gone_at(last.at))),
                };
            }
        }
        Free::OnSettle(Time::MAX)
    }

    fn units_since(&self, since: u64) -> u32 {
        self.held.iter().filter(|held| held.under_way || held.at > since).map(|held| held.units).sum()
    }

    /// The slot in which what is granted now is put: that of the newest, unless it is over.
    fn slot(&self, now: u64) -> u64 {
        let newest = self.held.iter().filter(|held| held.under_way).map(|held| held.at).max();
        newest.filter(|at| now - at < self.width()).unwrap_or(now)
    }

    fn take(&mut self, now: u64, units: u32, high: bool) {
        let at = self.slot(now);
        self.take_lower(now, units, high);
        self.held.push(Held { at, under_way: true, units, high });
    }

    /// Takes out what was granted at `granted`, if it is under way still.
    fn leave(&mut self, granted: u64, units: u32, high: bool) -> bool {
        let (width, is) = (self.width(), |held: &Held| held.under_way && (held.units, held.high) == (units, high));
        let found = self.held.iter().position(|held| is(held) && held.at <= granted && granted - held.at < width);
        found.map(|index| self.held.swap_remove(index)).is_some()
    }
}

/// Requests come, start late, are answered, cost more than was believed, are given back or are never heard of again; now
/// and then the vendor says when its window ends.
#[test]
fn merged_log_agrees_with_a_full_log() {
    let mut waits = [0; 3];
    for seed in 0..12 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut spec = LogSpec::new(random.u32(5..40), random.u32(0..5), SECOND, random.u64(1..5) * 160_000_000);
        if seed % 2 > 0 {
            spec = spec.fixed();
        }
        let mut log = WindowLog::new(&spec);
        let mut model = Model { spec, held: Vec::new(), edge: None, lower: Vec::new() };
        let mut open: Vec<(Time, u32, bool)> = Vec::new();
        let mut now = ms(10_000);
        for step in 0..1_000 {
            if random.u32(0..50) == 0 {
                now = now.plus_nanos(random.u64(0..3 * SECOND));
            }
            now = now.plus_nanos(random.u64(0..4) * random.u64(0..30_000_000));
            log.advance(&spec, now);
            model.advance(now.as_nanos());
            let (units, high) = (random.u32(1..5), random.bool());
            let picked = random.usize(0..open.len().max(1));
            match random.u32(0..20) {
                0..10 if log.has_room(&spec, now, units, high) => {
                    log.take(&spec, now, units, high);
                    model.take(now.as_nanos(), units, high);
                    open.push((now, units, high));
                }
                10..15 if !open.is_empty() => {
                    let (granted, units, high) = open.swap_remove(picked);
                    log.end(&spec, now, granted, units, high);
                    if model.leave(granted.as_nanos(), units, high) {
                        model.held.push(Held { at: now.as_nanos(), under_way: false, units, high });
                    }
                }
                15 if !open.is_empty() => {
                    let (granted, units, high) = open.swap_remove(picked);
                    log.give_back(granted, units, high);
                    if model.leave(granted.as_nanos(), units, high) {
                        model.leave_lower(granted.as_nanos(), units, high);
                    }
                }
                16 if !open.is_empty() => {
                    let (granted, units, high) = &mut open[picked];
                    log.restart(&spec, now, *granted, *units, *high);
                    if model.slot(now.as_nanos()) > granted.as_nanos() {
                        if model.leave(granted.as_nanos(), *units, *high) {
                            model.leave_lower(granted.as_nanos(), *units, *high);
                        }
                        model.take(now.as_nanos(), *units, *high);
                        *granted = now;
                    }
                }
                17 => {
                    log.owe(&spec, now, units);
                    model.take_lower(now.as_nanos(), units, false);
                    model.held.push(Held { at: now.as_nanos(), under_way: false, units, high: false });
                }
                18 if spec.fixed => {
                    let from = now.plus_nanos(random.u64(0..2 * SECOND)).minus_nanos(SECOND / 4);
                    let to = from.plus_nanos(random.u64(0..40_000_000)).minus_nanos(1_000_000);
                    log.ends(&spec, now, from, to);
                    model.ends(now.as_nanos(), from.as_nanos(), to.as_nanos());
                }
                // Never heard of again.
                19 if !open.is_empty() => drop(open.swap_remove(picked)),
                _ => {}
            }
            let what = || format!("seed {seed}, step {step}, {now:?}, {model:?}");
            assert_eq!((log.units(), log.is_empty()), (model.units(), model.held.is_empty()), "{}", what());
            // At times the very moment at which something ended.
            let end = model.held.iter().rfind(|held| !held.under_way).map(|held| Time::from_nanos(held.at));
            let since = end.filter(|_| step % 2 > 0).unwrap_or(now.minus_nanos(random.u64(0..SECOND)));
            assert_eq!(log.units_since(since), model.units_since(since.as_nanos()), "{}", what());
            let (units, high) = (random.u32(1..8), random.bool());
            let free = log.free(&spec, now, units, high);
            assert_eq!(free, model.free(now.as_nanos(), units, high), "{units} {high}, {}", what());
            assert_eq!(log.clone().has_room(&spec, now, units, high), free == Free::Now, "{}", what());
            waits[match free {
                Free::Now => 0,
                Free::At(_) => 1,
                Free::OnSettle(_) => 2,
            }] += 1;
        }
    }
    assert!(waits.iter().all(|count| *count > 400), "{waits:?}");
}
