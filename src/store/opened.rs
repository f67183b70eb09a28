//! An open store: its connections, and the ways to read and write through them.

use std::borrow::Cow;
use std::sync::atomic::AtomicU64;

use super::actor::{Actor, Step};
use super::driver::DbError;
use super::failure::{failed, unread};
use super::id::Id;
use super::jobs::{self, Accepted, NewJob, Start};
use super::owners::{self, Beat, Seen};
use super::pieces::Size;
use super::problems::{Problems, Work};
use super::purged::Purged;
use super::seal::{self, Sealer};
use super::{Limits, sqlite};
use crate::clock::Clock;
use crate::error::Error;

/// An open store.
pub(crate) struct Opened {
    pub(super) writer: Actor,
    pub(super) reader: Actor,
    /// The connection for the heartbeat of a process that works on PostgreSQL, so that the heartbeat waits for no row
    /// lock that the writer waits for.
    pub(super) pulse: Option<Actor>,
    /// The id of this opening of the store, which is unique even if two processes have the same process number.
    pub(crate) owner: Id,
    pub(crate) limits: Limits,
    /// Whether no other process can work on the store (SQLite).
    pub(crate) is_alone: bool,
    pub(super) sealer: Sealer,
    pub(super) lock: parking_lot::Mutex<Option<sqlite::WorkLock>>,
    pub(crate) problems: Problems,
    pub(super) clock: Clock,
    /// The number of dead letters that were deleted because there were more than [`Limits::max_dead`].
    pub(crate) surplus_letters: AtomicU64,
    pub(super) purged: parking_lot::Mutex<Purged>,
}

impl Opened {
    /// Lets another process work on the store from now on, even while receipts in this process keep the store open.
    pub(crate) fn stop_working(&self) {
        *self.lock.lock() = None;
    }

    /// Encrypts a text. `None` if the store has no key.
    pub(crate) fn seal(&self, id: &Id, text: Vec<u8>) -> Option<Vec<u8>> {
        self.sealer.seal(id, text)
    }

    /// Whether a stored text is sealed.
    pub(crate) fn is_sealed(&self, stored: &[u8]) -> bool {
        seal::is_sealed(stored)
    }

    /// A keyed hash of a text, by which a holder of the key can recognise the same text. `None` if the store has no
    /// key.
    pub(crate) fn mark(&self, parts: &[&str]) -> Option<String> {
        self.sealer.mark(parts)
    }

    /// Decrypts a text if it is sealed. `None` if no key opens it.
    pub(crate) fn unseal<'a>(&self, id: &Id, stored: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        self.sealer.open_row(id, stored)
    }

    /// Accepts a job with a new id: the job is on the disk when this returns.
    pub(crate) async fn insert(&self, job: NewJob) -> Result<Accepted, Error> {
        let written = async {
            match job.key.is_some() || job.message.is_some() {
                false => self.writer.insert(job).await,
                true => {
                    let size = Size { bytes: job.request.len(), statements: job.statements() };
                    self.writer.call_of(size, job, jobs::insert).await
                }
            }
        };
        self.noted(Work::Accept, written).await
    }

    /// Records an exchange before it leaves; see [`starts::start`].
    pub(crate) async fn start(&self, start: Start) -> Result<Option<i64>, Error> {
        self.noted(Work::Start, self.writer.start(start)).await
    }

    async fn noted<T>(&self, work: Work, call: impl Future<Output = Result<T, DbError>>) -> Result<T, Error> {
        let began = self.problems.time();
        let result = call.await;
        self.problems.note(work, &result);
        if result.is_ok() {
            self.problems.took_since(work, began);
        }
        result.map_err(|error| if work == Work::Read { unread(error) } else { failed(error) })
    }

    /// Runs a step that writes: its effect is on the disk when this returns.
    pub(crate) async fn write<I, T>(&self, input: I, step: Step<I, T>) -> Result<T, Error>
    where
        I: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.write_as(Work::Keep, input, step).await
    }

    /// Runs a step that writes, and records its failures under `work`.
    pub(crate) async fn write_as<I, T>(&self, work: Work, input: I, step: Step<I, T>) -> Result<T, Error>
    where
        I: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.noted(work, self.writer.call(input, step, false)).await
    }

    /// As [`write_as`](Self::write_as), for a step that writes requests or responses, or takes many statements: a
    /// transaction with other writes must not become too large.
    pub(crate) async fn write_bulk<I, T>(&self, work: Work, size: Size, input: I, step: Step<I, T>) -> Result<T, Error>
    where
        I: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.noted(work, self.writer.call_of(size, input, step)).await
    }

    /// Runs a step whose repetition cannot be detected: the step is not retried once it may have been committed. The
    /// error then leaves open whether the write was committed.
    pub(crate) async fn write_once<I, T>(&self, input: I, step: Step<I, T>) -> Result<T, Error>
    where
        I: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.noted(Work::Keep, self.writer.call(input, step, true)).await
    }

    /// Writes a heartbeat, and reads those of other processes.
    pub(crate) async fn beat(&self, beat: Beat) -> Result<Option<Vec<Seen>>, Error> {
        match &self.pulse {
            Some(pulse) => self.noted(Work::Keep, pulse.call(beat, owners::beat, false)).await,
            None => self.write(beat, owners::beat).await,
        }
    }

    /// Runs a step that only reads.
    pub(crate) async fn read<I, T>(&self, input: I, step: Step<I, T>) -> Result<T, Error>
    where
        I: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.noted(Work::Read, self.reader.call(input, step, false)).await
    }
}
