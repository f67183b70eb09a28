//! The store's tables and their migrations.
//!
//! All names begin with `ic_`, so that the store can live in a database with other tables. The version is in a table of
//! its own, because sqlx's `_sqlx_migrations` may belong to the application. Migrations are only ever added. In both
//! databases every column is a 64-bit integer, a text or bytes; times are milliseconds since 1970.

mod locks;

use super::driver::{Db, DbError, DbKind, Dialect, args};

/// The version of the tables that this version of the library reads and writes.
pub(crate) const VERSION: i64 = 15;

/// The version of the tables; 0 if there are none.
pub(super) async fn version(db: Db<'_>) -> Result<i64, DbError> {
    let mut rows = db.fetch("SELECT version FROM ic_schema ORDER BY version DESC LIMIT 1", Vec::new()).await?;
    Ok(rows.first_mut().map(|row| row.int()).transpose()?.unwrap_or(0))
}

/// Creates or migrates the tables inside the caller's transaction. No two processes do so at the same time.
pub(super) async fn prepare(db: Db<'_>) -> Result<(), DbError> {
    if db.dialect() == Dialect::Postgres {
        // Several processes may start at once. The number of the lock is arbitrary.
        db.execute("SET LOCAL lock_timeout = '5s'", Vec::new()).await?;
        db.execute("SELECT pg_advisory_xact_lock(7134911035)", Vec::new()).await?;
    }
    db.execute("CREATE TABLE IF NOT EXISTS ic_schema (version BIGINT NOT NULL)", Vec::new()).await?;
    let found = version(db).await?;
    if found > VERSION {
        let message = format!(
            "the store was written by a later version of integration-client (its tables are version {found}, and this \
             one knows {VERSION}); use that version"
        );
        return Err(DbError::new(DbKind::Other, message));
    }
    if found == VERSION {
        return Ok(());
    }
    let (first, triggers, second, third, fourth, fifth, sixth, eighth, tenth) = match db.dialect() {
        Dialect::Sqlite => (
            SQLITE,
            SQLITE_TRIGGERS,
            SQLITE_SECOND,
            SQLITE_THIRD,
            SQLITE_FOURTH,
            SQLITE_FIFTH,
            SQLITE_SIXTH,
            SQLITE_EIGHTH,
            SQLITE_TENTH,
        ),
        Dialect::Postgres => (
            POSTGRES,
            POSTGRES_TRIGGERS,
            POSTGRES_SECOND,
            POSTGRES_THIRD,
            POSTGRES_FOURTH,
            POSTGRES_FIFTH,
            POSTGRES_SIXTH,
            POSTGRES_EIGHTH,
            POSTGRES_TENTH,
        ),
    };
    let steps = [
        (1, first),
        (1, INDEXES),
        (1, triggers),
        (2, second),
        (3, third),
        (3, THIRD),
        (4, fourth),
        (5, fifth),
        (6, sixth),
        (7, SEVENTH),
        (8, eighth),
        (9, if db.dialect() == Dialect::Postgres { POSTGRES_NINTH } else { &[] }),
        (10, tenth),
        (11, if db.dialect() == Dialect::Postgres { POSTGRES_ELEVENTH } else { SQLITE_ELEVENTH }),
        (12, TWELFTH),
        (13, THIRTEENTH),
        // No table changes: messages are recorded under ids that earlier versions do not look for, and would accept again.
        (14, &[]),
        (15, FIFTEENTH),
    ];
    let pending = steps.iter().filter(|(version, _)| found < *version);
    let pending: Vec<&'static str> = pending.flat_map(|(_, statements)| statements.iter().copied()).collect();
    if db.dialect() == Dialect::Postgres {
        if found > 0 {
            locks::lock(db, &pending).await?;
        }
        // To build an index of a large table takes long.
        db.execute("SET LOCAL statement_timeout = 0", Vec::new()).await?;
    }
    for statement in pending {
        db.execute(statement, Vec::new()).await?;
    }
    db.execute("DELETE FROM ic_schema", Vec::new()).await?;
    db.execute("INSERT INTO ic_schema (version) VALUES ($1)", args![VERSION]).await?;
    Ok(())
}

