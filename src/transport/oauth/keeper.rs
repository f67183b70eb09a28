//! Calls of the program's `TokenKeeper`. All requests of an account wait for them, so each call gets a bounded time,
//! and its panics become errors.

use std::fmt;
use std::time::Duration;

use crate::BoxError;
use crate::error::panic::catch_panic_in;

/// The longest time that one call may take. A refresh calls the keeper several times, and all of that must fit the time
/// for which it is reserved.
pub(super) const LONGEST_CALL: Duration = Duration::from_secs(10);

/// Why a call of the keeper failed.
#[derive(Debug)]
pub(super) enum Fault {
    Returned(BoxError),
    Panicked,
    TimedOut,
}

impl Fault {
    pub(super) fn is_timeout(&self) -> bool {
        matches!(self, Fault::TimedOut)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Returned(error) => write!(f, "{error}"),
            Fault::Panicked => f.write_str("the token keeper panicked"),
            Fault::TimedOut => write!(f, "the token keeper did not answer within {} s", LONGEST_CALL.as_secs()),
        }
    }
}

/// Runs one call of the keeper. `code` makes the call when it is first polled, so that a panic before the keeper's
/// future exists is caught too.
pub(super) async fn call<T>(code: impl Future<Output = Result<T, BoxError>>) -> Result<T, Fault> {
    match tokio::time::timeout(LONGEST_CALL, catch_panic_in(code)).await {
        Ok(Some(returned)) => returned.map_err(Fault::Returned),
        Ok(None) => Err(Fault::Panicked),
        Err(_) => Err(Fault::TimedOut),
    }
}
