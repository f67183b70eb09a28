//! Storage for what must outlive the process: accepted requests (the [outbox](crate::outbox)), their outcomes, and dead
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
//! # Stored data
//! The store holds requests as they were given: method, path and query, headers, body. It holds no credential:
//! credentials are added to each attempt, and a request that carries one of its own is not accepted. Only the owner of
//! the SQLite file may read it. If the bodies need protection, encrypt the disk, or let the store seal them: see
//! `at_rest` of a vendor's entry and [`Store::seal_key`].
//!
//! # Guarantees with SQLite
//! The file uses `WAL` and `synchronous = FULL`, so every acknowledged write is on the disk. One process works on a
//! file at a time; other processes may enqueue and read. The file cannot lie on a network drive; such a path is refused
//! if the drive is recognised (on Linux). A file with a second name is refused, because SQLite's log lies beside one of
//! them: a hard link (on Unix), or a single file that is mounted (on Linux). Symbolic links and mounted folders are fine.

#![cfg_attr(
    not(all(feature = "sqlite", feature = "postgres")),
    allow(dead_code, reason = "some items are used by one database only, and none without a database")
)]

mod actor;
pub(crate) mod batches;
pub(crate) mod capacity;
mod claims;
pub(crate) mod claims_by_lane;
pub(crate) mod clock;
pub(crate) mod config;
mod config_copies;
pub(crate) mod dead;
pub(crate) mod driver;
mod ends;
mod ends_together;
mod failure;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod faults;
mod id;
pub(crate) mod intake;
pub(crate) mod intake_table;
mod job_end;
pub(crate) mod jobs;
pub(crate) mod keys;
mod looks;
#[cfg(feature = "sqlite")]
mod mounts;
mod opened;
mod opening;
pub(crate) mod owners;
mod path_text;
pub(crate) mod pauses;
mod pieces;
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
mod purged;
pub(crate) mod records;
pub(crate) mod replies;
mod rows;
mod schema;
mod seal;
mod seen;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(not(feature = "sqlite"))]
#[path = "sqlite_off.rs"]
mod sqlite;
mod starts;
#[cfg(all(test, any(feature = "sqlite", feature = "postgres")))]
pub(crate) mod tests;
pub(crate) mod tokens;
pub(crate) mod usage;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

pub(crate) use self::actor::Actor;
use self::config::StoreSource;
use self::config_copies::ConfigCopies;
pub(crate) use self::driver::STATEMENTS;
use self::driver::{Connect, DbError, DbKind};
use self::owners::Registration;
use self::path_text::path_text;
use self::problems::Problems;
use self::seal::Sealer;
use crate::BoxFuture;
use crate::clock::Clock;
use crate::config::ConfigSource;
use crate::error::Error;
use crate::transport::SecretString;

pub use self::driver_public::CallersConnection;
pub(crate) use self::failure::{advise, failed, is_down, is_locked, may_pass};
pub(crate) use self::id::{Id, LaneTier, id_with_content, millis_of, new_id, same_content};
pub(crate) use self::opened::Opened;
pub(crate) use self::pieces::Size;

/// Which store a client uses, and its limits.
/// [`IntegrationClientBuilder::build`](crate::IntegrationClientBuilder::build) opens the store.
#[derive(Clone)]
#[must_use = "nothing happens before a client is built with it"]
pub struct Store {
    backend: Backend,
    pub(crate) limits: Limits,
    seal_keys: Vec<SecretString>,
    /// Wraps every connection; for tests.
    wrap: Option<Wrap>,
}

type Wrap = Arc<dyn Fn(Arc<dyn Connect>) -> Arc<dyn Connect> + Send + Sync>;

#[derive(Clone)]
enum Backend {
    Sqlite(PathBuf),
    Postgres(String),
    /// The scheme of a URL that belongs to neither database.
    Unknown(String),
}

/// The limits of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_payload: usize,
    pub(crate) max_backlog: u64,
    pub(crate) max_lane_backlog: Option<u64>,
    pub(crate) keep_done: Duration,
    pub(crate) keep_dead: Duration,
    pub(crate) keep_seen: Duration,
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
            keep_seen: Duration::from_secs(7 * DAY),
            max_dead: 100_000,
            lease: Duration::from_secs(20),
        }
    }
}

impl Limits {
    /// How long after its record was requested an exchange may leave. A later process assumes that the exchange left
    /// this much later than its record says. At half a lease or less, the lease that the record relied on has not
    /// expired by then.
    pub(crate) fn latest_start(&self) -> Duration {
        (self.lease / 2).min(Duration::from_secs(2))
    }
}

/// The largest payload, whatever is configured: PostgreSQL's protocol has lengths of 32 bits.
const HARD_PAYLOAD: usize = 64 * 1024 * 1024;

impl Store {
    fn at(backend: Backend) -> Store {
        Store { backend, limits: Limits::default(), seal_keys: Vec::new(), wrap: None }
    }

