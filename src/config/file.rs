//! Reads configuration files, and detects whether they have changed.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::parse;
use super::source::{ConfigSource, FingerprintFuture, Fnv, LoadFuture, MAX_BYTES, SourceKind, Sources};
use crate::Error;
use crate::clock::Clock;

/// The age from which a file's modification time is conclusive: any later change gives the file another time.
pub(super) const SETTLED: Duration = Duration::from_secs(4);

/// Files on top of the catalogue, read again at each load.
#[derive(Clone, Debug)]
#[must_use]
pub struct FileSource {
    base: Sources,
    paths: Vec<PathBuf>,
}

impl FileSource {
    /// Reads one file.
    pub fn new(path: impl Into<PathBuf>) -> FileSource {
        FileSource { base: Sources::new(), paths: vec![path.into()] }
    }

    /// Reads one more file.
    pub fn and(mut self, path: impl Into<PathBuf>) -> Self {
        self.paths.push(path.into());
        self
    }

    /// Replaces the sources to which the files are added, by default the catalogue: for tenants that the program
    /// states, registered resolvers, or no catalogue.
    pub fn onto(mut self, base: Sources) -> Self {
        self.base = base;
        self
    }
}

impl ConfigSource for FileSource {
    fn fingerprint(&self) -> FingerprintFuture<'_> {
        let paths = self.paths.clone();
        Box::pin(async move {
            let wall = Clock::system().wall();
            run_blocking(move || fingerprint(&paths, wall)).await.ok().flatten()
        })
    }

    fn load(&self) -> LoadFuture<'_> {
        let (mut sources, paths) = (self.base.clone(), self.paths.clone());
        let read = move || {
            for path in &paths {
                sources = sources.file(path.display().to_string(), read(path)?);
            }
            Ok(sources)
        };
        Box::pin(async move { run_blocking(read).await? })
    }

    fn display_name(&self) -> Option<String> {
        let paths: Vec<String> = self.paths.iter().map(|path| path.display().to_string()).collect();
        Some(paths.join(", "))
    }

    fn kind(&self) -> SourceKind {
        SourceKind::File
    }
}

/// Runs `work`, which may wait for a disk, outside the runtime's worker threads, which a slow disk must not block.
/// Without a runtime `work` runs in place.
pub(crate) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime
            .spawn_blocking(work)
            .await
            .map_err(|_| Error::config("reading the configuration was cut short: the runtime is shutting down")),
        Err(_) => Ok(work()),
    }
}

/// A hash of the files' metadata, made without reading the files. `None` if the metadata cannot prove that a file is
/// unchanged: the file cannot be found, or was changed just now. A file system may give the same time to two changes
/// within one tick (up to 2 s on FAT), and the second change may keep the length.
fn fingerprint(paths: &[PathBuf], wall: SystemTime) -> Option<u64> {
    let mut hash = Fnv::default();
    for path in paths {
        let (modified, of_file) = stamp(path)?;
        let age = wall.duration_since(modified).unwrap_or_else(|ahead| ahead.duration());
        if age < SETTLED {
            return None;
        }
        hash.bytes(&of_file.to_le_bytes());
    }
    Some(hash.0)
}

/// When a file was last modified, and a hash of its metadata, which differs for another file at this path and after a
/// change of the file. `None` if the file cannot be found.
pub(crate) fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    // `metadata` follows symbolic links, so a link that was changed counts as another file.
    let found = std::fs::metadata(path).ok()?;
    let modified = found.modified().ok()?;
    let since = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut hash = Fnv::default();
    hash.bytes(&since.as_nanos().to_le_bytes());
    hash.bytes(&found.len().to_le_bytes());
    identity(&found).iter().for_each(|part| hash.bytes(&part.to_le_bytes()));
    Some((modified, hash.0))
}

/// Distinguishes a file from another that has replaced it, and from itself with its old modification time restored.
#[cfg(unix)]
fn identity(found: &std::fs::Metadata) -> [u64; 4] {
    use std::os::unix::fs::MetadataExt;
    [found.dev(), found.ino(), found.ctime() as u64, found.ctime_nsec() as u64]
}

/// Distinguishes a file from another that has replaced it, if their creation times differ.
#[cfg(not(unix))]
fn identity(found: &std::fs::Metadata) -> [u64; 4] {
    let created = found.created().ok().and_then(|created| created.duration_since(SystemTime::UNIX_EPOCH).ok());
    [created.unwrap_or_default().as_nanos() as u64, 0, 0, 0]
}

fn read(path: &Path) -> Result<String, Error> {
    let failed = |error: std::io::Error| {
        Error::config(format!("{}: cannot be read: {error}", path.display())).with_source(error)
    };
    let mut bytes = Vec::new();
    // Checks the bytes read, because the size that the file system states may change meanwhile.
    std::fs::File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Error::config(parse::too_large(&path.display().to_string())));
    }
    // An empty text is valid TOML, but also what a full disk leaves, or a program that is about to write the file.
    if bytes.iter().all(u8::is_ascii_whitespace) {
        let name = path.display();
        return Err(Error::config(format!(
            "{name}: the file is empty; put a comment into it if nothing is what it means"
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        let (name, at) = (path.display(), error.utf8_error().valid_up_to());
        // The byte order marks. One of UTF-32 begins with one of UTF-16.
        let marks: [(&[u8], &str); 4] =
            [(b"\xFF\xFE\0\0", "32"), (b"\0\0\xFE\xFF", "32"), (b"\xFF\xFE", "16"), (b"\xFE\xFF", "16")];
        if let Some((_, bits)) = marks.into_iter().find(|(mark, _)| error.as_bytes().starts_with(mark)) {
            return Error::config(format!("{name}: the file is UTF-{bits}, and not UTF-8; save it as UTF-8"));
        }
        Error::config(format!("{name}: byte {at} is not UTF-8; save the file as UTF-8"))
    })
}
