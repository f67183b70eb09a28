//! Where what must outlive the process is kept: accepted requests (the [outbox](crate::outbox)), their outcomes, and dead
//! letters. One SQLite file for one working process, or PostgreSQL for several.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use integration_client::store::Store;
//! use integration_client::{IntegrationClient, Priority, Request};
//!
//! # async fn run() -> Result<(), integration_client::Error> {
//! let client = IntegrationClient::builder()
//!     .vendors_file("vendors.toml")
//!     .store(Store::sqlite("outbox.db").keep_done(Duration::from_secs(3600)))
//!     .work()
//!     .build()
//!     .await?;
//! let receipt = client.outbox().enqueue("acme", Priority::Normal, Request::post("parcels", "/labels").json(&["…"])).await?;
//! println!("{:?}", receipt.status().await?);
//! # Ok(()) }
//! ```
//!
//! # What is written
//! Requests as they were given: method, path and query, headers, body. No credential: those are added to each attempt,
//! and a request that brings one of its own is not accepted. SQLite's file is made for its owner alone. Encrypt the disk
//! where bodies are worth it, or seal them: `at_rest` of a vendor's entry, and [`Store::seal_key`].
//!
//! # What is promised of SQLite
//! `WAL` and `synchronous = FULL`: what is acknowledged is on the disk. One process works on a file at a time, and others
//! may enqueue and read; a file on a network drive is not for it, and is refused where it is known to be one (on Linux).

#![cfg_attr(
    not(all(feature = "sqlite", feature = "postgres")),
    allow(dead_code, reason = "a few words are for one database alone, and without any nothing is said")
)]

mod actor;
pub(crate) mod batches;
mod claims;
pub(crate) mod clock;
pub(crate) mod config;
pub(crate) mod dead;
pub(crate) mod driver;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod faults;
pub(crate) mod jobs;
pub(crate) mod lane_by_lane;
#[cfg(feature = "sqlite")]
mod mounts;
pub(crate) mod owners;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(not(feature = "postgres"))]
#[path = "postgres_off.rs"]
mod postgres;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod probe;
pub(crate) mod problems;
pub(crate) mod purge;
pub(crate) mod records;
mod rows;
mod schema;
mod seal;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(not(feature = "sqlite"))]
#[path = "sqlite_off.rs"]
mod sqlite;
#[cfg(all(test, any(feature = "sqlite", feature = "postgres")))]
mod tests;
pub(crate) mod usage;

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::actor::{Actor, Step};
use self::config::StoreSource;
use self::driver::{Connect, DbError, DbKind};
use self::jobs::{Accepted, NewJob};
use self::owners::{Beat, Seat, Seen};
use self::problems::{Problems, Work};
use self::seal::Sealer;
use crate::BoxFuture;
use crate::clock::Clock;
use crate::config::ConfigSource;
use crate::error::{Delivery, Error, ErrorKind};
use crate::transport::SecretString;

pub use self::driver_public::CallersConnection;

/// Of a job, and of the letter that it becomes.
pub(crate) type Id = uuid::Uuid;

/// A tenant at a vendor, and a priority: 0 is high.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct LaneTier {
    pub(crate) tenant: String,
    pub(crate) vendor: String,
    pub(crate) tier: i64,
}

/// Which store, and what it may hold. Opened by [`IntegrationClientBuilder::build`](crate::IntegrationClientBuilder::build).
#[derive(Clone)]
#[must_use = "nothing happens before a client is built with it"]
pub struct Store {
    place: Place,
    pub(crate) limits: Limits,
    seal_keys: Vec<SecretString>,
    /// Put around every connection, by tests.
    wrap: Option<Wrap>,
}

type Wrap = Arc<dyn Fn(Arc<dyn Connect>) -> Arc<dyn Connect> + Send + Sync>;

#[derive(Clone)]
enum Place {
    Sqlite(PathBuf),
    Postgres(String),
    /// A URL of neither.
    Unknown(String),
}

