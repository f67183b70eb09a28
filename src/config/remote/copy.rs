//! A copy of the configuration that was last in use, for processes that start while its server cannot be asked.

use std::io::{Read, Write};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::super::copies::CopyPlace;
use super::super::file::run_blocking;
use super::super::source::MAX_BYTES;
use super::found::Text;
use crate::Error;

/// The largest file with a copy, in bytes: JSON may need six bytes for one byte of a text.
const MOST: u64 = 6 * MAX_BYTES;
/// How long a write into a file is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// A write into the file that has begun.
pub(super) type Writing = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

#[derive(Serialize, Deserialize)]
pub(super) struct Copy {
    /// The address of the source from which the texts came.
    of: String,
    pub(super) kept_at: String,
    pub(super) texts: Vec<Text>,
}

impl Copy {
    pub(super) fn new(of: &str, wall: SystemTime, texts: &[Text]) -> Copy {
        let kept_at = Timestamp::try_from(wall).map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        Copy { of: of.to_owned(), kept_at: kept_at.unwrap_or_default(), texts: texts.to_vec() }
    }

    /// The copy's age by the wall clock.
    pub(super) fn age(&self, wall: SystemTime) -> Duration {
        let kept_at = self.kept_at.parse::<Timestamp>().ok();
        kept_at.and_then(|at| wall.duration_since(SystemTime::from(at)).ok()).unwrap_or_default()
    }
}

/// Writes the copy to a place for copies.
pub(super) async fn keep(place: &dyn CopyPlace, copy: &Copy) -> Result<(), Error> {
    let text = serde_json::to_string(copy)
        .map_err(|error| Error::config("the copy cannot be written as JSON").with_source(error))?;
    place.write(&copy.of, &text).await
}

/// The copy for the address `of` in a place for copies.
pub(super) async fn kept(place: &dyn CopyPlace, of: &str) -> Result<Option<Copy>, Error> {
    let Some(text) = place.read(of).await? else { return Ok(None) };
    let unreadable = |error| Error::config("the copy in the store is none").with_source(error);
    serde_json::from_str(&text).map(Some).map_err(unreadable)
}

/// Writes the copy into the file, and waits at most [`PATIENCE`] for that: the file may be on a machine that does not
/// answer. A write that has not ended by then stays in `running`. No other one begins before it has ended, because each
/// would leave one more thread hanging.
pub(super) async fn write_in_time(running: &mut Option<Writing>, path: &Path, copy: &Arc<Copy>) -> Result<(), Error> {
    let (to, copy) = (path.to_owned(), copy.clone());
    let written = async {
        if let Some(earlier) = running.as_mut() {
            // It was reported when it was late.
            let _ = earlier.await;
            *running = None;
        }
        let begun = run_blocking(move || write(&to, &copy));
        let written = running.insert(Box::pin(async move { begun.await.and_then(|done| done) })).await;
        *running = None;
        written
    };
    let late = |_| {
        let seconds = PATIENCE.as_secs();
        Error::config(format!("{}: the write of the copy has not ended within {seconds} s", path.display()))
    };
    tokio::time::timeout(PATIENCE, written).await.map_err(late)?
}

/// Writes a new file and renames it over the old one, so that a process killed meanwhile leaves the old file intact.
fn write(path: &Path, copy: &Copy) -> Result<(), Error> {
    let failed = |error: std::io::Error| {
        Error::config(format!("{}: cannot be written: {error}", path.display())).with_source(error)
    };
    let text = serde_json::to_vec_pretty(copy).map_err(|error| failed(error.into()))?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(name);
    let written = std::fs::File::create(&beside)
        .and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        failed(error)
    })
}

/// The copy in the file; `None` if there is no file, or its copy is for another address.
pub(super) fn read(path: &Path, of: &str) -> Result<Option<Copy>, Error> {
    let failed = |error: std::io::Error| {
        Error::config(format!("{}: cannot be read: {error}", path.display())).with_source(error)
    };
    let mut bytes = Vec::new();
    match std::fs::File::open(path) {
        Ok(file) => file.take(MOST + 1).read_to_end(&mut bytes).map_err(failed)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if bytes.len() as u64 > MOST {
        return Err(Error::config(format!("{}: the file is too large to be a copy", path.display())));
    }
    let copy: Copy = serde_json::from_slice(&bytes).map_err(|error| failed(error.into()))?;
    if copy.of != of {
        tracing::warn!(file = %path.display(), of = copy.of, "the copy is of another address, and is not used");
        return Ok(None);
    }
    Ok(Some(copy))
}
