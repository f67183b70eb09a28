//! The place for copies of configurations from servers, for processes that start while a server cannot be reached.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use crate::Error;

/// What [`CopyPlace::read`] returns.
pub type CopyFuture<'a> = Pin<Box<dyn Future<Output = Result<Option<String>, Error>> + Send + 'a>>;

/// What [`CopyPlace::write`] returns.
pub type CopiedFuture<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

/// A place for copies of configurations: a client's store, which the client passes to its sources
/// ([`ConfigSource::keep_copies_in`](super::ConfigSource::keep_copies_in)).
pub trait CopyPlace: Send + Sync + fmt::Debug {
    /// The copy that was last written for this source, if any.
    fn read<'a>(&'a self, source: &'a str) -> CopyFuture<'a>;

    /// Replaces the copy for this source.
    fn write<'a>(&'a self, source: &'a str, copy: &'a str) -> CopiedFuture<'a>;
}