/// What a store may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_payload: usize,
    pub(crate) max_backlog: u64,
    pub(crate) max_lane_backlog: Option<u64>,
    pub(crate) keep_done: Duration,
    pub(crate) keep_dead: Duration,
    pub(crate) max_dead: u64,
    pub(crate) lease: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        const DAY: u64 = 86_400;
        Limits {
            max_payload: 1024 * 1024,
            max_backlog: 1_000_000,
            max_lane_backlog: None,
            keep_done: Duration::from_secs(DAY),
            keep_dead: Duration::from_secs(30 * DAY),
            max_dead: 100_000,
            lease: Duration::from_secs(20),
        }
    }
}

impl Limits {
    /// How long after its record was asked for an exchange may leave. What the record says is taken for so much later by
    /// the next process; and the lease, of which the record was sure, is not over by then.
    pub(crate) fn latest_start(&self) -> Duration {
        (self.lease / 2).min(Duration::from_secs(2))
    }
}

/// No payload is larger, whatever is configured: PostgreSQL's protocol counts in 32 bits.
const HARD_PAYLOAD: usize = 64 * 1024 * 1024;

impl Store {
    fn at(place: Place) -> Store {
        Store { place, limits: Limits::default(), seal_keys: Vec::new(), wrap: None }
    }

    /// A SQLite file, which is made if it is not there; its folder must be.
    pub fn sqlite(path: impl Into<PathBuf>) -> Store {
        Store::at(Place::Sqlite(path.into()))
    }

    /// A PostgreSQL database: `postgres://USER:PASSWORD@HOST:PORT/DATABASE`. The tables are made in the first schema of
    /// its search path. To a host that is not this machine TLS is required, unless the URL has an `sslmode`. The URL may lead
    /// to a pool, also one that gives each transaction another server connection (PgBouncer's `pool_mode = transaction`).
    pub fn postgres(url: impl Into<String>) -> Store {
        Store::at(Place::Postgres(url.into()))
    }

    /// `sqlite:PATH`, or a URL of PostgreSQL: for whoever reads it from a setting. Anything else is an error of
    /// [`build`](crate::IntegrationClientBuilder::build).
    pub fn url(url: &str) -> Store {
        Store::at(match url.split_once(':') {
            Some(("sqlite", path)) => Place::Sqlite(path.strip_prefix("//").unwrap_or(path).into()),
            Some(("postgres" | "postgresql", _)) => Place::Postgres(url.to_owned()),
            Some((scheme, _)) => Place::Unknown(scheme.chars().take(32).collect()),
            None => Place::Unknown(String::new()),
        })
    }

    /// The largest request that is accepted, as it is stored: headers, path and body, with 4/3 of its size for a body
    /// that is no text. 1 MiB by default, 64 MiB at most.
    pub fn max_payload_bytes(mut self, bytes: usize) -> Store {
        self.limits.max_payload = bytes.min(HARD_PAYLOAD);
        self
    }

    /// The most requests that wait in the outbox; a million by default. With more, `enqueue` refuses. Processes that
    /// share a store count every few seconds, so that they may go a little beyond it together.
    pub fn max_backlog(mut self, requests: u64) -> Store {
        self.limits.max_backlog = requests;
        self
    }

    /// The most requests of one tenant at one vendor in the outbox; no bound of its own by default. Beyond it `enqueue` says
    /// [`ErrorKind::QueueFull`], and other tenants are not concerned. Counted every few seconds, as above.
    pub fn max_lane_backlog(mut self, requests: u64) -> Store {
        self.limits.max_lane_backlog = Some(requests);
        self
    }

    /// Seals the requests of vendors whose entry says `at_rest = "sealed"`, and the answers that are kept of them: AES-256-GCM.
    /// The key is 32 bytes in base64 (`openssl rand -base64 32`); keep it elsewhere than the store. Called again, it adds an
    /// older key, which opens what was sealed with it and seals nothing.
    ///
    /// Sealed are the request with its path, metadata and idempotency key, what was tried, the answer and the dead letter. Of a
    /// key that a caller brought a keyed hash is kept, made with the oldest seal key: leave an old one out when nothing is sealed
    /// with it any more. Tenant, vendor, priority, times, statuses and reasons stay readable. A job that no key opens waits until
    /// one does, and of a dead letter that no key opens these are all that is shown.
    pub fn seal_key(mut self, key: impl Into<SecretString>) -> Store {
        self.seal_keys.push(key.into());
        self
    }

    /// How long it is remembered what became of a request; a day by default. Until then a receipt knows.
    pub fn keep_done(mut self, time: Duration) -> Store {
        self.limits.keep_done = time;
        self
    }

