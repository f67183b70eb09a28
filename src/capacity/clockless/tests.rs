//! Tests of `clockless`.

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
    let entry = |number| Entry { limit: format!("v/{number}"), known_seq: 0, expected_us: None, line: line.clone() };
    Call {
        process,
        seq: 1,
        lease_us: 10_000_000,
        leaves: false,
        witness: None,
        lines: (0..limits).map(entry).collect(),
    }
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
