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
        Answer { clock_us: self.now_us(), got }.checked()
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
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::capacity::ledger::{Figures, Got, Line};

    /// The time of a call that is to try all rounds.
    const LONG: Duration = Duration::from_secs(60);

    /// Ledgers in memory. The first `conflicts` writes fail as if another process had written first.
    #[derive(Default)]
    struct Memory {
        texts: Mutex<HashMap<String, (String, u64)>>,
        conflicts: Mutex<u32>,
        /// A limit whose reads fail, and the numbers of limits whose reads never end.
        refused: &'static str,
        silent: std::ops::Range<usize>,
    }

    impl Swaps for Memory {
        async fn read(&self, limit: &str) -> Result<Answered, String> {
            tokio::task::yield_now().await;
            if limit == self.refused {
                return Err("the disk fails".to_owned());
            }
            if limit.strip_prefix("v/").is_some_and(|number| self.silent.contains(&number.parse::<usize>().unwrap())) {
                return std::future::pending().await;
            }
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
        let of = |got: &Got| got.units.iter().map(|(_, units)| units).sum::<u32>();
        answer.got.iter().map(|got| got.as_ref().unwrap().as_ref().map_or(0, of)).collect()
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
        assert_eq!(units(&pool.exchange(&call(1, 40), LONG).await.unwrap()), [10; 40]);
        assert_eq!(units(&pool.exchange(&call(2, 2), LONG).await.unwrap()), [6, 6]);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_write_is_read_again() {
        let pool = Clockless::new(Memory { conflicts: Mutex::new(ROUNDS - 1), ..Memory::default() });
        assert_eq!(units(&pool.exchange(&call(1, 1), LONG).await.unwrap()), [10]);
        *pool.store.conflicts.lock() = ROUNDS;
        let error = pool.exchange(&call(2, 1), LONG).await.unwrap_err();
        assert!(error.contains("v/0") && error.contains("fewer processes"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn one_failing_limit_fails_alone() {
        // More limits than are asked about at a time.
        const LIMITS: usize = 3 * AT_ONCE;
        let within = Duration::from_secs(2);
        let pool = Clockless::new(Memory { refused: "v/1", silent: 3..4, ..Memory::default() });
        let began = pool.clock.now();
        let answer = pool.exchange(&call(1, LIMITS), within).await.unwrap();
        assert!(pool.clock.now().since(began) < within, "the call itself is not given up");
        assert_eq!(answer.got.len(), LIMITS);
        for (number, got) in answer.got.iter().enumerate() {
            match number {
                1 => assert_eq!(got.as_ref().unwrap_err(), "the disk fails"),
                3 => assert!(got.as_ref().unwrap_err().contains("v/3 in time"), "{got:?}"),
                _ => assert_eq!(got.as_ref().unwrap().as_ref().unwrap().units, [(0, 10)], "{number}"),
            }
        }
        let all = Clockless::new(Memory { refused: "v/0", ..Memory::default() });
        assert_eq!(all.exchange(&call(1, 1), within).await.unwrap_err(), "the disk fails");
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_limits_delay_others_by_one_call() {
        const LIMITS: usize = 3 * AT_ONCE;
        let pool = Clockless::new(Memory { silent: 0..AT_ONCE, ..Memory::default() });
        for seq in 1..=3 {
            let answer = pool.exchange(&Call { seq, ..call(1, LIMITS) }, Duration::from_secs(2)).await;
            if seq == 1 {
                continue;
            }
            for (number, got) in answer.unwrap().got.iter().enumerate() {
                assert_eq!(got.is_ok(), number >= AT_ONCE, "call {seq}, limit {number}: {got:?}");
            }
        }
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
            .map(|(pool, call)| Box::pin(pool.exchange(call, LONG)) as BoxFuture<'_, Result<Answer, String>>);
        let all: u32 = together(each.collect()).await.into_iter().map(|answer| units(&answer.unwrap())[0]).sum();
        assert_eq!(all, 16);
    }
}