/// The tables of version 1. `$seq` is the type of row numbers, `$bytes` that of bytes.
macro_rules! tables {
    ($seq:literal, $bytes:literal, $job_options:literal) => {
        &[
            // state: 0 ready, 1 claimed. claims: claims without an outcome. started: exchanges that may have left, and
            // have no outcome. fence: increased by each claim, and matched by every later statement about the job.
            // lease_until: when the claim's lease ends if no heartbeat extends it; no statement reads it, it is only
            // for operators who look at the table.
            concat!(
                "CREATE TABLE ic_job (seq ", $seq, ", id ", $bytes, " NOT NULL UNIQUE, tenant TEXT NOT NULL, ",
                "vendor TEXT NOT NULL, tier BIGINT NOT NULL, state BIGINT NOT NULL DEFAULT 0, run_at BIGINT NOT NULL, ",
                "expires_at BIGINT, enqueued_at BIGINT NOT NULL, claims BIGINT NOT NULL DEFAULT 0, ",
                "started BIGINT NOT NULL DEFAULT 0, fence BIGINT NOT NULL DEFAULT 0, owner ", $bytes, ", ",
                "lease_until BIGINT, keep_result BIGINT NOT NULL DEFAULT 0, request ", $bytes, " NOT NULL, history ",
                $bytes, ")", $job_options
            ),
            // Idempotency keys, so that a repeated request is accepted once. They outlive the job.
            concat!(
                "CREATE TABLE ic_key (tenant TEXT NOT NULL, vendor TEXT NOT NULL, key TEXT NOT NULL, job ", $bytes,
                " NOT NULL, fingerprint TEXT NOT NULL, expires_at BIGINT NOT NULL, PRIMARY KEY (tenant, vendor, key))"
            ),
            // Ended jobs. outcome: 0 delivered, 1 cancelled.
            concat!(
                "CREATE TABLE ic_done (id ", $bytes, " NOT NULL PRIMARY KEY, tenant TEXT NOT NULL, vendor TEXT NOT NULL, ",
                "outcome BIGINT NOT NULL, status BIGINT NOT NULL, attempts BIGINT NOT NULL, finished_at BIGINT NOT NULL, ",
                "result ", $bytes, ")"
            ),
            // Dead letters. letter: what may be shown. request: what is needed to send the letter again; NULL if only
            // an outline is kept.
            concat!(
                "CREATE TABLE ic_dead (seq ", $seq, ", id ", $bytes, " NOT NULL UNIQUE, tenant TEXT NOT NULL, ",
                "vendor TEXT NOT NULL, tier BIGINT NOT NULL, reason TEXT NOT NULL, died_at BIGINT NOT NULL, ",
                "letter ", $bytes, " NOT NULL, request ", $bytes, ", keep_result BIGINT NOT NULL DEFAULT 0)"
            ),
            // Usage, in slots of a 64th of the vendor's longest window, so that a new process knows what was sent.
            concat!(
                "CREATE TABLE ic_spent (tenant TEXT NOT NULL, vendor TEXT NOT NULL, endpoint TEXT NOT NULL, slot BIGINT NOT NULL, ",
                "owner ", $bytes, " NOT NULL, high BIGINT NOT NULL, requests BIGINT NOT NULL, points BIGINT NOT NULL, ",
                "last_at BIGINT NOT NULL, until BIGINT NOT NULL, PRIMARY KEY (tenant, vendor, endpoint, slot, owner, high))"
            ),
            // Configuration texts in the format of vendors.toml, and one version for all of them.
            "CREATE TABLE ic_config (name TEXT NOT NULL PRIMARY KEY, text TEXT NOT NULL)",
            "CREATE TABLE ic_config_version (version BIGINT NOT NULL)",
            "INSERT INTO ic_config_version (version) VALUES (0)",
        ]
    };
}

const SQLITE: &[&str] = tables!("INTEGER PRIMARY KEY", "BLOB", "");
// Leaves room in each page and vacuums often, because every job is updated a few times and then deleted.
const POSTGRES: &[&str] = tables!(
    "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
    "BYTEA",
    " WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.01)"
);

/// The tables that version 2 added.
macro_rules! second {
    ($bytes:literal) => {
        &[
            // Batches. run: the first half of the ids of the requests. mark: how far the source was read. pages:
            // increased with each page, so that a page whose reply was lost is not accepted twice.
            concat!(
                "CREATE TABLE ic_batch (name TEXT NOT NULL PRIMARY KEY, run ",
                $bytes,
                " NOT NULL, mark TEXT NOT NULL, ",
                "pages BIGINT NOT NULL, begun_at BIGINT NOT NULL)"
            ),
            // The status that each working process publishes.
            concat!(
                "CREATE TABLE ic_worker (owner ",
                $bytes,
                " NOT NULL PRIMARY KEY, told_at BIGINT NOT NULL, ",
                "status TEXT NOT NULL)"
            ),
        ]
    };
}

