//! Many jobs in few statements, the memory of seen messages, and the table `ic_intake`.

use std::sync::Arc;

use super::super::actor::Step;
use super::super::driver::{Row, args};
use super::super::intake::take;
use super::super::intake_table::{CheckedRow, Move, Moved, Page, Waiting, move_rows, read};
use super::super::jobs::{Accepted, Message};
use super::super::purge::{self, Retention, What};
use super::*;

const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// The job of a message. Its id is made of the numbers of the message and the request.
fn message(number: u128, request: u128) -> NewJob {
    let id = Id::from_u128(number << 64 | request);
    NewJob { id, message: Some(Message::new(&number.to_string(), Id::from_u128(number), WEEK)), ..job("a") }
}

async fn accept_jobs(store: &Opened, jobs: Vec<NewJob>) -> Vec<Accepted> {
    let all = 0..jobs.len();
    store.write((Arc::new(jobs), all), take).await.unwrap()
}

const RUN: Step<&'static str, u64> = |sql, db, _| Box::pin(db.execute(sql, Vec::new()));
const COUNT: Step<&'static str, i64> = |sql, db, _| {
    Box::pin(async move { db.fetch(sql, Vec::new()).await?.first_mut().map(Row::int).transpose().map(Option::unwrap) })
};

#[tokio::test]
async fn fetched_messages_become_one_job_each() {
    for store in stores().await {
        let store = open(&store).await;
        // Enough jobs for statements of every size, in one transaction.
        let first: Vec<NewJob> = (0..87).map(|number| message(number, 1)).collect();
        assert_eq!(accept_jobs(&store, first.clone()).await, [Accepted::New; 87]);
        // Some of the messages come again, together with new ones, one that comes twice, and one with another request.
        let mut again: Vec<NewJob> = (60..120).map(|number| message(number, 1)).collect();
        again.extend([message(119, 1), message(3, 2)]);
        let before = |job: &NewJob| Accepted::Before(job.id);
        let mut expected: Vec<Accepted> = again[..27].iter().map(before).collect();
        expected.extend([Accepted::New; 33]);
        expected.extend([before(&message(119, 1)), Accepted::KeyOfAnother]);
        assert_eq!(accept_jobs(&store, again).await, expected);
        let jobs = store.read("SELECT count(*) FROM ic_job", COUNT).await.unwrap();
        assert_eq!(jobs, 120);
        // The jobs are in the order in which the messages came.
        let order = store.read("SELECT count(*) FROM ic_job a JOIN ic_job b ON a.seq < b.seq AND a.id > b.id", COUNT);
        assert_eq!(order.await.unwrap(), 0);
    }
}

#[tokio::test]
async fn keyed_and_unkeyed_jobs_keep_order() {
    for store in stores().await {
        let store = open(&store).await;
        let keyed =
            |number, key: &str| NewJob { key: Some((key.to_owned(), "print".to_owned())), ..message(number, 1) };
        let jobs = vec![message(1, 1), keyed(2, "k"), message(3, 1), NewJob { id: Id::from_u128(4 << 64), ..job("a") }];
        assert_eq!(accept_jobs(&store, jobs).await, [Accepted::New; 4]);
        let order = store.read("SELECT count(*) FROM ic_job a JOIN ic_job b ON a.seq < b.seq AND a.id > b.id", COUNT);
        assert_eq!(order.await.unwrap(), 0);
        // Another message with the same key is the same request; the key of a refused message is not recorded.
        let results = accept_jobs(&store, vec![keyed(5, "k"), keyed(2, "other")]).await;
        assert_eq!(results, [Accepted::Before(message(2, 1).id), Accepted::Before(message(2, 1).id)]);
        assert_eq!(store.read("SELECT count(*) FROM ic_key", COUNT).await.unwrap(), 1);
    }
}

#[tokio::test]
async fn message_with_key_of_another_request_is_refused_each_time() {
    for store in stores().await {
        let store = open(&store).await;
        let keyed =
            |number, print: &str| NewJob { key: Some(("k".to_owned(), print.to_owned())), ..message(number, 1) };
        assert_eq!(accept_jobs(&store, vec![keyed(1, "print")]).await, [Accepted::New]);
        for _ in 0..2 {
            assert_eq!(accept_jobs(&store, vec![keyed(2, "another")]).await, [Accepted::KeyOfAnother]);
        }
        assert_eq!(accept_jobs(&store, vec![keyed(1, "print")]).await, [Accepted::Before(message(1, 1).id)]);
    }
}

