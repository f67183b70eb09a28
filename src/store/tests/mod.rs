//! One suite for every store: the effect of a step must not depend on the database.
//!
//! SQLite runs in a temporary folder. PostgreSQL runs against the server that `IC_TEST_POSTGRES` names, and once more
//! through the PgBouncer that `IC_TEST_PGBOUNCER` names; `scripts/test.sh` starts both. Each test creates a database of
//! its own on that server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests: helpers unwrap too")]

mod batches;
#[cfg(all(feature = "sqlite", feature = "testing"))]
mod clock;
mod conformance;
mod intake;
#[cfg(all(feature = "sqlite", feature = "testing"))]
mod intake_feed;
#[cfg(all(feature = "sqlite", feature = "testing"))]
mod intake_poison;
mod keys;
mod known_outcomes;
#[cfg(feature = "postgres")]
mod late_commits;
#[cfg(feature = "sqlite")]
mod ledger_clock;
mod ledger_witness;
#[cfg(feature = "testing")]
mod letters;
#[cfg(feature = "postgres")]
mod locks;
mod named;
mod opening;
mod pauses;
#[cfg(all(feature = "postgres", feature = "testing"))]
mod postgres;
mod purge;
mod repeated_writes;
pub(crate) mod replies;
mod rolled_back;
#[cfg(all(feature = "sqlite", feature = "testing"))]
mod round_trips;
#[cfg(feature = "sqlite")]
mod sqlite;
mod stalls;
#[cfg(feature = "postgres")]
mod taken_over;
mod together;
mod tokens;
#[cfg(feature = "postgres")]
mod trap;
mod usage;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use super::dead::{self, Redrive};
use super::jobs::{self, Claimed, LaneClaim, NewJob, Position, Start, Wanted};
use super::keys::RequestKey;
use super::owners::Silent;
use super::starts;
use super::{Id, LaneTier, Opened, Store};
use crate::clock::{Clock, Time};

/// A new folder for the test.
pub(crate) fn folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("ic-store-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    let folder = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The stores to run a test on, all empty.
pub(crate) async fn stores() -> Vec<Store> {
    let mut stores = Vec::new();
    #[cfg(feature = "sqlite")]
    stores.push(Store::sqlite(folder().join("store.db")));
    #[cfg(feature = "postgres")]
    {
        stores.push(Store::postgres(database().await));
        stores.push(Store::postgres(pooled(&database().await)));
    }
    stores
}

/// The URL of the same database, through PgBouncer in transaction mode.
#[cfg(feature = "postgres")]
pub(super) fn pooled(url: &str) -> String {
    let pool = std::env::var("IC_TEST_PGBOUNCER").expect(
        "IC_TEST_PGBOUNCER names no PgBouncer in transaction mode before the server of IC_TEST_POSTGRES: run \
         `scripts/test.sh test`, or `eval $(scripts/postgres.sh start)` before",
    );
    let ((pool, _), (_, name)) = (pool.rsplit_once('/').unwrap(), url.rsplit_once('/').unwrap());
    format!("{pool}/{name}")
}

/// The URL of an empty database.
#[cfg(feature = "postgres")]
pub(crate) async fn database() -> String {
    use sqlx::{Connection, Executor};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let url = std::env::var("IC_TEST_POSTGRES").expect(
        "IC_TEST_POSTGRES names no server: run `scripts/test.sh test`, or `eval $(scripts/postgres.sh start)` before",
    );
    let name = format!("t{}_{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    let mut server = sqlx::PgConnection::connect(&url).await.unwrap();
    server.execute(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
    let (server, _) = url.rsplit_once('/').unwrap();
    format!("{server}/{name}")
}

pub(crate) async fn open(store: &Store) -> Opened {
    let (opened, tasks) = store.clone().open(false).await.unwrap();
    for task in tasks {
        #[expect(clippy::disallowed_methods, reason = "a test's own")]
        tokio::spawn(task);
    }
    opened
}

/// The record of an exchange that is about to begin.
pub(super) fn start_of(claimed: &Claimed, owner: Id) -> Start {
    Start {
        id: claimed.id,
        fence: claimed.fence,
        owner,
        lane: claimed.lane.clone(),
        again: false,
        endpoint: String::new(),
        points: 3,
        slot_ms: 1_000,
        counts_ms: 60_000,
    }
}

pub(super) async fn start(store: &Opened, claimed: &Claimed, owner: Id) -> Option<i64> {
    store.write(start_of(claimed, owner), starts::start).await.unwrap()
}

pub(super) fn lane(tenant: &str) -> LaneTier {
    LaneTier { tenant: tenant.to_owned(), vendor: "v".to_owned(), tier: 1 }
}

pub(super) fn id() -> Id {
    crate::store::new_id(Clock::system())
}

pub(super) fn job(tenant: &str) -> NewJob {
    let request = b"request".to_vec();
    NewJob {
        id: id(),
        lane: lane(tenant),
        delay_ms: 0,
        expires_ms: None,
        checked_at: Time::ZERO,
        keep_result: false,
        request,
        key: None,
        other_key: None,
        message: None,
    }
}

pub(super) async fn accept(store: &Opened, job: NewJob) -> Id {
    let id = job.id;
    assert_eq!(store.write(job, jobs::insert).await.unwrap(), jobs::Accepted::New);
    id
}

/// What to claim of a lane, searched from its first job.
pub(super) fn whole(lane: LaneTier, count: u32) -> LaneClaim {
    LaneClaim { lane, count, from: Position::default() }
}

pub(super) async fn claim(store: &Opened, owner: Id, tenant: &str, count: u32) -> Vec<Claimed> {
    let lease_ms = i64::try_from(Duration::from_secs(20).as_millis()).unwrap();
    let wanted = Wanted { owner, lease_ms, lanes: vec![whole(lane(tenant), count)], most_bytes: 1 << 30 };
    store.write(wanted, jobs::claim).await.unwrap()
}

/// A redrive of the letter that the job has now.
pub(super) async fn redrive_of(store: &Opened, id: Id, key: Option<RequestKey>) -> Redrive {
    let letter = store.read(id, dead::show).await.unwrap().unwrap();
    Redrive { id, seen: letter.version(), history: None, key }
}

/// A process without a heartbeat, as observed while the store answers.
pub(super) fn silent(owner: Id) -> Silent {
    let clock = Clock::system();
    let not_after = clock.now() + Duration::from_secs(60);
    Silent { owner: owner.as_bytes().to_vec(), number: None, not_after, clock }
}
