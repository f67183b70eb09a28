//! Calls to a store that can compare and swap but has no clock. For each limit, this process reads the ledger, computes
//! the answer itself, and writes the ledger back if it is unchanged. If another process has written it meanwhile, the
//! process reads it again.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use http::HeaderMap;
use jiff::fmt::rfc2822::DateTimeParser;
use parking_lot::Mutex;

use super::call::{Answer, Call, Entry};
use super::ledger::Got;
use super::sights::{AllSights, Now};
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
}

impl<S: Swaps> Clockless<S> {
    pub(super) fn new(store: S) -> Clockless<S> {
        Clockless { store, clock: Clock::system(), sights: Mutex::default() }
    }

    pub(super) async fn exchange(&self, call: &Call) -> Result<Answer, String> {
        let mut got = Vec::with_capacity(call.lines.len());
        for some in call.lines.chunks(AT_ONCE) {
            let each = some.iter().map(|entry| Box::pin(self.exchange_one(call, entry)) as BoxFuture<'_, _>);
            for answered in together(each.collect()).await {
                got.push(answered?);
            }
        }
        Ok(Answer { clock_us: self.now_us(), got })
    }

    async fn exchange_one(&self, call: &Call, entry: &Entry) -> Result<Option<Got>, String> {
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
            let written = self.sights.lock().answer(call, entry, &text, &now, fastrand::u64(1..));
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

/// Polls all futures within one task and returns their results in order.
async fn together<T>(mut futures: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    let mut done: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut is_done = true;
        for (future, done) in futures.iter_mut().zip(&mut done).filter(|(_, done)| done.is_none()) {
            match future.as_mut().poll(context) {
                Poll::Ready(value) => *done = Some(value),
                Poll::Pending => is_done = false,
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::capacity::ledger::{Figures, Line};

    /// Ledgers in memory. The first `conflicts` writes fail as if another process had written first.
    #[derive(Default)]
    struct Memory {
        texts: Mutex<HashMap<String, (String, u64)>>,
        conflicts: Mutex<u32>,
    }

    impl Swaps for Memory {
        async fn read(&self, limit: &str) -> Result<Answered, String> {
            tokio::task::yield_now().await;
            let found = self.texts.lock().get(limit).cloned();
            let found = found.map(|(text, version)| Found { text, version: version.to_string() });
            Ok(Answered { found, date: None })
        }

        async fn write(&self, limit: &str, text: String, version: Option<&str>) -> Result<bool, String> {
            tokio::task::yield_now().await;
            let mut conflicts = self.conflicts.lock();
            if *conflicts > 0 {
                *conflicts -= 1;
                return Ok(false);
            }
            let mut texts = self.texts.lock();
            let now = texts.get(limit).map(|(_, version)| *version);
            if now.map(|now| now.to_string()).as_deref() != version {
                return Ok(false);
            }
            texts.insert(limit.to_owned(), (text, now.unwrap_or_default() + 1));
            Ok(true)
        }
    }

    fn call(process: u64, limits: usize) -> Call {
        let figures = Figures { units: 16, again_us: 60_000_000, transit_us: 1_000_000, takes_used: false };
        let line = Line::of(figures, 0, 10);
        let entry =
            |number| Entry { limit: format!("v/{number}"), known_seq: 0, expected_us: None, line: line.clone() };
        Call { process, seq: 1, lease_us: 10_000_000, leaves: false, lines: (0..limits).map(entry).collect() }
    }

    fn units(answer: &Answer) -> Vec<u32> {
        let of = |got: &Option<Got>| got.as_ref().map_or(0, |got| got.units.iter().map(|(_, units)| units).sum());
        answer.got.iter().map(of).collect()
    }

    #[test]
    fn dates_are_read() {
        let of = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(http::header::DATE, http::HeaderValue::from_static(text));
            date(&headers)
        };
        assert_eq!(of("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!((of("soon"), of(""), of("Thu, 01 Jan 1970 00:00:00 GMT")), (None, None, None));
        assert_eq!(date(&HeaderMap::new()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_keep_the_order_of_limits() {
        let pool = Clockless::new(Memory::default());
        assert_eq!(units(&pool.exchange(&call(1, 40)).await.unwrap()), [10; 40]);
        assert_eq!(units(&pool.exchange(&call(2, 2)).await.unwrap()), [6, 6]);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_write_is_read_again() {
        let pool = Clockless::new(Memory { conflicts: Mutex::new(ROUNDS - 1), ..Memory::default() });
        assert_eq!(units(&pool.exchange(&call(1, 1)).await.unwrap()), [10]);
        *pool.store.conflicts.lock() = ROUNDS;
        let error = pool.exchange(&call(2, 1)).await.unwrap_err();
        assert!(error.contains("v/0") && error.contains("fewer processes"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_calls_give_no_unit_twice() {
        let memory = std::sync::Arc::new(Memory::default());
        struct SharedMemory(std::sync::Arc<Memory>);
        impl Swaps for SharedMemory {
            async fn read(&self, limit: &str) -> Result<Answered, String> {
                self.0.read(limit).await
            }
            async fn write(&self, limit: &str, text: String, version: Option<&str>) -> Result<bool, String> {
                self.0.write(limit, text, version).await
            }
        }
        let pools: Vec<_> = (0..8).map(|_| Clockless::new(SharedMemory(memory.clone()))).collect();
        let calls: Vec<_> = (1..=8).map(|process| call(process, 1)).collect();
        let each = pools
            .iter()
            .zip(&calls)
            .map(|(pool, call)| Box::pin(pool.exchange(call)) as BoxFuture<'_, Result<Answer, String>>);
        let all: u32 = together(each.collect()).await.into_iter().map(|answer| units(&answer.unwrap())[0]).sum();
        assert_eq!(all, 16);
    }
}