    /// How long dead letters are kept; thirty days by default.
    pub fn keep_dead(mut self, time: Duration) -> Store {
        self.limits.keep_dead = time;
        self
    }

    /// The most dead letters; 100,000 by default. With more, the oldest are deleted, and a warning says so.
    pub fn max_dead(mut self, letters: u64) -> Store {
        self.limits.max_dead = letters;
        self
    }

    /// After how long without a sign of life a process's requests go to others; 20 s by default, at least 2 s. A sign is
    /// given four times as often. Others count that time by their own clocks, and only while the store answers them: a step of a
    /// clock or a store that stands still takes no request from a process that lives. Of processes that share a store and
    /// state different times, the longer one counts.
    pub fn lease(mut self, time: Duration) -> Store {
        self.limits.lease = time.max(Duration::from_secs(2));
        self
    }

    fn connect(&self) -> Result<Arc<dyn Connect>, Error> {
        let connect = match &self.place {
            Place::Sqlite(path) => sqlite::open(path),
            Place::Postgres(url) => postgres::open(url),
            Place::Unknown(scheme) => {
                let message = format!(
                    "store: the URL's scheme is {scheme:?}, and it is sqlite:PATH or \
                     postgres://USER:PASSWORD@HOST:PORT/DATABASE"
                );
                Err(Error::config(message))
            }
        }?;
        Ok(match &self.wrap {
            Some(wrap) => wrap(connect),
            None => connect,
        })
    }

    /// What `under` says, and the store's own texts over it.
    pub(crate) fn source(&self, under: Arc<dyn ConfigSource>) -> Result<StoreSource, Error> {
        Ok(StoreSource::new(self.connect()?, under))
    }

    /// Opens it, to `work` on its jobs or not. Returns the tasks that must be spawned.
    pub(crate) async fn open(self, work: bool) -> Result<(Opened, Vec<BoxFuture<'static, ()>>), Error> {
        let sealer = Sealer::new(&self.seal_keys)?;
        let connect = self.connect()?;
        let failed = |error: DbError| Error::config(format!("store {self:?}: {error}")).with_source(error);
        let owner = crate::outbox::new_id(Clock::system());
        let mut alone = None;
        if let Place::Sqlite(path) = &self.place
            && work
        {
            let lock = sqlite::lock(path)?;
            let seat = Seat { owner, name: lock.seat.clone(), lease: self.limits.lease };
            if !owners::sit(&*connect, &seat).await.map_err(failed)? {
                return Err(sqlite::works_elsewhere(path));
            }
            alone = Some(lock);
        }
        let (writer, writing) = Actor::write(connect.clone()).await.map_err(failed)?;
        let (reader, reading) = Actor::read(connect.clone()).await.map_err(failed)?;
        let is_alone = matches!(self.place, Place::Sqlite(_));
        let mut tasks = vec![writing, reading];
        let pulse = match work && !is_alone {
            true => {
                let (pulse, beating) = Actor::read(connect).await.map_err(failed)?;
                tasks.push(beating);
                Some(pulse)
            }
            false => None,
        };
        let opened = Opened {
            writer,
            reader,
            pulse,
            owner,
            limits: self.limits,
            is_alone,
            sealer,
            lock: parking_lot::Mutex::new(alone),
            problems: Problems::new(Clock::system()),
        };
        Ok((opened, tasks))
    }
}

impl fmt::Debug for Store {
    /// The file, or no more than that it is PostgreSQL: its URL may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Sqlite(path) => write!(f, "{}", path.display()),
            Place::Postgres(_) => f.write_str("PostgreSQL"),
            Place::Unknown(scheme) => write!(f, "{scheme}"),
        }
    }
}

/// A store that is open.
pub(crate) struct Opened {
    writer: Actor,
    reader: Actor,
    /// A connection for the heartbeat of a process that works on PostgreSQL: it waits for no row that the writer waits for.
    pulse: Option<Actor>,
    /// Whoever opened it: no two have the same, whatever their processes' numbers are.
    pub(crate) owner: Id,
    pub(crate) limits: Limits,
    /// No other process can work on it.
    pub(crate) is_alone: bool,
    sealer: Sealer,
    lock: parking_lot::Mutex<Option<sqlite::WorkLock>>,
    pub(crate) problems: Problems,
}

