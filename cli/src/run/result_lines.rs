//! Writes result lines. If a reader stops reading, or a disk hangs, this blocks at most one of the threads that end
//! jobs, and the results thread. All other results wait in a queue that is bounded in bytes.
//!
//! If results go to a file and no other line is waiting or being written, the thread that ends a job writes its line
//! itself, because handing the line to another thread and waiting for it takes longer. All other lines go through a
//! queue to the results thread, which writes together all lines that have gathered there.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::notes;
use crate::output::Failure;

/// Bytes of lines that may wait to be written.
const ROOM: usize = 16 << 20;
/// The most bytes that one write to the file takes from the queue.
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
        }
        Ok(Out::File(file, path.to_owned()))
    }

    /// Writes lines. If a write to a file fails, what was written of it is removed, so that the file holds only whole
    /// lines.
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        match self {
            Out::Stdout(out) => out.write_all(text),
            Out::File(file, _) => {
                let before = file.stream_position();
                file.write_all(text).inspect_err(|_| {
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

/// A line that waits to be written.
struct Line {
    text: String,
    /// Notified when the line is written, and dropped if it cannot be written.
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

/// The state that the results thread shares with the threads that write their lines themselves.
struct Shared {
    out: Mutex<Out>,
    is_file: bool,
    is_broken: AtomicBool,
    problem: Mutex<Option<io::Error>>,
}

impl Shared {
    /// Records that a write has failed, so that no further write is tried.
    fn broke(&self, error: io::Error) {
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        self.is_broken.store(true, Relaxed);
    }
}

/// The right to write a line immediately, bypassing the queue. Holds the lock of the output.
pub(super) struct AtOnce<'a> {
    out: MutexGuard<'a, Out>,
    shared: &'a Shared,
}

impl AtOnce<'_> {
    pub(super) fn write(mut self, text: &str) -> io::Result<()> {
        if self.shared.is_broken.load(Relaxed) {
            return Err(broken());
        }
        self.out.write(text.as_bytes()).map_err(|error| {
            self.shared.broke(error);
            broken()
        })
    }
}

impl Lines {
    /// Starts the results thread. It ends when the last handle of the queue is dropped.
    pub(super) fn start(out: Out) -> Result<Lines, Failure> {
        let (queue, waiting) = mpsc::channel();
        // A named pipe or a device does not count as a file, because its writes may block for long.
        let is_file = matches!(&out, Out::File(file, _) if file.metadata().is_ok_and(|about| about.is_file()));
        let shared = Arc::new(Shared {
            out: Mutex::new(out),
            is_file,
            is_broken: AtomicBool::new(false),
            problem: Mutex::default(),
        });
        let writes = shared.clone();
        std::thread::Builder::new()
            .name("results".to_owned())
            .spawn(move || write_all(&waiting, &writes))
            .map_err(|error| Failure::Input(format!("no thread can be started for the results: {error}")))?;
        Ok(Lines { queue, room: Arc::new(Semaphore::new(ROOM)), shared })
    }

    /// The right to write a line immediately. `None` if the output is not a file, or another line waits or is being
    /// written.
    pub(super) fn at_once(&self) -> Option<AtOnce<'_>> {
        if !self.shared.is_file || self.room.available_permits() < ROOM {
            return None;
        }
        let out = self.shared.out.try_lock().ok()?;
        Some(AtOnce { out, shared: &self.shared })
    }

    /// Waits until the queue has room for about `bytes` more, and reserves it.
    pub(super) async fn room(&self, bytes: usize) -> io::Result<Room> {
        // ROOM fits into 32 bits. A line that is longer than ROOM waits until the queue is empty.
        let bytes = bytes.min(ROOM) as u32;
        self.room.clone().acquire_many_owned(bytes).await.map(Room).map_err(|_| broken())
    }

    /// Queues a line. The returned future waits until the line is written.
    pub(super) fn put(&self, text: String, Room(room): Room) -> impl Future<Output = io::Result<()>> + use<> {
        let (told, written) = oneshot::channel();
        let is_taken = self.queue.send(Line { text, written: told, _room: room }).is_ok();
        async move {
            if !is_taken {
                return Err(broken());
            }
            written.await.map_err(|_| broken())
        }
    }

    /// Waits until all queued lines are written.
    pub(super) async fn drain(&self) -> io::Result<()> {
        let room = self.room(0).await?;
        self.put(String::new(), room).await
    }

    /// Whether a write has failed, so that no further write is tried.
    pub(super) fn is_broken(&self) -> bool {
        self.shared.is_broken.load(Relaxed)
    }

    /// Why a write has failed. Returns the error once.
    pub(super) fn problem(&self) -> Option<io::Error> {
        self.shared.problem.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The error for each line that is not written. [`Lines::problem`] returns the cause once.
pub(super) fn broken() -> io::Error {
    io::Error::other("the results cannot be written")
}

/// The loop of the results thread: writes lines as they arrive, until the last sender is dropped.
fn write_all(queue: &mpsc::Receiver<Line>, shared: &Shared) {
    while let Ok(first) = queue.recv() {
        let mut text = first.text;
        let mut rooms = vec![(first.written, first._room)];
        while text.len() < AT_ONCE
            && let Ok(next) = queue.try_recv()
        {
            text += &next.text;
            rooms.push((next.written, next._room));
        }
        if shared.is_broken.load(Relaxed) {
            continue;
        }
        let written = shared.out.lock().unwrap_or_else(PoisonError::into_inner).write(text.as_bytes());
        match written {
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
    use super::*;

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