    /// A SQLite file. The file is created if it does not exist; its folder must exist.
    pub fn sqlite(path: impl Into<PathBuf>) -> Store {
        Store::at(Backend::Sqlite(path.into()))
    }

    /// A PostgreSQL database: `postgres://USER:PASSWORD@HOST:PORT/DATABASE`. The tables are created in the first schema
    /// of its search path. TLS is required unless the host is this machine or the URL has an `sslmode`. The URL may
    /// lead to a pool, even one that gives each transaction another server connection (PgBouncer's `pool_mode =
    /// transaction`). A standby that may be promoted must replicate synchronously (`synchronous_standby_names`):
    /// otherwise a failover may lose accepted requests, and send others twice.
    pub fn postgres(url: impl Into<String>) -> Store {
        Store::at(Backend::Postgres(url.into()))
    }

    /// A store by its URL, for programs that read it from a setting: `sqlite:PATH`, or a URL of PostgreSQL. Any other
    /// URL is an error of [`build`](crate::IntegrationClientBuilder::build).
    pub fn url(url: &str) -> Store {
        Store::at(match url.split_once(':') {
            Some(("sqlite", path)) => Backend::Sqlite(path.strip_prefix("//").unwrap_or(path).into()),
            Some(("postgres" | "postgresql", _)) => Backend::Postgres(url.to_owned()),
            Some((scheme, _)) => Backend::Unknown(scheme.chars().take(32).collect()),
            None => Backend::Unknown(String::new()),
        })
    }

    /// The largest request that is accepted, in its stored form: headers, path and body. A body that is not text takes
    /// 4/3 of its size. 1 MiB by default, 64 MiB at most. The dead letter of a request above 16 MiB shows its method, path
    /// and size alone; it can be sent again all the same.
    pub fn max_payload_bytes(mut self, bytes: usize) -> Store {
        self.limits.max_payload = bytes.min(HARD_PAYLOAD);
        self
    }

    /// The most requests in the outbox; a million by default. Beyond it `enqueue` refuses requests. Each process counts
    /// the requests every few seconds, so that processes that share a store may exceed the bound a little. A count that
    /// takes long is made less often, about once a minute at least, and while the requests cannot be counted, the last
    /// count decides.
    pub fn max_backlog(mut self, requests: u64) -> Store {
        self.limits.max_backlog = requests;
        self
    }

    /// The most requests of one tenant at one vendor in the outbox; unlimited by default. Beyond it `enqueue` fails
    /// with [`ErrorKind::QueueFull`](crate::ErrorKind::QueueFull), while other tenants are not affected. The requests
    /// are counted as for [`max_backlog`](Self::max_backlog), without those that a process has claimed. Requests that end
    /// are noticed by a count only, so one that has reached the bound is repeated after half a second, or after twice
    /// the time that it took. While the requests of a lane that was never counted cannot be counted, `enqueue` fails with
    /// [`ErrorKind::Store`](crate::ErrorKind::Store).
    pub fn max_lane_backlog(mut self, requests: u64) -> Store {
        self.limits.max_lane_backlog = Some(requests);
        self
    }

    /// Seals the requests of vendors whose entry says `at_rest = "sealed"`, and the responses that are kept for them,
    /// with AES-256-GCM. The key is 32 bytes in base64 (`openssl rand -base64 32`); keep it elsewhere than the store.
    /// Each further call adds an older key, which opens what was sealed with it and seals nothing.
    ///
    /// The store seals the request with its path, metadata and idempotency key, the history of attempts, the response
    /// and the dead letter. For an idempotency key that a caller chose, it keeps a keyed hash, made with the oldest
    /// seal key: remove an old key only when nothing is sealed with it any more. Tenant, vendor, priority, times,
    /// statuses and reasons stay readable. A job that no key opens waits for its key; at its deadline it is given up,
    /// with the reason `ambiguous` if it was tried before. For a dead letter that no key opens, only the readable fields
    /// are shown.
    pub fn seal_key(mut self, key: impl Into<SecretString>) -> Store {
        self.seal_keys.push(key.into());
        self
    }

    /// How long the outcome of a request is kept, so that its receipt can report it; a day by default. Outcomes of a batch
    /// are kept for longer if it has [notes](crate::outbox::Batch::accept_with_note).
    pub fn keep_done(mut self, time: Duration) -> Store {
        self.limits.keep_done = time;
        self
    }

    /// How long the id of an accepted message is kept, by which a redelivery is recognised; seven days by default. A
    /// redelivery after an eighth of that time, or later, keeps the id for the whole time again. A message that a
    /// broker delivers again after that time is sent again. A longer time brings no ids back, and counts from now on: the
    /// ids of messages that were accepted before are kept for the time that was set then. Of a source that
    /// [acknowledges in order](crate::outbox::IntakeSource::acknowledges_in_order), a message without room is held for half
    /// of that time at most, once messages behind it were accepted. An id takes 40 bytes, and is kept longer than the
    /// outcome of its request.
    pub fn keep_seen(mut self, time: Duration) -> Store {
        self.limits.keep_seen = time;
        self
    }

