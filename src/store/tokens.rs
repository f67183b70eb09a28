//! The newest refresh token of each account, sealed.

use super::Id;
use super::driver::{Db, DbError, args};
use crate::BoxFuture;

/// The account to which a token belongs, as vendor, environment and account.
pub(crate) type Whose = [String; 3];

/// Replaces the token of an account.
pub(crate) fn keep<'a>(
    (whose, token): &'a (Whose, Vec<u8>),
    db: Db<'a>,
    now: i64,
) -> BoxFuture<'a, Result<(), DbError>> {
    Box::pin(async move {
        let [vendor, environment, account] = whose;
        let sql = "INSERT INTO ic_token (vendor, environment, account, token, kept_at) VALUES ($1, $2, $3, $4, $5) \
                   ON CONFLICT (vendor, environment, account) DO UPDATE SET token = excluded.token, kept_at = excluded.kept_at";
        db.execute(sql, args![vendor, environment, account, token, now]).await?;
        Ok(())
    })
}

/// Gives `holder` the exclusive right to refresh the token of an account for `length_ms`. If another process has that
/// right, returns the milliseconds until its right ends.
pub(crate) fn reserve<'a>(
    (whose, holder, length_ms): &'a (Whose, Id, i64),
    db: Db<'a>,
    now: i64,
) -> BoxFuture<'a, Result<Option<i64>, DbError>> {
    Box::pin(async move {
        let [vendor, environment, account] = whose;
        let (holder, until) = (holder.as_bytes().as_slice(), now.saturating_add(*length_ms));
        let sql = "INSERT INTO ic_token_lease (vendor, environment, account, holder, until) VALUES ($1, $2, $3, $4, $5) \
                   ON CONFLICT (vendor, environment, account) DO UPDATE SET holder = excluded.holder, until = excluded.until \
                   WHERE ic_token_lease.until <= $6 OR ic_token_lease.holder = excluded.holder";
        db.execute(sql, args![vendor, environment, account, holder, until, now]).await?;
        let sql =
            "SELECT until FROM ic_token_lease WHERE vendor = $1 AND environment = $2 AND account = $3 AND holder <> $4";
        let mut rows = db.fetch(sql, args![vendor, environment, account, holder]).await?;
        let until = rows.first_mut().map(|row| row.int()).transpose()?;
        Ok(until.map(|until| until.saturating_sub(now).max(0)))
    })
}

/// Ends the right that [`reserve`] gave to `holder`.
pub(crate) fn give_back<'a>(
    (whose, holder): &'a (Whose, Id),
    db: Db<'a>,
    _: i64,
) -> BoxFuture<'a, Result<(), DbError>> {
    Box::pin(async move {
        let [vendor, environment, account] = whose;
        let sql = "DELETE FROM ic_token_lease WHERE vendor = $1 AND environment = $2 AND account = $3 AND holder = $4";
        db.execute(sql, args![vendor, environment, account, holder.as_bytes().as_slice()]).await?;
        Ok(())
    })
}

/// Returns the token of an account.
pub(crate) fn load<'a>(whose: &'a Whose, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<Option<Vec<u8>>, DbError>> {
    Box::pin(async move {
        let [vendor, environment, account] = whose;
        let sql = "SELECT token FROM ic_token WHERE vendor = $1 AND environment = $2 AND account = $3";
        let mut rows = db.fetch(sql, args![vendor, environment, account]).await?;
        rows.first_mut().map(|row| row.bytes()).transpose()
    })
}
