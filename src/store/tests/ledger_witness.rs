//! Processes that share a limit through a distant PostgreSQL server: each statement of a call takes a round trip. The
//! ledger's time must pass nearly as fast as real time nevertheless, and a call must take few statements, however many
//! limits are new.

use std::collections::BTreeMap;

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

/// A server that holds ledgers.
struct Server {
    clock: Clock,
    /// The texts of the unlogged table and of the logged one, by names.
    tables: [BTreeMap<String, String>; 2],
    statements: usize,
}

impl Server {
    fn new(clock: Clock) -> Server {
        Server { clock, tables: Default::default(), statements: 0 }
    }

    /// Counts a statement, and lets its round trip pass. Returns the table that it concerns.
    async fn pass(&mut self, sql: &str) -> &mut BTreeMap<String, String> {
        self.statements += 1;
        tokio::time::sleep(TRIP).await;
        &mut self.tables[usize::from(sql.contains("ic_capacity_long"))]
    }
}

impl Driver for Server {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn execute<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<u64, DbError>> {
        Box::pin(async move {
            let table = self.pass(sql).await;
            let mut put = |name: &str, text: &str| {
                if !sql.starts_with("INSERT") || !table.contains_key(name) {
                    table.insert(name.to_owned(), text.to_owned());
                }
            };
            match &args[..] {
                [Arg::Texts(names), Arg::Texts(texts)] => {
                    names.iter().zip(texts).for_each(|(name, text)| put(name, text));
                }
                [Arg::Text(Some(name)), Arg::Text(Some(text))] => put(name, text),
                [Arg::Texts(names)] => names.iter().for_each(|name| drop(table.remove(*name))),
                _ => {}
            }
            Ok(1)
        })
    }

    fn fetch<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<Vec<Row>, DbError>> {
        Box::pin(async move {
            let table = self.pass(sql).await;
            let text = |name: &str| table.get(name).map(|text| Value::Text(text.clone()));
            Ok(match &args[..] {
                [Arg::Texts(names)] => {
                    let row = |name: &&str| Some(Row::new(vec![Value::Text((*name).to_owned()), text(name)?]));
                    names.iter().filter_map(row).collect()
                }
                [Arg::Text(Some(name))] => text(name).map(|text| Row::new(vec![text])).into_iter().collect(),
                _ => Vec::new(),
            })
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
    let mut server = Server::new(clock);
    server.tables[0].insert(LIMIT.to_owned(), serde_json::to_string(&ledger).unwrap());
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
    let counted_us = serde_json::from_str::<Ledger>(&server.tables[0][LIMIT]).unwrap().standing().now - began_us;
    assert!(true_us >= 60_000_000, "{true_us}");
    assert!((true_us / 12 * 11..=true_us).contains(&counted_us), "{counted_us} of {true_us} us");
}

#[tokio::test(start_paused = true)]
async fn new_limits_take_few_statements() {
    let clock = Clock::system();
    // The ledgers of an hour and more are in the logged table. The other table has a row that all its ledgers share.
    for (again_ns, rows) in [(60_000_000_000, [201, 0]), (7_200_000_000_000, [0, 200])] {
        let (mut server, mut process) = (Server::new(clock), Process::new(1, Duration::from_secs(10)));
        let figures = limit::Figures { again_ns, ..wish().figures };
        let wishes = (0..200).map(|number| (format!("limit {number}"), Wish { figures, ..wish() })).collect();
        let call = process.call(clock.now(), wishes, false);
        let answer = capacity::exchange(&call, &mut server, 0).await.unwrap();
        assert!(answer.got.len() == 200 && answer.got.iter().all(Result::is_ok));
        assert_eq!(server.tables.each_ref().map(BTreeMap::len), rows);
        assert!(server.statements <= 12, "{} statements", server.statements);
    }
}
