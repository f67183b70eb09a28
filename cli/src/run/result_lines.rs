//! Writes result lines. If a reader stops reading, or a disk hangs, this blocks the results thread alone. All results
//! wait in a queue that is bounded in bytes.
//!
//! The store ends a job without its response once the job's line is written, and syncs that. If the line were not synced
//! before, a power failure would leave the response nowhere. So a line in a file counts as written once it is synced. The results thread writes together all lines that have gathered during the
//! last sync, and syncs them with one call: the slower the disk, the larger these groups.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::notes;
use crate::output::Failure;

/// Bytes of lines that may wait to be written.
const ROOM: usize = 16 << 20;
/// The most bytes that one write to a pipe takes from the queue. One to a file takes all that wait.
const AT_ONCE: usize = 1 << 16;

/// The output to which lines are written.
pub(super) enum Out {
    /// A pipe, a terminal, or whatever else standard output is.
    Stdout(File),
    File(File, PathBuf),
}

impl Out {
    /// Duplicates standard output, so that writes do not take the lock that the rest of the program uses.
    fn stdout() -> Result<Out, Failure> {
        #[cfg(unix)]
        let owned = std::os::fd::AsFd::as_fd(&io::stdout()).try_clone_to_owned();
        #[cfg(windows)]
        let owned = std::os::windows::io::AsHandle::as_handle(&io::stdout()).try_clone_to_owned();
        owned
            .map(|owned| Out::Stdout(File::from(owned)))
            .map_err(|error| Failure::Input(format!("standard output cannot be written: {error}")))
    }

    /// Opens the output that `--out` names: `-` for standard output, or a file, which is created if it does not exist.
    /// Keeps its content. A regular file is locked until it is closed, where the file system has locks: a second run
    /// would cut off what the first one writes, and write over it.
    pub(super) fn open(path: &Path) -> Result<Out, Failure> {
        if path == Path::new("-") {
            return Out::stdout();
        }
        let mut options = OpenOptions::new();
        // Responses hold customers' data, so the file is readable by its owner alone, like the store's file.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Failure::Input(format!("{}: its folder is not there; make it first", path.display()))
            }
            _ => Failure::reading(path, &error),
        })?;
        // Runs may share a device, such as /dev/null.
        if file.metadata().map_err(|error| Failure::reading(path, &error))?.is_file() {
            check_lock(path, file.try_lock())?;
            sync_folder(path);
        }
        Ok(Out::File(file, path.to_owned()))
    }

    /// Whether the output is a regular file, and no pipe or device.
    fn is_file(&self) -> bool {
        let (Out::Stdout(file) | Out::File(file, _)) = self;
        file.metadata().is_ok_and(|about| about.is_file())
    }

    /// Writes and syncs lines. If that fails for the file of `--out`, what was written is removed: the file then holds only whole
    /// lines, and the next run takes no line for written that may not be on the disk.
    fn write(&mut self, text: &[u8], sync: impl Fn(&File) -> io::Result<()>) -> io::Result<()> {
        match self {
            Out::Stdout(out) => out.write_all(text).and_then(|()| sync(out)),
            Out::File(file, _) => {
                let before = file.stream_position();
                file.write_all(text).and_then(|()| sync(file)).inspect_err(|_| {
                    if let Ok(before) = before {
                        let _ = file.set_len(before).and_then(|()| file.seek(SeekFrom::Start(before)));
                    }
                })
            }
        }
    }
}

/// Refuses a file that another run has locked. A file that cannot be locked is written all the same: some network file
/// systems have no locks.
fn check_lock(path: &Path, locked: Result<(), TryLockError>) -> Result<(), Failure> {
    let shown = path.display();
    match locked {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(Failure::Input(format!(
                "{shown}: another run writes this file: wait for its end, or name another file with --out"
            )));
        }
        Err(TryLockError::Error(error)) => {
            notes::say(&format!("{shown}: it cannot be locked ({error}): let no other run write it at the same time"));
        }
    }
    Ok(())
}

/// Syncs a file, on a file system that can.
pub(super) fn sync(file: &File) -> io::Result<()> {
    match file.sync_data() {
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        synced => synced,
    }
}

/// Syncs the folder of a file that may be new, so that a power failure does not take the file away. Errors are ignored:
/// not every system can open a folder, and most file systems sync the entry of a new file together with the file.
fn sync_folder(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
}

/// A line that waits to be written.
struct Line {
    text: String,
    /// Notified when the line is written and synced, and dropped if that fails.
    written: oneshot::Sender<()>,
    _room: OwnedSemaphorePermit,
}

/// A reservation of bytes in the queue, for one line.
pub(super) struct Room(OwnedSemaphorePermit);

/// The queue of the results thread.
#[derive(Clone)]
pub(super) struct Lines {
    queue: mpsc::Sender<Line>,
    room: Arc<Semaphore>,
    shared: Arc<Shared>,
}

/// A line in the queue.
pub(super) struct Queued(oneshot::Receiver<()>);

impl Queued {
    /// Waits until the line is written and, in a file, synced.
    pub(super) async fn written(self) -> io::Result<()> {
        self.0.await.map_err(|_| broken())
    }
}

/// What the results thread says of its writes.
#[derive(Default)]
struct Shared {
    is_broken: AtomicBool,
    problem: Mutex<Option<io::Error>>,
}

impl Shared {
    /// Records that a write or a sync has failed, so that no further write is tried.
    fn broke(&self, error: io::Error) {
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        self.is_broken.store(true, Relaxed);
    }
}

