//! The calls of the simulated processes, and the store that answers them.

use std::sync::Arc;
use std::time::Duration;

use super::{Event, MS, Mistake, StoreKind, Trouble, World};
use crate::capacity::call::{Answer, Call, Reading};
use crate::capacity::sights::Now;
use crate::clock::Time;
use crate::engine::PooledLimit;
use crate::engine::limit::{Got, Wish};

impl World {
    pub(super) fn call(&mut self, it: usize) {
        let now = self.local(it);
        let member = &mut self.members[it];
        // A call that was not answered is given up when the next one is due.
        let waits = if member.under_way.is_some() { member.due } else { member.soon.min(member.due) };
        if member.has_left || self.now < waits {
            return;
        }
        let (mut limits, mut wishes): (Vec<PooledLimit>, Vec<(String, Wish)>) = Default::default();
        member.engine.wishes(now, |limit, name, wish| {
            limits.push(limit);
            wishes.push((name, wish));
        });
        if wishes.is_empty() && !member.process.owes(now) {
            member.due = Time::MAX;
            return;
        }
        if self.case.is_checked {
            wishes.iter().for_each(|(_, wish)| member.belief.count_returned(wish));
        }
        if self.case.mistake == Some(Mistake::ReturnsAfterTheCall) {
            let until = member.process.until(now);
            for (limit, (_, wish)) in limits.iter().zip(&wishes) {
                let units = wish.returned.iter().map(|(_, units)| (0, *units)).collect();
                member.engine.hold(now, *limit, &Got { units, keep: wish.claim, ..Got::default() }, until);
            }
        }
        let mut call = member.process.call(now, wishes, false);
        if self.case.mistake == Some(Mistake::KnowsNoAnswer) {
            call.lines.iter_mut().for_each(|entry| entry.known_seq = 0);
        }
        (member.belief.process, member.asked_with) = (call.process, member.version);
        let call = Arc::new(call);
        member.under_way = Some((call.seq, now, limits));
        self.send_to_store(it, &call);
        // If no answer comes within a second, the process makes the next call.
        let late = self.now + self.case.every.max(Duration::from_secs(1));
        self.members[it].due = late;
        self.members[it].soon = self.now + self.case.every * 6 / 25;
        self.schedule(late.plus_nanos(1), Event::Call(it));
    }

    fn send_to_store(&mut self, it: usize, call: &Arc<Call>) {
        if self.now < self.members[it].cut_until {
            return;
        }
        let is_lost = self.random.u32(0..100) < self.case.lost;
        if !is_lost {
            let at = self.random_time_within(MS / 4, 2 * MS) + self.case.trip * 5 / 2;
            self.schedule(at, Event::Store(it, call.clone(), true));
        }
        if self.random.u32(0..100) < self.case.lost {
            let at = self.random_time_within(MS, 800 * MS);
            self.schedule(at, Event::Store(it, call.clone(), false));
        }
    }

    pub(super) fn clock_us(&self) -> u64 {
        let us = i64::try_from(self.now.as_nanos() / 1_000).expect("a time of the case");
        let gained_us = (self.gained_ns + self.slewed_ns()) / 1_000;
        u64::try_from(us + self.step_ms * 1_000 + gained_us).expect("a step that is less than an hour")
    }

    /// What the store's clock has gained since it began to gain last.
    pub(super) fn slewed_ns(&self) -> i64 {
        let (millionths, from, until) = self.slews;
        let span = self.now.min(until).as_nanos() - from.as_nanos();
        i64::try_from(i128::from(span) * i128::from(millionths) / 1_000_000).expect("a time of the case")
    }

    pub(super) fn arrive_at_store(&mut self, it: usize, call: Arc<Call>, is_first: bool) {
        if self.now < self.stalls_until {
            let at = self.stalls_until;
            self.schedule(at, Event::Store(it, call, is_first));
            return;
        }
        if !self.case.store_kind.is_server() {
            self.keep_backup();
            let text = |limit: &String| self.texts.get(limit).cloned().unwrap_or_default();
            let version = |limit: &String| self.versions.get(limit).copied().unwrap_or_default();
            let texts: Vec<_> = call.lines.iter().map(|entry| (text(&entry.limit), version(&entry.limit))).collect();
            // If the store holds nothing, it gives no date.
            let skewed = self.clock_us() + self.random.u64(0..8_000_000);
            let date = texts.iter().all(|(text, _)| !text.is_empty()).then_some(1_000_000_000 + skewed / 1_000_000);
            let (at, dated) = (self.random_time_within(MS / 4, 30 * MS), (date, self.now));
            self.schedule(at, Event::Read(it, call, is_first, texts, dated));
            return;
        }
        self.keep_backup();
        self.outcome.calls += 1;
        let mut clock_us = self.clock_us();
        if self.case.store_kind == StoreKind::TrustsProcesses {
            let claimed = call.lines.iter().filter_map(|entry| entry.expected_us).max();
            clock_us = claimed.unwrap_or(self.began.as_nanos() / 1_000).max(self.claimed_us);
            self.claimed_us = clock_us;
        }
        // The process knows when the trip began in which the clock was read, and when it ended.
        let trip = self.case.trip;
        let before = if is_first { trip * 2 } else { Duration::ZERO };
        let reading = Reading { clock_us, waited_us: before.as_micros() as u64 };
        let read_at = (trip > Duration::ZERO).then(|| self.local(it) + trip / 2);
        let mut got = Vec::new();
        for entry in &call.lines {
            let kept = self.ledgers.remove(&entry.limit);
            let (answer, ledger) = call.exchange(entry, kept, self.root.loss(), reading);
            self.check(&entry.limit, &ledger);
            self.ledgers.insert(entry.limit.clone(), ledger);
            got.push(Ok(answer));
        }
        if is_first && self.random.u32(0..100) >= self.case.lost {
            let at = self.random_time_within(MS / 4, 2 * MS) + trip * 5 / 2;
            self.schedule(at, Event::Reply(it, call, Arc::new(Answer { clock_us, read_at, got })));
        }
    }