const SQLITE_SECOND: &[&str] = second!("BLOB");
const POSTGRES_SECOND: &[&str] = second!("BYTEA");

/// The tables that version 3 added.
macro_rules! third {
    ($bytes:literal) => {
        // Working processes. beat: increased by each heartbeat. seat: for a SQLite file, the lock that the process
        // holds.
        concat!(
            "CREATE TABLE ic_owner (owner ",
            $bytes,
            " NOT NULL PRIMARY KEY, beat BIGINT NOT NULL, lease_ms BIGINT NOT NULL, seat TEXT NOT NULL)"
        )
    };
}

const SQLITE_THIRD: &[&str] = &[
    third!("BLOB"),
    // The clock of the file: the boot from which it counts, the time at that boot, and a recent time.
    "CREATE TABLE ic_clock (boot TEXT NOT NULL, at_ms BIGINT NOT NULL, latest_ms BIGINT NOT NULL)",
];
const POSTGRES_THIRD: &[&str] = &[third!("BYTEA")];
const THIRD: &[&str] = &[
    // The number of the job's latest exchange, which grows with each: an outcome names the exchange that it belongs to.
    "ALTER TABLE ic_job ADD COLUMN begun BIGINT NOT NULL DEFAULT \
     0",
    // fence and begun of the job that became the letter: for the outcome of an earlier claim, and for the job if the
    // letter is sent again.
    "ALTER TABLE ic_dead ADD COLUMN fence BIGINT NOT NULL DEFAULT \
     0",
    "ALTER TABLE ic_dead ADD COLUMN begun BIGINT NOT NULL DEFAULT \
     0",
    "DROP INDEX ic_job_leased",
    "CREATE INDEX ic_job_owned ON ic_job (owner) WHERE state = 1",
];

/// The tables that version 4 added.
macro_rules! fourth {
    ($bytes:literal) => {
        &[
            // The newest refresh token of each account, sealed.
            concat!(
                "CREATE TABLE ic_token (vendor TEXT NOT NULL, environment TEXT NOT NULL, account TEXT NOT NULL, token ",
                $bytes,
                " NOT NULL, kept_at BIGINT NOT NULL, PRIMARY KEY (vendor, environment, account))"
            ),
            // The notes that a program attached to the pages of a batch's run.
            concat!(
                "CREATE TABLE ic_note (batch TEXT NOT NULL, run ",
                $bytes,
                " NOT NULL, page BIGINT NOT NULL, note ",
                $bytes,
                " NOT NULL, PRIMARY KEY (run, page))"
            ),
        ]
    };
}

const SQLITE_FOURTH: &[&str] = fourth!("BLOB");
const POSTGRES_FOURTH: &[&str] = fourth!("BYTEA");

/// The tables that version 5 added.
macro_rules! fifth {
    ($bytes:literal) => {
        &[
            // Usage in other units than requests and points: kinds of points, bytes.
            concat!(
                "CREATE TABLE ic_used (tenant TEXT NOT NULL, vendor TEXT NOT NULL, endpoint TEXT NOT NULL, slot BIGINT NOT NULL, ",
                "owner ",
                $bytes,
                " NOT NULL, high BIGINT NOT NULL, unit TEXT NOT NULL, units BIGINT NOT NULL, last_at BIGINT NOT NULL, ",
                "until BIGINT NOT NULL, PRIMARY KEY (tenant, vendor, endpoint, slot, owner, high, unit))"
            ),
            "CREATE INDEX ic_used_until ON ic_used (until)",
        ]
    };
}

const SQLITE_FIFTH: &[&str] = fifth!("BLOB");
const POSTGRES_FIFTH: &[&str] = fifth!("BYTEA");

