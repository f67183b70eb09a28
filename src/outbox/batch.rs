//! Batches: numbered requests of one source, such as the lines of a file. The store remembers how far the source was
//! read.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use uuid::Builder;

use super::accept::Origin;
use super::{Outbox, Status, priority, receipt};
use crate::Priority;
use crate::error::{Error, ErrorKind};
use crate::request::Request;
use crate::store::batches::{self, Page, Run};
use crate::store::jobs::NewJob;
use crate::store::new_id;
use crate::store::problems::Work;
use crate::store::{Id, LaneTier, Size};

/// The numbered requests of one source, and the mark up to which the source was read.
///
/// A page of requests and its mark are written in one transaction, so that a program that was killed continues behind
/// the last page: no request of the source is accepted twice, and none is left out. The program chooses what the mark
/// says: an offset, a cursor, a date.
///
/// ```no_run
/// # async fn run(client: integration_client::IntegrationClient, lines: Vec<String>) -> Result<(), integration_client::Error> {
/// use integration_client::{Priority, Request};
///
/// let mut batch = client.outbox().batch("labels of May").await?;
/// let done: usize = batch.mark().parse().unwrap_or(0);
/// for (number, line) in lines.iter().enumerate().skip(done) {
///     let request = Request::post("parcels", "/labels").body(line.clone());
///     let checked = batch.check(number as u64, "acme", Priority::Low, request)?;
///     batch.accept(vec![checked], &(number + 1).to_string()).await?;
/// }
/// println!("{:?}", batch.counts().await?);
/// # Ok(()) }
/// ```
pub struct Batch {
    outbox: Outbox,
    name: String,
    run: Run,
    mark: String,
    pages: i64,
}

/// A request of a batch that has passed all checks.
#[derive(Clone)]
pub struct Checked(NewJob);

/// How many of a batch's requests are in each state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
#[non_exhaustive]
pub struct BatchCounts {
    /// Requests in the outbox.
    pub waiting: u64,
    /// Requests that their vendor accepted.
    pub delivered: u64,
    /// Cancelled requests.
    pub cancelled: u64,
    /// Requests that are dead letters.
    pub dead: u64,
}

/// The outcome of one of a batch's requests.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Ended {
    /// The number of the request in the batch.
    pub number: u64,
    /// The id of the request, as in its receipt or dead letter.
    pub id: String,
    /// The outcome.
    pub status: Status,
}

/// The largest number: numbers take 62 bits of an id.
const MAX_NUMBER: u64 = (1 << 62) - 1;

impl Outbox {
    /// Opens the batch of this name in the client's store, and creates it if it does not exist. Only one process may
    /// fill a batch.
    ///
    /// # Errors
    /// The client has no store, or it cannot be read.
    pub async fn batch(self, name: &str) -> Result<Batch, Error> {
        Batch::open(self, name, None).await
    }

    /// The names of the store's batches, at most 1,000.
    ///
    /// # Errors
    /// As for [`batch`](Self::batch).
    pub async fn batches(self) -> Result<Vec<String>, Error> {
        self.state()?.store.read((), batches::names).await
    }
}

impl Batch {
    async fn open(outbox: Outbox, name: &str, anew: Option<String>) -> Result<Batch, Error> {
        // The run's id comes from the time and a random number, so that the ids of later runs sort behind those of
        // earlier ones.
        let mut run = [0; 8];
        run.copy_from_slice(&id(new_id(outbox.core.clock).as_bytes(), 0).as_bytes()[..8]);
        let found = outbox.state()?.store.write((name.to_owned(), run, anew), batches::open).await?;
        let (run, mark, pages) = (found.run, found.mark, found.pages);
        Ok(Batch { outbox, name: name.to_owned(), run, mark, pages })
    }

    /// Starts a new run with this mark, both in one transaction: requests accepted from now on are new ones, even with
    /// the same numbers. Requests of earlier runs are not changed. An empty mark means that nothing of the source is
    /// read; another one may say more, such as which run the new one follows.
    ///
    /// # Errors
    /// [`ErrorKind::Store`]. The new run may have begun nevertheless: [open the batch](Outbox::batch) again and compare
    /// its [number](Self::run).
    pub async fn begin_anew(&mut self, mark: &str) -> Result<(), Error> {
        *self = Batch::open(self.outbox.clone(), &self.name, Some(mark.to_owned())).await?;
        Ok(())
    }

