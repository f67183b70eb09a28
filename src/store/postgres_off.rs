//! In place of PostgreSQL, without the feature `postgres`.

use std::sync::Arc;

use super::driver::Connect;
use crate::error::Error;

pub(super) fn open(_url: &str) -> Result<Arc<dyn Connect>, Error> {
    Err(Error::config("store: PostgreSQL is not compiled in; switch the feature `postgres` on"))
}
