//! Dead letters in the store: lists, sends again and deletes them.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use super::batch::is_of_batch;
use super::sealing::{self, KeptLetter};
use super::stored::Stored;
use super::{Outbox, OutboxState};
use crate::dead_letter::{DeadLetter, Reason};
use crate::error::{Delivery, Error, ErrorKind};
use crate::send::history::History;
use crate::store::dead::{self, Filter};
use crate::store::keys::RequestKey;
use crate::store::{Id, LaneTier, advise};

/// The dead letters of a store, or those that match a filter.
///
/// ```no_run
/// # async fn run(client: integration_client::IntegrationClient) -> Result<(), integration_client::Error> {
/// use integration_client::dead_letter::Reason;
///
/// let letters = client.outbox().dead_letters()?.tenant("acme").reason(Reason::Exhausted);
/// for letter in letters.list(None, 100).await? {
///     println!("{} {:?} after {} attempts", letter.letter.id, letter.letter.request, letter.letter.attempts.len());
/// }
/// let redriven = letters.redrive_all(1000).await?;
/// println!("{} were queued again, {} cannot be", redriven.jobs, redriven.unsendable);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct DeadLetters {
    outbox: Arc<OutboxState>,
    filter: Filter,
}

impl Outbox {
    /// The dead letters in the client's store.
    ///
    /// # Errors
    /// The client has no store.
    pub fn dead_letters(self) -> Result<DeadLetters, Error> {
        Ok(DeadLetters { outbox: self.state()?.clone(), filter: Filter::default() })
    }
}