#[tokio::test]
async fn message_id_outlives_its_job() {
    for store in stores().await {
        let store = open(&store).await;
        let job = message(1, 1);
        assert_eq!(accept_jobs(&store, vec![job.clone()]).await, [Accepted::New]);
        store.write("DELETE FROM ic_job", RUN).await.unwrap();
        for again in [job.clone(), message(1, 1)] {
            assert_eq!(accept_jobs(&store, vec![again.clone()]).await, [Accepted::Before(job.id)]);
            assert_eq!(store.write(again, jobs::insert).await.unwrap(), Accepted::Before(job.id));
        }
        assert_eq!(store.write(message(1, 2), jobs::insert).await.unwrap(), Accepted::KeyOfAnother);
        let keep = Retention { done_ms: 0, dead_ms: 0, most_dead: 0 };
        let step = purge::Step { what: What::Seen, keep, rows: 10, from: i64::MIN };
        assert_eq!(store.write(step, purge::step).await.unwrap().settled, 0, "its week is not over");
        store.write("UPDATE ic_seen SET until = 5", RUN).await.unwrap();
        assert_eq!(store.write(step, purge::step).await.unwrap().settled, 1);
        assert_eq!(accept_jobs(&store, vec![job.clone()]).await, [Accepted::New], "its week is over");
    }
}

/// A source without acknowledgements of single messages delivers a message again and again, because an older one has no
/// room.
#[tokio::test]
async fn redelivery_keeps_message_id() {
    for store in stores().await {
        let store = open(&store).await;
        let jobs: Vec<NewJob> = (0..70).map(|number| message(number, 1)).collect();
        let before: Vec<Accepted> = jobs.iter().map(|job| Accepted::Before(job.id)).collect();
        let until = async |which: &'static str| store.read(which, COUNT).await.unwrap();
        let [earliest, latest] = ["SELECT min(until) FROM ic_seen", "SELECT max(until) FROM ic_seen"];
        assert_eq!(accept_jobs(&store, jobs.clone()).await, vec![Accepted::New; 70]);
        let first = until(latest).await;
        assert_eq!(accept_jobs(&store, jobs.clone()).await, before);
        assert_eq!(until(latest).await, first, "a redelivery soon after the first costs no write");
        for _ in 0..3 {
            // Six days pass.
            store.write("UPDATE ic_seen SET until = until - 518400000", RUN).await.unwrap();
            // The last message comes with another request.
            let again = [&jobs[..69], &[message(69, 2)]].concat();
            let mut expected = before.clone();
            expected[69] = Accepted::KeyOfAnother;
            assert_eq!(accept_jobs(&store, again).await, expected);
            assert!(until(earliest).await >= first, "the week begins again");
        }
        assert_eq!(store.write(message(69, 1), jobs::insert).await.unwrap(), Accepted::Before(jobs[69].id));
    }
}

/// A process of an earlier version wrote the records, and may still write some.
#[tokio::test]
async fn message_of_an_earlier_version_is_known() {
    for store in stores().await {
        let store = open(&store).await;
        let jobs: Vec<NewJob> = (0..70).map(|number| message(number, 1)).collect();
        let before: Vec<Accepted> = jobs.iter().map(|job| Accepted::Before(job.id)).collect();
        let hashes = jobs[..40].iter().map(|job| (Id::from_u128(job.id.as_u128() >> 64), job.id));
        store.write(hashes.collect::<Vec<_>>(), RECORD_BY_HASH).await.unwrap();
        assert_eq!(accept_jobs(&store, jobs.clone()).await, [&before[..40], &[Accepted::New; 30]].concat());
        assert_eq!(accept_jobs(&store, jobs.clone()).await, before);
        assert_eq!(store.write(jobs[0].clone(), jobs::insert).await.unwrap(), before[0]);
        assert_eq!(store.write(message(0, 2), jobs::insert).await.unwrap(), Accepted::KeyOfAnother);
        // The records, which have expired, were renewed when the messages came again.
        assert_eq!(store.write("DELETE FROM ic_seen WHERE until = 5", RUN).await.unwrap(), 40);
        assert_eq!(accept_jobs(&store, jobs).await, before);
    }
}

const RECORD_BY_HASH: Step<Vec<(Id, Id)>, ()> = |records, db, _| {
    Box::pin(async move {
        for (hash, job) in records {
            let args = args![hash.as_bytes().as_slice(), job.as_bytes().as_slice()];
            db.execute("INSERT INTO ic_seen (message, job, until) VALUES ($1, $2, 5)", args).await?;
        }
        Ok(())
    })
};

