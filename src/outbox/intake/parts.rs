//! The transactions of one write: a transaction that the database rejects is tried again in halves, until each job that
//! the database rejects is alone. A transaction that might not end in time is cut.

use std::collections::VecDeque;
use std::ops::Range;

use crate::error::Error;
use crate::store::STATEMENTS;

/// The most bytes of requests in one transaction, which must end in time: other writes of the process wait for it.
pub(super) const BYTES_TOGETHER: usize = 8 << 20;
/// How often a job is written by itself before it is put aside because the database rejects it.
const ALONE: u32 = 2;

/// A range of jobs that are written in one transaction.
pub(super) struct Part {
    pub(super) range: Range<usize>,
    /// The transaction in which the jobs were to be written at first.
    first: usize,
    /// How often the database rejected the range.
    rejections: u32,
}

impl Part {
    fn halves(self) -> [Part; 2] {
        let middle = self.range.start + self.range.len() / 2;
        [self.range.start..middle, middle..self.range.end].map(|range| Part { range, first: self.first, rejections: 0 })
    }
}

/// A job that the database rejected each time it was written by itself.
pub(super) struct Rejected {
    pub(super) number: usize,
    pub(super) error: Error,
    /// Whether the database accepted another new job of the same transaction. If not, the database is more likely at
    /// fault than the job.
    pub(super) is_cause: bool,
}

/// The parts that are not written yet, and the jobs that the database rejected.
pub(super) struct Parts {
    left: VecDeque<Part>,
    /// For each of the first transactions, whether the database accepted a new job of it.
    has_accepted: Vec<bool>,
    rejected: Vec<(Part, Error)>,
}

impl Parts {
    /// Each range of jobs is one transaction at first.
    pub(super) fn new(transactions: impl IntoIterator<Item = Range<usize>>) -> Parts {
        let part = |(first, range)| Part { range, first, rejections: 0 };
        let left: VecDeque<Part> = transactions.into_iter().enumerate().map(part).collect();
        Parts { has_accepted: vec![false; left.len()], left, rejected: Vec::new() }
    }

    /// Takes out the part that is written next. A part of more than `most` jobs, or of jobs that take more statements
    /// than one transaction may have, is cut, and its rest is the part behind it. `statements` says how many a job takes
    /// of its own.
    pub(super) fn pop(&mut self, most: usize, statements: impl Fn(usize) -> usize) -> Option<Part> {
        let Part { range, first, rejections } = self.left.pop_front()?;
        let mut sum = 0usize;
        let fits = |number: &usize| {
            sum = sum.saturating_add(statements(*number));
            sum <= STATEMENTS
        };
        let end = range.start + range.clone().take(most).take_while(fits).count().max(1);
        if end < range.end {
            self.left.push_front(Part { range: end..range.end, first, rejections });
        }
        Some(Part { range: range.start..end, first, rejections })
    }

    /// Records that the database accepted a new job of a part.
    pub(super) fn accept(&mut self, part: &Part) {
        self.has_accepted[part.first] = true;
    }

    /// Records that the database accepts jobs, whatever it said about those of these parts.
    pub(super) fn accept_all(&mut self) {
        self.has_accepted.fill(true);
    }

    /// Puts a part back that the database rejected: the halves of several jobs at once, a single job behind all others.
    pub(super) fn reject(&mut self, mut part: Part, error: Error) {
        if part.range.len() > 1 {
            part.halves().into_iter().rev().for_each(|half| self.left.push_front(half));
            return;
        }
        part.rejections += 1;
        match part.rejections < ALONE {
            true => self.left.push_back(part),
            false => self.rejected.push((part, error)),
        }
    }

    /// Takes out all parts that are left, and `part` with them. Returns the numbers of their jobs, in order.
    pub(super) fn rest(&mut self, part: Part) -> Vec<usize> {
        self.left.push_front(part);
        let mut rest: Vec<usize> = self.left.drain(..).flat_map(|part| part.range).collect();
        rest.sort_unstable();
        rest
    }

    /// The jobs that the database rejected, when no part is left.
    pub(super) fn rejected(self) -> Vec<Rejected> {
        let Parts { has_accepted, rejected, .. } = self;
        let told = |(part, error): (Part, Error)| {
            let (number, is_cause) = (part.range.start, has_accepted[part.first]);
            Rejected { number, error, is_cause }
        };
        rejected.into_iter().map(told).collect()
    }
}

#[cfg(test)]
mod tests;