    /// A process that has read the ledgers computes the answer to its own call.
    pub(super) fn compute_answer(
        &mut self,
        it: usize,
        call: Arc<Call>,
        is_first: bool,
        mut texts: Vec<(String, u64)>,
        (date, then): (Option<u64>, Time),
    ) {
        let clock_us = self.local(it).as_nanos() / 1_000;
        let took_us = u64::try_from(self.now.since(then).as_micros()).expect("a time of the case");
        let now = Now::new(clock_us - took_us, clock_us, date);
        let by_wall = self.case.store_kind == StoreKind::SwapsByOwnClock;
        let mut got = Vec::new();
        for (entry, (text, _)) in call.lines.iter().zip(&mut texts) {
            if by_wall {
                let answered = call.answer(entry, text, &self.root, Reading::of(clock_us));
                *text = answered.text;
                got.push(Ok(answered.got));
                continue;
            }
            let written = self.members[it].sights.answer(&call, entry, text, &now, self.random.u64(1..));
            *text = written.text;
            got.push(Ok(written.got));
        }
        let at = self.random_time_within(MS / 4, 30 * MS);
        self.schedule(at, Event::Write(it, call, is_first, texts, Arc::new(Answer { clock_us, read_at: None, got })));
    }

    /// A store that can compare and swap writes the ledgers if none has changed since it was read. Otherwise the
    /// process reads them again.
    pub(super) fn swap_texts(
        &mut self,
        it: usize,
        call: Arc<Call>,
        is_first: bool,
        texts: Vec<(String, u64)>,
        answer: Arc<Answer>,
    ) {
        if self.now < self.stalls_until {
            let at = self.stalls_until;
            self.schedule(at, Event::Write(it, call, is_first, texts, answer));
            return;
        }
        self.outcome.calls += 1;
        let is = |limit: &String| self.versions.get(limit).copied().unwrap_or_default();
        if call.lines.iter().zip(&texts).any(|(entry, (_, version))| is(&entry.limit) != *version) {
            // The process reads the ledgers again, unless it has given this call up.
            let member = &self.members[it];
            if member.has_left || member.under_way.as_ref().is_some_and(|(seq, ..)| *seq == call.seq) {
                let at = self.random_time_within(MS, 30 * MS);
                self.schedule(at, Event::Store(it, call, is_first));
            }
            return;
        }
        for (entry, (text, version)) in call.lines.iter().zip(texts) {
            let mut kept: serde_json::Value = serde_json::from_str(&text).expect("a ledger");
            if self.case.store_kind == StoreKind::Swaps {
                kept = kept["ledger"].take();
            }
            self.check(&entry.limit, &serde_json::from_value(kept).expect("a ledger"));
            self.texts.insert(entry.limit.clone(), text);
            self.versions.insert(entry.limit.clone(), version + 1);
        }
        if is_first && self.random.u32(0..100) >= self.case.lost {
            let at = self.random_time_within(MS / 4, 30 * MS);
            self.schedule(at, Event::Reply(it, call, answer));
        }
    }

    /// Keeps the state of the store, if it is to return to it.
    fn keep_backup(&mut self) {
        let rewinds = self.case.troubles.iter().any(|(_, trouble)| *trouble == Trouble::Rewind);
        let is_due = |(at, ..): &(Time, _, _)| self.now.since(*at) > Duration::from_millis(100);
        if rewinds && self.past.last().is_none_or(is_due) {
            self.past.push((self.now, self.ledgers.clone(), self.texts.clone()));
        }
    }

    pub(super) fn receive_answer(&mut self, it: usize, call: &Call, answer: &Answer) {
        let now = self.local(it);
        let member = &mut self.members[it];
        if self.now < member.cut_until {
            return;
        }
        // An answer that comes too late is ignored: the process has made another call.
        let Some((seq, began, limits)) = member.under_way.take_if(|(seq, ..)| *seq == call.seq) else { return };
        debug_assert_eq!(seq, call.seq);
        let until = member.process.until(began);
        let got = member.process.answered(began, now, call, answer);
        for ((limit, got), entry) in limits.into_iter().zip(got).zip(&call.lines) {
            let Some(got) = got else { continue };
            if member.asked_with == member.version {
                member.belief.count_granted(&got, until);
            }
            if !member.engine.hold(now, limit, &got, until) {
                member.process.not_held(entry);
            }
        }
        let began = self.now.as_nanos().saturating_sub(now.since(began).as_nanos() as u64);
        let (began, every) = (Time::from_nanos(began), self.case.every.as_millis() as u64);
        member.due = began + Duration::from_millis(self.random.u64(every * 24 / 25..every * 26 / 25));
        member.soon = began + self.case.every * 6 / 25;
        let due = member.due;
        self.schedule(due, Event::Call(it));
        self.drive_process(it);
    }
}