impl DeadLetters {
    /// Only letters of one tenant.
    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<String>) -> DeadLetters {
        self.filter.tenant = Some(tenant.into());
        self
    }

    /// Only letters for one vendor.
    #[must_use]
    pub fn vendor(mut self, vendor: impl Into<String>) -> DeadLetters {
        self.filter.vendor = Some(vendor.into());
        self
    }

    /// Only letters with one reason.
    #[must_use]
    pub fn reason(mut self, reason: Reason) -> DeadLetters {
        self.filter.reason = Some(reason.as_str().to_owned());
        self
    }

    /// Only letters from before a moment.
    #[must_use]
    pub fn before(mut self, at: jiff::Timestamp) -> DeadLetters {
        self.filter.before = Some(at.as_millisecond());
        self
    }

    /// Only letters up to a [place](KeptLetter::place): those that a list has shown, and none that were added since.
    #[must_use]
    pub fn upto(mut self, place: i64) -> DeadLetters {
        self.filter.upto = Some(place);
        self
    }

    fn page(&self, after: i64, most: usize) -> Filter {
        Filter { after, most: i64::try_from(most.min(MAX_PAGE)).unwrap_or(1), ..self.filter.clone() }
    }

    /// Letters, oldest first, starting behind `after` (a [`KeptLetter::place`]) or at the first; at most 1,000.
    ///
    /// # Errors
    /// [`ErrorKind::Store`].
    pub async fn list(&self, after: Option<i64>, most: usize) -> Result<Vec<KeptLetter>, Error> {
        let (mut letters, mut after) = (Vec::new(), after.unwrap_or(0));
        let most = most.min(MAX_PAGE);
        // A page whose rows cannot be read is not the end, and neither is one that has few because they are large.
        while letters.len() < most {
            let (page, last) = self.outbox.store.read(self.page(after, most - letters.len()), dead::list).await?;
            let Some(last) = last else { break };
            after = last;
            letters.extend(page.into_iter().filter_map(|kept| sealing::open(&self.outbox.store, kept)));
        }
        letters.truncate(most);
        Ok(letters)
    }

    /// Finds one letter by its id; `None` if the store has no such letter, or the letter does not match the filter.
    ///
    /// # Errors
    /// [`ErrorKind::Store`].
    pub async fn show(&self, id: &str) -> Result<Option<KeptLetter>, Error> {
        let Ok(id) = Id::try_parse(id) else { return Ok(None) };
        let store = &self.outbox.store;
        let Some(found) = store.read(id, dead::show).await? else { return Ok(None) };
        Ok(sealing::open(store, found).filter(|kept| self.fits(&kept.letter)))
    }

    fn fits(&self, letter: &DeadLetter) -> bool {
        let Filter { tenant, vendor, reason, before, .. } = &self.filter;
        tenant.as_ref().is_none_or(|tenant| *tenant == letter.tenant)
            && vendor.as_ref().is_none_or(|vendor| *vendor == letter.vendor)
            && reason.as_ref().is_none_or(|reason| reason == letter.reason.as_str())
            && before.is_none_or(|before| letter.at.as_millisecond() < before)
    }

    /// How many letters match the filter; counted up to a million.
    ///
    /// # Errors
    /// [`ErrorKind::Store`].
    pub async fn count_matching(&self) -> Result<u64, Error> {
        let filter = Filter { most: 1_000_000, ..self.filter.clone() };
        Ok(u64::try_from(self.outbox.store.read(filter, dead::count_matching).await?).unwrap_or(0))
    }

    /// The [place](KeptLetter::place) of the newest letter, whatever the filter says; `None` where there is no letter.
    ///
    /// # Errors
    /// [`ErrorKind::Store`].
    pub async fn newest(&self) -> Result<Option<i64>, Error> {
        self.outbox.store.read((), dead::newest).await
    }

    /// Deletes one letter by its id. Returns false if there is no such letter, or the letter does not match the
    /// filter.
    ///
    /// # Errors
    /// [`ErrorKind::Store`]. With [`Delivery::Ambiguous`] the letter may be deleted: [`show`](Self::show) says whether
    /// it is.
    pub async fn remove(&self, id: &str) -> Result<bool, Error> {
        if self.show(id).await?.is_none() {
            return Ok(false);
        }
        let Ok(id) = Id::try_parse(id) else { return Ok(false) };
        let removed = self.outbox.store.write_once(id, dead::remove).await;
        let advice = "the letter may be deleted; look for it before you delete it again";
        Ok(removed.map_err(|error| advise(error, advice))? > 0)
    }

    /// How many letters the store holds, whatever the filter says; counted up to a million.
    ///
    /// # Errors
    /// [`ErrorKind::Store`].
    pub async fn count(&self) -> Result<u64, Error> {
        Ok(u64::try_from(self.outbox.store.read(1_000_000, dead::count).await?).unwrap_or(0))
    }

    /// Turns a letter into a job again: with its id, its history and its idempotency key, a fresh set of attempts, and
    /// the same limits as any other job. Returns false where the letter does not exist (any more): of two concurrent
    /// callers one succeeds.
    ///
    /// The letter may have changed since a person looked at it: another operator may have sent it again, and the vendor
    /// may have acted since. [`redrive_seen`](Self::redrive_seen) sends the letter that was looked at, and no other.
    ///
    /// If the vendor may have acted on an attempt of the letter and may have forgotten its key
    /// ([`keeps`](crate::config::Idempotency::keeps)) by the time at which the job can be sent, the job is not sent: it
    /// becomes a letter with [`Reason::Ambiguous`]. Sent again, such a letter may act twice: ask the vendor first.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`]: the request of the letter was not kept, or no key of the store opens the letter.
    /// [`ErrorKind::KeyReused`]: another request was accepted with the letter's idempotency key, which was free a day after
    /// the letter's own was accepted. The letter stays.
    /// [`ErrorKind::Store`]: with [`Delivery::Ambiguous`] the letter may be a job again, which its
    /// [receipt](Outbox::receipt) says.
    pub async fn redrive(&self, id: &str) -> Result<bool, Error> {
        match self.show(id).await? {
            Some(kept) => self.redrive_seen(&kept).await,
            None => Ok(false),
        }
    }

    /// [`redrive`](Self::redrive), for a letter as [`list`](Self::list) or [`show`](Self::show) returned it. Returns false
    /// also where the job has another letter by now, which may have another reason: a letter that was `exhausted` may be
    /// [`Reason::Ambiguous`] now.
    ///
    /// # Errors
    /// As [`redrive`](Self::redrive).
    pub async fn redrive_seen(&self, kept: &KeptLetter) -> Result<bool, Error> {
        let letter = &kept.letter;
        let Ok(id) = Id::try_parse(&letter.id) else { return Ok(false) };
        if !self.fits(letter) {
            return Ok(false);
        }
        if kept.is_shut {
            // The job would begin with an empty history, and the letter that holds the attempts would be deleted.
            let message = format!("dead letter {id}: no key of the store opens it (`Store::seal_key`)");
            return Err(Error::not_sent(ErrorKind::InvalidRequest, message));
        }
        // The vendor forgets the key while the job waits. Of an ambiguous letter a person has decided that it is sent.
        let is_overruled = kept.version.reason == Reason::Ambiguous.as_str();
        let history = History {
            attempts: letter.attempts.clone(),
            may_have_acted_at: letter.may_have_acted_at.filter(|_| !is_overruled),
            // Letters of earlier versions, and some responses that break off, state no time: no key counts as known then.
            overruled_at: is_overruled.then(|| letter.may_have_acted_at.unwrap_or(0)),
            ..History::default()
        };
        let history = Some(sealing::history(&self.outbox.store, &id, &history, kept.is_sealed));
        let key = self.key_of(id, letter).await?;
        let (tenant, vendor) = (letter.tenant.clone(), letter.vendor.clone());
        let lane = LaneTier { tenant, vendor, tier: i64::from(letter.priority.rank()) };
        let redrive = dead::Redrive { id, seen: kept.version.clone(), history, key };
        match self.outbox.store.write_once(redrive, dead::redrive).await {
            Ok(dead::Redriven::Yes) => {
                self.outbox.lane_has_job(lane);
                Ok(true)
            }
            Ok(dead::Redriven::Gone) => Ok(false),
            Ok(dead::Redriven::KeyTaken) => {
                let message = format!(
                    "dead letter {id}: another request was accepted with its idempotency key since; delete the letter if \
                     that request does the same, or send the letter again when that request has ended and was accepted \
                     more than a day ago"
                );
                Err(Error::not_sent(ErrorKind::KeyReused, message))
            }
            Ok(dead::Redriven::NoRequest) => {
                let message =
                    format!("dead letter {id}: only an outline of its request was kept, so it cannot be sent again");
                Err(Error::not_sent(ErrorKind::InvalidRequest, message))
            }
            Err(error) => {
                if error.delivery() == Delivery::Ambiguous {
                    // The worker need not search for the job, if there is one.
                    self.outbox.lane_has_job(lane);
                }
                let id = id.simple();
                Err(advise(error, &format!("the letter may be a job again; the receipt {id} says whether it is")))
            }
        }
    }

    /// The idempotency key of a letter's request, in the forms in which the store keeps keys. `None` if it has no key, or
    /// is of a batch, or its request was not kept or cannot be read.
    async fn key_of(&self, id: Id, letter: &DeadLetter) -> Result<Option<RequestKey>, Error> {
        // The request may be large, so it is not read in vain.
        if letter.idempotency_key.is_none() || is_of_batch(&id) {
            return Ok(None);
        }
        let store = &self.outbox.store;
        let Some(row) = store.read(id, dead::request).await? else { return Ok(None) };
        let text = store.unseal(&id, &row);
        let Some(stored) = text.and_then(|text| serde_json::from_slice::<Stored>(&text).ok()) else { return Ok(None) };
        let plain = stored.key.clone().map(|key| (key, stored.fingerprint()));
        let (key, other_key) = sealing::keys(store, &letter.tenant, &letter.vendor, plain, store.is_sealed(&row));
        Ok(key.map(|key| RequestKey { key, other_key }))
    }

    /// Turns the letters that match the filter and can be sent into jobs again, oldest first and `most` at most.
    /// Returns how many jobs, and how many matching letters cannot be sent. Each letter becomes a job once: a job that
    /// is given up again while the call runs stays a letter.
    ///
    /// Without a [`reason`](Self::reason) the letters with [`Reason::Ambiguous`] are sent again too: the vendor may have
    /// acted on them, and may act twice. Ask it first, or call this once for each of the other reasons.
    ///
    /// # Errors
    /// [`ErrorKind::Store`]; letters that were turned into jobs before the error stay jobs. With
    /// [`Delivery::Ambiguous`] one more letter may be a job.
    pub async fn redrive_all(&self, most: usize) -> Result<Redriven, Error> {
        self.redrive_present(most, false).await
    }

    /// [`redrive_all`](Self::redrive_all), or without the letters with [`Reason::Ambiguous`].
    pub(crate) async fn redrive_present(&self, most: usize, leaves_ambiguous: bool) -> Result<Redriven, Error> {
        // Read before the first page: a job that is given up again gets a later position than this.
        let Some(newest) = self.outbox.store.read((), dead::newest).await? else { return Ok(Redriven::default()) };
        // When the newest letter is deleted, SQLite gives its position to the next one, so positions alone do not
        // suffice.
        let (mut sent, mut unsendable) = (HashSet::new(), 0);
        let mut after = 0;
        while sent.len() < most {
            let upto = self.filter.upto.map_or(newest, |upto| upto.min(newest));
            let page = Filter { upto: Some(upto), ..self.page(after, TOGETHER) };
            let (mut page, last) = self.outbox.store.read(page, dead::list).await?;
            let Some(last) = last else { break };
            after = last;
            page.retain(|row| !leaves_ambiguous || row.reason != Reason::Ambiguous.as_str());
            let letters = page.len();
            let page = page.into_iter().filter_map(|kept| sealing::open(&self.outbox.store, kept));
            let page: Vec<_> = page.filter(|kept| kept.can_be_sent).collect();
            unsendable += letters - page.len();
            for kept in page {
                if sent.len() >= most || sent.contains(&kept.letter.id) {
                    continue;
                }
                let redriven = self.redrive_seen(&kept).await;
                match redriven {
                    Ok(true) => {
                        sent.insert(kept.letter.id);
                    }
                    Ok(false) => {}
                    Err(error) if error.kind() == ErrorKind::KeyReused => unsendable += 1,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Redriven { jobs: sent.len(), unsendable })
    }

    /// Deletes letters that match the filter, oldest first and `most` at most. Returns how many. Letters that are
    /// written while the call runs stay. Millions of letters are deleted in many short transactions, between which
    /// other writes take place.
    ///
    /// # Errors
    /// [`ErrorKind::Store`]; letters that were deleted before the error stay deleted. With [`Delivery::Ambiguous`] the
    /// last transaction may have deleted up to 200 of them: count the letters before you delete more.
    pub async fn purge(&self, most: usize) -> Result<u64, Error> {
        let Some(newest) = self.outbox.store.read((), dead::newest).await? else { return Ok(0) };
        let upto = Some(self.filter.upto.map_or(newest, |upto| upto.min(newest)));
        let (mut gone, mut after) = (0, self.filter.after);
        while gone < most {
            let step = PURGED_TOGETHER.min(most - gone);
            let filter = Filter { after, upto, most: step as i64, ..self.filter.clone() };
            let purged = self.outbox.store.write_once(filter, dead::purge).await;
            let purged = purged.map_err(|error| {
                let letters = gone + step;
                advise(error, &format!("up to {letters} letters may be deleted; count them before you delete more"))
            })?;
            // SQLite gives the position of the newest letter to the next one when it is deleted: never go back.
            after = purged.iter().copied().max().unwrap_or(after);
            gone += purged.len();
            if purged.len() < step {
                break;
            }
        }
        Ok(gone as u64)
    }
}

/// The result of [`DeadLetters::redrive_all`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Redriven {
    /// Letters that are jobs again.
    pub jobs: usize,
    /// Examined letters that cannot be sent, because only an outline of the request was kept, no key of the store opens
    /// it, or another request was accepted with its idempotency key since: they stay letters.
    pub unsendable: usize,
}

/// The most letters in one page.
const MAX_PAGE: usize = 1_000;
/// Letters that are in memory at once while all are sent again. Each may hold a whole request.
const TOGETHER: usize = 50;
/// Letters in one transaction of a purge. Each may hold a whole request.
const PURGED_TOGETHER: usize = 200;

impl fmt::Debug for DeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetters").field("filter", &self.filter).finish_non_exhaustive()
    }
}