/// The tables that version 6 added: the ledgers of limits whose units processes share (`store/capacity.rs`).
const SQLITE_SIXTH: &[&str] = &[
    "CREATE TABLE ic_capacity (name TEXT NOT NULL PRIMARY KEY, state TEXT NOT NULL)",
    "CREATE TABLE ic_capacity_long (name TEXT NOT NULL PRIMARY KEY, state TEXT NOT NULL)",
];
// Leaves room in each page, and vacuums after a fixed number of changes: there are few rows, and each changes several
// times a second.
const POSTGRES_SIXTH: &[&str] = &[
    "CREATE UNLOGGED TABLE ic_capacity (name TEXT NOT NULL PRIMARY KEY, state TEXT NOT NULL) \
     WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000)",
    "CREATE TABLE ic_capacity_long (name TEXT NOT NULL PRIMARY KEY, state TEXT NOT NULL) \
     WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000)",
    "CREATE TABLE ic_capacity_known (known BIGINT NOT NULL PRIMARY KEY)",
];

/// The table that version 10 added: the process that alone may refresh the token of an account, and until when.
macro_rules! tenth {
    ($bytes:literal) => {
        &[concat!(
            "CREATE TABLE ic_token_lease (vendor TEXT NOT NULL, environment TEXT NOT NULL, account TEXT NOT NULL, holder ",
            $bytes,
            " NOT NULL, until BIGINT NOT NULL, PRIMARY KEY (vendor, environment, account))"
        )]
    };
}

const SQLITE_TENTH: &[&str] = tenth!("BLOB");
const POSTGRES_TENTH: &[&str] = tenth!("BYTEA");

/// The changes of version 7: the index that finds the jobs which have become due since a given time is on an
/// expression. No claim sorts or selects by that expression, so no planner can use this index for a claim and read the
/// jobs of other lanes.
const SEVENTH: &[&str] = &["DROP INDEX ic_job_due", "CREATE INDEX ic_job_due ON ic_job ((run_at + 0)) WHERE state = 0"];

/// The tables that version 8 added.
macro_rules! eighth {
    ($seq:literal, $bytes:literal, $now:literal, $vacuum:literal) => {
        &[
            // Messages of sources, so that a redelivered message is accepted once.
            concat!(
                "CREATE TABLE ic_seen (message ",
                $bytes,
                " NOT NULL PRIMARY KEY, job ",
                $bytes,
                " NOT NULL, until BIGINT NOT NULL)"
            ),
            "CREATE INDEX ic_seen_until ON ic_seen (until)",
            // Requests that applications insert, as docs/INTAKE.md describes. Applications depend on these columns.
            concat!(
                "CREATE TABLE ic_intake (seq ",
                $seq,
                ", id TEXT, request TEXT NOT NULL, at BIGINT NOT NULL DEFAULT ",
                $now,
                ")",
                $vacuum
            ),
            concat!(
                "CREATE TABLE ic_intake_refused (seq ",
                $seq,
                ", id TEXT, request TEXT NOT NULL, at BIGINT NOT NULL, why TEXT NOT NULL, refused_at BIGINT NOT NULL, \
                 until BIGINT NOT NULL)"
            ),
            "CREATE INDEX ic_intake_refused_until ON ic_intake_refused (until)",
        ]
    };
}

const SQLITE_EIGHTH: &[&str] = eighth!(
    "INTEGER PRIMARY KEY AUTOINCREMENT",
    "BLOB",
    "(CAST(1000 * (julianday('now') - 2440587.5) * 86400 AS INTEGER))",
    ""
);
// Vacuums after a fixed number of changes: each row is deleted soon, and every search of the table has to pass over the
// dead rows that no vacuum has removed.
const POSTGRES_EIGHTH: &[&str] = eighth!(
    "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
    "BYTEA",
    "((1000 * EXTRACT(EPOCH FROM clock_timestamp()))::bigint)",
    " WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)"
);

/// The changes of version 9: a vacuum of these tables makes no pauses. Each job leaves three dead rows and their index
/// entries. With PostgreSQL's default pauses, a vacuum takes longer than the jobs need to leave as many dead rows
/// again.
const POSTGRES_NINTH: &[&str] = &[
    "ALTER TABLE ic_job SET (autovacuum_vacuum_cost_delay = 0, toast.autovacuum_vacuum_cost_delay = 0, \
     toast.autovacuum_vacuum_scale_factor = 0.01)",
    "ALTER TABLE ic_done SET (autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_scale_factor = 0.02)",
    "ALTER TABLE ic_key SET (autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_scale_factor = 0.02)",
    "ALTER TABLE ic_dead SET (autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_scale_factor = 0.02)",
    "ALTER TABLE ic_spent SET (autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_scale_factor = 0.02, fillfactor = 70)",
    "ALTER TABLE ic_used SET (autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_scale_factor = 0.02, fillfactor = 70)",
];

