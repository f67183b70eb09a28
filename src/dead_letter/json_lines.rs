//! Letters in a file, one JSON object a line.

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

/// Keeps letters in a file, one JSON object a line.
///
/// **Size.** A file grows to `max_bytes`; then it becomes `NAME.1`, what was that becomes `NAME.2`, and so on. When there
/// are more than `old_files` of them the oldest is deleted, and a warning says so. A letter that takes more than
/// `max_bytes` or 16 MiB is refused.
///
/// **Accidents.** A line that could be written in part only (a full disk) is cut off again, and the letter refused. When
/// the process dies in the middle of a line, the next opening sets the torn bytes aside, in `NAME.torn`, and goes on
/// behind the line before. There, at most `max_bytes` of older torn lines are kept.
///
/// **Secrets.** [Whole](super::LetterRequest::Whole) letters are written whole, bodies included, and unencrypted. The
/// files can be read by their owner alone; the mode of a file that is there already stays as it is.
///
/// One process writes a file at a time. Another program may move the file away: a new one is made. Letters have left the
/// process when the sink says so, and are on the disk after [`flush`](DeadLetterSink::flush).
pub struct JsonLinesSink {
    path: PathBuf,
    /// Locked for as long as the file is worked on, even where nobody waits for the end of it any more: a disk that
    /// hangs then holds one thread, and not one for each try.
    file: Arc<Mutex<LinesFile>>,
}

impl JsonLinesSink {
    /// Opens the file at `path`, or makes it, and sets a torn last line aside. Blocks for as long as the disk takes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config): the file cannot be opened or made, is not a regular file, or
    /// another process writes it.
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
    /// A file that is being written may be read; its last line may then be half there.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or some of its lines are no letters. The error says which, and holds those that are.
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
