//! Replaces SQLite if the feature `sqlite` is off.

use std::path::Path;
use std::sync::Arc;

use super::driver::Connect;
use super::path_text::path_text;
use crate::error::Error;

/// Never constructed.
pub(super) struct WorkLock {
    pub(super) identity: String,
}

fn off(path: &Path) -> Error {
    let path = path_text(path);
    Error::config(format!("store {path}: SQLite is not compiled in; enable the feature `sqlite`"))
}

pub(super) fn open(path: &Path) -> Result<Arc<dyn Connect>, Error> {
    Err(off(path))
}

pub(super) fn lock(path: &Path) -> Result<WorkLock, Error> {
    Err(off(path))
}

pub(super) fn works_elsewhere(path: &Path) -> Error {
    off(path)
}
