//! Where copies are kept of configurations that lie on servers, for processes that start while a server is away.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use crate::Error;

/// What [`CopyPlace::read`] returns.
pub type CopyFuture<'a> = Pin<Box<dyn Future<Output = Result<Option<String>, Error>> + Send + 'a>>;

/// What [`CopyPlace::write`] returns.
pub type CopiedFuture<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

/// A place for copies: the store of a client, which hands it to its sources
/// ([`ConfigSource::keep_copies_in`](super::ConfigSource::keep_copies_in)).
pub trait CopyPlace: Send + Sync + fmt::Debug {
    /// The copy that was last written for this source; none where there is none.
    fn read<'a>(&'a self, source: &'a str) -> CopyFuture<'a>;

    /// Replaces the copy for this source.
    fn write<'a>(&'a self, source: &'a str, copy: &'a str) -> CopiedFuture<'a>;
}