    /// The mark of the last page; before the first page the one that the run began with, which is empty unless
    /// [`begin_anew`](Self::begin_anew) stated one.
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// Checks a request as [`enqueue`](Outbox::enqueue) does, without accepting it. A batch does not deduplicate by
    /// idempotency key: two numbers with the same key are two requests, and only the vendor honours the key.
    ///
    /// # Errors
    /// The errors of `enqueue`, except those of the store; and an error for a number that takes more than 62 bits.
    pub fn check(
        &self,
        number: u64,
        tenant: &str,
        priority: Priority,
        request: impl Into<Request>,
    ) -> Result<Checked, Error> {
        if number > MAX_NUMBER {
            return Err(Error::not_sent(ErrorKind::InvalidRequest, "a number in a batch takes 62 bits at most"));
        }
        let (_, job) = self.outbox.job(tenant, priority, request.into(), Origin::Batch(id(&self.run, number)))?;
        Ok(Checked(NewJob { key: None, other_key: None, ..job }))
    }

    /// Accepts requests and writes the mark up to which the source is read with them, in one transaction: when this
    /// returns, both are on the disk, or neither is. The caller decides how many requests may wait at once: see
    /// [`counts`](Self::counts).
    ///
    /// # Errors
    /// [`ErrorKind::Store`]: the store cannot be written, or another process has added a page to the batch in the
    /// meantime.
    /// [`ErrorKind::Shutdown`] after [`shutdown`](crate::IntegrationClient::shutdown).
    pub async fn accept(&mut self, requests: Vec<Checked>, mark: &str) -> Result<(), Error> {
        self.accept_with_note(requests, mark, Vec::new()).await
    }

