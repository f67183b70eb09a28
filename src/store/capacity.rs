//! The pool of the units that processes share: a row for each limit, with its ledger as a text.
//!
//! One transaction reads the rows of a call, lets the ledgers answer, and writes them. The rows are locked in the order of their
//! names, so that two calls wait for each other and never for ever.
//!
//! On PostgreSQL most rows are in an unlogged table. It costs no sync, and it is empty after a crash of the server and on a standby
//! that was promoted: a loss that can be seen. A table that silently returned to the state of a second ago would hand out units
//! twice. Limits of an hour and more are in a logged table, since nobody could wait a day for what was lost.

use super::driver::{Arg, Db, DbError, DbKind, Dialect, Row, args};
use crate::BoxFuture;
use crate::capacity::call::{Answer, Call, Entry, Root};
use crate::capacity::ledger::Got;

/// Ledgers of units that count for so long, in microseconds, must outlive a crash of the server.
const LONG_US: u64 = 3_600_000_000;

/// The name of the row that all ledgers have in common. No limit has it.
const ROOT: &str = "";

/// Answers a call. May be run more than once: the ledgers recognise a call that they have answered.
pub(crate) fn exchange<'a>(call: &'a Call, db: Db<'a>, now_ms: i64) -> BoxFuture<'a, Result<Answer, DbError>> {
    Box::pin(async move {
        let clock_us = u64::try_from(now_ms).unwrap_or(0).saturating_mul(1_000);
        let mut got: Vec<Option<Got>> = vec![None; call.lines.len()];
        for table in [Table::SHORT, Table::LONG] {
            let mut entries: Vec<(usize, &Entry)> = call.lines.iter().enumerate().collect();
            entries.retain(|(_, entry)| table.is_of(entry));
            if entries.is_empty() {
                continue;
            }
            entries.sort_by(|(_, a), (_, b)| a.limit.cmp(&b.limit));
            let (kept, root) = table.lock(db, &entries, call, clock_us).await?;
            let mut written = Vec::with_capacity(entries.len());
            for ((place, entry), text) in entries.iter().zip(&kept) {
                let answered = call.answer(entry, text, &root, clock_us);
                got[*place] = answered.got;
                written.push((entry.limit.as_str(), answered.text));
            }
            table.write(db, &written).await?;
        }
        Ok(Answer { clock_us, got })
    })
}

/// The statements about one table.
struct Table {
    is_long: bool,
    lock: &'static str,
    insert: &'static str,
    update: &'static str,
    select_one: &'static str,
    update_one: &'static str,
}

macro_rules! table {
    ($name:literal, $is_long:literal) => {
        Table {
            is_long: $is_long,
            // A process that is stopped in the middle would keep its locks: the server ends its transaction after a second.
            lock: concat!(
                "WITH s AS (SELECT set_config('idle_in_transaction_session_timeout', '1000', true), ",
                "set_config('lock_timeout', '2000', true)) SELECT c.name, c.state FROM ",
                $name,
                " c, s WHERE c.name = ANY($1) ORDER BY c.name FOR UPDATE OF c"
            ),
            insert: concat!("INSERT INTO ", $name, " (name, state) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING"),
            update: concat!(
                "UPDATE ",
                $name,
                " c SET state = n.state FROM unnest($1, $2) AS n (name, state) WHERE c.name = n.name"
            ),
            select_one: concat!("SELECT state FROM ", $name, " WHERE name = $1"),
            update_one: concat!("UPDATE ", $name, " SET state = $2 WHERE name = $1"),
        }
    };
}

impl Table {
    const SHORT: Table = table!("ic_capacity", false);
    const LONG: Table = table!("ic_capacity_long", true);

    fn is_of(&self, entry: &Entry) -> bool {
        (entry.line.figures.again_us >= LONG_US) == self.is_long
    }

    /// Locks the rows of `entries`, which are sorted by name, and makes those that are missing. Returns their texts in that order.
    async fn lock(
        &self,
        db: Db<'_>,
        entries: &[(usize, &Entry)],
        call: &Call,
        clock_us: u64,
    ) -> Result<(Vec<String>, Root), DbError> {
        let mut found = self.locked(db, entries).await?;
        let mut root = Root { learning_until_us: 0 };
        // A row is empty between its making and its first writing.
        if found.iter().any(|text| text.as_ref().is_none_or(String::is_empty)) {
            root = self.root(db, call, clock_us).await?;
            for ((_, entry), text) in entries.iter().zip(&found) {
                if text.is_none() {
                    db.execute(self.insert, args![&entry.limit, ""]).await?;
                }
            }
            found = self.locked(db, entries).await?;
        }
        let missing = || DbError::new(DbKind::Again, "a row of a shared limit was deleted meanwhile");
        let kept = found.into_iter().map(|text| text.ok_or_else(missing)).collect::<Result<_, _>>()?;
        Ok((kept, root))
    }

    async fn locked(&self, db: Db<'_>, entries: &[(usize, &Entry)]) -> Result<Vec<Option<String>>, DbError> {
        let mut found = Vec::with_capacity(entries.len());
        if db.dialect() == Dialect::Sqlite {
            // The transaction has the whole file.
            for (_, entry) in entries {
                let mut rows = db.fetch(self.select_one, args![&entry.limit]).await?;
                found.push(rows.first_mut().map(Row::text).transpose()?);
            }
            return Ok(found);
        }
        let names = entries.iter().map(|(_, entry)| entry.limit.as_str()).collect();
        let mut rows = std::collections::HashMap::new();
        for mut row in db.fetch(self.lock, vec![Arg::Texts(names)]).await? {
            rows.insert(row.text()?, row.text()?);
        }
        Ok(entries.iter().map(|(_, entry)| rows.remove(&entry.limit)).collect())
    }

    /// What all ledgers have in common. Where it is missing, all of them are new or were lost.
    async fn root(&self, db: Db<'_>, call: &Call, clock_us: u64) -> Result<Root, DbError> {
        let read = |rows: Vec<Row>| -> Result<Option<Root>, DbError> {
            let mut rows = rows;
            let text = rows.first_mut().map(Row::text).transpose()?;
            Ok(text.map(|text| Root::read(&text).unwrap_or(Root::new(true, clock_us, call.lease_us))))
        };
        if let Some(root) = read(db.fetch(self.select_one, args![ROOT]).await?)? {
            return Ok(root);
        }
        let mut lost = false;
        if db.dialect() == Dialect::Postgres && !self.is_long {
            // Only this row is in a logged table: it says that there were ledgers before.
            let sql = "INSERT INTO ic_capacity_known (known) VALUES (1) ON CONFLICT (known) DO NOTHING";
            lost = db.execute(sql, Vec::new()).await? == 0;
        }
        let root = Root::new(lost, clock_us, call.lease_us);
        if lost {
            tracing::warn!("the store has lost what processes hold of shared limits: it is learnt anew");
        }
        db.execute(self.insert, args![ROOT, &root.text()]).await?;
        Ok(read(db.fetch(self.select_one, args![ROOT]).await?)?.unwrap_or(root))
    }

    async fn write(&self, db: Db<'_>, written: &[(&str, String)]) -> Result<(), DbError> {
        if db.dialect() == Dialect::Sqlite {
            for (name, text) in written {
                db.execute(self.update_one, args![*name, text]).await?;
            }
            return Ok(());
        }
        let names = written.iter().map(|(name, _)| *name).collect();
        let texts = written.iter().map(|(_, text)| text.as_str()).collect();
        db.execute(self.update, vec![Arg::Texts(names), Arg::Texts(texts)]).await.map(drop)
    }
}
