//! The newest refresh token of each account, sealed.

use super::driver::{Db, DbError, args};
use crate::BoxFuture;

/// Whose token it is: vendor, environment, account.
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

/// The token of an account.
pub(crate) fn load<'a>(whose: &'a Whose, db: Db<'a>, _: i64) -> BoxFuture<'a, Result<Option<Vec<u8>>, DbError>> {
    Box::pin(async move {
        let [vendor, environment, account] = whose;
        let sql = "SELECT token FROM ic_token WHERE vendor = $1 AND environment = $2 AND account = $3";
        let mut rows = db.fetch(sql, args![vendor, environment, account]).await?;
        rows.first_mut().map(|row| row.bytes()).transpose()
    })
}
