//! Replaces PostgreSQL if the feature `postgres` is off.

use std::sync::Arc;

use super::driver::Connect;
use crate::error::Error;

pub(super) fn open(_url: &str) -> Result<Arc<dyn Connect>, Error> {
    Err(Error::config("store: PostgreSQL is not compiled in; enable the feature `postgres`"))
}
