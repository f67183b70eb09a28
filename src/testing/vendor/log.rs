//! The log of arrivals: bounded, and small per entry.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::clock::Time;
use crate::testing::checker::Event;
use crate::testing::{Refusal, Verdict};

/// One request as the vendor saw it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Arrival {
    /// When the limits decided, since the server's start.
    pub at: Time,
    /// The key in `authorization: bearer` or `x-tenant`; empty without either.
    pub key: Arc<str>,
    /// The account that the key belongs to: the key itself unless the builder says otherwise.
    pub account: Arc<str>,
    /// The path, without the query.
    pub path: Arc<str>,
    /// The value of `idempotency-key`; empty without one.
    pub idempotency_key: Arc<str>,
    /// The endpoint that the path belongs to; empty for none.
    pub endpoint: Arc<str>,
    /// Units: `x-cost`, or 1.
    pub cost: u32,
    /// Whether the limits admitted it.
    pub admitted: bool,
    /// Whether the limits, or a block, decided on it: not during an outage, and not at a poisoned endpoint. Only these
    /// are the checker's business.
    pub judged: bool,
    /// Whether it is of [other traffic](super::FakeVendorBuilder::other_traffic), and came over no socket.
    pub foreign: bool,
    /// The status of the answer; 0 where a fault or an outage withheld it.
    pub status: u16,
    /// When the vendor was done with it and its places in concurrency limits were free; `None` while it is under way.
    pub finished_at: Option<Time>,
}

impl From<&Arrival> for Event {
    fn from(arrival: &Arrival) -> Event {
        let event = Event::at(arrival.at.as_nanos()).cost(arrival.cost);
        event.until(arrival.finished_at.map_or(u64::MAX, Time::as_nanos))
    }
}

/// Text as a number, and back. Numbers count from 0 in order of first mention.
#[derive(Default)]
pub(super) struct Names {
    numbers: HashMap<Arc<str>, u32>,
    texts: Vec<Arc<str>>,
}

impl Names {
    pub(super) fn number(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let text: Arc<str> = text.into();
        let number = self.texts.len() as u32;
        self.texts.push(text.clone());
        self.numbers.insert(text, number);
        number
    }

    /// The same while there is room for new texts; then all new ones are one.
    pub(super) fn number_within(&mut self, most: usize, text: &str) -> u32 {
        if self.texts.len() < most || self.numbers.contains_key(text) { self.number(text) } else { self.number("…") }
    }

    pub(super) fn text(&self, number: u32) -> Arc<str> {
        self.texts.get(number as usize).cloned().unwrap_or_default()
    }
}

/// An [`Arrival`] in numbers: ten million take 400 MB.
#[derive(Clone, Copy)]
pub(super) struct Record {
    pub(super) at: u64,
    /// `u64::MAX` while under way.
    pub(super) finished: u64,
    pub(super) key: u32,
    pub(super) account: u32,
    pub(super) path: u32,
    pub(super) idempotency_key: u32,
    pub(super) endpoint: u32,
    pub(super) cost: u32,
    pub(super) status: u16,
    pub(super) fate: Fate,
    pub(super) foreign: bool,
}

/// What became of an arrival.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Admitted,
    /// By a limit, or because of a block.
    Refused,
    /// No limit had a say in it.
    NotJudged,
}

impl From<&Verdict> for Fate {
    fn from(verdict: &Verdict) -> Fate {
        match verdict.refusal {
            None => Fate::Admitted,
            Some(Refusal::Limit | Refusal::Blocked) => Fate::Refused,
            Some(Refusal::Poisoned(_) | Refusal::Outage(_)) => Fate::NotJudged,
        }
    }
}

/// The newest records are dropped when the log is full: a log with holes at the end still checks.
pub(super) struct Log {
    records: Vec<Record>,
    cap: usize,
    /// The number of the first record: grows with each reset, so that late finishers find only their own.
    first: u64,
    dropped: u64,
}

impl Log {
    pub(super) fn new(cap: usize) -> Log {
        Log { records: Vec::new(), cap, first: 0, dropped: 0 }
    }

    /// Keeps the record and returns its number, if there is room.
    pub(super) fn push(&mut self, record: Record) -> Option<u64> {
        if self.records.len() >= self.cap {
            self.dropped += 1;
            return None;
        }
        self.records.push(record);
        Some(self.first + self.records.len() as u64 - 1)
    }

    pub(super) fn finish(&mut self, number: u64, at: u64) {
        let record = number.checked_sub(self.first).and_then(|place| self.records.get_mut(place as usize));
        if let Some(record) = record {
            record.finished = at;
        }
    }

    pub(super) fn reset(&mut self) {
        self.first += self.records.len() as u64;
        self.records.clear();
        self.dropped = 0;
    }

    pub(super) fn records(&self) -> &[Record] {
        &self.records
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }
}
