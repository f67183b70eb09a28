//! Processes that share a limit through a distant PostgreSQL server: each statement of a call takes a round trip, and the
//! ledger counts nearly all of the time all the same.

use super::super::capacity;
use super::super::driver::{Arg, DbError, Dialect, Driver, Row, Value};
use super::*;
use crate::BoxFuture;
use crate::capacity::call::{Call, Witness};
use crate::capacity::ledger::{Figures, Floor, Ledger};
use crate::capacity::process::Process;
use crate::engine::limit::{self, Wish};

const LIMIT: &str = "shared";
const TRIP: Duration = Duration::from_millis(80);

/// A server that holds the ledger of one limit.
struct Server {
    clock: Clock,
    text: String,
}

impl Driver for Server {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn execute<'a>(&'a mut self, _: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<u64, DbError>> {
        Box::pin(async move {
            tokio::time::sleep(TRIP).await;
            if let [Arg::Texts(_), Arg::Texts(texts)] = &args[..] {
                self.text = texts[0].to_owned();
            }
            Ok(1)
        })
    }

    fn fetch<'a>(&'a mut self, _: &'static str, _: Vec<Arg<'a>>) -> BoxFuture<'a, Result<Vec<Row>, DbError>> {
        Box::pin(async move {
            tokio::time::sleep(TRIP).await;
            Ok(vec![Row::new(vec![Value::Text(LIMIT.to_owned()), Value::Text(self.text.clone())])])
        })
    }

    fn now(&mut self) -> BoxFuture<'_, Result<i64, DbError>> {
        Box::pin(async move {
            tokio::time::sleep(TRIP / 2).await;
            let now = self.clock.now();
            tokio::time::sleep(TRIP / 2).await;
            Ok(i64::try_from(now.as_nanos() / 1_000_000).unwrap())
        })
    }
}

fn wish() -> Wish {
    let figures = limit::Figures { units: 100, again_ns: 60_000_000_000, transit_ns: 1_000_000_000, travels: false };
    Wish { want: [0, 1, 0], need: 1, figures, ..Wish::default() }
}

#[tokio::test(start_paused = true)]
async fn distant_database_does_not_slow_ledger_time() {
    let clock = Clock::system();
    let began = clock.now();
    let figures = Figures { units: 100, again_us: 60_000_000, transit_us: 1_000_000, takes_used: false };
    let ledger = Ledger::new(&figures, Floor::default(), began.as_nanos() / 1_000, None);
    let began_us = ledger.standing().now;
    let mut server = Server { clock, text: serde_json::to_string(&ledger).unwrap() };
    let mut processes = [1, 2].map(|id| Process::new(id, Duration::from_secs(10)));
    for turn in 0..120 {
        let process = &mut processes[turn % 2];
        let made = clock.now();
        let call = process.call(made, vec![(LIMIT.to_owned(), wish())], false);
        let call = Call { witness: Some(Witness { clock, made }), ..call };
        server.execute("BEGIN", Vec::new()).await.unwrap();
        let answer = capacity::exchange(&call, &mut server, 0).await.unwrap();
        server.execute("COMMIT", Vec::new()).await.unwrap();
        process.answered(made, clock.now(), &call, &answer);
        tokio::time::sleep_until(clock.instant(made + Duration::from_millis(500))).await;
    }
    let true_us = u64::try_from(clock.now().since(began).as_micros()).unwrap();
    let counted_us = serde_json::from_str::<Ledger>(&server.text).unwrap().standing().now - began_us;
    assert!(true_us >= 60_000_000, "{true_us}");
    assert!((true_us / 12 * 11..=true_us).contains(&counted_us), "{counted_us} of {true_us} us");
}
