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
        self.edge = self.edge.filter(|(_, to)| *to > now);
    }

    fn gone_at(&self, at: u64) -> u64 {
        let gone = at + self.spec.window;
        self.edge.filter(|(from, _)| at <= *from).map_or(gone, |(_, to)| gone.min(to))
    }

    fn ends(&mut self, now: u64, from: u64, to: u64) {
        if from <= to && to > now && to <= now + 2 * self.spec.window {
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
        let held_back = if high { 0 } else { self.spec.reserve.saturating_sub(used_high) };
        used + units + held_back <= self.spec.limit
    }

    fn free(&self, units: u32, high: bool) -> Free {
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
fn it_says_what_a_log_of_every_single_request_would_say() {
    let mut waits = [0; 3];
    for seed in 0..12 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut spec = LogSpec::new(random.u32(5..40), random.u32(0..5), SECOND, random.u64(1..5) * 160_000_000);
        if seed % 2 > 0 {
            spec = spec.fixed();
        }
        let mut log = WindowLog::new(&spec);
        let mut model = Model { spec, held: Vec::new(), edge: None };
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
                    model.leave(granted.as_nanos(), units, high);
                }
                16 if !open.is_empty() => {
                    let (granted, units, high) = &mut open[picked];
                    log.restart(&spec, now, *granted, *units, *high);
                    if model.slot(now.as_nanos()) > granted.as_nanos() {
                        model.leave(granted.as_nanos(), *units, *high);
                        model.take(now.as_nanos(), *units, *high);
                        *granted = now;
                    }
                }
                17 => {
                    log.owe(&spec, now, units);
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
            let free = log.free(&spec, units, high);
            assert_eq!(free, model.free(units, high), "{units} {high}, {}", what());
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
