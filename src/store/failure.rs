//! What a failure of the database means for a caller: whether the write may have been committed, and whether the
//! failure is temporary.

use super::driver::{DbError, DbKind};
use crate::error::{Delivery, Error, ErrorKind};

pub(crate) fn failed(error: DbError) -> Error {
    let (delivery, hint) = match error.may_be_committed() {
        true => (Delivery::Ambiguous, "; the write may nevertheless have been committed"),
        false => (Delivery::NotSent, "; nothing was written"),
    };
    Error::new(ErrorKind::Store, delivery, format!("store: {error}{hint}")).with_source(error)
}

/// The error of a step that only reads. It says nothing of writes: what was read may be a request that was accepted.
pub(crate) fn unread(error: DbError) -> Error {
    let error = error.certain();
    Error::new(ErrorKind::Store, Delivery::NotSent, format!("store: {error}")).with_source(error)
}

/// Adds `advice` to an error that leaves open whether the write was committed.
pub(crate) fn advise(error: Error, advice: &str) -> Error {
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<DbError>()).cloned();
    match source {
        Some(source) if source.may_be_committed() => {
            Error::new(ErrorKind::Store, Delivery::Ambiguous, format!("{error}; {advice}")).with_source(source)
        }
        _ => error,
    }
}

/// Whether the store or the connection to it failed, as opposed to an error about the data that was to be written.
pub(crate) fn is_down(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<DbError>());
    source.is_some_and(|error| may_pass_by_itself(error.kind) || error.kind == DbKind::Storage)
}

/// Whether the error is temporary: the store is unreachable, or another transaction was in the way.
pub(crate) fn may_pass(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<DbError>());
    source.is_some_and(|error| may_pass_by_itself(error.kind))
}

fn may_pass_by_itself(kind: DbKind) -> bool {
    matches!(kind, DbKind::Unreachable | DbKind::Again | DbKind::Locked)
}

/// Whether another transaction keeps something locked that the work needs, so that other work may succeed.
pub(crate) fn is_locked(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<DbError>());
    source.is_some_and(|error| error.kind == DbKind::Locked)
}
