//! A sink that writes letters to a file, one JSON object per line.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::lines_file::LinesFile;
use super::read::{self, ReadError};
use super::{DeadLetter, DeadLetterSink};
use crate::BoxError;
use crate::BoxFuture;
use crate::error::Error;

/// Keeps letters in a file, one JSON object per line.
///
/// **Size.** A file grows to `max_bytes`; then it becomes `NAME.1`, the former `NAME.1` becomes `NAME.2`, and so on.
/// Beyond `old_files` such files the oldest is deleted, and a warning is logged. A letter of more than `max_bytes` or
/// 16 MiB is refused.
///
/// **Failures.** A line that was written only in part (on a full disk) is cut off again, and the letter is refused.
/// When the process dies in the middle of a line, the next opening moves the partial line to `NAME.torn`, which keeps
/// at most `max_bytes` of older ones.
///
/// **Secrets.** [Whole](super::LetterRequest::Whole) letters are written whole, bodies included, and unencrypted. A new
/// file can be read by its owner only; the mode of an existing file is not changed.
///
/// One process writes a file at a time. Another program may move the file away; then a new one is created. A letter has
/// left the process when `write` returns, and is on the disk after [`flush`](DeadLetterSink::flush).
pub struct JsonLinesSink {
    path: PathBuf,
    /// Locked until the disk operation ends, even if its caller has gone away: so a disk that hangs occupies one
    /// thread, and not one for each retry.
    file: Arc<Mutex<LinesFile>>,
}

impl JsonLinesSink {
    /// Opens or creates the file at `path`, and moves a partial last line aside. Blocks for as long as the disk takes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config): the file cannot be opened or created, is not a regular file, or
    /// is being written by another process.
    pub fn open(path: impl AsRef<Path>, max_bytes: u64, old_files: u32) -> Result<JsonLinesSink, Error> {
        let path = path.as_ref().to_owned();
        match LinesFile::open(path.clone(), max_bytes, old_files) {
            Ok(file) => Ok(JsonLinesSink { path, file: Arc::new(Mutex::new(file)) }),
            Err(error) => {
                let message = format!("dead letters cannot be written to {}: {error}", path.display());
                Err(Error::config(message).with_source(error))
            }
        }
    }

    /// The letters in the file at `path`, oldest first. Blocks for as long as the disk takes.
    ///
    /// The file may be read while it is being written; then its last line may be incomplete.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or some of its lines are not letters. The error lists these lines, and holds the
    /// letters of the others.
    pub fn read(path: impl AsRef<Path>) -> Result<Vec<DeadLetter>, ReadError> {
        read::file(path.as_ref())
    }
}

impl DeadLetterSink for JsonLinesSink {
    fn write<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            let mut line = serde_json::to_vec(letter)?;
            line.push(b'\n');
            let mut file = self.file.clone().lock_owned().await;
            spawn_blocking(move || file.append(&line)).await??;
            Ok(())
        })
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), BoxError>> {
        Box::pin(async move {
            let mut file = self.file.clone().lock_owned().await;
            spawn_blocking(move || file.sync()).await??;
            Ok(())
        })
    }
}

impl fmt::Debug for JsonLinesSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonLinesSink").field("path", &self.path).finish_non_exhaustive()
    }
}
