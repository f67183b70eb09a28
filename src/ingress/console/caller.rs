//! The caller of a call, and the audit lines of what the caller did.

use super::access::Access;
use crate::error::Error;

/// The target of audit lines.
const TARGET: &str = "integration_client::console";
/// What an [`Action`] changes.
const LETTERS: &str = "dead letters";

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
    tracing::info!(target: TARGET, caller = who.name, action, on, count, "an operator acted");
}

/// An action of an operator on dead letters, while it goes on. Its begin and its end are logged, also if it ends with
/// an error, or if its caller goes away, with which its future is dropped.
pub(super) struct Action<'w> {
    who: &'w Who,
    name: &'static str,
    /// The number of letters that were changed so far; `None` if it is unknown.
    pub(super) changed: Option<u64>,
    has_ended: bool,
}

impl<'w> Action<'w> {
    /// Begins an action on `letters` letters.
    pub(super) fn begin(who: &'w Who, name: &'static str, letters: u64) -> Action<'w> {
        tracing::info!(
            target: TARGET,
            caller = who.name,
            action = name,
            on = LETTERS,
            count = letters,
            "an operator begins an action"
        );
        Action { who, name, changed: Some(0), has_ended: false }
    }

    /// Ends the action. Returns the number of letters that were changed.
    pub(super) fn end(mut self, result: Result<(), Error>) -> Result<u64, Error> {
        self.has_ended = true;
        let (caller, action, count) = (&*self.who.name, self.name, self.changed);
        match result {
            Ok(()) => {
                audit(self.who, action, LETTERS, count);
                Ok(count.unwrap_or(0))
            }
            Err(error) => {
                tracing::warn!(
                    target: TARGET, caller, action, on = LETTERS, count, %error, "an action of an operator failed"
                );
                Err(error)
            }
        }
    }
}

impl Drop for Action<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            let (caller, action, count) = (&*self.who.name, self.name, self.changed);
            tracing::warn!(
                target: TARGET, caller, action, on = LETTERS, count, "an operator went away before the end of an action"
            );
        }
    }
}

#[cfg(test)]
mod tests;
