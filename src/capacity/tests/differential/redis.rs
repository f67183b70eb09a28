//! Redis, with the scripts that the library runs there, except for the server's clock.

use std::collections::BTreeMap;

use redis::AsyncCommands;

use super::reference::Loss;
use super::{LedgerStore, Row};
use crate::capacity::call::{Answer, Call};
use crate::capacity::redis::{self as pool, ERA, LIMIT, Redis, TEST_CLOCK};

/// Other tests use another database of the server.
const DATABASE: u32 = 9;

pub(super) struct Server {
    pool: Redis,
    connection: redis::aio::MultiplexedConnection,
}

pub(super) async fn redis() -> Server {
    let url = std::env::var("IC_TEST_REDIS").expect("`eval $(scripts/redis.sh start)` before");
    let url = format!("{}/{DATABASE}", url.trim_end_matches('/'));
    let client = redis::Client::open(url.as_str()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd("FLUSHDB").exec_async(&mut connection).await.unwrap();
    Server { pool: pool::open(&url).await.unwrap().by_the_clock_of_a_test(), connection }
}

impl LedgerStore for Server {
    const NAME: &str = "redis";
    const LOSS: Loss = Loss::OfAll(3_000_000);

    async fn exchange(&mut self, clock_us: u64, call: &Call) -> Answer {
        let [seconds, micros] = TEST_CLOCK;
        let clock = [(seconds, clock_us / 1_000_000), (micros, clock_us % 1_000_000)];
        let () = self.connection.mset(&clock).await.unwrap();
        self.pool.exchange(call).await.unwrap()
    }

    async fn all(&mut self) -> Vec<Row> {
        let names: Vec<String> = self.connection.keys(format!("{LIMIT}*")).await.unwrap();
        let names: Vec<String> = [ERA.to_owned()].into_iter().chain(names).collect();
        let texts: Vec<Option<String>> = self.connection.mget(&names).await.unwrap();
        names.into_iter().zip(texts).filter_map(|(name, text)| Some(("key", name, text?))).collect()
    }

    async fn replace(&mut self, rows: &[Row]) {
        redis::cmd("FLUSHDB").exec_async(&mut self.connection).await.unwrap();
        for (_, name, text) in rows {
            let () = self.connection.set(name, text).await.unwrap();
        }
    }

    fn ledgers(rows: &[Row]) -> BTreeMap<String, String> {
        // A stored text is the name of the era, a space, and the ledger.
        let ledger =
            |(_, name, text): &Row| Some((name.strip_prefix(LIMIT)?.to_owned(), text.split_once(' ')?.1.to_owned()));
        rows.iter().filter_map(ledger).collect()
    }

    fn after_loss(_: &[Row]) -> Vec<Row> {
        Vec::new()
    }
}