    /// How long dead letters and refused rows of `ic_intake` are kept; thirty days by default. After that time they are
    /// deleted, and a request that was not sent again by then is lost.
    pub fn keep_dead(mut self, time: Duration) -> Store {
        self.limits.keep_dead = time;
        self
    }

    /// The most dead letters; 100,000 by default. Beyond it the oldest are deleted within a minute (within ten, while a
    /// purge of the store takes long), and with them their requests, before [`keep_dead`](Self::keep_dead) has passed. A
    /// warning is logged, and the metric `integration_client_outbox_letters_dropped_total` counts them. A letter takes
    /// about as much room as its request: `u64::MAX` keeps all letters for as long as `keep_dead` says.
    pub fn max_dead(mut self, letters: u64) -> Store {
        self.limits.max_dead = letters;
        self
    }

    /// The time without a heartbeat after which other processes take a process's requests over; 20 s by default, at
    /// least 2 s. A process writes four heartbeats in this time, and one every ten seconds at least. Other processes
    /// measure this time by their own monotonic clocks, and only while the store answers them: neither a step of a clock
    /// nor a stall of the store takes a request from a living process. If processes that share a store have different
    /// leases, the longer one counts.
    pub fn lease(mut self, time: Duration) -> Store {
        self.limits.lease = time.max(Duration::from_secs(2));
        self
    }

    fn connect(&self) -> Result<Arc<dyn Connect>, Error> {
        let connect = match &self.backend {
            Backend::Sqlite(path) => sqlite::open(path),
            Backend::Postgres(url) => postgres::open(url),
            Backend::Unknown(scheme) => {
                let message = format!(
                    "store: the URL's scheme is {scheme:?}; use sqlite:PATH or \
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

    /// Opens a separate connection for the units of shared limits. Returns it with the task that must be spawned.
    pub(crate) async fn open_capacity(&self) -> Result<(Actor, BoxFuture<'static, ()>), Error> {
        let failed = |error: DbError| Error::config(format!("sharing through {self:?}: {error}")).with_source(error);
        Actor::write(self.connect()?).await.map_err(failed)
    }

    /// Returns a configuration source in which the store's own texts override those of `under`.
    pub(crate) fn source(&self, under: Arc<dyn ConfigSource>) -> Result<StoreSource, Error> {
        Ok(StoreSource::new(self.connect()?, under))
    }

    /// Returns the store's place for copies of configurations that are loaded from servers.
    pub(crate) fn copies(&self) -> Result<ConfigCopies, Error> {
        Ok(ConfigCopies::new(self.connect()?))
    }

    /// Opens the store; `work` says whether this process works on its jobs. Returns the tasks that must be spawned.
    pub(crate) async fn open(self, work: bool) -> Result<(Opened, Vec<BoxFuture<'static, ()>>), Error> {
        let sealer = Sealer::new(&self.seal_keys)?;
        let connect = self.connect()?;
        let failed = |error: DbError| Error::config(format!("store {self:?}: {error}")).with_source(error);
        let clock = Clock::system();
        let owner = new_id(clock);
        let mut alone = None;
        if let Backend::Sqlite(path) = &self.backend
            && work
        {
            let lock = sqlite::lock(path)?;
            let process = Registration { owner, lock: lock.identity.clone(), lease: self.limits.lease };
            if !owners::register(&*connect, &process).await.map_err(failed)? {
                return Err(sqlite::works_elsewhere(path));
            }
            alone = Some(lock);
        }
        let (writer, writing) = Actor::write(connect.clone()).await.map_err(failed)?;
        let (reader, reading) = Actor::read(connect.clone()).await.map_err(failed)?;
        let is_alone = matches!(self.backend, Backend::Sqlite(_));
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
            problems: Problems::new(clock),
            clock,
            surplus_letters: AtomicU64::new(0),
            purged: parking_lot::Mutex::default(),
        };
        Ok((opened, tasks))
    }
}

impl fmt::Debug for Store {
    /// Shows the path of a SQLite file. For PostgreSQL it shows no URL, because the URL may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.backend {
            Backend::Sqlite(path) => f.write_str(&path_text(path)),
            Backend::Postgres(_) => f.write_str("PostgreSQL"),
            Backend::Unknown(scheme) => write!(f, "{scheme}"),
        }
    }
}

mod driver_public {
    use super::driver::Driver;

    /// A connection of the application, inside a transaction of the application: `sqlx::SqliteConnection` with the
    /// feature `sqlite`, `sqlx::PgConnection` with the feature `postgres`.
    #[expect(private_bounds, reason = "sealed: it is for the connections that the store knows")]
    pub trait CallersConnection: Driver {}

    impl<T: Driver> CallersConnection for T {}
}
