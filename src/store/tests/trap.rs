//! A transaction that is dropped in the middle of a round trip.
//!
//! sqlx 0.9.0 gives such a connection back to its pool with the transaction open. The next statement on it, somebody else's,
//! says that it worked, and is undone with the transaction. Hence the store's writer: a task that nobody drops.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::str::FromStr;
use std::task::Poll;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Executor, Row};

use super::super::records::{self, Place};
use super::*;

/// Polls a future so often, each time once it is woken, and drops it. By polls and not by time: a timer of the runtime's
/// rings at the next millisecond, and a round trip to a server next door has long come back by then.
async fn poll_and_drop<F: Future>(future: F, polls: u32) {
    let (mut future, mut left) = (pin!(future), polls);
    poll_fn(|context| {
        left = left.saturating_sub(1);
        match future.as_mut().poll(context) {
            Poll::Pending if left > 0 => Poll::Pending,
            _ => Poll::Ready(()),
        }
    })
    .await;
}

/// Whether a row that a pool said was written is there for another connection, after `begin` was polled so often and
/// dropped.
async fn is_lost(url: &str, polls: u32) -> bool {
    let options = PgConnectOptions::from_str(url).unwrap();
    let pool = PgPoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
    // The connection is at hand, so that what is dropped is the round trip of BEGIN.
    pool.execute("SELECT 1").await.unwrap();
    poll_and_drop(pool.begin(), polls).await;
    let written = pool.execute("INSERT INTO trap (n) VALUES (1)").await.unwrap().rows_affected();
    assert_eq!(written, 1);
    let other = PgPoolOptions::new().connect(url).await.unwrap();
    let seen: i64 = other.fetch_one("SELECT count(*) FROM trap").await.unwrap().get(0);
    pool.close().await;
    other.execute("DELETE FROM trap").await.unwrap();
    other.close().await;
    seen == 0
}

/// If this fails, sqlx has mended it, and the reason for the store's writer is group commit alone.
#[tokio::test]
async fn the_trap_is_there_without_a_guard() {
    let url = database().await;
    let pool = PgPoolOptions::new().connect(&url).await.unwrap();
    pool.execute("CREATE TABLE trap (n BIGINT)").await.unwrap();
    // How many polls there are before the answer differs a little from time to time: the last of them is the one.
    let mut lost = 0;
    for polls in (1..=4).cycle().take(40) {
        lost += u32::from(is_lost(&url, polls).await);
    }
    assert!(lost > 0, "no acknowledged write was lost in 40 tries");
}

#[tokio::test]
async fn the_stores_writer_does_not_fall_into_it() {
    let store = Store::postgres(database().await);
    let (opened, outside) = (open(&store).await, open(&store).await);
    for polls in (1..=8).cycle().take(80) {
        poll_and_drop(opened.write(job("a"), jobs::insert), polls).await;
        let kept = accept(&opened, job("b")).await;
        let place = outside.read(kept, records::find).await.unwrap();
        assert!(matches!(place, Place::Waiting { .. }), "after {polls} polls: {place:?}");
    }
}