const PAGE: Page = Page { after: 0, rows: 100, bytes: 10_000, longest: 50 };
/// The refused rows and the reasons, in order.
const REFUSED: Step<(), Vec<(String, String)>> = |(), db, _| {
    Box::pin(async move {
        let sql = "SELECT request, why FROM ic_intake_refused ORDER BY seq";
        db.fetch(sql, Vec::new()).await?.iter_mut().map(|row| Ok((row.text()?, row.text()?))).collect()
    })
};

/// The move of rows that become jobs, or are refused for a reason.
fn moving(rows: Vec<(i64, Result<NewJob, &str>)>) -> Move {
    let rows: Vec<CheckedRow> =
        rows.into_iter().map(|(seq, job)| CheckedRow { seq, job: job.map_err(str::to_owned) }).collect();
    Move { which: 0..rows.len(), rows: Arc::new(rows), stay: Vec::new(), keep_ms: 60_000 }
}

async fn insert(store: &Opened, rows: &[(Option<&'static str>, &'static str)]) {
    for (id, request) in rows {
        let step: Step<(Option<&'static str>, &'static str), u64> = |(id, request), db, _| {
            Box::pin(db.execute("INSERT INTO ic_intake (id, request) VALUES ($1, $2)", args![*id, *request]))
        };
        store.write((*id, *request), step).await.unwrap();
    }
}

#[tokio::test]
async fn rows_become_jobs_or_keep_a_reason() {
    for store in stores().await {
        let store = open(&store).await;
        let long = "longer than fifty characters, which is what is read";
        insert(&store, &[(None, "one"), (Some("b"), "two"), (Some("b"), "other"), (None, long), (None, "bad")]).await;
        let rows: Vec<Waiting> = store.read(PAGE, read).await.unwrap();
        let texts: Vec<_> = rows.iter().map(|row| row.request.as_deref()).collect();
        assert_eq!(texts, [Some(&b"one"[..]), Some(b"two"), Some(b"other"), None, Some(b"bad")]);
        assert_eq!(
            rows.iter().map(|row| row.id.as_deref()).collect::<Vec<_>>(),
            [None, Some("b"), Some("b"), None, None]
        );
        assert!(rows.iter().all(|row| row.age_ms < 60_000), "{rows:?}");
        let seq = |number: usize| rows[number].seq;
        let next = store.read(Page { after: seq(1), rows: 1, ..PAGE }, read).await.unwrap();
        assert_eq!(next.iter().map(|row| row.seq).collect::<Vec<_>>(), [seq(2)]);
        let moved = moving(vec![
            (seq(0), Ok(job("a"))),
            (seq(1), Ok(message(1, 1))),
            (seq(2), Ok(message(1, 2))),
            (seq(3), Err("too long")),
            (seq(4), Err("not JSON")),
        ]);
        let expected = Moved {
            taken: vec![(seq(0), Accepted::New), (seq(1), Accepted::New), (seq(2), Accepted::KeyOfAnother)],
            refused: 3,
            ..Moved::default()
        };
        assert_eq!(store.write(moved.clone(), move_rows).await.unwrap(), expected);
        // The step is run again, as after a commit whose reply was lost: nothing is moved twice.
        assert_eq!(store.write(moved, move_rows).await.unwrap(), Moved::default());
        assert_eq!(store.read(PAGE, read).await.unwrap(), []);
        let kept = store.read((), REFUSED).await.unwrap();
        let kept: Vec<(&str, &str)> = kept.iter().map(|(request, why)| (&**request, &**why)).collect();
        let another = "another request was accepted with this id";
        assert_eq!(kept, [("other", another), (long, "too long"), ("bad", "not JSON")]);
        let keep = Retention { done_ms: 0, dead_ms: 0, most_dead: 0 };
        let step = purge::Step { what: What::RefusedRows, keep, rows: 10, from: i64::MIN };
        assert_eq!(store.write(step, purge::step).await.unwrap().settled, 0);
        store.write("UPDATE ic_intake_refused SET until = 5", RUN).await.unwrap();
        assert_eq!(store.write(step, purge::step).await.unwrap().settled, 3);
    }
}

#[tokio::test]
async fn part_of_rows_is_moved() {
    for store in stores().await {
        let store = open(&store).await;
        insert(&store, &[(None, "one"), (None, "two"), (None, "three")]).await;
        let rows = store.read(PAGE, read).await.unwrap();
        let moved = moving(rows.iter().map(|row| (row.seq, Ok(job("a")))).collect());
        let expected = Moved { taken: vec![(rows[1].seq, Accepted::New)], ..Moved::default() };
        assert_eq!(store.write(Move { which: 1..2, ..moved }, move_rows).await.unwrap(), expected);
        assert_eq!(store.read(PAGE, read).await.unwrap().len(), 2);
    }
}

