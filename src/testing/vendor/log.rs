//! The log of arrivals: bounded, with small entries.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::clock::Time;
use crate::testing::checker::Event;
use crate::testing::{Refusal, Verdict};

/// A request that reached the vendor.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Arrival {
    /// When the limits decided about the request, since the server's start.
    pub at: Time,
    /// The key in `authorization: bearer` or `x-tenant`; empty without either.
    pub key: Arc<str>,
    /// The account of the key: the key itself unless the builder says otherwise.
    pub account: Arc<str>,
    /// The path, without the query.
    pub path: Arc<str>,
    /// The value of `idempotency-key`; empty without one.
    pub idempotency_key: Arc<str>,
    /// The endpoint of the path; empty for none.
    pub endpoint: Arc<str>,
    /// The cost: the value of `x-cost`, or 1.
    pub cost: u32,
    /// Whether the limits admitted it.
    pub admitted: bool,
    /// Whether a limit or a block decided about the request: not during an outage, and not at a poisoned endpoint. The
    /// checker must get only these.
    pub judged: bool,
    /// Whether the request is from [another client](super::FakeVendorBuilder::other_traffic), and came over no socket.
    pub foreign: bool,
    /// The status of the answer; 0 if a fault or an outage withheld the answer.
    pub status: u16,
    /// When the request ended at the vendor, which freed its slots in concurrency limits; `None` while it is in flight.
    pub finished_at: Option<Time>,
}

impl From<&Arrival> for Event {
    fn from(arrival: &Arrival) -> Event {
        let event = Event::at(arrival.at.as_nanos()).cost(arrival.cost);
        event.until(arrival.finished_at.map_or(u64::MAX, Time::as_nanos))
    }
}

/// Maps texts to numbers and back. Numbers count from 0 in the order in which texts are first used.
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

    /// The number of a text. When `most` texts are known, all new ones share one number.
    pub(super) fn number_within(&mut self, most: usize, text: &str) -> u32 {
        if self.texts.len() < most || self.numbers.contains_key(text) { self.number(text) } else { self.number("…") }
    }

    pub(super) fn text(&self, number: u32) -> Arc<str> {
        self.texts.get(number as usize).cloned().unwrap_or_default()
    }
}

/// An [`Arrival`] with texts replaced by numbers to save memory: ten million records take 400 MB.
#[derive(Clone, Copy)]
pub(super) struct Record {
    pub(super) at: u64,
    /// `u64::MAX` while the request is in flight.
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

/// The outcome of an arrival.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Admitted,
    /// Refused by a limit or a block.
    Refused,
    /// No limit decided about the request.
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

/// The log. When it is full, new records are dropped, so that the log is complete up to some time and can still be
/// checked.
pub(super) struct Log {
    records: Vec<Record>,
    cap: usize,
    /// The number of the first record. It grows with each reset, so that requests from before a reset match no later
    /// record.
    first: u64,
    dropped: u64,
}

impl Log {
    pub(super) fn new(cap: usize) -> Log {
        Log { records: Vec::new(), cap, first: 0, dropped: 0 }
    }

    /// Appends the record. Returns its number, or `None` when the log is full.
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
