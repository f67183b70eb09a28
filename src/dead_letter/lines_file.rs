//! A file of lines that grows at its end, within bounds, and is whole after every accident.
//!
//! A line is written by one call. When that fails half-way (a full disk), the half line is cut off again. When the
//! process dies half-way, or the cutting fails too, the next opening finds a last line that is torn: its bytes go to
//! `NAME.torn` and the file ends with the line before. Any failure closes the file, so that what comes next opens, and
//! thereby checks, it anew.
//!
//! One process writes a file at a time; a lock on it holds off others where the file system has locks.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;

/// The longest line, its end included. What reads lines holds one in memory.
pub(super) const MAX_LINE_BYTES: u64 = 16 * 1024 * 1024;

/// How much is read at once in looking for the last line.
const CHUNK: u64 = 64 * 1024;

pub(super) struct LinesFile {
    path: PathBuf,
    max_bytes: u64,
    old_files: u32,
    /// `None` after a failure.
    file: Option<File>,
}

impl LinesFile {
    /// Opens or makes the file at `path`, and sets a torn last line aside.
    pub(super) fn open(path: PathBuf, max_bytes: u64, old_files: u32) -> io::Result<LinesFile> {
        let file = Some(open(&path, max_bytes)?);
        Ok(LinesFile { path, max_bytes, old_files, file })
    }

    /// Adds `line`, which ends with a line end and holds no other. Nothing of it is in the file after a failure, or is
    /// set aside when the file is opened again.
    pub(super) fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let size = line.len() as u64;
        let most = self.max_bytes.min(MAX_LINE_BYTES);
        if size > most {
            let message = format!("the letter takes {size} bytes, and at most {most} are allowed");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let mut file = match self.file.take() {
            Some(file) if is_at(&file, &self.path) => file,
            _ => open(&self.path, self.max_bytes)?,
        };
        let length = file.metadata()?.len();
        if length > 0 && length.saturating_add(size) > self.max_bytes {
            file.sync_data()?;
            self.rotate()?;
            // The old file stays locked until here.
            file = open(&self.path, self.max_bytes)?;
        }
        append(&mut file, line)?;
        self.file = Some(file);
        Ok(())
    }

    /// Returns when all lines are on the disk.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        let Some(file) = self.file.take() else { return Ok(()) };
        // A second sync after a failed one may succeed though data is lost; hence the file is opened anew.
        file.sync_data()?;
        self.file = Some(file);
        Ok(())
    }

    /// Makes room for a new file: `NAME` becomes `NAME.1`, `NAME.1` becomes `NAME.2`, and so on. The oldest goes.
    fn rotate(&self) -> io::Result<()> {
        let old = |number: u32| with_suffix(&self.path, &number.to_string());
        // Up to the first gap only: a process that died in here left one, and nothing need be deleted then.
        let gap = (1..=self.old_files).find(|&number| old(number).symlink_metadata().is_err());
        if gap.is_none() {
            let path = self.path.display();
            tracing::warn!(%path, old_files = self.old_files, "the oldest file of dead letters is deleted");
        }
        if self.old_files == 0 {
            std::fs::remove_file(&self.path)?;
        } else {
            for number in (1..gap.unwrap_or(self.old_files)).rev() {
                std::fs::rename(old(number), old(number + 1))?;
            }
            std::fs::rename(&self.path, old(1))?;
        }
        Ok(())
    }
}

/// `path` with `.suffix` behind it.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".");
    name.push(suffix);
    name.into()
}

fn open(path: &Path, max_bytes: u64) -> io::Result<File> {
    let mut file = readable_by_owner().open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "another writer has it open"));
        }
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
        Err(TryLockError::Error(error)) => return Err(error),
    }
    recover(&mut file, path, max_bytes)?;
    if file.metadata()?.len() == 0 {
        sync_names(path);
    }
    Ok(file)
}

/// What is on the disk under no name is lost, so the name of a new file must be there too. Where that cannot be asked
/// for, the system does it in its own time.
fn sync_names(path: &Path) {
    #[cfg(unix)]
    {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
    #[cfg(not(unix))]
    let _ = path;
}

/// Letters may hold what a vendor's customers wrote: a file that is made is nobody else's to read.
fn readable_by_owner() -> OpenOptions {
    let mut options = OpenOptions::new();
    // Not in append mode, which on some systems may not cut a file.
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Whether `path` still names `file`. Where another program moved or deleted it, nobody would find what is written.
fn is_at(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let (Ok(open), Ok(named)) = (file.metadata(), path.metadata()) else { return false };
        (open.dev(), open.ino()) == (named.dev(), named.ino())
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        path.exists()
    }
}

/// What lines are written to; a file, and in tests one that is full.
pub(super) trait Output: Write + Seek {
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl Output for File {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// Adds `line` as a whole or not at all.
pub(super) fn append(output: &mut impl Output, line: &[u8]) -> io::Result<()> {
    let length = output.seek(SeekFrom::End(0))?;
    output.write_all(line).inspect_err(|_| {
        // When this fails too, the next opening finds the torn line.
        let _ = output.cut(length);
    })
}

/// Sets a torn last line aside.
fn recover(file: &mut File, path: &Path, max_bytes: u64) -> io::Result<()> {
    let length = file.metadata()?.len();
    if length == 0 {
        return Ok(());
    }
    let begin = last_line(file, length)?;
    let size = length - begin;
    let mut line = Vec::new();
    if size <= MAX_LINE_BYTES {
        file.seek(SeekFrom::Start(begin))?;
        file.take(size).read_to_end(&mut line)?;
    }
    // Serde takes a number that was cut in two for a number, so only an object counts: it has an end of its own.
    let whole = line.starts_with(b"{") && serde_json::from_slice::<IgnoredAny>(&line).is_ok();
    match (whole, line.ends_with(b"\n")) {
        (true, true) => Ok(()),
        // All of the letter is there; nothing but its line end is missing.
        (true, false) => append(file, b"\n"),
        (false, _) => {
            let torn = with_suffix(path, "torn");
            let (path, bytes) = (path.display(), size);
            tracing::warn!(%path, bytes, torn = %torn.display(), "a torn line of dead letters is set aside");
            set_aside(file, begin..length, &torn, max_bytes)
        }
    }
}

/// Where the last line begins.
fn last_line(file: &mut File, length: u64) -> io::Result<u64> {
    let mut chunk = Vec::new();
    // The last byte is the end of the last line, or a part of it.
    let mut end = length - 1;
    while end > 0 {
        let begin = end.saturating_sub(CHUNK);
        chunk.clear();
        file.seek(SeekFrom::Start(begin))?;
        file.take(end - begin).read_to_end(&mut chunk)?;
        if let Some(at) = chunk.iter().rposition(|&byte| byte == b'\n') {
            return Ok(begin + at as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}

/// Moves `range`, which is the file's end, to the end of `torn`. At most `max_bytes` of older ones stay there.
fn set_aside(file: &mut File, range: std::ops::Range<u64>, torn: &Path, max_bytes: u64) -> io::Result<()> {
    let mut aside = readable_by_owner().open(torn)?;
    let size = range.end - range.start;
    if aside.seek(SeekFrom::End(0))?.saturating_add(size) >= max_bytes {
        aside.set_len(0)?;
        aside.rewind()?;
    }
    file.seek(SeekFrom::Start(range.start))?;
    io::copy(&mut file.take(size), &mut aside)?;
    aside.write_all(b"\n")?;
    // On the disk there before it goes here. A crash between the two leaves it in both.
    aside.sync_all()?;
    file.set_len(range.start)?;
    file.sync_all()
}