    /// As [`accept`](Self::accept), and stores a note about the page, such as hashes of the lines that it was made of.
    /// The notes of a run are kept until the run after the next has begun.
    ///
    /// The outcomes of a run with notes are kept too, until the next run has begun: no process deletes them, whatever its
    /// [`keep_done`](crate::store::Store::keep_done) says. Dead letters are deleted as all others are.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub async fn accept_with_note(&mut self, requests: Vec<Checked>, mark: &str, note: Vec<u8>) -> Result<(), Error> {
        let outbox = self.outbox.state()?;
        outbox.check_open()?;
        let mut lanes: Vec<_> = requests.iter().map(|checked| checked.0.lane.clone()).collect();
        let (accepted, now) = (i64::try_from(requests.len()).unwrap_or(0), outbox.clock.now());
        let page = Page {
            name: self.name.clone(),
            run: self.run,
            before: self.pages,
            mark: mark.to_owned(),
            note,
            jobs: requests.into_iter().map(|checked| checked.0.aged_to(now)).collect(),
        };
        // The mark, the note, and the jobs in one statement or a few.
        let size = Size { bytes: page.jobs.iter().map(|job| job.request.len()).sum(), statements: 4 };
        if !outbox.store.write_bulk(Work::Accept, size, page, batches::accept).await? {
            let message = format!(
                "batch {}: another process has added a page to it; only one process may fill a batch",
                self.name
            );
            return Err(Error::not_sent(ErrorKind::Store, message));
        }
        self.pages += 1;
        mark.clone_into(&mut self.mark);
        outbox.backlog.fetch_add(accepted, Relaxed);
        lanes.sort_unstable();
        lanes.dedup();
        lanes.into_iter().for_each(|lane| outbox.lane_has_job(lane));
        Ok(())
    }

    /// The run's number, by which a later run finds its [notes](Self::notes).
    pub fn run(&self) -> u64 {
        u64::from_be_bytes(self.run)
    }

    /// Notes about the pages of a run, in order, each with its page; those behind the page `after`, at most 1,000.
    ///
    /// # Errors
    /// [`ErrorKind::Store`].
    pub async fn notes(&self, run: u64, after: Option<u64>) -> Result<Vec<(u64, Vec<u8>)>, Error> {
        let after = after.map_or(-1, |page| i64::try_from(page).unwrap_or(i64::MAX));
        let found = self.outbox.state()?.store.read((run.to_be_bytes(), after, 1_000), batches::notes).await?;
        Ok(found.into_iter().map(|(page, note)| (page.unsigned_abs(), note)).collect())
    }

    /// How many of the batch's requests are in each state. The requests are counted: some tenths of a second for a
    /// million.
    ///
    /// # Errors
    /// [`ErrorKind::Store`].
    pub async fn counts(&self) -> Result<BatchCounts, Error> {
        let found = batches::counts(&self.outbox.state()?.store, self.run).await?;
        let number = |count: i64| u64::try_from(count).unwrap_or(0);
        Ok(BatchCounts {
            waiting: number(found.waiting),
            delivered: number(found.delivered),
            cancelled: number(found.cancelled),
            dead: number(found.dead),
        })
    }

    /// As [`counts`](Self::counts), only how many are waiting: requests that have ended are not looked at.
    ///
    /// # Errors
    /// [`ErrorKind::Store`].
    #[doc(hidden)]
    pub async fn waiting(&self) -> Result<u64, Error> {
        let waiting = batches::waiting(&self.outbox.state()?.store, self.run).await?;
        Ok(u64::try_from(waiting).unwrap_or(0))
    }

    /// As [`waiting`](Self::waiting), by tenant, vendor and priority.
    ///
    /// # Errors
    /// [`ErrorKind::Store`].
    #[doc(hidden)]
    pub async fn waiting_by_lane(&self) -> Result<Vec<((String, String, Priority), u64)>, Error> {
        let found = batches::waiting_by_lane(&self.outbox.state()?.store, self.run).await?;
        let number = |count: i64| u64::try_from(count).unwrap_or(0);
        let lane = |(lane, jobs): (LaneTier, i64)| ((lane.tenant, lane.vendor, priority(lane.tier)), number(jobs));
        Ok(found.into_iter().map(lane).collect())
    }

    /// Whether any of the batch's requests is still in the outbox.
    ///
    /// # Errors
    /// [`ErrorKind::Store`].
    pub async fn goes_on(&self) -> Result<bool, Error> {
        self.outbox.state()?.store.read(self.run, batches::goes_on).await
    }

    /// Requests that have ended, in the order of their numbers, starting behind `after` or at the first; at most 1,000,
    /// and fewer if their responses have many bytes. Behind the last one the list is empty.
    ///
    /// # Errors
    /// [`ErrorKind::Store`].
    pub async fn ended(&self, after: Option<u64>) -> Result<Vec<Ended>, Error> {
        let asked = (self.run, after.map(|number| id(&self.run, number)), 1_000);
        let store = &self.outbox.state()?.store;
        let found = store.read(asked, batches::ended).await?;
        let ended = |(id, place): (Id, _)| Ended {
            number: number(&id),
            id: id.simple().to_string(),
            status: receipt::status_of(store, &id, place),
        };
        Ok(found.into_iter().map(ended).collect())
    }

    /// Maps ids to the batch's numbers, for example in a [`ResponseHandler`](super::ResponseHandler).
    pub fn numbers(&self) -> Numbers {
        Numbers(self.run)
    }
}

/// Maps ids to the numbers of a batch: [`Batch::numbers`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbers(Run);

impl Numbers {
    /// The number of a request of the batch, by its id; `None` if the id belongs to no request of the batch.
    pub fn of(&self, id: &str) -> Option<u64> {
        let id = Id::try_parse(id).ok()?;
        (id.as_bytes()[..8] == self.0).then(|| number(&id))
    }
}

/// Makes an id from 60 bits of the run and 62 of the number, in the form of a UUID of version 8. Ids sort by their
/// numbers.
fn id(run: &[u8], number: u64) -> Id {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&run[..8]);
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    Builder::from_custom_bytes(bytes).into_uuid()
}

/// Whether a job is a request of a batch, which does not deduplicate by idempotency key.
pub(super) fn is_of_batch(id: &Id) -> bool {
    // Other jobs have ids of version 7.
    id.get_version_num() == 8
}

fn number(id: &Id) -> u64 {
    id.as_u64_pair().1 & MAX_NUMBER
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("name", &self.name).field("pages", &self.pages).finish_non_exhaustive()
    }
}

impl fmt::Debug for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checked").field("lane", &self.0.lane).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
