//! The SQL of idempotency keys: which job has a key, so that a repeated request is accepted once.

use super::driver::{Db, DbError, DbKind, args};
use super::{Id, LaneTier};

/// How long a key is kept after its request expires or, if the request does not expire, after its acceptance.
pub(super) const KEY_MS: i64 = 24 * 3600 * 1000;

/// An idempotency key, and the fingerprint of its request; both as they are, or both as keyed hashes.
pub(crate) type KeyAndPrint = (String, String);

/// The key of a request whose letter is sent again.
#[derive(Clone, Debug)]
pub(crate) struct RequestKey {
    pub(crate) key: KeyAndPrint,
    /// `key` in the other form, as that of a new job.
    pub(crate) other_key: Option<KeyAndPrint>,
}

/// Whose job has a key.
pub(super) enum KeyTaken {
    ByThis,
    /// The same request was accepted as this job.
    Before(Id),
    /// Another request was accepted.
    ByAnother,
}

/// How often a key is looked for that another process deletes meanwhile.
const TAKES: u32 = 3;

/// The SQL of the row of a key, if a job has the key: no row if the key is NULL. `$1` and `$2` are the lane. Equality
/// alone lets PostgreSQL find the row by the whole primary key, whatever its statistics say.
macro_rules! row_of_taken_key {
    ($key:literal, $now:literal) => {
        concat!(
            "SELECT job, fingerprint, key FROM ic_key WHERE tenant = $1 AND vendor = $2 AND key = ",
            $key,
            " AND (expires_at > ",
            $now,
            " OR EXISTS (SELECT 1 FROM ic_job WHERE ic_job.id = ic_key.job))"
        )
    };
}

/// Keeps a key that `job` has, in either of its forms, until `expires` at least, and locks its row: no process deletes it
/// before this step is committed. Returns false if the job has no such key, or none that has not expired.
pub(super) async fn prolong(
    (job, lane): (Id, &LaneTier),
    ((key, _), other_key): (&KeyAndPrint, Option<&KeyAndPrint>),
    (expires, now): (i64, i64),
    db: Db<'_>,
) -> Result<bool, DbError> {
    let LaneTier { tenant, vendor, .. } = lane;
    for key in [Some(key), other_key.map(|(key, _)| key)].into_iter().flatten() {
        let sql = "UPDATE ic_key SET expires_at = CASE WHEN expires_at < $5 THEN $5 ELSE expires_at END \
                   WHERE tenant = $1 AND vendor = $2 AND key = $3 AND job = $4 AND expires_at > $6";
        let args = args![tenant, vendor, key, job.as_bytes().as_slice(), expires, now];
        if db.execute(sql, args).await? > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Takes a key for `job` until `expires`, unless another job has it, in either of its forms.
pub(super) async fn take(
    (job, lane): (Id, &LaneTier),
    ((key, fingerprint), other_key): (&KeyAndPrint, Option<&KeyAndPrint>),
    (expires, now): (i64, i64),
    db: Db<'_>,
) -> Result<KeyTaken, DbError> {
    let id = job.as_bytes().as_slice();
    let LaneTier { tenant, vendor, .. } = lane;
    let (key, fingerprint) = (key.as_str(), fingerprint.as_str());
    let (other, other_fingerprint) = other_key.map(|(key, fingerprint)| (key.as_str(), fingerprint.as_str())).unzip();
    for _ in 0..TAKES {
        let args = || args![tenant, vendor, key, id, fingerprint, expires, now, other];
        let take = concat!(
            "INSERT INTO ic_key (tenant, vendor, key, job, fingerprint, expires_at) \
             SELECT $1, $2, $3, $4, $5, $6 WHERE NOT EXISTS (",
            row_of_taken_key!("$8", "$7"),
            ") ON CONFLICT (tenant, vendor, key) DO NOTHING"
        );
        if db.execute(take, args()).await? > 0 {
            return Ok(KeyTaken::ByThis);
        }
        // The key of an ended job has expired, and no process has deleted it yet.
        let renew = concat!(
            "UPDATE ic_key SET job = $4, fingerprint = $5, expires_at = $6 \
             WHERE tenant = $1 AND vendor = $2 AND key = $3 AND expires_at <= $7 \
             AND NOT EXISTS (SELECT 1 FROM ic_job WHERE ic_job.id = ic_key.job) AND NOT EXISTS (",
            row_of_taken_key!("$8", "$7"),
            ")"
        );
        if db.execute(renew, args()).await? > 0 {
            return Ok(KeyTaken::ByThis);
        }
        let look = concat!(row_of_taken_key!("$3", "$5"), " UNION ALL ", row_of_taken_key!("$4", "$5"));
        let mut is_taken = false;
        for mut row in db.fetch(look, args![tenant, vendor, key, other, now]).await? {
            let (before, known, form) = (row.id()?, row.text()?, row.text()?);
            let expected = if form == key { Some(fingerprint) } else { other_fingerprint };
            match () {
                () if expected != Some(known.as_str()) => is_taken = true,
                // With this job's id, an earlier run of this step was committed and its reply was lost.
                () if before == job => return Ok(KeyTaken::ByThis),
                () => return Ok(KeyTaken::Before(before)),
            }
        }
        if is_taken {
            return Ok(KeyTaken::ByAnother);
        }
        // Another process has deleted the expired key since the first statement.
    }
    Err(DbError::new(DbKind::Again, "another process deletes the idempotency key again and again"))
}
