//! The ledgers of limits whose units processes share. Each limit has a row, which holds its ledger as a text.
//!
//! One transaction reads the rows of a call, lets the ledgers answer, and writes the rows. The rows of each table are
//! locked in the order of their names, those of the unlogged table first, so that two calls whose rows all exist cannot
//! end in a deadlock. A call that creates or moves a row locks it after rows that it has found before, so that it may
//! end in a deadlock with another call in PostgreSQL. The server ends one of the two (40P01), and the store makes that
//! call again.
//!
//! The clock is read when the rows are locked. Between the begin of a transaction and its locks seconds may pass, in
//! which other processes write the rows: a ledger that then got the time of the begin would be set back, and would
//! count those seconds twice.
//!
//! On PostgreSQL most rows are in an unlogged table. An unlogged table costs no sync. It is empty after a crash of the
//! server and on a standby that was promoted, so that the loss is noticed; a table that silently returned to its state
//! of a second ago would hand out units twice. Limits with a window of an hour or more are in a logged table, because
//! after a loss a process could not wait for a window of a day.
//!
//! A limit has one row in one of the two tables, even while some processes are configured with a window below an hour
//! and others with a longer one. A process with a short window searches the unlogged table first, and then the logged
//! one. The first process with a long window moves the row into the logged table, where it stays; a process with a
//! short window finds the row there. A process that creates or moves a row first locks the row of that name in the
//! unlogged table, and then searches the logged table again. So if two processes come at the same time, the second
//! finds the row that the first has created.

use super::clock;
use super::driver::{Arg, Db, DbError, DbKind, Dialect, Row, args};
use crate::BoxFuture;
use crate::capacity::call::{Answer, Call, Entry, LineAnswer, Reading, Root};

/// The ledger of a limit whose units count for at least this long, in microseconds, must survive a crash of the server.
const LONG_US: u64 = 3_600_000_000;

/// The name of the row that all ledgers have in common. No limit has this name.
const ROOT: &str = "";

/// A line of a call, and its ledger once the ledger was found, with the table that holds it.
struct LedgerLine<'a> {
    line: usize,
    entry: &'a Entry,
    found: Option<(&'static Table, String)>,
}

impl LedgerLine<'_> {
    fn is_long(&self) -> bool {
        self.entry.line.figures.again_us >= LONG_US
    }
}

/// Answers a call. May be run more than once: the ledgers recognise a call that they have answered.
pub(crate) fn exchange<'a>(call: &'a Call, db: Db<'a>, now_ms: i64) -> BoxFuture<'a, Result<Answer, DbError>> {
    // SQLite locks the whole file when a transaction begins, and reads the clock afterwards.
    let at_ms = (db.dialect() == Dialect::Sqlite).then(|| clock::of_ledgers(&db.machine(), now_ms));
    exchange_at(call, db, at_ms)
}

/// Answers a call at the time `at_ms`, or else at the time of the store's clock when all rows of the call are locked.
pub(crate) fn exchange_at<'a>(
    call: &'a Call,
    db: Db<'a>,
    at_ms: Option<i64>,
) -> BoxFuture<'a, Result<Answer, DbError>> {
    Box::pin(async move {
        let lines = call.lines.iter().enumerate();
        let mut places: Vec<LedgerLine<'_>> =
            lines.map(|(line, entry)| LedgerLine { line, entry, found: None }).collect();
        places.sort_by(|a, b| a.entry.limit.cmp(&b.entry.limit));
        SHORT.find(db, &mut places, |place| !place.is_long()).await?;
        LONG.find(db, &mut places, |place| place.found.is_none()).await?;
        let needs_root = places.iter().any(|place| place.found.is_none() && !place.is_long());
        if places.iter().any(|place| place.found.is_none()) {
            make(db, &mut places).await?;
        }
        let (now_ms, waited_us) = match at_ms {
            // That time was read before this step began, and it is not known how long after the call was made.
            Some(at_ms) => (at_ms, 0),
            None => {
                let waited_us = call.waited_us();
                (db.now().await?, waited_us)
            }
        };
        let read_at = call.now();
        let clock_us = u64::try_from(now_ms).unwrap_or(0).saturating_mul(1_000);
        let mut root = Root::default();
        if needs_root {
            root = self::root(db, call, clock_us).await?;
        }
        let new = Root::default();
        let mut got: Vec<LineAnswer> = vec![Ok(None); call.lines.len()];
        let mut written: [Vec<(&str, String)>; 2] = Default::default();
        for place in &places {
            let missing = || DbError::new(DbKind::Again, "a row of a shared limit was deleted meanwhile");
            let (table, text) = place.found.as_ref().ok_or_else(missing)?;
            // The logged table loses no rows, so a ledger that is missing there is new.
            let root = if place.is_long() { &new } else { &root };
            let answered = call.answer(place.entry, text, root, Reading { clock_us, waited_us });
            got[place.line] = Ok(answered.got);
            written[usize::from(table.is_long)].push((&place.entry.limit, answered.text));
        }
        for (table, written) in [&SHORT, &LONG].into_iter().zip(&written) {
            table.write(db, written).await?;
        }
        Ok(Answer { clock_us, read_at, got })
    })
}

