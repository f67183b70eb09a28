//! Decides whether a claimed job is sent, or is given up before. Pure.

use std::time::Duration;

use http::Method;

use super::stored::Stored;
use crate::config::Tenant;
use crate::dead_letter::Reason;
use crate::retry::{idempotent, knows_key, may_resend};
use crate::store::jobs::Claimed;

/// Exchanges without an outcome before a job is given up: the job may be what kills the process.
pub(super) const MAX_STARTED: i64 = 5;
/// Claims without an outcome before a job is given up. Higher than [`MAX_STARTED`]: most likely the job only waited for
/// its permit while processes were killed for another reason.
const MAX_CLAIMS: i64 = 25;

/// What decides whether a claimed job is sent, besides the counts of its claim.
pub(super) struct CanBeSent {
    /// The request may be sent again after an exchange with an unknown outcome.
    pub(super) again: bool,
    /// An attempt of an earlier claim left open whether the vendor acted, beside the exchanges without an outcome.
    pub(super) may_have_acted: bool,
    /// The job's row holds a request.
    pub(super) is_readable: bool,
    /// The job's lane is in the configuration, or has not been missing there for long.
    pub(super) is_configured: bool,
}

impl CanBeSent {
    /// Why the job is given up without another exchange; `None` if it is sent.
    ///
    /// An exchange on which the vendor may have acted comes before all other reasons: with another reason, an operator may
    /// send the letter again without asking the vendor. The process that made the exchange may also report its outcome
    /// later, which replaces a letter with this reason only.
    pub(super) fn reason_against(&self, job: &Claimed) -> Option<Reason> {
        if (job.started > 0 || self.may_have_acted) && !self.again {
            Some(Reason::Ambiguous)
        } else if job.expires_ms.is_some_and(|left| left <= 0) {
            Some(Reason::Expired)
        } else if job.claims > MAX_CLAIMS || job.started >= MAX_STARTED || !self.is_readable {
            Some(Reason::Poison)
        } else if !self.is_configured {
            Some(Reason::NotConfigured)
        } else {
            None
        }
    }
}

/// Whether a stored request may be sent again, on which the vendor may have acted as long as `age` ago. If its tenant is
/// missing, the vendor's policy is unknown, and whether it reads keys, so the request itself must allow it.
pub(super) fn may_be_resent(stored: &Stored, tenant: Option<&Tenant>, age: Duration) -> bool {
    let Some(tenant) = tenant else {
        // A vendor may take keys with PUT because its PUT is not idempotent.
        let may_repeat = |method: Method| idempotent(&method, || true, false);
        return stored.resend == Some(true) || stored.method().is_some_and(may_repeat);
    };
    let policy = &tenant.vendor.retry;
    let path = stored.request.path();
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let keys = &tenant.vendor.idempotency;
    let longest = stored.attempt_timeout_ms.map_or(tenant.vendor.attempt_timeout, Duration::from_millis);
    let may_repeat = |method: Method| {
        let takes_key = keys.covers(&method, path);
        let honours_key = takes_key && stored.key.is_some() && knows_key(keys.keeps, age, longest);
        idempotent(&method, || takes_key, honours_key)
    };
    let idempotent = stored.method().is_some_and(may_repeat);
    may_resend(idempotent, stored.resend, policy)
}

/// The reason of a job that is given up because the configuration lacks what it needs. The letter may be sent again at any
/// time: if the vendor `may_have_acted`, the request's key does not keep it from acting twice.
pub(super) fn not_configured(stored: Option<&Stored>, may_have_acted: bool) -> Reason {
    let is_safe = || stored.is_some_and(|stored| may_be_resent(stored, None, Duration::ZERO));
    if may_have_acted && !is_safe() { Reason::Ambiguous } else { Reason::NotConfigured }
}

#[cfg(test)]
mod tests;