impl Opened {
    /// Another may work on it from now on, whoever still holds a receipt here.
    pub(crate) fn stop_working(&self) {
        *self.lock.lock() = None;
    }

    /// A text that only who has the key can read. None where the store has none.
    pub(crate) fn seal(&self, id: &Id, text: Vec<u8>) -> Option<Vec<u8>> {
        self.sealer.seal(id, text)
    }

    /// Whether a stored text is a sealed one.
    pub(crate) fn is_sealed(&self, stored: &[u8]) -> bool {
        seal::is_sealed(stored)
    }

    /// By what a text is known again by whoever has the key. None where the store has none.
    pub(crate) fn mark(&self, parts: &[&str]) -> Option<String> {
        self.sealer.mark(parts)
    }

    /// A text as it was before it was sealed, if it was. None where no key opens it.
    pub(crate) fn unseal<'a>(&self, id: &Id, stored: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        self.sealer.open_row(id, stored)
    }

    /// Accepts a job whose id was made a moment ago: on the disk when this returns.
    pub(crate) async fn insert(&self, job: NewJob) -> Result<Accepted, Error> {
        let written = match job.key {
            None => self.writer.insert(job).await,
            Some(_) => self.writer.call(job, jobs::insert, false).await,
        };
        self.noted(Work::Accept, written)
    }

    fn noted<T>(&self, work: Work, result: Result<T, DbError>) -> Result<T, Error> {
        self.problems.note(work, &result);
        result.map_err(failed)
    }

    /// Something that is written: on the disk when this returns.
    pub(crate) async fn write<I, T>(&self, input: I, step: Step<I, T>) -> Result<T, Error>
    where
        I: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.write_as(Work::Keep, input, step).await
    }

    /// The same, as a kind of work whose problems are kept apart.
    pub(crate) async fn write_as<I, T>(&self, work: Work, input: I, step: Step<I, T>) -> Result<T, Error>
    where
        I: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.noted(work, self.writer.call(input, step, false).await)
    }

    /// The same for what cannot be found to have happened: it is not tried again where it may have been committed.
    pub(crate) async fn write_once<I, T>(&self, input: I, step: Step<I, T>) -> Result<T, Error>
    where
        I: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.noted(Work::Keep, self.writer.call(input, step, true).await)
    }

    /// Gives a sign of life, and reads those of others.
    pub(crate) async fn beat(&self, beat: Beat) -> Result<Option<Vec<Seen>>, Error> {
        match &self.pulse {
            Some(pulse) => self.noted(Work::Keep, pulse.call(beat, owners::beat, false).await),
            None => self.write(beat, owners::beat).await,
        }
    }

    /// Something that is only read.
    pub(crate) async fn read<I, T>(&self, input: I, step: Step<I, T>) -> Result<T, Error>
    where
        I: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.noted(Work::Read, self.reader.call(input, step, false).await.map_err(DbError::certain))
    }
}

pub(crate) fn failed(error: DbError) -> Error {
    let (delivery, hint) = match error.may_be_committed() {
        true => (Delivery::Ambiguous, "; what was to be written may have been written all the same"),
        false => (Delivery::NotSent, "; nothing was written"),
    };
    Error::new(ErrorKind::Store, delivery, format!("store: {error}{hint}")).with_source(error)
}

/// It is the store that fails, or the way to it, and not what was to be written.
pub(crate) fn is_down(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<DbError>());
    source.is_some_and(|error| matches!(error.kind, DbKind::Unreachable | DbKind::Again | DbKind::Storage))
}

/// The store is away, or others are in the way: the same may work later.
pub(crate) fn may_pass(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<DbError>());
    source.is_some_and(|error| matches!(error.kind, DbKind::Unreachable | DbKind::Again))
}

pub(crate) fn millis_of(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

mod driver_public {
    use super::driver::Driver;

    /// A connection of the application's own, inside its transaction: `sqlx::SqliteConnection` with the feature `sqlite`,
    /// `sqlx::PgConnection` with the feature `postgres`.
    #[expect(private_bounds, reason = "sealed: it is for the connections that the store knows")]
    pub trait CallersConnection: Driver {}

    impl<T: Driver> CallersConnection for T {}
}