/// Creates the rows that were not found. If this process has a long window for a limit, the limit's row is moved from
/// the unlogged table to the logged one. However many rows are missing, that takes a few statements: a call that did not
/// end in time would be made again with the same rows missing. Another call may lock a row that a third one has created
/// meanwhile, and then wait for one that this call has locked: the server ends one of the two, which is made again.
async fn make(db: Db<'_>, places: &mut [LedgerLine<'_>]) -> Result<(), DbError> {
    let mut made: Vec<&mut LedgerLine<'_>> = places.iter_mut().filter(|place| place.found.is_none()).collect();
    let entries: Vec<&Entry> = made.iter().map(|place| place.entry).collect();
    let new: Vec<(&str, String)> = entries.iter().map(|entry| (entry.limit.as_str(), String::new())).collect();
    SHORT.insert_all(db, &new).await?;
    let short = SHORT.locked(db, &entries).await?;
    let long = LONG.locked(db, &entries).await?;
    let (mut made_long, mut not_short): (Vec<(&str, String)>, Vec<&str>) = Default::default();
    for ((place, short), long) in made.iter_mut().zip(short).zip(long) {
        let Some(short) = short else { continue };
        let entry: &Entry = place.entry;
        let found = match long {
            Some(text) => (&LONG, text),
            None if place.is_long() => {
                made_long.push((&entry.limit, short.clone()));
                (&LONG, short)
            }
            None => (&SHORT, short),
        };
        if found.0.is_long {
            not_short.push(&entry.limit);
        }
        place.found = Some(found);
    }
    LONG.insert_all(db, &made_long).await?;
    SHORT.delete_all(db, not_short).await
}

/// Returns the data that all ledgers have in common, and creates its row if the row is missing. Then either all ledgers
/// are new, or those in the unlogged table were lost. `clock_us` is a time after the loss.
async fn root(db: Db<'_>, call: &Call, clock_us: u64) -> Result<Root, DbError> {
    let read = |rows: Vec<Row>| -> Result<Option<Root>, DbError> {
        let mut rows = rows;
        let text = rows.first_mut().map(Row::text).transpose()?;
        Ok(text.map(|text| Root::read(&text).unwrap_or(Root::new(true, clock_us, call.lease_us))))
    };
    if let Some(root) = read(db.fetch(SHORT.select_one, args![ROOT]).await?)? {
        return Ok(root);
    }
    let mut lost = false;
    if db.dialect() == Dialect::Postgres {
        // This row is in a logged table. If it exists already, there were ledgers before.
        let sql = "INSERT INTO ic_capacity_known (known) VALUES (1) ON CONFLICT (known) DO NOTHING";
        lost = db.execute(sql, Vec::new()).await? == 0;
    }
    let root = Root::new(lost, clock_us, call.lease_us);
    if lost {
        tracing::warn!("the store has lost what processes hold of shared limits: it is learnt anew");
    }
    db.execute(SHORT.insert, args![ROOT, &root.text()]).await?;
    Ok(read(db.fetch(SHORT.select_one, args![ROOT]).await?)?.unwrap_or(root))
}

/// The statements about one table.
struct Table {
    is_long: bool,
    lock: &'static str,
    insert: &'static str,
    insert_all: &'static str,
    update: &'static str,
    select_one: &'static str,
    update_one: &'static str,
    delete: &'static str,
    delete_all: &'static str,
}