impl Lines {
    /// Starts the results thread. It ends when the last handle of the queue is dropped.
    pub(super) fn start(out: Out) -> Result<Lines, Failure> {
        Lines::synced_by(out, sync)
    }

    /// As [`start`](Self::start). `sync` syncs a file; a pipe or a device is not synced.
    fn synced_by(mut out: Out, sync: impl Fn(&File) -> io::Result<()> + Send + 'static) -> Result<Lines, Failure> {
        let (queue, waiting) = mpsc::channel();
        let (shared, is_file) = (Arc::<Shared>::default(), out.is_file());
        // A write to a pipe may block for long, so few lines wait for its end.
        let most = if is_file { ROOM } else { AT_ONCE };
        let sync = move |file: &File| if is_file { sync(file) } else { Ok(()) };
        let said = shared.clone();
        std::thread::Builder::new()
            .name("results".to_owned())
            .spawn(move || write_all(&waiting, &said, most, |text| out.write(text, &sync)))
            .map_err(|error| Failure::Input(format!("no thread can be started for the results: {error}")))?;
        Ok(Lines { queue, room: Arc::new(Semaphore::new(ROOM)), shared })
    }

    /// Waits until the queue has room for about `bytes` more, and reserves it.
    pub(super) async fn room(&self, bytes: usize) -> io::Result<Room> {
        // ROOM fits into 32 bits. A line that is longer than ROOM waits until the queue is empty.
        let bytes = bytes.min(ROOM) as u32;
        self.room.clone().acquire_many_owned(bytes).await.map(Room).map_err(|_| broken())
    }

    /// Queues a line.
    pub(super) fn put(&self, text: String, Room(room): Room) -> Queued {
        let (told, written) = oneshot::channel();
        // If the results thread has ended, this drops the line, and `Queued::written` returns an error.
        let _ = self.queue.send(Line { text, written: told, _room: room });
        Queued(written)
    }

    /// Waits until all queued lines are written and, in a file, synced.
    pub(super) async fn drain(&self) -> io::Result<()> {
        let room = self.room(0).await?;
        self.put(String::new(), room).written().await
    }

    /// Whether a write or a sync has failed, so that no further write is tried.
    pub(super) fn is_broken(&self) -> bool {
        self.shared.is_broken.load(Relaxed)
    }

    /// Why a write or a sync has failed. Returns the error once.
    pub(super) fn problem(&self) -> Option<io::Error> {
        self.shared.problem.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The error for each line that is not written. [`Lines::problem`] returns the cause once.
pub(super) fn broken() -> io::Error {
    io::Error::other("the results cannot be written")
}

/// The loop of the results thread: writes lines as they arrive, until the last sender is dropped. `write` writes and
/// syncs some lines; a line is added to those that are written together while they have fewer than `most` bytes.
fn write_all(
    queue: &mpsc::Receiver<Line>,
    shared: &Shared,
    most: usize,
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
) {
    while let Ok(first) = queue.recv() {
        let mut text = first.text;
        let mut rooms = vec![(first.written, first._room)];
        while text.len() < most
            && let Ok(next) = queue.try_recv()
        {
            text += &next.text;
            rooms.push((next.written, next._room));
        }
        if shared.is_broken.load(Relaxed) {
            continue;
        }
        match write(text.as_bytes()) {
            Ok(()) => rooms.into_iter().for_each(|(written, _)| {
                // The receiver may have been dropped.
                let _ = written.send(());
            }),
            Err(error) => shared.broke(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The disk is full, which the system may notice only when the file is synced.
    #[tokio::test]
    async fn line_is_written_once_it_is_synced() {
        let path = std::env::temp_dir().join(format!("ic-result-lines-{}.jsonl", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let (may_sync, syncs) = mpsc::channel();
        let sync = move |_: &File| syncs.recv().unwrap();
        let lines = Lines::synced_by(Out::open(&path).unwrap(), sync).unwrap();
        let put = async |text: &str| lines.put(text.to_owned(), lines.room(text.len()).await.unwrap());
        let mut first = put("1\n").await;
        while std::fs::read_to_string(&path).unwrap() != "1\n" {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(first.0.try_recv().is_err(), "it is not synced yet");
        // Lines that come during a sync share the next one.
        let (second, third) = (put("2\n").await, put("3\n").await);
        may_sync.send(Ok(())).unwrap();
        first.written().await.unwrap();
        may_sync.send(Ok(())).unwrap();
        second.written().await.unwrap();
        third.written().await.unwrap();
        let fourth = put("4\n").await;
        may_sync.send(Err(io::Error::from(io::ErrorKind::StorageFull))).unwrap();
        assert!(fourth.written().await.is_err() && lines.is_broken());
        assert_eq!(lines.problem().unwrap().kind(), io::ErrorKind::StorageFull);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n2\n3\n", "the next run writes the fourth");
        assert!(lines.drain().await.is_err());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn only_a_held_lock_refuses_the_file() {
        let path = Path::new("results.jsonl");
        assert!(check_lock(path, Ok(())).is_ok());
        assert!(check_lock(path, Err(TryLockError::WouldBlock)).is_err());
        let unsupported = io::Error::from(io::ErrorKind::Unsupported);
        for error in [io::Error::other("No locks available"), unsupported] {
            assert!(check_lock(path, Err(TryLockError::Error(error))).is_ok());
        }
    }
}