/// The table that version 11 added: replies, which tell the senders of requests what became of them. Applications
/// depend on the columns `seq`, `id`, `at` and `reply`, as docs/INTAKE.md describes.
const SQLITE_ELEVENTH: &[&str] = &[
    "CREATE TABLE ic_reply (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, at BIGINT NOT NULL, \
     until BIGINT NOT NULL, reply TEXT NOT NULL)",
    REPLY_UNTIL,
];
const POSTGRES_ELEVENTH: &[&str] = &[
    "CREATE TABLE ic_reply (seq BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, id TEXT NOT NULL, at BIGINT NOT NULL, \
     until BIGINT NOT NULL, reply TEXT NOT NULL) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)",
    REPLY_UNTIL,
];
const REPLY_UNTIL: &str = "CREATE INDEX ic_reply_until ON ic_reply (until)";

/// The additions of version 12: when a reply is due for delivery to its target, how often its delivery was tried, and
/// copies of configurations that are loaded from servers.
const TWELFTH: &[&str] = &[
    "ALTER TABLE ic_reply ADD COLUMN due BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE ic_reply ADD COLUMN tries BIGINT NOT NULL DEFAULT 0",
    "CREATE INDEX ic_reply_due ON ic_reply (due)",
    "CREATE TABLE ic_config_copy (source TEXT NOT NULL PRIMARY KEY, copy TEXT NOT NULL)",
];

/// The addition of version 13: when the first of the exchanges that `started` counts was recorded.
const THIRTEENTH: &[&str] = &["ALTER TABLE ic_job ADD COLUMN started_at BIGINT"];

/// The table that version 15 added: pauses that vendors asked for (`store/pauses.rs`). It has no index on `until`: there is
/// a row for each pause that is in force or ended within minutes, and a migration that builds an index locks other tables.
const FIFTEENTH: &[&str] = &[
    "CREATE TABLE ic_pause (vendor TEXT NOT NULL, environment TEXT NOT NULL, scope TEXT NOT NULL, name TEXT NOT NULL, \
     limit_name TEXT NOT NULL, limit_of TEXT NOT NULL, endpoint TEXT NOT NULL, until BIGINT NOT NULL, \
     PRIMARY KEY (vendor, environment, scope, name, limit_name, limit_of, endpoint))",
];

const INDEXES: &[&str] = &[
    // For claims: the ready jobs of one lane and tier, in order.
    "CREATE INDEX ic_job_ready ON ic_job (vendor, tenant, tier, run_at, seq) WHERE state = 0",
    // For looks, which search all lanes for jobs that have become due since a given time. Replaced in version 7.
    "CREATE INDEX ic_job_due ON ic_job (run_at) WHERE state = 0",
    "CREATE INDEX ic_job_leased ON ic_job (lease_until) WHERE state = 1",
    "CREATE INDEX ic_job_expires ON ic_job (expires_at) WHERE state = 0 AND expires_at IS NOT NULL",
    "CREATE INDEX ic_key_expires ON ic_key (expires_at)",
    "CREATE INDEX ic_done_finished ON ic_done (finished_at)",
    "CREATE INDEX ic_dead_died ON ic_dead (died_at)",
    "CREATE INDEX ic_dead_whose ON ic_dead (tenant, vendor, seq)",
    "CREATE INDEX ic_spent_until ON ic_spent (until)",
];

/// Every change of a configuration text, by any program, increases the version, so that processes need to poll only the
/// version.
const SQLITE_TRIGGERS: &[&str] = &[
    "CREATE TRIGGER ic_config_insert AFTER INSERT ON ic_config BEGIN UPDATE ic_config_version SET version = version + 1; END",
    "CREATE TRIGGER ic_config_update AFTER UPDATE ON ic_config BEGIN UPDATE ic_config_version SET version = version + 1; END",
    "CREATE TRIGGER ic_config_delete AFTER DELETE ON ic_config BEGIN UPDATE ic_config_version SET version = version + 1; END",
];
const POSTGRES_TRIGGERS: &[&str] = &[
    "CREATE FUNCTION ic_config_changed() RETURNS trigger LANGUAGE plpgsql AS \
     $$ BEGIN UPDATE ic_config_version SET version = version + 1; RETURN NULL; END $$",
    "CREATE TRIGGER ic_config_change AFTER INSERT OR UPDATE OR DELETE ON ic_config \
     FOR EACH STATEMENT EXECUTE FUNCTION ic_config_changed()",
];