macro_rules! table {
    ($name:literal, $is_long:literal) => {
        Table {
            is_long: $is_long,
            // A process that is stopped in the middle of a transaction would keep its locks, so the server ends the
            // transaction after a second.
            lock: concat!(
                "WITH s AS (SELECT set_config('idle_in_transaction_session_timeout', '1000', true), ",
                "set_config('lock_timeout', '2000', true)) SELECT c.name, c.state FROM ",
                $name,
                " c, s WHERE c.name = ANY($1) ORDER BY c.name FOR UPDATE OF c"
            ),
            insert: concat!("INSERT INTO ", $name, " (name, state) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING"),
            // In the order in which rows are locked: two processes may create the same rows.
            insert_all: concat!(
                "INSERT INTO ",
                $name,
                " (name, state) SELECT n.name, n.state FROM unnest($1::text[], $2::text[]) AS n (name, state) \
                 ORDER BY n.name ON CONFLICT (name) DO NOTHING"
            ),
            update: concat!(
                "UPDATE ",
                $name,
                " c SET state = n.state FROM unnest($1, $2) AS n (name, state) WHERE c.name = n.name"
            ),
            select_one: concat!("SELECT state FROM ", $name, " WHERE name = $1"),
            update_one: concat!("UPDATE ", $name, " SET state = $2 WHERE name = $1"),
            delete: concat!("DELETE FROM ", $name, " WHERE name = $1"),
            delete_all: concat!("DELETE FROM ", $name, " WHERE name = ANY($1)"),
        }
    };
}

static SHORT: Table = table!("ic_capacity", false);
static LONG: Table = table!("ic_capacity_long", true);

impl Table {
    /// Locks the rows of those `places` that are `wanted`, in their order, and stores the texts that the rows hold.
    async fn find(
        &'static self,
        db: Db<'_>,
        places: &mut [LedgerLine<'_>],
        wanted: impl Fn(&LedgerLine<'_>) -> bool,
    ) -> Result<(), DbError> {
        let mut wanted: Vec<&mut LedgerLine<'_>> = places.iter_mut().filter(|place| wanted(place)).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let entries: Vec<&Entry> = wanted.iter().map(|place| place.entry).collect();
        let found = self.locked(db, &entries).await?;
        for (place, text) in wanted.iter_mut().zip(found) {
            // A row with an empty text counts as missing.
            place.found = text.filter(|text| !text.is_empty()).map(|text| (self, text));
        }
        Ok(())
    }

    /// Locks the rows of `entries`, which are sorted by name, and returns their texts in that order; `None` for a row
    /// that does not exist.
    async fn locked(&self, db: Db<'_>, entries: &[&Entry]) -> Result<Vec<Option<String>>, DbError> {
        let mut found = Vec::with_capacity(entries.len());
        if db.dialect() == Dialect::Sqlite {
            // The transaction has locked the whole file.
            for entry in entries {
                let mut rows = db.fetch(self.select_one, args![&entry.limit]).await?;
                found.push(rows.first_mut().map(Row::text).transpose()?);
            }
            return Ok(found);
        }
        let names = entries.iter().map(|entry| entry.limit.as_str()).collect();
        let mut rows = std::collections::HashMap::new();
        for mut row in db.fetch(self.lock, vec![Arg::Texts(names)]).await? {
            rows.insert(row.text()?, row.text()?);
        }
        Ok(entries.iter().map(|entry| rows.remove(&entry.limit)).collect())
    }

    /// Creates rows with these names and texts, unless they exist.
    async fn insert_all(&self, db: Db<'_>, rows: &[(&str, String)]) -> Result<(), DbError> {
        for_all(db, (self.insert_all, self.insert), rows).await
    }

    async fn write(&self, db: Db<'_>, rows: &[(&str, String)]) -> Result<(), DbError> {
        for_all(db, (self.update, self.update_one), rows).await
    }

    async fn delete_all(&self, db: Db<'_>, names: Vec<&str>) -> Result<(), DbError> {
        if names.is_empty() {
            return Ok(());
        }
        if db.dialect() == Dialect::Sqlite {
            for name in names {
                db.execute(self.delete, args![name]).await?;
            }
            return Ok(());
        }
        db.execute(self.delete_all, vec![Arg::Texts(names)]).await.map(drop)
    }
}

/// Runs a statement with the names and texts of rows: the first one with all of them, or in SQLite the second one for each
/// row.
async fn for_all(db: Db<'_>, (all, one): (&'static str, &'static str), rows: &[(&str, String)]) -> Result<(), DbError> {
    if rows.is_empty() {
        return Ok(());
    }
    if db.dialect() == Dialect::Sqlite {
        for (name, text) in rows {
            db.execute(one, args![*name, text]).await?;
        }
        return Ok(());
    }
    let names = rows.iter().map(|(name, _)| *name).collect();
    let texts = rows.iter().map(|(_, text)| text.as_str()).collect();
    db.execute(all, vec![Arg::Texts(names), Arg::Texts(texts)]).await.map(drop)
}
