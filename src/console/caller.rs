//! The caller of a call, and the audit line of what the caller did.

use super::access::Access;

/// Whoever makes a call.
#[derive(Clone, Debug)]
pub(super) struct Who {
    pub(super) name: String,
    pub(super) access: Access,
    /// The session that speaks for them.
    pub(super) session: Option<[u8; 32]>,
}

/// Writes down who did what: an operator's act is part of what happened.
pub(super) fn audit(who: &Who, action: &'static str, on: &str, count: Option<u64>) {
    tracing::info!(target: "integration_client::console", caller = who.name, action, on, count, "an operator acted");
}
