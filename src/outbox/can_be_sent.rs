//! Decides whether a claimed job is sent, or is given up before. Pure.

use super::stored::Stored;
use crate::config::Tenant;
use crate::dead_letter::Reason;
use crate::retry::{idempotent, may_resend};
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
        if job.started > 0 && !self.again {
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

/// Whether a stored request with an unknown outcome may be sent again. If its tenant is missing, the vendor's
/// policy is unknown, and whether it reads keys, so the request itself must allow it.
pub(super) fn may_be_resent(stored: &Stored, tenant: Option<&Tenant>) -> bool {
    let Some(tenant) = tenant else {
        return stored.resend == Some(true) || stored.method().is_some_and(|method| idempotent(&method, false));
    };
    let policy = &tenant.vendor.retry;
    let path = stored.request.path();
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let honours_key = |method: &_| stored.key.is_some() && tenant.vendor.idempotency.covers(method, path);
    let idempotent = stored.method().is_some_and(|method| idempotent(&method, honours_key(&method)));
    may_resend(idempotent, stored.resend, policy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Id, LaneTier};

    const ONCE: CanBeSent = CanBeSent { again: false, is_readable: true, is_configured: true };
    const AGAIN: CanBeSent = CanBeSent { again: true, ..ONCE };

    fn claimed(started: i64, claims: i64, expires_ms: Option<i64>) -> Claimed {
        Claimed {
            id: Id::from_u128(1),
            lane: LaneTier { tenant: "a".to_owned(), vendor: "v".to_owned(), tier: 1 },
            fence: claims,
            claims,
            started,
            expires_ms,
            expires_at: None,
            keep_result: false,
            request: Vec::new(),
            history: None,
        }
    }

    #[test]
    fn possible_effect_comes_before_other_reasons() {
        let unknown = |can: CanBeSent| CanBeSent { is_configured: false, ..can };
        let unreadable = |can: CanBeSent| CanBeSent { is_readable: false, ..can };
        for (number, (can_be_sent, job, reason)) in [
            (ONCE, claimed(1, 1, None), Some(Reason::Ambiguous)),
            (ONCE, claimed(1, 1, Some(-1)), Some(Reason::Ambiguous)),
            (unknown(ONCE), claimed(1, 1, None), Some(Reason::Ambiguous)),
            (unreadable(ONCE), claimed(1, 1, None), Some(Reason::Ambiguous)),
            (ONCE, claimed(5, 26, None), Some(Reason::Ambiguous)),
            (ONCE, claimed(0, 1, Some(0)), Some(Reason::Expired)),
            (AGAIN, claimed(1, 1, Some(-1)), Some(Reason::Expired)),
            (AGAIN, claimed(5, 5, None), Some(Reason::Poison)),
            (ONCE, claimed(0, 26, None), Some(Reason::Poison)),
            (unreadable(ONCE), claimed(0, 1, None), Some(Reason::Poison)),
            (unknown(ONCE), claimed(0, 1, None), Some(Reason::NotConfigured)),
            (unknown(AGAIN), claimed(1, 1, None), Some(Reason::NotConfigured)),
            (ONCE, claimed(0, 25, Some(1)), None),
            (AGAIN, claimed(4, 4, None), None),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(can_be_sent.reason_against(&job), reason, "{number}");
        }
    }

    #[test]
    fn request_alone_decides_without_its_tenant() {
        for (method, more, again) in [
            ("GET", "", true),
            ("DELETE", ",\"resend\":false", true),
            ("POST", "", false),
            ("POST", ",\"key\":\"k\"", false),
            ("POST", ",\"resend\":true", true),
        ] {
            let text = format!(r#"{{"request":{{"whole":{{"method":"{method}","path":"/a"}}}}{more}}}"#);
            let stored: Stored = serde_json::from_str(&text).unwrap();
            assert_eq!(may_be_resent(&stored, None), again, "{text}");
        }
    }
}
