//! The locks of the tables that a migration changes (PostgreSQL).

use super::super::driver::{Db, DbError, DbKind};

/// The tables that some step changes, the most used first. Those that a later step creates do not exist yet.
const LOCK: &str = "DO $$ DECLARE t text; BEGIN \
    FOR t IN SELECT format('%I.%I', schemaname, tablename) FROM pg_catalog.pg_tables WHERE schemaname = current_schema() \
    AND tablename IN ('ic_job', 'ic_dead', 'ic_done', 'ic_key', 'ic_spent', 'ic_used', 'ic_reply') \
    ORDER BY tablename <> 'ic_job', tablename \
    LOOP EXECUTE 'LOCK TABLE ' || t || ' IN ACCESS EXCLUSIVE MODE'; END LOOP; END $$";

/// Takes the locks of the tables for a migration with the steps `pending` (PostgreSQL). If another transaction so much
/// as reads one of the tables, the migration waits for it, and all later statements of all processes wait behind the
/// migration. So it gives up before any of them does: they wait for a lock for 2 s. It waits for longer than the second
/// after which PostgreSQL ends an autovacuum that is in the way.
pub(super) async fn lock(db: Db<'_>, pending: &[&str]) -> Result<(), DbError> {
    // A table that a step creates has no readers to wait for.
    if pending.iter().all(|statement| statement.starts_with("CREATE TABLE")) {
        return Ok(());
    }
    db.execute("SET LOCAL lock_timeout = '1500ms'; SET LOCAL statement_timeout = '1800ms'", Vec::new()).await?;
    db.execute(LOCK, Vec::new()).await.map(drop).map_err(|error| match error.kind {
        // The time of all locks together is over, or another transaction waits for one of them and this one for it.
        DbKind::Again => DbError::new(DbKind::Locked, error.to_string()),
        _ => error,
    })
}
