//! Calls to a store that can compare and swap but has no clock. For each limit, this process reads the ledger, computes
//! the answer itself, and writes the ledger back if it is unchanged. If another process has written it meanwhile, the
//! process reads it again. Each limit is asked about by itself, so one that fails or hangs stops no other.

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use http::HeaderMap;
use jiff::fmt::rfc2822::DateTimeParser;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use super::call::{Answer, Call, Entry, LineAnswer};
use super::sights::{AllSights, Now};
use super::unique_number;
use crate::BoxFuture;
use crate::clock::Clock;

/// How many limits' ledgers are read and written concurrently.
const AT_ONCE: usize = 64;
/// How often a ledger is read in one call while other processes keep writing it.
const ROUNDS: u32 = 16;
/// In milliseconds. The longest wait before the second round is twice this, and it doubles with each further round, up
/// to [`LONGEST_MS`].
const FIRST_MS: u64 = 10;
const LONGEST_MS: u64 = 500;

/// A stored text, and the store's name for its version.
#[derive(Debug)]
pub(crate) struct Found {
    pub(super) text: String,
    pub(super) version: String,
}

/// The store's answer to a read.
#[derive(Debug)]
pub(crate) struct Answered {
    /// `None` if there is no ledger.
    pub(super) found: Option<Found>,
    /// The date of the answer, in seconds since 1970.
    pub(super) date: Option<u64>,
}

/// The `Date` of a response, in seconds since 1970.
#[cfg_attr(not(any(feature = "etcd", feature = "object-store")), allow(dead_code, reason = "others do not speak HTTP"))]
pub(super) fn date(headers: &HeaderMap) -> Option<u64> {
    let text = headers.get(http::header::DATE)?.to_str().ok()?;
    let moment = DateTimeParser::new().parse_timestamp(text).ok()?;
    u64::try_from(moment.as_second()).ok().filter(|seconds| *seconds > 0)
}

/// The two operations of such a store. Errors are messages without addresses and secrets.
pub(crate) trait Swaps: Send + Sync {
    /// Reads the ledger of a limit: the latest that any process has written.
    fn read(&self, limit: &str) -> impl Future<Output = Result<Answered, String>> + Send;

    /// Writes a ledger if the stored one still has this version, or is still missing. Returns whether it was written.
    fn write(
        &self,
        limit: &str,
        text: String,
        version: Option<&str>,
    ) -> impl Future<Output = Result<bool, String>> + Send;
}

/// One process's access to such a store.
pub(crate) struct Clockless<S> {
    store: S,
    clock: Clock,
    sights: Mutex<AllSights>,
    /// How many lines all calls together have begun in time. A call starts with the line after the last one that the
    /// call before it has begun, so lines that hang, and lines for which the time is too short, keep none of the others
    /// from their turn.
    begun: AtomicUsize,
}

impl<S: Swaps> Clockless<S> {
    pub(super) fn new(store: S) -> Clockless<S> {
        Clockless { store, clock: Clock::system(), sights: Mutex::default(), begun: AtomicUsize::new(0) }
    }

    /// Answers a call. A line that is not answered within nine tenths of `within` fails alone. The call fails if all of
    /// its lines fail.
    pub(super) async fn exchange(&self, call: &Call, within: Duration) -> Result<Answer, String> {
        let ends = self.clock.instant(self.clock.now() + within * 9 / 10);
        let first = self.begun.load(Ordering::Relaxed).checked_rem(call.lines.len()).unwrap_or(0);
        let (last, next) = call.lines.split_at(first);
        let lines = next.iter().chain(last);
        let each = lines.map(|entry| Box::pin(self.exchange_until(ends, call, entry)) as BoxFuture<'_, LineAnswer>);
        let mut got = together(each.collect()).await;
        got.rotate_right(first);
        Answer { clock_us: self.now_us(), read_at: None, got }.checked()
    }

    async fn exchange_until(&self, ends: Instant, call: &Call, entry: &Entry) -> LineAnswer {
        if self.clock.instant(self.clock.now()) < ends {
            self.begun.fetch_add(1, Ordering::Relaxed);
        }
        let late = |_| Err(format!("the store did not answer about the limit {} in time", entry.limit));
        timeout_at(ends, self.exchange_one(call, entry)).await.unwrap_or_else(late)
    }

    async fn exchange_one(&self, call: &Call, entry: &Entry) -> LineAnswer {
        for round in 0..ROUNDS {
            if round > 0 {
                let longest = FIRST_MS.saturating_mul(1 << round.min(10)).min(LONGEST_MS);
                tokio::time::sleep(Duration::from_millis(fastrand::u64(1..=longest))).await;
            }
            let asked = self.now_us();
            let Answered { found, date } = self.store.read(&entry.limit).await?;
            let (text, version) = found.map_or((String::new(), None), |found| (found.text, Some(found.version)));
            // The clock is read after the text, so the text was written before `now`.
            let now = Now::new(asked, self.now_us(), date);
            let written = self.sights.lock().answer(call, entry, &text, &now, unique_number());
            if self.store.write(&entry.limit, written.text, version.as_deref()).await? {
                return Ok(written.got);
            }
        }
        Err(format!(
            "other processes wrote the limit {} during {ROUNDS} tries; use fewer processes, or another store",
            entry.limit
        ))
    }

    fn now_us(&self) -> u64 {
        self.clock.now().as_nanos() / 1_000
    }
}

/// Polls all futures within one task, at most [`AT_ONCE`] at a time, and returns their results in order.
async fn together<T>(mut futures: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    let mut done: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut pending = 0;
        for (future, done) in futures.iter_mut().zip(&mut done).filter(|(_, done)| done.is_none()) {
            match future.as_mut().poll(context) {
                Poll::Ready(value) => *done = Some(value),
                Poll::Pending => pending += 1,
            }
            if pending == AT_ONCE {
                break;
            }
        }
        if pending == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests;
