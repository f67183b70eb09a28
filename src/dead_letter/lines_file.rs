//! A bounded file of lines that only grows at its end, and that consists of whole lines after every failure.
//!
//! A line is written by one call. When the call fails half-way (on a full disk), the partial line is cut off again.
//! When the process dies half-way, or the cut fails too, the next opening finds a partial last line: it moves the bytes
//! to `NAME.torn` and cuts them off the file. Any failure closes the file, so that the next use opens it again, and
//! thereby checks it.
//!
//! One process writes a file at a time; a lock on the file keeps others out where the file system supports locks.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;

/// The longest line, its line end included. A reader holds a whole line in memory.
pub(super) const MAX_LINE_BYTES: u64 = 16 * 1024 * 1024;

/// How many bytes are read at once when the last line is searched.
const CHUNK: u64 = 64 * 1024;

pub(super) struct LinesFile {
    path: PathBuf,
    max_bytes: u64,
    old_files: u32,
    /// `None` after a failure.
    file: Option<File>,
}

impl LinesFile {
    /// Opens or creates the file at `path`, and moves a partial last line aside.
    pub(super) fn open(path: PathBuf, max_bytes: u64, old_files: u32) -> io::Result<LinesFile> {
        let file = Some(open(&path, max_bytes)?);
        Ok(LinesFile { path, max_bytes, old_files, file })
    }

    /// Appends `line`, which ends with a line end and contains no other. After a failure the file holds nothing of the
    /// line, or the next opening moves the partial line aside.
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
            // The lock on the old file is held until here.
            file = open(&self.path, self.max_bytes)?;
        }
        append(&mut file, line)?;
        self.file = Some(file);
        Ok(())
    }

    /// Returns when all lines are on the disk.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        let Some(file) = self.file.take() else { return Ok(()) };
        // The file is opened again after a failed sync, because a second sync may succeed though data is lost.
        file.sync_data()?;
        self.file = Some(file);
        Ok(())
    }

    /// Rotates the files: `NAME` becomes `NAME.1`, `NAME.1` becomes `NAME.2`, and so on. The oldest is deleted.
    fn rotate(&self) -> io::Result<()> {
        let old = |number: u32| with_suffix(&self.path, &number.to_string());
        // Renames only up to the first gap, which a process that died during a rotation leaves behind. Then no file is
        // deleted.
        let gap = (1..=self.old_files).find(|&number| old(number).symlink_metadata().is_err());
        if gap.is_none() {
            let path = self.path.display();
            tracing::warn!(%path, old_files = self.old_files, "deleting the oldest file of dead letters");
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

/// `path` with `.suffix` appended.
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

/// Syncs the folder, because a crash can lose a new file whose name is not on the disk. Where a folder cannot be
/// synced, the operating system writes the name in its own time.
fn sync_names(path: &Path) {
    #[cfg(unix)]
    {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
    #[cfg(not(unix))]
    let _ = path;
}

/// Letters may hold personal data of a vendor's customers, so only the owner can read a new file.
fn readable_by_owner() -> OpenOptions {
    let mut options = OpenOptions::new();
    // Not in append mode, in which some systems cannot truncate a file.
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Whether `path` still names `file`. If another program moved or deleted the file, further lines would be lost.
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

/// The output for lines: a file, or a simulated full disk in tests.
pub(super) trait Output: Write + Seek {
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl Output for File {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// Appends `line` completely or not at all.
pub(super) fn append(output: &mut impl Output, line: &[u8]) -> io::Result<()> {
    let length = output.seek(SeekFrom::End(0))?;
    output.write_all(line).inspect_err(|_| {
        // If this fails too, the next opening finds the partial line.
        let _ = output.cut(length);
    })
}

/// Moves a partial last line aside.
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
    // Only an object counts as complete, because it has an end mark: serde also accepts the first half of a number as a
    // number.
    let whole = line.starts_with(b"{") && serde_json::from_slice::<IgnoredAny>(&line).is_ok();
    match (whole, line.ends_with(b"\n")) {
        (true, true) => Ok(()),
        // The letter is complete; only its line end is missing.
        (true, false) => append(file, b"\n"),
        (false, _) => {
            let torn = with_suffix(path, "torn");
            let (path, bytes) = (path.display(), size);
            tracing::warn!(%path, bytes, torn = %torn.display(), "moved a partial line of dead letters aside");
            set_aside(file, begin..length, &torn, max_bytes)
        }
    }
}

/// The offset at which the last line begins.
fn last_line(file: &mut File, length: u64) -> io::Result<u64> {
    let mut chunk = Vec::new();
    // The last byte is either the line end or a part of the last line, so it is skipped.
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

/// Moves `range`, the end of the file, to the end of `torn`. Truncates `torn` first where it would exceed `max_bytes`.
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
    // The copy is on the disk before the original is cut off. A crash in between leaves the line in both files.
    aside.sync_all()?;
    file.set_len(range.start)?;
    file.sync_all()
}