/// An earlier part of the page has left a row of the lane in the table.
#[tokio::test]
async fn row_of_lane_that_stays_is_not_moved() {
    for store in stores().await {
        let store = open(&store).await;
        insert(&store, &[(None, "one"), (None, "two"), (None, "bad")]).await;
        let rows = store.read(PAGE, read).await.unwrap();
        let seq = |number: usize| rows[number].seq;
        let moved = moving(vec![(seq(0), Ok(job("a"))), (seq(1), Ok(job("b"))), (seq(2), Err("not JSON"))]);
        let moved = Move { stay: vec![job("a").lane], ..moved };
        let taken = vec![(seq(1), Accepted::New)];
        let expected = Moved { taken, refused: 1, stay: vec![seq(0)], ..Moved::default() };
        assert_eq!(store.write(moved, move_rows).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn reason_is_stored_whatever_it_holds() {
    for store in stores().await {
        let store = open(&store).await;
        insert(&store, &[(None, "one"), (None, "two")]).await;
        let rows = store.read(PAGE, read).await.unwrap();
        let long = "\u{e9}".repeat(100_000);
        let moved = moving(vec![(rows[0].seq, Err("unknown field `x\0`")), (rows[1].seq, Err(&*long))]);
        assert_eq!(store.write(moved, move_rows).await.unwrap().refused, 2);
        let whys: Vec<String> = store.read((), REFUSED).await.unwrap().into_iter().map(|(_, why)| why).collect();
        assert_eq!(whys, ["unknown field `x\\0`", &long[..2_000]]);
    }
}

#[tokio::test]
async fn extreme_time_of_row_stops_no_other() {
    for store in stores().await {
        let store = open(&store).await;
        let sql = "INSERT INTO ic_intake (request, at) VALUES ('one', -9223372036854775808), \
                   ('two', 9223372036854775807), ('three', -1), ('four', 0)";
        store.write(sql, RUN).await.unwrap();
        insert(&store, &[(None, "five")]).await;
        let rows = store.read(PAGE, read).await.unwrap();
        let ages: Vec<i64> = rows.iter().map(|row| row.age_ms).collect();
        let since_1970 = |age: i64| (1_700_000_000_000..100_000_000_000_000).contains(&age);
        assert!([0, 2, 3].into_iter().all(|number| since_1970(ages[number])), "{ages:?}");
        assert!(ages[1] == 0 && ages[4] < 60_000, "{ages:?}");
        let seq = |number: usize| rows[number].seq;
        let moved = moving(vec![
            (seq(0), Err("bad")),
            (seq(1), Err("bad")),
            (seq(2), Ok(job("a"))),
            (seq(3), Ok(job("a"))),
            (seq(4), Ok(job("a"))),
        ]);
        let moved = store.write(moved, move_rows).await.unwrap();
        assert_eq!((moved.taken.len(), moved.refused), (3, 2));
    }
}

#[tokio::test]
async fn page_ends_by_number_and_by_bytes() {
    for store in stores().await {
        let store = open(&store).await;
        for size in [10, 40, 60, 40, 5] {
            let step: Step<String, u64> =
                |request, db, _| Box::pin(db.execute("INSERT INTO ic_intake (request) VALUES ($1)", args![request]));
            store.write("\u{e9}".repeat(size / 2) + &"x".repeat(size % 2), step).await.unwrap();
        }
        for (bytes, count) in [(1, 1), (10, 1), (11, 2), (50, 2), (51, 3), (110, 3), (111, 4)] {
            let page = Page { bytes, ..PAGE };
            let rows = store.read(page, read).await.unwrap();
            let sizes: Vec<i64> = rows.iter().map(|row| row.bytes).collect();
            assert_eq!(sizes, [10, 40, 60, 40, 5][..count], "{bytes}");
            let is_read = |row: &Waiting| row.request.as_ref().is_some_and(|request| request.len() as i64 == row.bytes);
            assert!(rows.iter().all(|row| is_read(row) == (row.bytes <= PAGE.longest)), "{bytes}");
            assert!(page.is_full(&rows), "{bytes}");
        }
        let page = Page { rows: 2, ..PAGE };
        let rows = store.read(page, read).await.unwrap();
        assert!(rows.len() == 2 && page.is_full(&rows));
        let rest = store.read(Page { after: rows[1].seq, ..PAGE }, read).await.unwrap();
        assert!(rest.len() == 3 && !PAGE.is_full(&rest));
    }
}

#[tokio::test]
async fn concurrent_moves_make_one_job_per_row() {
    for store in stores().await {
        let (one, other) = (open(&store).await, open(&store).await);
        for _ in 0..40 {
            insert(&one, &[(None, "row")]).await;
        }
        let rows = one.read(PAGE, read).await.unwrap();
        let moved = || moving(rows.iter().map(|row| (row.seq, Ok(job("a")))).collect());
        let (one_moved, other_moved) = tokio::join!(one.write(moved(), move_rows), other.write(moved(), move_rows));
        assert_eq!(one_moved.unwrap().taken.len() + other_moved.unwrap().taken.len(), 40);
        assert_eq!(one.read("SELECT count(*) FROM ic_job", COUNT).await.unwrap(), 40);
    }
}

/// A connection of another program to the same database, in a transaction that has run `sql`.
#[cfg(feature = "postgres")]
async fn in_transaction(url: &str, sql: &'static str) -> sqlx::PgConnection {
    use sqlx::Connection;
    let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
    for sql in ["BEGIN", sql] {
        sqlx::Executor::execute(&mut connection, sql).await.unwrap();
    }
    connection
}

/// A process moves rows and its transaction is open. Another one leaves the rows behind them where they are, because
/// the transaction may be rolled back.
#[cfg(feature = "postgres")]
#[tokio::test]
async fn one_process_moves_rows_at_a_time() {
    let url = database().await;
    for store in [Store::postgres(url.clone()), Store::postgres(pooled(&url))] {
        let store = open(&store).await;
        insert(&store, &[(None, "one"), (None, "two"), (None, "three")]).await;
        let rows = store.read(PAGE, read).await.unwrap();
        let of = |rows: &[Waiting]| moving(rows.iter().map(|row| (row.seq, Ok(job("a")))).collect());
        let mut other = in_transaction(&url, "SELECT 1").await;
        let (two, all) = (of(&rows[..2]), of(&rows[..]));
        assert_eq!(move_rows(&two, &mut other, 1).await.unwrap().taken.len(), 2);
        let elsewhere = Moved { is_elsewhere: true, ..Moved::default() };
        assert_eq!(store.write(of(&rows[2..]), move_rows).await.unwrap(), elsewhere);
        sqlx::Executor::execute(&mut other, "ROLLBACK").await.unwrap();
        let taken = store.write(all, move_rows).await.unwrap().taken;
        assert_eq!(taken.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [rows[0].seq, rows[1].seq, rows[2].seq]);
    }
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn row_behind_locked_row_stays() {
    let url = database().await;
    let store = open(&Store::postgres(url.clone())).await;
    insert(&store, &[(None, "one"), (None, "two"), (None, "three"), (None, "four")]).await;
    let rows = store.read(PAGE, read).await.unwrap();
    let seq = |number: usize| rows[number].seq;
    let all =
        moving(vec![(seq(0), Ok(job("a"))), (seq(1), Ok(job("b"))), (seq(2), Ok(job("a"))), (seq(3), Err("not JSON"))]);
    let mut application = in_transaction(&url, "SELECT 1 FROM ic_intake WHERE request = 'one' FOR UPDATE").await;
    let stay = vec![seq(0), seq(2)];
    let expected = Moved { taken: vec![(seq(1), Accepted::New)], refused: 1, stay, ..Moved::default() };
    assert_eq!(store.write(all.clone(), move_rows).await.unwrap(), expected);
    sqlx::Executor::execute(&mut application, "ROLLBACK").await.unwrap();
    let taken = vec![(seq(0), Accepted::New), (seq(2), Accepted::New)];
    assert_eq!(store.write(all, move_rows).await.unwrap(), Moved { taken, ..Moved::default() });
}

/// SQLite stores values of any type in a column, whatever type the column has.
#[cfg(feature = "sqlite")]
#[tokio::test]
async fn row_of_bytes_is_read_as_text() {
    let store = open(&Store::sqlite(folder().join("store.db"))).await;
    let sql = "INSERT INTO ic_intake (id, request, at) VALUES (x'ff', x'ff00', 'yesterday'), (7, 8, 9.5)";
    store.write(sql, RUN).await.unwrap();
    let rows = store.read(PAGE, read).await.unwrap();
    let requests: Vec<_> = rows.iter().map(|row| row.request.as_deref()).collect();
    assert_eq!(requests, [Some(&b"\xff\x00"[..]), Some(b"8")]);
    let moved = moving(rows.iter().map(|row| (row.seq, Err("bad"))).collect());
    assert_eq!(store.write(moved, move_rows).await.unwrap().refused, 2);
}
