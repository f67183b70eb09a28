//! The caller of a call, and the audit line of what the caller did.

use super::access::Access;

/// The user or program that makes a call.
#[derive(Clone, Debug)]
pub(super) struct Who {
    pub(super) name: String,
    pub(super) access: Access,
    /// The digest of the id of the session that identifies the user, if it was not a token.
    pub(super) session: Option<[u8; 32]>,
}

/// Logs an action of an operator, with the operator's name.
pub(super) fn audit(who: &Who, action: &'static str, on: &str, count: Option<u64>) {
    tracing::info!(target: "integration_client::console", caller = who.name, action, on, count, "an operator acted");
}
